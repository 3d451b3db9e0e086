"""Reading a store whose shared index cannot be made: a read-only mount, somebody else's folder, a full disk.

SQLite reads a WAL database through `memory.db-shm`. Where that file is not there and cannot be made, SQLite can be told
that the database is immutable; then it takes no locks, never looks at the WAL and believes whatever it reads. So such a
read is allowed only while there is no WAL that holds anything, and its answer counts only if the files are the same
before and after. Faults it survives: a writer on the other side of the mount that begins, commits, checkpoints or ends
at any moment of the read (the answer is refused, `StoreChanged`); a file system whose clock is coarse.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import apsw

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.errors import StoreChanged

# Two changes within one tick of the file system's clock look like one, so a file that was just changed is let rest first.
_TICK_S = 0.05
_COARSE_TICK_S = 2.0  # of FAT and other file systems that keep whole seconds
_REST_LIMIT_S = 2.5
_INDEX_BYTES = 32_768  # the size in which SQLite makes and extends `memory.db-shm`
_INDEX_STEP_BYTES = 4_096


class Stamp(NamedTuple):
    """What tells one state of the files from another. `beside` are the bytes in the WAL and the rollback journal."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    beside: int


def stamp(database: str) -> Stamp:
    """The stamp of a database's files now. Raises `OSError` when there is no database."""
    main = os.stat(database)  # noqa: PTH116
    beside = _size(f"{database}-wal") + _size(f"{database}-journal")
    return Stamp(main.st_dev, main.st_ino, main.st_size, main.st_mtime_ns, main.st_ctime_ns, beside)


def rested_stamp(database: str) -> Stamp:
    """The stamp of files that have not changed for a tick of their clock. Waits at most 2.5 s for such a moment.

    Raises `StoreChanged` when there is none, `OSError` when there is no database.
    """
    until_s = time.monotonic() + _REST_LIMIT_S
    while True:
        found = stamp(database)
        latest_ns = max(found.modified_ns, found.changed_ns)
        tick_s = _TICK_S if found.modified_ns % 1_000_000_000 else _COARSE_TICK_S
        age_s = time.time() - latest_ns / 1e9
        if not 0.0 <= age_s < tick_s:  # a time to come is another machine's clock: a change now would look different
            return found
        if time.monotonic() > until_s:
            raise StoreChanged(f"{database} kept changing for {_REST_LIMIT_S:g} s, and it can only be read at rest.")
        time.sleep(min(tick_s - age_s + 0.001, 0.1))


@enforces("INV-027")
def check(database: str, before: Stamp) -> None:
    """Raise `StoreChanged` unless the files are still those that the stamp was taken of."""
    failpoints.hit("frozen.before_check")
    try:
        unchanged = stamp(database) == before
    except OSError:
        unchanged = False
    if not unchanged:
        raise StoreChanged(f"{database} changed while it was read.")


def calls_for(error: apsw.Error) -> bool:
    """Whether SQLite failed because it could not make or use the shared index."""
    return no_room_for_index(error) or isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError)


def no_room_for_index(error: BaseException) -> bool:
    """Whether SQLite could not make or extend the shared index: the disk is full."""
    return isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE


def writable(database: str) -> bool:
    """Whether this user could write: every file a writer needs takes writes, or is not there and can be made."""
    folder = os.path.dirname(database)  # noqa: PTH120
    locks = (os.path.join(folder, name) for name in ("turn.outer", "turn.inner"))  # noqa: PTH118
    return all(
        _access(path) or (not os.path.lexists(path) and _access(folder))
        for path in (database, f"{database}-wal", f"{database}-shm", *locks)
    )


def has_room_for_index(database: str) -> bool:
    """Whether the shared index can be filled without meeting a full disk.

    SQLite makes room for it by writing one byte to each 4,096. On a file system of smaller blocks the rest are holes, and
    filling a hole on a full disk ends the process with SIGBUS, in the middle of whatever it is doing.
    """
    try:
        place = os.statvfs(os.path.dirname(database))  # noqa: PTH120
        if place.f_frsize >= _INDEX_STEP_BYTES:
            return True
        try:
            index = os.stat(f"{database}-shm")  # noqa: PTH116
            missing = max(index.st_size, _INDEX_BYTES) - index.st_blocks * 512
        except FileNotFoundError:
            missing = _INDEX_BYTES
    except OSError:
        return True
    return missing <= 0 or place.f_bavail * place.f_frsize >= missing + _INDEX_BYTES


def _access(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except FileNotFoundError:
        return 0
