"""INV-011: while a process has the store open, nothing but SQLite opens, copies, moves or removes the database's files.

Closing any descriptor of a file drops every POSIX lock that the process holds on it, so a peer would take itself for the
last one and delete a WAL that is in use. A scan of the source is in `impl/tests/test_statements.py`.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from properties.kit import life_workers
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 60.0
# SQLite's shared lock: 510 bytes from here. https://www.sqlite.org/lockingv3.html#how_to_corrupt, os.h: SHARED_FIRST
_SHARED_FIRST, _SHARED_SIZE = 0x40000000 + 2, 510


def holder_of_the_shared_lock(database: Path) -> int:
    """The process that holds SQLite's shared lock on the file, as the kernel sees it; 0 when nobody does."""
    import fcntl

    wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
    with database.open("r+b") as file:
        kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    return 0 if kind == fcntl.F_UNLCK else int(pid)


def test_no_call_opens_a_file_of_the_database_beside_sqlite(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    result = folder / "result"
    with Crew() as crew:
        crew.start(life_workers.use_under_audit, folder / "store", result)
        assert crew.wait(LIMIT_S) == [0]
    seen = json.loads(result.read_text())
    assert seen == [], f"files of the database were touched outside SQLite: {seen[:5]}"


def test_a_process_keeps_its_locks_on_the_database_through_every_call(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, result = folder / "store", folder / "result"
    asked, done = SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        process = crew.start(life_workers.use_step_by_step, store, asked, done, result)
        until = time.monotonic() + LIMIT_S
        while not result.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert holder_of_the_shared_lock(store / "memory.db") == process.pid, "the lock could not be seen at all"
        for call in json.loads(result.read_text()):
            done.clear()
            asked.set()
            assert done.wait(LIMIT_S), f"{call} did not end"
            holder = holder_of_the_shared_lock(store / "memory.db")
            assert holder == process.pid, f"{call} dropped the process's lock on the database"
        asked.set()
        assert crew.wait(LIMIT_S) == [0]
