"""Days in time zones: a memory of late in the evening belongs to that day where it was made, for every way of asking.

Public reports of other memory servers (doobidoo/mcp-memory-service 1122 and 1157, mem0ai/mem0 4402): the day was counted
in UTC in one place and in local time in another, so a search and a deletion of one day met different memories.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from zoneinfo import ZoneInfo

import pytest

from impl.tests.serverprocess import environment, holdtrue

# Run in a process of its own, because a time zone counts from a process' start. Adds the rows, asks for both sides of
# midnight by search and by list, forgets what the first search found by its ids, and tells all answers.
ASK = """
import datetime as dt, json, sys, time
from holdtrue import Memory
plan = json.loads(sys.argv[2])
told = {"zone": time.tzname, "sides": []}
with Memory(sys.argv[1]) as memory:
    for text, at in plan["rows"]:
        if isinstance(at, int):
            real, time.time_ns = time.time_ns, lambda: at
            memory.add(text)
            time.time_ns = real
        else:
            memory.add(text, at=at)
    for since, until in plan["sides"]:
        found = sorted(hit.text for hit in memory.search("fact", limit=50, since=since, until=until))
        listed = sorted(record.text for record in memory.list(limit=50, since=since, until=until))
        told["sides"].append([found, listed])
    since, until = plan["sides"][0]
    for hit in memory.search("fact", limit=50, since=since, until=until):
        memory.forget(hit.id)
    told["left"] = [record.text for record in memory.list(limit=50, since=since, until=until)]
    told["rest"] = sorted(record.text for record in memory.list(limit=50))
print(json.dumps(told))
"""

ZONES = ["Asia/Tokyo", "America/Los_Angeles", "UTC"]
# A plain day, and the two days on which the clocks of Los Angeles change.
DAYS = [dt.date(2026, 3, 4), dt.date(2026, 3, 8), dt.date(2026, 11, 1)]


def forms(moment: dt.datetime) -> list[str]:
    """One moment as it may be given: without an offset, in UTC, with an offset of somewhere else, as a bare day."""
    naive = moment.replace(tzinfo=None)
    texts = [
        naive.isoformat(),
        moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z"),
        moment.astimezone(ZoneInfo("Asia/Tokyo")).isoformat(),
    ]
    return [*texts, naive.date().isoformat()] if naive.time() == dt.time(0) else texts


@pytest.mark.parametrize("day", DAYS, ids=str)
@pytest.mark.parametrize("zone", ZONES)
def test_both_sides_of_midnight_are_told_apart_alike_by_search_list_and_forget(
    run_python: Callable[..., CompletedProcess[str]], store: Path, zone: str, day: dt.date
) -> None:
    local = ZoneInfo(zone)
    before, midnight, after = (
        dt.datetime.combine(each, at, tzinfo=local)
        for each, at in (
            (day, dt.time(23, 30)),
            (day + dt.timedelta(days=1), dt.time(0)),
            (day + dt.timedelta(days=1), dt.time(0, 30)),
        )
    )
    evening = [[f"fact of the evening, form {number}", text] for number, text in enumerate(forms(before))]
    evening.append(["fact of the evening, told by the clock", int(before.timestamp()) * 10**9])
    night = [[f"fact of the night, form {number}", text] for number, text in enumerate(forms(after))]
    night.append(["fact of the night, on its first moment", midnight.isoformat()])
    sides: list[tuple[str | None, str | None]] = []
    for text in forms(midnight):
        sides += [(None, text), (text, None)]
    first, last = forms(dt.datetime.combine(day, dt.time(0), tzinfo=local)), forms(after + dt.timedelta(hours=1))
    sides += [(since, until) for since in first for until in forms(midnight)]
    sides += [(since, until) for since in forms(midnight) for until in last]
    done = run_python(ASK, store, json.dumps({"rows": evening + night, "sides": sides}), TZ=zone)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["zone"][0] == "UTC") == (zone == "UTC"), "the process did not take the zone, so it tested nothing"
    texts = {"evening": sorted(text for text, _ in evening), "night": sorted(text for text, _ in night)}
    for (since, until), (found, listed) in zip(sides, told["sides"], strict=True):
        wanted = texts["evening"] if until in forms(midnight) else texts["night"]
        assert found == wanted, f"search since {since} until {until}"
        assert listed == wanted, f"list since {since} until {until}"
    assert told["left"] == []
    assert told["rest"] == texts["night"]


def test_the_command_line_takes_and_shows_local_days(store: Path, tmp_path: Path) -> None:
    def there(zone: str) -> dict[str, str]:
        return environment(TZ=zone, HOLDTRUE_HOME=str(store), HOLDTRUE_CONFIG=str(tmp_path / "none.json"))

    home = there("America/Los_Angeles")
    assert holdtrue("add", "fact of the evening", "--at", "2026-03-04T23:30", env=home).returncode == 0
    day = ("--since", "2026-03-04", "--until", "2026-03-05")
    assert holdtrue("list", *day, env=home).stdout.startswith(b"2026-03-04 23:30")
    assert len(json.loads(holdtrue("search", "fact", "--json", *day, env=home).stdout)["hits"]) == 1
    assert json.loads(holdtrue("list", "--json", "--since", "2026-03-05", env=home).stdout)["total"] == 0
    # Somebody elsewhere who reads the same store sees the same moment by their own clock and on their own day.
    assert holdtrue("list", "--since", "2026-03-05", env=there("UTC")).stdout.startswith(b"2026-03-05 07:30")
