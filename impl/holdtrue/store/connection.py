"""The one place that opens a SQLite connection.

Owns: how a connection is configured. Faults it survives: two first openers that collide on the WAL switch (SQLite
answers BUSY there at once, whatever the timeout), a process forked while a connection is open, a missing sqlite-vec.
Every connection is configured before it is handed out, alike everywhere.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

import apsw

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.errors import (
    ExtensionUnavailable,
    HoldTrueError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreForked,
    StoreFull,
    StoreReadOnly,
)
from holdtrue.store import schema
from holdtrue.store.statements import run

DATABASE_NAME = "memory.db"
_MODE_NAME = "turn.inner"
_READ_BUSY_MS = 2_000  # only a WAL recovery can make a reader wait; a writer never does
_RETRY_S = 0.005

KeepWaiting = Callable[[], bool]


# The database of each connection that is open in this process, by the connection's id; and those that were open in the
# parent when it forked this process.
_open: dict[int, str] = {}
_inherited: set[str] = set()


def _note_inherited() -> None:
    _inherited.update(_open.values())
    _open.clear()


os.register_at_fork(after_in_child=_note_inherited)


def refuse_after_fork(folder: Path) -> None:
    """Raise `StoreForked` in a process that was forked while this store was open.

    SQLite keeps one table of its files and locks for a process. A child inherits it, believes to hold the parent's locks
    and takes none of its own: the parent's close then deletes a WAL that the child still writes to.
    https://www.sqlite.org/howtocorrupt.html, section 2.6
    """
    if _inherited and os.path.realpath(folder / DATABASE_NAME) in _inherited:
        raise StoreForked(f"This process was forked while the store at {folder} was open; it cannot use it.")


class StoreConnection(apsw.Connection):
    """A connection that knows the process and thread it belongs to."""

    def __init__(self, filename: str, flags: int, database: str) -> None:
        super().__init__(filename, flags=flags)
        _open[id(self)] = database
        self.owner = (os.getpid(), threading.get_ident())
        self.path = database
        opened = os.stat(database)  # noqa: PTH116
        self.identity = (opened.st_dev, opened.st_ino)
        self.names: dict[tuple[str, str], int] = {}  # kind and name to number, as this connection has seen them
        self.names_epoch: str | None = None  # the value of `meta` that `names` goes with
        self.wal_pages = 0  # how long the WAL was after this connection's last commit

    def __del__(self) -> None:
        """In a forked child, keep an inherited connection for ever.

        Closing it would run SQLite's clean-up against files that the parent is using; the child's copy of the parent's
        other threads is thrown away at the fork, and their connections with it, so this is the one place to hold on.
        """
        owner = getattr(self, "owner", None)  # None when the database could not be opened
        if owner is None or owner[0] == os.getpid():
            _open.pop(id(self), None)
            if owner is not None:
                self.leave_files_alone()  # nobody decided on this moment: it may be long after the store was closed
        else:
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def close(self, force: bool = False) -> None:
        super().close(force)
        _open.pop(id(self), None)

    def leave_files_alone(self) -> None:
        """Let a close be no more than that: no checkpoint and no removal of the WAL, also when this is the last one."""
        with contextlib.suppress(apsw.Error):
            self.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def wal_bytes(self) -> int:
        """The size of the WAL's file; 0 where there is none."""
        try:
            return os.stat(f"{self.path}-wal").st_size  # noqa: PTH116 - asked before every commit
        except OSError:
            return 0

    def roll_back(self) -> None:
        """Undo the open transaction, if there is one, and forget the names it may have made."""
        self.names.clear()
        if self.in_transaction:
            run(self, "ROLLBACK")

    def displaced(self) -> bool:
        """Whether the path no longer leads to the file of this connection: it was deleted, moved or replaced.

        SQLite does not look in WAL mode, and goes on with a file that nobody will ever open again.
        """
        try:
            there = os.stat(self.path)  # noqa: PTH116 - asked at every commit and every read
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != self.identity

    def check_owner(self) -> None:
        """Refuse use after a fork or from another thread: both would share SQLite state that must not be shared."""
        if self.owner != (os.getpid(), threading.get_ident()):
            raise StoreError(
                "A database connection was used outside the process or thread that opened it.",
                hint="Report this: each thread must use its own connection.",
            )


