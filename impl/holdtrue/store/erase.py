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
from urllib.parse import quote, unquote_to_bytes

import apsw

from holdtrue.clock import now_us
from holdtrue.enforces import enforces
from holdtrue.store import checkpoint, draft, vectors
from holdtrue.store.connection import StoreConnection
from holdtrue.store.statements import one, run

BACKUPS = "backups"
KEPT_ASIDE = "kept-aside"
_URI = "file:"
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


def waits(connection: apsw.Connection) -> str:
    """What the erasures that are enlisted wait for, as a reader sees it; "" when none is."""
    if not due(connection):
        return ""
    return WAITS_FOR_VECTORS if one(connection, "SELECT 1 FROM stale_vectors LIMIT 1") else WAITS_FOR_READER


def recorded_as(path: str) -> str:
    """The form in which `copies` holds an absolute path: as it is, or as a `file:` URI (RFC 8089).

    SQLite and JSON take UTF-8 alone, and a path may hold other bytes.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return _URI + quote(os.fsencode(path))
    return path


def path_of(recorded: str) -> str:
    """The path that `recorded_as` was given."""
    if not recorded.startswith(_URI):
        return recorded
    return os.fsdecode(unquote_to_bytes(recorded.removeprefix(_URI)))


def copies(connection: apsw.Connection, since_us: int) -> list[tuple[str, int]]:
    """The files that were made of the store at or after a moment, as far as it was told of them: path, microseconds.

    One that is being made now stands there with a time in the future. So does one whose making was killed, and its row
    stays: at whatever later time somebody looks, it counts as made after everything that its draft may hold.
    """
    rows = run(connection, "SELECT path, at_us FROM copies WHERE at_us >= ? ORDER BY at_us", (since_us,))
    return [(path_of(str(path)), int(at_us)) for path, at_us in rows]


def remains(folder: Path, recorded: list[tuple[str, int]], since_us: int) -> tuple[str, ...]:
    """The files that may hold a memory stored at `since_us` and that no store can reach into.

    Those of the recorded copies that are there or being made, the drafts beside each (worked on, or left by a kill), the
    drafts in the store's folder, and what lies in its `backups` and `kept-aside`. A draft is named whatever its date: one
    that has not written yet what it has read may be older than the memory.
    """
    now = now_us()
    # Before the looks at the paths: a draft that gets its name in between is seen under the one or the other.
    places = dict.fromkeys(Path(path).parent for path, _ in recorded)
    beside = {place: _drafts(place) for place in [*places, folder, folder / BACKUPS]}
    found: dict[str, None] = {}
    for path, at_us in recorded:
        # While a copy is made its draft is there; in a folder that cannot be listed it may be.
        being_made = at_us > now and beside[Path(path).parent] != []
        if being_made or not _is_gone(path):
            found[path] = None
    for drafts in beside.values():
        found |= dict.fromkeys(map(str, drafts or ()))
    for place in (BACKUPS, KEPT_ASIDE):
        found |= dict.fromkeys(str(path) for path in sorted(_files(folder / place)) if _changed_us(path) >= since_us)
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


def _changed_us(path: Path) -> int:
    """When the file was last written; for ever where that cannot be told, so that it is named."""
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 2**63
