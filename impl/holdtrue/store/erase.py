"""Erasure: what is left of a forgotten memory after its rows are gone, and when that goes.

Owns: the `erasures` outbox and the names of files that may still hold what was forgotten. Deleting rows with
secure_delete zeroes them in the database's newest pages; the WAL still holds older ones until it is truncated. Faults it
survives: a reader of an older state, which keeps the WAL from being so; a kill after the commit; a process without
sqlite-vec, which cannot remove a vector. What could not be finished at once stands in the outbox, and the next writer
that finds it there finishes it.
"""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from holdtrue.clock import now_us
from holdtrue.enforces import enforces
from holdtrue.store import checkpoint, vectors
from holdtrue.store.connection import StoreConnection
from holdtrue.store.statements import one, run

BACKUPS = "backups"
KEPT_ASIDE = "kept-aside"
WAITS_FOR_READER = "a reader of an older state; the next writer after it finishes the erasure"
WAITS_FOR_VECTORS = "a process that can load sqlite-vec: the vector is left until one writes"


def enlist(connection: apsw.Connection, id_: str) -> None:
    """Note that bytes of this memory may be left, in the transaction that removes its rows."""
    run(connection, "INSERT OR REPLACE INTO erasures VALUES(?, ?)", (id_, now_us()))


def due(connection: apsw.Connection) -> bool:
    return one(connection, "SELECT 1 FROM erasures LIMIT 1") is not None


@enforces("INV-015")
def finish(connection: StoreConnection, mover: StoreConnection) -> str:
    """Move the WAL into the database and truncate it. Returns what the erasure waits for, "" when it is finished.

    Must run outside a transaction, by the thread whose turn it is. Does not wait: a busy handler that would is the
    caller's to silence.
    """
    if not vectors.settle(connection):
        return WAITS_FOR_VECTORS  # a process with sqlite-vec removes them, then comes here again
    if not checkpoint.empty(connection, mover):
        return WAITS_FOR_READER
    run(connection, "DELETE FROM erasures")
    return ""


def copies(connection: apsw.Connection, since_us: int) -> list[tuple[str, int]]:
    """The files that were made of the store at or after a moment, as far as it was told of them: path, microseconds.

    One that is being made now stands there with a time in the future.
    """
    rows = run(connection, "SELECT path, at_us FROM copies WHERE at_us >= ? ORDER BY at_us", (since_us,))
    return [(str(path), int(at_us)) for path, at_us in rows]


def remains(folder: Path, recorded: list[tuple[str, int]], since_us: int) -> tuple[str, ...]:
    """The files that may hold a memory stored at `since_us` and that no store can reach into.

    Those of the recorded copies that are there or being made, and what lies in the folder's own `backups` and
    `kept-aside`.
    """
    now = now_us()
    found = dict.fromkeys(path for path, at_us in recorded if at_us > now or os.path.lexists(path))
    for place in (BACKUPS, KEPT_ASIDE):
        found |= dict.fromkeys(str(path) for path in sorted(_files(folder / place)) if _changed_us(path) >= since_us)
    return tuple(found)


def _files(place: Path) -> list[Path]:
    try:
        return [path for path in place.rglob("*") if path.is_file()]
    except OSError:
        return []


def _changed_us(path: Path) -> int:
    """When the file was last written; for ever where that cannot be told, so that it is named."""
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 2**63
