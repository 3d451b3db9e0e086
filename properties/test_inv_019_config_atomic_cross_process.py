"""INV-019: the config file is a complete object at every instant, and no writer loses another's key."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdtrue.configfile import ConfigFile
from holdtrue.errors import ConfigError
from properties.kit import checkers, config_workers, ledger
from properties.kit.ledger import Call
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 40.0
THREADS = 2
# What somebody wrote by hand: no writer may change a byte of it.
KEPT = '{"a" :  [1, 2.50],\n "b": "\\u00fc"}'
BEFORE = f'{{"kept": {KEPT}, "tier": "default"}}'
POINTS = [
    "config.locked",
    "config.read",
    "files.temporary_made",
    "files.before_replace",
    "files.replaced",
]


@dataclass(frozen=True)
class Plan:
    """`writers` processes of two threads make `changes` each a thread; the first is killed at its `nth` hit of a point."""

    writers: int
    changes: int
    point: str
    nth: int


plans = st.builds(
    Plan,
    writers=st.integers(2, 3),
    changes=st.integers(3, 6),
    point=st.sampled_from(POINTS),
    nth=st.integers(1, 4),
)


def steps(writer: int, thread: int, count: int) -> list[config_workers.Step]:
    """Changes of keys that belong to this thread alone; each third key is changed again, each fifth taken out."""
    made: list[config_workers.Step] = []
    for number in range(count):
        name = f"x{writer}-{thread}-{number}"
        made.append({"action": "set", "name": name, "value": [number, "first"]})
        if number % 3 == 2:
            made.append({"action": "set", "name": name, "value": {"again": number}})
        if number % 5 == 4:
            made.append({"action": "unset", "name": name})
    return made


@given(plan=plans)
@example(plan=Plan(writers=4, changes=10, point="files.before_replace", nth=3))
def test_writers_lose_nothing_of_each_other_and_readers_find_a_whole_object_though_one_is_killed(
    fresh: Callable[[], Path], plan: Plan
) -> None:
    folder = fresh()
    path = folder / "config" / "config.json"
    path.parent.mkdir()
    path.write_text(BEFORE)
    points = Points(f"{plan.point}=kill@{plan.nth}", folder / "points")
    ready, stop = SPAWN.Event(), SPAWN.Event()
    with Crew() as readers, Crew() as crew:
        readers.start(config_workers.watch, path, folder / "reads.json", ready, stop)
        assert ready.wait(LIMIT_S)
        for writer in range(plan.writers):
            work = [steps(writer, thread, plan.changes) for thread in range(THREADS)]
            variables = points.variables() if writer == 0 else {}
            crew.start(config_workers.change, path, folder / f"{writer}.ledger", work, variables=variables)
        codes = crew.wait(LIMIT_S)
        assert codes == [-signal.SIGKILL] + [0] * (plan.writers - 1), f"writers ended with {codes}: {plan}"
        crew.start(config_workers.change, path, folder / "successor.ledger", [steps(9, 0, 1)])
        assert crew.wait(LIMIT_S)[-1] == 0
        stop.set()
        assert readers.wait(LIMIT_S) == [0]
    points.assert_fired()
    calls = ledger.read(folder.glob("*.ledger"))
    assert any(call.outcome == "unknown" for call in calls), "the kill cut no call off, so it tested nothing"
    written = path.read_text(encoding="utf-8")
    problems = [config_workers.not_whole(written.encode())] if config_workers.not_whole(written.encode()) else []
    if not problems:
        problems += config_workers.keys_survive(calls, json.loads(BEFORE), json.loads(written))
        problems += [] if KEPT in written else ["what was written by hand is not as it was"]
    problems += seen_by_readers(folder / "reads.json")
    left = sorted(each.name for each in path.parent.iterdir())
    problems += [f"{name} was left" for name in left if name not in ("config.json", ".config.json.lock")]
    assert not problems, checkers.report(problems, repr(plan))


def test_processes_that_replace_one_file_without_taking_turns_never_mix_what_they_write(
    fresh: Callable[[], Path],
) -> None:
    lengths = [20_000, 0, 300] * 10
    folder = fresh()
    path = folder / "config.json"
    path.write_text("{}")
    processes = 4
    barrier = SPAWN.Barrier(processes)
    ready, stop = SPAWN.Event(), SPAWN.Event()
    with Crew() as readers, Crew() as crew:
        readers.start(config_workers.watch, path, folder / "reads.json", ready, stop)
        assert ready.wait(LIMIT_S)
        for writer in range(processes):
            mine = lengths[writer:] + lengths[:writer]  # at any moment they write different lengths
            crew.start(config_workers.replace, path, folder / f"{writer}.ledger", writer, mine, barrier)
        assert crew.wait(LIMIT_S) == [0] * processes
        stop.set()
        assert readers.wait(LIMIT_S) == [0]
    calls = ledger.read(folder.glob("*.ledger"))
    assert len(calls) == processes * len(lengths)
    problems = [f"{call.process} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
    problems += [config_workers.not_whole(path.read_bytes())] if config_workers.not_whole(path.read_bytes()) else []
    problems += seen_by_readers(folder / "reads.json")
    problems += [f"{each.name} was left" for each in folder.iterdir() if each.suffix == ".tmp"]
    assert not problems, checkers.report(problems, f"{processes} processes, {len(lengths)} times each")


@given(data=st.binary(max_size=40) | st.text(alphabet='{}[]":,0x \n', max_size=12).map(str.encode))
@example(data=b"")
@example(data=BEFORE.encode()[:-1])
@example(data=BEFORE.encode() + b"}")
@example(data=b'{"tier": "base", // mine\n"api_key": "x"}')
@example(data=b"[]")
def test_a_file_that_is_no_object_is_never_replaced_moved_or_cleared_away(
    fresh: Callable[[], Path], data: bytes
) -> None:
    path = fresh() / "config.json"
    path.write_bytes(data)
    file = ConfigFile(path)
    answers = []
    for attempt in (file.read, lambda: file.set("x", 1), lambda: file.unset("tier")):
        try:
            answers.append(str(attempt()))
        except ConfigError as error:
            answers.append(error.code)
    if config_workers.not_whole(data):
        assert answers == ["CONFIG_INVALID"] * 3, f"{data!r} was answered with {answers}"
    if "CONFIG_INVALID" in answers:
        assert path.read_bytes() == data, f"{data!r} became {path.read_bytes()!r}"
        assert [each.name for each in path.parent.iterdir()] == ["config.json"], f"{data!r} was given company"
    else:
        assert json.loads(path.read_bytes())["x"] == 1


def seen_by_readers(report: Path) -> list[str]:
    told = json.loads(report.read_text())
    assert told["reads"] > 20, "the reader hardly read, so it saw nothing"
    return list(told["problems"])


# -- the judges, tried on what they must reject ------------------------------------------------------------------------


def call(number: int, action: str, outcome: Any, **arguments: Any) -> Call:
    return Call("w/1", number, action, arguments, outcome, number, number, None)


GOOD = [call(1, "set", "ok", name="x", value=1), call(2, "set", "unknown", name="x", value=2)]


@pytest.mark.parametrize(
    ("calls", "after", "told"),
    [
        (GOOD, {"old": 0}, "x is '(absent)' and should be 1 or 2"),
        (GOOD, {"old": 0, "x": 3}, "x is 3"),
        (GOOD, {"x": 1}, "old is '(absent)' and should be 0"),
        (GOOD, {"old": 0, "x": 1, "y": 1}, "y is 1 and should be '(absent)'"),
        ([*GOOD, call(3, "unset", "ok", name="x")], {"old": 0, "x": 2}, "x is 2 and should be '(absent)'"),
        ([*GOOD, call(3, "set", "refused", name="y", value=1)], {"old": 0, "x": 1}, "refused"),
    ],
)
def test_the_judge_of_keys_rejects_a_lost_a_wrong_and_an_unasked_one(
    calls: list[Call], after: dict[str, Any], told: str
) -> None:
    assert config_workers.keys_survive(GOOD, {"old": 0}, {"old": 0, "x": 1}) == []
    assert config_workers.keys_survive(GOOD, {"old": 0}, {"old": 0, "x": 2}) == []
    (problem,) = config_workers.keys_survive(calls, {"old": 0}, after)
    assert told in problem


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1}{"a": 1}', b"[]", b'{"length": 2, "fill": "x"}', b"\0\0"])
def test_the_judge_of_bytes_rejects_what_is_cut_doubled_mixed_or_no_object(data: bytes) -> None:
    assert config_workers.not_whole(data)
    assert not config_workers.not_whole(b'{"length": 1, "fill": "x"}')
