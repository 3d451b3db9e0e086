"""Time: what a moment may be given as, and when a deadline has passed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdtrue import clock
from holdtrue.clock import Deadline, to_iso, to_us
from holdtrue.errors import InvalidInput

NOON_US = 1_772_625_600_000_000  # 2026-03-04T12:00:00Z


@pytest.mark.parametrize("since_s", [588.062, 453.569018625, 0.0, 1e9 + 0.1])
def test_a_deadline_has_passed_at_the_very_moment_it_ends(monkeypatch: pytest.MonkeyPatch, since_s: float) -> None:
    now_s = since_s
    monkeypatch.setattr(clock.time, "monotonic", lambda: now_s)
    deadline = Deadline.after(600.0)
    assert not deadline.passed()
    assert deadline.remaining_s() == pytest.approx(600.0)
    now_s = since_s + 600.0
    assert deadline.passed()
    assert deadline.remaining_s() == 0.0
    now_s = since_s + 601.0
    assert deadline.passed()
    assert deadline.remaining_s() == 0.0


def test_these_clock_values_are_ones_where_a_subtraction_loses_the_end() -> None:
    assert 588.062 + 600.0 - 588.062 < 600.0
    assert 453.569018625 + 600.0 - 453.569018625 < 600.0


@settings(max_examples=60)
@given(st.floats(0, 1e8), st.floats(0, 1e5))
def test_a_deadline_is_passed_exactly_when_nothing_remains(since_s: float, period_s: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock.time, "monotonic", lambda: since_s + period_s)
        deadline = Deadline(since_s, period_s)
        assert deadline.passed()
        assert deadline.remaining_s() == 0.0


@pytest.mark.parametrize(
    "value",
    [
        "2026-03-04T12:00:00Z",
        "2026-03-04T12:00:00+00:00",
        "2026-03-04T21:00:00+09:00",
        " 2026-03-04 04:00:00-08:00 ",
        "20260304T120000Z",
        NOON_US,
        dt.datetime(2026, 3, 4, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 3, 4, 17, 30, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
    ],
)
def test_a_moment_may_be_given_in_each_of_these_forms(value: object) -> None:
    assert to_us(value, name="at") == NOON_US


@pytest.mark.parametrize(
    "value",
    [
        *("", "yesterday", "2026-13-01", "2026-03-04T25:00:00", "12:00", "\ud800", "9" * 5_000),
        *(True, False, 1.5, b"2026-03-04", [], {}, dt.timedelta(1), dt.time(12), None),
    ],
)
def test_what_is_no_moment_is_refused_and_the_message_says_how_to_write_one(value: object) -> None:
    with pytest.raises(InvalidInput, match="since") as refusal:
        to_us(value, name="since")
    assert "ISO 8601" in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    "value",
    [10**30, -(10**30), 2**63, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"],
)
def test_a_moment_outside_the_calendar_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="years 1 to 9999"):
        to_us(value, name="at")


@settings(max_examples=60)
@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_a_moment_comes_back_to_the_microsecond(moment: dt.datetime) -> None:
    us = to_us(moment, name="at")
    assert to_us(to_iso(us), name="at") == us
    assert dt.datetime.fromisoformat(to_iso(us)) == moment
    assert to_iso(us).endswith("Z")


LOCAL = """
import datetime as dt, time
time.tzset()
from holdtrue.clock import to_iso, to_us
for value in ("2026-03-04T23:30:00", dt.datetime(2026, 3, 4, 23, 30), dt.date(2026, 3, 4), "2026-03-04T23:30:00Z"):
    print(to_iso(to_us(value, name="at"))[:16])
"""


@pytest.mark.parametrize(
    ("zone", "evening", "midnight"),
    [
        ("Asia/Tokyo", "2026-03-04T14:30", "2026-03-03T15:00"),
        ("America/Los_Angeles", "2026-03-05T07:30", "2026-03-04T08:00"),
        ("UTC", "2026-03-04T23:30", "2026-03-04T00:00"),
    ],
)
def test_a_naive_moment_is_local_time(
    run_python: Callable[..., CompletedProcess[str]], zone: str, evening: str, midnight: str
) -> None:
    done = run_python(LOCAL, TZ=zone)
    assert done.stderr == ""
    assert done.stdout.split() == [evening, evening, midnight, "2026-03-04T23:30"]
