"""F-0007: a group that holds the write lock keeps it until each item has its answer."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import pytest

from holdtrue import Memory
from holdtrue.errors import HoldTrueError
from holdtrue.store.connection import StoreConnection
from properties.kit import raw


def test_a_program_that_slips_in_between_a_refused_write_and_its_neighbours_is_waited_for(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def roll_back_and_let_slip_in(connection: StoreConnection) -> None:
        roll_back(connection)
        if not slipping:
            # The other program gets the lock in this instant and keeps it for a moment.
            slipping.append(apsw.Connection(str(store / "memory.db")))
            slipping[0].execute("BEGIN IMMEDIATE").fetchall()
            threading.Timer(0.3, lambda: slipping[0].execute("ROLLBACK").fetchall()).start()

    roll_back = StoreConnection.roll_back
    slipping: list[apsw.Connection] = []
    with Memory(store) as memory:
        taken = memory.add("taken", key="k")
        monkeypatch.setattr(StoreConnection, "roll_back", roll_back_and_let_slip_in)
        told = ""
        try:
            memory.add("refused", key="k")
        except HoldTrueError as error:
            told = error.code
        assert told == "KEY_CONFLICT", "a write that was under way was told something else than its own refusal"
        assert memory.get(taken.id).text == "taken"
        memory.add("comes after")
    assert sorted(raw.read(store).texts()) == ["comes after", "taken"]
