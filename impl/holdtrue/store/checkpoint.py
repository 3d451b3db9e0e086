"""Checkpoints: how what stands in the WAL comes into the database, and how the WAL is kept small.

Owns: every checkpoint of the store but the last one, which SQLite makes itself when the last writer closes and nobody
else is there. SQLite's automatic checkpoints are off: builds from 3.7.0 to 3.51.2 can lose committed frames when a
checkpoint meets a writer that starts the WAL again (https://www.sqlite.org/wal.html#walresetbug). Faults it survives:
such a build; a reader that pins an older state, for which nobody waits here; a foreign program that holds the write lock.
"""

from __future__ import annotations

import re
from functools import lru_cache

import apsw

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.store.connection import StoreConnection
from holdtrue.store.statements import run

CHECKPOINT_BYTES = 8 * 1024 * 1024  # from here on the WAL is moved after a commit
WAL_LIMIT_BYTES = 64 * 1024 * 1024
# What one transaction may add at most: a batch of 1,000,000 characters, or 64 memories of 50,000.
TRANSACTION_BYTES = 24 * 1024 * 1024
AGAIN_BYTES = 4 * 1024 * 1024  # after a try that a reader held up, the next is made when this much has come in


def full_bytes(limit_bytes: int) -> int | None:
    """The size from which on the WAL takes no further transaction; None without a limit."""
    if limit_bytes <= 0:
        return None
    return max(limit_bytes - TRANSACTION_BYTES, limit_bytes // 2)


@lru_cache(maxsize=4)
def wal_reset_defect(version: str | None = None) -> bool:
    """Whether this SQLite (or that of the version, as "3.47.1") has the WAL-reset defect.

    Present from 3.7.0 on; fixed in 3.51.3 and, on older branches, in 3.50.7 and 3.44.6.
    """
    text = version or apsw.sqlite_lib_version()
    major, minor, patch = (int(part) for part in (*re.findall(r"\d+", text), 0, 0)[:3])
    found = (major, minor, patch)
    fixed = {44: 6, 50: 7}
    return (3, 7, 0) <= found < (3, 51, 3) and not (major == 3 and minor in fixed and patch >= fixed[minor])


@enforces("INV-010")
def move(writer: StoreConnection, mover: StoreConnection) -> bool:
    """Move the WAL's frames into the database, as far as no reader needs the older pages. True when all were moved.

    `writer` holds SQLite's write lock meanwhile, so nobody can start the WAL again under `mover`. Waits for nobody;
    where another program holds the lock, nothing is done.
    """
    try:
        run(writer, "BEGIN IMMEDIATE")
    except (apsw.BusyError, apsw.LockedError):
        return False
    try:
        failpoints.hit("checkpoint.locked")
        frames, moved = mover.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    finally:
        writer.roll_back()
    return bool(frames == moved)


def empty(writer: StoreConnection, mover: StoreConnection) -> bool:
    """Move the WAL's frames and truncate the file. False where a reader of an older state, or anyone else, prevents it.

    Must be called in the turn. The truncation takes the write lock itself; everything has been moved before it, so what
    is left to do does not touch a frame that another could write.
    """
    if not move(writer, mover):
        return False
    try:
        failpoints.hit("checkpoint.moved")
        mover.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    writer.wal_pages = 0
    return True
