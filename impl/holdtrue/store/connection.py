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
from contextlib import AbstractContextManager
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
from holdtrue.filesystem import is_full
from holdtrue.store import frozen, schema
from holdtrue.store.frozen import Stamp
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


@enforces("INV-017")
def refuse_after_fork(folder: Path) -> None:
    """Raise `StoreForked` in a process that was forked while this store was open.

    SQLite keeps one table of its files and locks for a process. A child inherits it, believes to hold the parent's locks
    and takes none of its own: the parent's close then deletes a WAL that the child still writes to.
    https://www.sqlite.org/howtocorrupt.html, section 2.6
    """
    if _inherited and os.path.realpath(folder / DATABASE_NAME) in _inherited:
        raise StoreForked(f"This process was forked while the store at {folder} was open; it cannot use it.")


def lost_database(folder: Path) -> str:
    """Whether a log with memories in it stands beside a database that is missing or empty: a sentence, else "".

    SQLite takes such a log for a leftover and deletes it when it opens the database. Nobody makes this state who makes
    a new store: the database has its first page before there is a log. So the log is looked at before the database, and
    again after it: whoever removes a store meanwhile is not taken for a loss.
    """
    database = os.path.realpath(folder / DATABASE_NAME)
    log_bytes = _size(f"{database}-wal")
    failpoints.hit("connection.log_looked_at")
    if log_bytes and not _size(database) and _size(f"{database}-wal"):
        return f"{DATABASE_NAME} is missing or empty beside a log of {log_bytes:,} bytes, which may hold memories."
    return ""


