"""Time: UTC microseconds for what is stored, the monotonic clock for waiting.

A deadline is compared as `now >= since + period`, never as `now - since >= period`: the subtraction loses one unit in
the last place for some clock values, and a timer that is due then does not fire.
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass

from holdtrue.errors import InvalidInput
from holdtrue.masking import mask

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Deadline:
    """A point on the monotonic clock: `since_s + period_s`."""

    since_s: float
    period_s: float

    @classmethod
    def after(cls, period_s: float) -> Deadline:
        return cls(time.monotonic(), period_s)

    def passed(self) -> bool:
        return time.monotonic() >= self.since_s + self.period_s

    def remaining_s(self) -> float:
        return max(0.0, self.since_s + self.period_s - time.monotonic())


def now_us() -> int:
    """Microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


def to_us(value: object, *, name: str) -> int:
    """Microseconds of a datetime, an ISO 8601 string or an int of microseconds; a naive time is local.

    Raises `InvalidInput` for anything else.
    """
    if isinstance(value, bool):
        raise InvalidInput(f"{name} must be a time, not a bool.", hint=_TIME_HINT)
    if isinstance(value, int):
        return _within_range(value, name)
    if isinstance(value, str):
        try:
            parsed = dt.datetime.fromisoformat(value.strip())
        except ValueError:  # it repeats the whole value
            raise InvalidInput(f"{name} is not an ISO 8601 time: {mask(value)[:80]!r}.", hint=_TIME_HINT) from None
    elif isinstance(value, dt.datetime):
        parsed = value
    elif isinstance(value, dt.date):
        parsed = dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 - a naive day is a local day
    else:
        raise InvalidInput(f"{name} must be a time, not {type(value).__name__}.", hint=_TIME_HINT)
    try:
        moment = (parsed.astimezone(dt.UTC) - _EPOCH) // _MICROSECOND
    except (OverflowError, ValueError, OSError) as error:
        raise InvalidInput(f"{name} lies outside the years 1 to 9999.", hint=_TIME_HINT) from error
    return _within_range(moment, name)


def _within_range(moment: int, name: str) -> int:
    if not MIN_US <= moment <= MAX_US:
        raise InvalidInput(f"{name} lies outside the years 1 to 9999.", hint=_TIME_HINT)
    return moment


def clamped(moment_us: int) -> int:
    """The nearest moment that a time may have: what was stored before a limit held must stay readable."""
    return min(max(moment_us, MIN_US), MAX_US)


def to_iso(moment_us: int) -> str:
    """ISO 8601 in UTC with microseconds and a final Z."""
    return (_EPOCH + moment_us * _MICROSECOND).isoformat(timespec="microseconds").replace("+00:00", "Z")


_TIME_HINT = "Use ISO 8601, for example 2026-03-04T10:00:00+01:00; without an offset it is local time."
# A day within what a datetime holds, so that every time can be told with every offset.
MIN_US = (dt.datetime(1, 1, 2, tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
MAX_US = (dt.datetime(9999, 12, 30, tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