def open_connection(folder: Path, *, write: bool, keep_waiting: KeepWaiting | None = None) -> StoreConnection:
    """Open `memory.db` in the folder, configured.

    A writing connection creates the file, with the owner-only mode of its side file, and switches it to WAL; a reading
    one never creates anything. A database that is not a store this program knows is refused, untouched. `keep_waiting`
    is asked while the database is busy; without it a reader waits 2 s.
    Raises a `StoreError`.
    """
    refuse_after_fork(folder)
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_READWRITE
    name = f"file:{quote(os.fsencode(folder / DATABASE_NAME))}"
    if write:
        flags |= apsw.SQLITE_OPEN_CREATE
        # SQLite gives a new database, its WAL and its shared memory the mode of this file, whatever the umask.
        name += f"?modeof={quote(os.fsencode(folder / _MODE_NAME))}"
    try:
        connection = StoreConnection(name, flags, os.path.realpath(folder / DATABASE_NAME))
    except apsw.Error as error:
        raise store_error(error, folder) from error
    try:
        _configure(connection, keep_waiting)
        # Before anything is changed: the file may be another program's, or a newer version's.
        schema.version_of(connection)
        if write:
            _switch_to_wal(connection, keep_waiting)
        else:
            connection.leave_files_alone()  # a reader changes nothing, not even when it is the last to go
    except apsw.Error as error:
        connection.close()
        raise store_error(error, folder) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: StoreConnection, keep_waiting: KeepWaiting | None) -> None:
    if keep_waiting is None:
        connection.set_busy_timeout(_READ_BUSY_MS)
    else:
        connection.set_busy_handler(_patience(keep_waiting))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    _load_vectors(connection)
    connection.pragma("synchronous", "FULL")
    connection.pragma("temp_store", "MEMORY")  # no text in temporary files that nobody erases
    connection.pragma("secure_delete", "ON")
    connection.pragma("wal_autocheckpoint", 0)  # only `store.checkpoint` moves the WAL, in a writer's turn
    connection.set_wal_hook(_note_pages)
    connection.pragma("cache_size", -16_000)


def _note_pages(connection: apsw.Connection, name: str, pages: int) -> int:
    if isinstance(connection, StoreConnection):
        connection.wal_pages = pages
    return apsw.SQLITE_OK


def _patience(keep_waiting: KeepWaiting) -> Callable[[int], bool]:
    def wait(calls: int) -> bool:
        if not keep_waiting():
            return False
        time.sleep(min(0.001 * (calls + 1), 0.02))
        return True

    return wait


@enforces("INV-003")
def _switch_to_wal(connection: StoreConnection, keep_waiting: KeepWaiting | None) -> None:
    """Switch to WAL, trying again while another opener is at it: SQLite does not ask the busy handler here."""
    while True:
        try:
            failpoints.hit("connection.before_wal")
            mode = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if keep_waiting is None or not keep_waiting():
                raise
            time.sleep(_RETRY_S)
            continue
        if mode != "wal":
            raise StoreError(
                f"SQLite cannot use WAL here (journal mode {mode}).",
                hint="Keep the store on a local disk: network file systems cannot share it between processes.",
            )
        return


@lru_cache(maxsize=1)
def _vector_extension() -> str:
    """The path of sqlite-vec, found without importing its package: that would import NumPy."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or not spec.submodule_search_locations:
        raise ExtensionUnavailable("sqlite-vec is not installed.")
    return str(Path(next(iter(spec.submodule_search_locations))) / "vec0")


def _load_vectors(connection: StoreConnection) -> None:
    try:
        connection.enable_load_extension(True)
        connection.load_extension(_vector_extension())
    except apsw.ExtensionLoadingError as error:
        raise ExtensionUnavailable(f"sqlite-vec could not be loaded: {error}.") from error
    finally:
        connection.enable_load_extension(False)


def store_error(error: BaseException, folder: Path) -> HoldTrueError:
    """The `StoreError` that tells what an SQLite or OS error means for the store."""
    if isinstance(error, HoldTrueError):
        return error
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"Another process holds the store at {folder}.")
    if isinstance(error, apsw.FullError) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    ):
        return StoreFull(f"The disk that holds {folder} is full.")
    forbidden = isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    if forbidden or isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreReadOnly(f"The store at {folder} cannot be written by this user.")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(f"The store at {folder} is damaged or not a store: {error}.")
    if isinstance(error, apsw.CantOpenError):
        return StoreError(
            f"SQLite cannot open {folder / DATABASE_NAME}.",
            hint="Check that the folder exists and belongs to this user.",
        )
    return StoreError(
        f"The store at {folder} failed: {type(error).__name__}: {error}.",
        hint="Nothing of this call was stored. Look at the cause that is named, then try again.",
    )
