"""INV-010: the WAL is moved into the database only while SQLite's write lock is held, and never automatically.

Builds of SQLite from 3.7.0 to 3.51.2 lose committed frames when a checkpoint meets a writer that starts the WAL again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdtrue.store.checkpoint import wal_reset_defect
from properties.kit import checkers, ledger, life_workers, raw
from properties.kit.points import Points
from properties.kit.processes import Crew

LIMIT_S = 60.0


def locks(connection: apsw.Connection) -> bool:
    """Whether the connection gets SQLite's write lock at once."""
    try:
        connection.execute("BEGIN IMMEDIATE").fetchall()
    except apsw.BusyError:
        return False
    connection.execute("ROLLBACK").fetchall()
    return True


def test_while_the_wal_is_moved_nobody_else_gets_the_write_lock(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store = folder / "store"
    points = Points("checkpoint.locked=delay(1.0)@1", folder / "points")
    with Crew() as crew:
        crew.start(life_workers.add_and_forget, store, folder / "writer.ledger", 3, variables=points.variables())
        until = time.monotonic() + LIMIT_S
        while "checkpoint.locked" not in points.noted("fired") and time.monotonic() < until:
            time.sleep(0.01)
        points.assert_fired()
        other = apsw.Connection(str(store / "memory.db"))
        assert not locks(other), "another program got the write lock while the WAL was being moved"
        other.close()
        assert crew.wait(LIMIT_S) == [0]


@given(writers=st.integers(3, 4), forgets=st.integers(6, 12))
@example(writers=4, forgets=9)
def test_checkpoints_among_writers_lose_nothing(fresh: Callable[[], Path], writers: int, forgets: int) -> None:
    folder = fresh()
    store = folder / "store"
    with Crew() as crew:
        for number in range(writers):
            path = folder / f"writer-{number}.ledger"
            crew.start(life_workers.add_and_forget, store, path, 3 * forgets)
        assert crew.wait(LIMIT_S) == [0] * writers
    calls = ledger.read(folder.glob("*.ledger"))
    problems = checkers.adds_survive(calls, raw.read(store))
    problems += [f"{call.process} was refused: {call.answer}" for call in calls if call.outcome != "ok"]
    assert not problems, checkers.report(problems, f"{writers} writers, {forgets} forgets each")


def test_no_connection_moves_the_wal_on_its_own(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    result = folder / "result"
    with Crew() as crew:
        crew.start(life_workers.use_from_threads, folder / "store", result, 2)
        assert crew.wait(LIMIT_S) == [0]
    settings = json.loads(result.read_text())["settings"]
    assert settings
    automatic = [one for one in settings if "wal_autocheckpoint=0" not in one["pragmas"]]
    assert not automatic, f"{len(automatic)} of {len(settings)} connections move the WAL by themselves: {automatic[0]}"


@pytest.mark.parametrize(
    ("version", "defect"),
    [
        ("3.6.23", False),
        ("3.7.0", True),
        ("3.40.1", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.0", True),
        ("3.47.1", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.53.0", False),
        ("4.0.0", False),
    ],
)
def test_the_builds_with_the_defect_are_known(version: str, defect: bool) -> None:
    assert wal_reset_defect(version) is defect