def _size(path: str) -> int:
    """The size of a file in bytes; 0 where there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - looked at before every opening
    except OSError:
        return 0


@enforces("INV-018")
def refuse_lost_database(folder: Path) -> None:
    """Raise `StoreCorrupt` where opening would let SQLite delete a log that holds memories."""
    problem = lost_database(folder)
    if problem:
        raise StoreCorrupt(f"The store at {folder} is damaged: {problem}")


class StoreConnection(apsw.Connection):
    """A connection that knows the process and thread it belongs to."""

    def __init__(self, filename: str, flags: int, database: str, frozen: Stamp | None = None) -> None:
        super().__init__(filename, flags=flags)
        _open[id(self)] = database
        self.owner = (os.getpid(), threading.get_ident())
        self.path = database
        opened = os.stat(database)  # noqa: PTH116
        self.identity = (opened.st_dev, opened.st_ino)
        self.names: dict[tuple[str, str], int] = {}  # kind and name to number, as this connection has seen them
        self.names_epoch: str | None = None  # the value of `meta` that `names` goes with
        self.frozen = frozen  # set where it reads without locks: what the files must still be when it has read
        self.vectors_off = ""  # why this connection has no vec0, as a sentence
        self.wal_pages = 0  # how long the WAL was after this connection's last commit
        # Goes around whatever changes the disk: that of a writer's connection refuses once the writer is closed.
        self.effect: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

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

    def check_unchanged(self) -> None:
        """Raise `StoreChanged` when this connection reads without locks and the files have changed since it was opened."""
        if self.frozen is not None:
            frozen.check(self.path, self.frozen)

    def check_owner(self) -> None:
        """Refuse use after a fork or from another thread: both would share SQLite state that must not be shared."""
        if self.owner != (os.getpid(), threading.get_ident()):
            raise StoreError(
                "A database connection was used outside the process or thread that opened it.",
                hint="Report this: each thread must use its own connection.",
            )


@enforces("INV-011", "INV-013")
def open_connection(folder: Path, *, write: bool, keep_waiting: KeepWaiting | None = None) -> StoreConnection:
    """Open `memory.db` in the folder, configured.

    A writing connection creates the file, with the owner-only mode of its side file, and switches it to WAL; a reading
    one never creates anything. Where the shared index cannot be made, a reading one does without it, see `store.frozen`.
    Without sqlite-vec everything but vectors works, and `vectors_off` says why. A database that is not a store this
    program knows is refused, untouched. `keep_waiting` is asked while the database is busy; without it a reader waits 2 s.
    Raises a `StoreError`.
    """
    refuse_after_fork(folder)
    refuse_lost_database(folder)
    database = os.path.realpath(folder / DATABASE_NAME)
    if not frozen.has_room_for_index(database):
        full = StoreFull(f"The disk that holds {folder} is full.")
        if write:
            raise full
        return _open_frozen(folder, database, full)
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_READWRITE
    name = f"file:{quote(os.fsencode(folder / DATABASE_NAME))}"
    if write:
        flags |= apsw.SQLITE_OPEN_CREATE
        # SQLite gives a new database, its WAL and its shared memory the mode of this file, whatever the umask.
        name += f"?modeof={quote(os.fsencode(folder / _MODE_NAME))}"
    try:
        connection = StoreConnection(name, flags, database)
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
        failure = store_error(error, folder)
        if not write and frozen.calls_for(error):
            return _open_frozen(folder, database, failure)
        raise failure from error
    except BaseException:
        connection.close()
        raise
    return connection


@enforces("INV-027")
def _open_frozen(folder: Path, database: str, cause: HoldTrueError) -> StoreConnection:
    """A connection that reads without locks. Raises the cause, or a `StoreError`, where that would answer wrongly."""
    try:
        before = frozen.rested_stamp(database)
    except OSError:
        raise cause from None
    if before.beside:
        if isinstance(cause, StoreFull):
            raise cause
        raise StoreReadOnly(
            f"The newest changes of the store at {folder} stand in its WAL, which cannot be read where nobody may write.",
            hint="Copy the whole folder to a place where you may write and open the copy, or open the store once with a"
            " user who may write there.",
        )
    name = f"file:{quote(os.fsencode(database))}?immutable=1"
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_READONLY
    try:
        connection = StoreConnection(name, flags, database, before)
    except apsw.Error:
        raise cause from None
    try:
        failpoints.hit("frozen.opened")
        _configure(connection, None)
        schema.version_of(connection)
    except BaseException as error:
        connection.close()
        frozen.check(database, before)  # what a changing file made of it says nothing about the store
        if isinstance(error, apsw.Error):
            raise store_error(error, folder) from error
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
    """Load sqlite-vec. Without it the connection says why in `vectors_off`: a store is more than its vectors."""
    try:
        extension = _vector_extension()
        connection.enable_load_extension(True)
        try:
            connection.load_extension(extension)
        finally:
            connection.enable_load_extension(False)
    except ExtensionUnavailable as error:
        connection.vectors_off = error.message
    except (apsw.Error, AttributeError) as error:  # a build of SQLite without extensions lacks the very methods
        connection.vectors_off = f"sqlite-vec could not be loaded: {error}."


@enforces("INV-028")
def store_error(error: BaseException, folder: Path) -> HoldTrueError:
    """The `StoreError` that tells what an SQLite or OS error means for the store."""
    if isinstance(error, HoldTrueError):
        return error
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(f"Another process holds the store at {folder}.")
    no_space = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, apsw.FullError) or no_space or frozen.no_room_for_index(error):
        return StoreFull(f"The disk that holds {folder} is full.")
    forbidden = isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    if forbidden or isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreReadOnly(f"The store at {folder} cannot be written by this user.")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(f"The store at {folder} is damaged or not a store: {error}.")
    if isinstance(error, apsw.CantOpenError):
        if is_full(folder):
            return StoreFull(f"The disk that holds {folder} is full.")
        if folder.is_dir() and not frozen.writable(os.path.realpath(folder / DATABASE_NAME)):
            return StoreReadOnly(f"The store at {folder} cannot be written by this user.")
        return StoreError(
            f"SQLite cannot open {folder / DATABASE_NAME}.",
            hint="Check that the folder exists and belongs to this user.",
        )
    return StoreError(
        f"The store at {folder} failed: {type(error).__name__}: {error}.",
        hint="Nothing of this call was stored. Look at the cause that is named, then try again.",
    )
