"""Erasure: what is left of a forgotten memory after its rows are gone, and when that goes.

Owns: the `erasures` outbox and the names of files that may still hold what was forgotten. Deleting rows with
secure_delete zeroes them in the database's newest pages; the WAL still holds older ones until it is truncated. Faults it
survives: a reader of an older state, which keeps the WAL from being so; a kill after the commit; a process without
sqlite-vec, which cannot remove a vector. What could not be finished at once stands in the outbox, and the next writer
that finds it there finishes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import apsw

from holdtrue.clock import now_us
from holdtrue.enforces import enforces
from holdtrue.store import checkpoint, draft, vectors
from holdtrue.store.connection import StoreConnection
from holdtrue.store.copies import Copy
from holdtrue.store.statements import one, run

BACKUPS = "backups"
KEPT_ASIDE = "kept-aside"
WAITS_FOR_READER = "a reader of an older state; the next writer after it finishes the erasure"
WAITS_FOR_ROOM = "room on the disk; the next write after there is some finishes it"
WAITS_FOR_DISK = "the disk, which failed; the next write tries again"
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


def waits(connection: apsw.Connection) -> str:
    """What the erasures that are enlisted wait for, as a reader sees it; "" when none is."""
    if not due(connection):
        return ""
    return WAITS_FOR_VECTORS if one(connection, "SELECT 1 FROM stale_vectors LIMIT 1") else WAITS_FOR_READER


def sweep(folder: Path, recorded: Sequence[Copy]) -> None:
    """Remove what killed runs have left of the store, in its folder and beside the recorded copies.

    A draft that is worked on is left alone: its lock is held.
    """
    for place in dict.fromkeys([folder, folder / BACKUPS, *(Path(copy.path).parent for copy in recorded)]):
        for stem in draft.STEMS:
            with contextlib.suppress(OSError):
                draft.sweep(place, stem)


def remains(folder: Path, recorded: Sequence[Copy], seq: int) -> tuple[str, ...]:
    """The files that may hold the memory with this number and that no store can reach into.

    Those of the recorded copies that are there or being made, the drafts beside each and in the store's folder (worked
    on, or left by a kill and not to be removed), what lies in its `backups` and is not recorded as older, and what was kept
    aside.
    """
    # Before the looks at the paths: a draft that gets its name in between is seen under the one or the other.
    places = dict.fromkeys(Path(copy.path).parent for copy in recorded)
    beside = {place: _drafts(place) for place in [*places, folder, folder / BACKUPS]}
    found: dict[str, None] = {}
    older = set()
    for copy in recorded:
        if copy.holds < seq:
            older.add(copy.path)
        # While a copy is made its draft is there; in a folder that cannot be listed it may be.
        elif (copy.making and beside[Path(copy.path).parent] != []) or not _is_gone(copy.path):
            found[copy.path] = None
    for drafts in beside.values():
        found |= dict.fromkeys(map(str, drafts or ()))
    for place in (BACKUPS, KEPT_ASIDE):
        found |= dict.fromkeys(str(path) for path in sorted(_files(folder / place)) if str(path) not in older)
    return tuple(found)


def _drafts(place: Path) -> list[Path] | None:
    """The drafts in a folder; None where that cannot be told."""
    try:
        return draft.drafts(place)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None


def _is_gone(path: str) -> bool:
    """Whether there is certainly nothing at the path."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _files(place: Path) -> list[Path]:
    try:
        return [path for path in place.rglob("*") if path.is_file() and not draft.is_lock(path.name)]
    except OSError:
        return []
