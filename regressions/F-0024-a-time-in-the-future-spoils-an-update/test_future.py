"""F-0024: when a memory was changed is told by the clock, whatever time the memory is about."""

from __future__ import annotations

import datetime as dt

from holdtrue import HoldTrueError, Memory


def test_an_update_is_dated_when_it_is_made(memory: Memory) -> None:
    record = memory.add("the contract ends", at="2099-01-01T00:00:00Z")
    updated = memory.update(record.id, "the contract was prolonged")
    assert updated.updated_at < dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    assert memory.search("contract ends", as_of="2099-01-01T00:00:00Z")[0].text == "the contract ends"


def test_a_time_at_the_end_of_time_is_refused_in_every_form(memory: Memory) -> None:
    told = []
    for at in ("9999-12-31T23:59:59.999999+00:00", dt.datetime.max.replace(tzinfo=dt.UTC), dt.date(9999, 12, 31)):
        try:
            memory.add("the end", at=at)
            told.append("stored")
        except HoldTrueError as error:
            told.append(error.code)
    assert told == ["INVALID_INPUT"] * 3
