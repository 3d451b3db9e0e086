"""Damage: telling a damaged store from a sound one, and setting a damaged one aside when a person asks for it.

Owns: `kept-aside/`, in which each folder holds the bytes of a damaged store as they were, named by the time and never
touched again. Faults it survives: several processes that set the same store aside (one does, the others find a sound one),
writers and readers that have it open (the bytes are replaced in one write transaction, under SQLite's locks), a kill at
any point (either the live file is still the damaged one, or its bytes are kept whole and the next one goes on), a program
that writes without taking turns (what is kept is compared with the file again before that is replaced).

Nothing here opens, moves or copies the live files beside SQLite: POSIX drops a process's locks on a file when any of its
descriptors is closed. They are read through SQLite's own file layer, which knows.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import apsw

from holdtrue import failpoints
from holdtrue.clock import Deadline
from holdtrue.enforces import enforces
from holdtrue.errors import StoreBusy, StoreCorrupt, StoreError, StoreMissing, StoreSound
from holdtrue.files import exists, make_private_folder, open_private_file, sync_folder
from holdtrue.store import connection as connections
from holdtrue.store import derived, schema
from holdtrue.store import draft as draft_files
from holdtrue.store.connection import (
    DATABASE_NAME,
    StoreConnection,
    lost_database,
    open_connection,
    refuse_after_fork,
    store_error,
)
from holdtrue.store.draft import Advance, copy_pages, drafting, sweep
from holdtrue.store.erase import KEPT_ASIDE
from holdtrue.store.salvage import Salvaged, salvage
from holdtrue.store.statements import one, run
from holdtrue.store.turnstile import Turnstile

T = TypeVar("T")

FORMAT = "holdtrue.kept-aside/1"
_MANIFEST = "manifest.json"
_PARTIAL = ".partial"
_FRESH, _DAMAGED = draft_files.FRESH, draft_files.DAMAGED  # drafts in the store's folder
_PIECE_BYTES = 1 << 20
_TRIES = 3
_FINDINGS_KEPT = 20
# The database and what SQLite lays beside it. The shared memory is made from the WAL and holds nothing of its own.
_PARTS = ("", "-wal", "-journal")

# A file's end to its size in bytes and SHA-256; an empty or missing one is left out.
Seal = dict[str, tuple[int, str]]


@dataclass(frozen=True)
class SetAside:
    """What setting a store aside did: why, where its bytes are, and what of it is in the new store."""

    findings: tuple[str, ...]
    kept: str
    salvaged: Salvaged

    def as_dict(self) -> dict[str, Any]:
        return {"findings": list(self.findings), "kept": self.kept, "salvaged": self.salvaged.as_dict()}


# -- looking -----------------------------------------------------------------------------------------------------------


@enforces("INV-026")
def findings(folder: Path) -> list[str]:
    """What is damaged of a store, as sentences; empty when it is sound. Changes nothing.

    Only what SQLite itself calls damage counts: a file that is no database, a page or an index that is wrong, a log whose
    database is gone. Derived data that disagrees with the texts is made anew instead, see `holdtrue.store.derived`. Raises
    `StoreMissing`, or another `StoreError` where it cannot be told: another program's file, a newer version, a busy store.
    """
    lost = lost_database(folder)
    if lost:
        return [lost]
    if not exists(folder / DATABASE_NAME):
        raise StoreMissing(f"There is no store at {folder}.")
    try:
        connection = open_connection(folder, write=False)
    except StoreCorrupt as error:
        return [error.message]
    try:
        found = of_connection(connection)
        connection.check_unchanged()
        return found
    except apsw.Error as error:
        raise store_error(error, folder) from error
    finally:
        connection.close()


def of_connection(connection: apsw.Connection) -> list[str]:
    """As `findings`, of an open database. Raises an `apsw.Error` where it cannot be told."""
    try:
        said = _integrity(connection)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return [str(error)]
    of_derived = {
        line for entry in derived.REGISTRY for table in entry.tables for line in _of_virtual(connection, table)
    }
    return [line for line in said if line not in of_derived][:_FINDINGS_KEPT]


def _integrity(connection: apsw.Connection) -> list[str]:
    try:
        return _lines(run(connection, "PRAGMA integrity_check"))
    except apsw.SQLError:
        # A virtual table that cannot be opened ends the whole check; the others are asked one by one.
        rows = run(connection, "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")
        return [
            line for (name,) in rows for line in _lines(run(connection, f"PRAGMA integrity_check({_quoted(name)})"))
        ]


def _of_virtual(connection: apsw.Connection, table: str) -> list[str]:
    """What a virtual table says of itself; nothing for an ordinary one, which the file's own check covers."""
    try:
        if one(connection, "SELECT 1 FROM sqlite_schema WHERE name = ? AND rootpage = 0", (table,)) is None:
            return []
        return _lines(run(connection, f"PRAGMA integrity_check({_quoted(table)})"))
    except (apsw.SQLError, apsw.CorruptError):
        return []


def _lines(rows: list[tuple[Any, ...]]) -> list[str]:
    return [str(line) for (line,) in rows if line != "ok"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# -- setting aside -----------------------------------------------------------------------------------------------------


def set_aside(folder: Path, deadline: Deadline, advance: Advance) -> SetAside:
    """Keep the bytes of a damaged store, begin a new one in its place, and bring over what can still be read.

    The calling process must have no writer for this folder: record locks belong to the process. Waits for its turn until
    the deadline. Raises `StoreSound` for a store that is not damaged, `StoreBusy` where others do not let it, or another
    `StoreError`; then the store is as it was.
    """
    refuse_after_fork(folder)
    if not exists(folder / DATABASE_NAME) and not lost_database(folder):
        raise StoreMissing(f"There is no store at {folder}.")
    make_private_folder(folder)

    def work() -> SetAside:
        try:
            return _set_aside(folder, deadline, advance)
        except (apsw.Error, OSError) as error:
            raise store_error(error, folder) from error

    return _in_turn(folder, deadline, work)


@enforces("INV-026")
def _set_aside(folder: Path, deadline: Deadline, advance: Advance) -> SetAside:
    """In this process's turn: nobody of ours writes meanwhile."""
    _sweep(folder)
    for _ in range(_TRIES):
        # Looked at again in the turn: another process may have done it while this one waited.
        found = findings(folder)
        if not found:
            raise StoreSound(f"The store at {folder} is not damaged, so it was left as it is.")
        failpoints.hit("damage.found")
        kept, seal = _keep(folder, found)
        failpoints.hit("damage.kept")
        with _salvaged(folder, kept, advance) as (fresh, salvaged):
            failpoints.hit("damage.salvaged")
            if _seal(folder / DATABASE_NAME) != seal:
                # A program that takes no turns has written. What was kept is of no state that anybody is left with.
                shutil.rmtree(kept)
                continue
            if lost_database(folder):
                _refuse_while_open(folder)
            failpoints.hit("damage.before_reset")
            _replace(folder, fresh, deadline, advance)
        failpoints.hit("damage.replaced")
        return SetAside(tuple(found), str(kept), salvaged)
    raise StoreBusy(f"Another program writes to the damaged store at {folder} again and again.", hint=_END_IT)


def _in_turn(folder: Path, deadline: Deadline, work: Callable[[], T]) -> T:
    """Run `work` in this process's turn to write, in a thread: waiting in the turnstile cannot be cancelled.

    A thread whose caller has left does nothing when its turn comes.
    """
    answers: list[T] = []
    failures: list[BaseException] = []
    begun, ended, left = threading.Event(), threading.Event(), threading.Event()
    lock = threading.Lock()

    def run_it() -> None:
        turnstile = None
        try:
            turnstile = Turnstile(folder)
            turnstile.enter()
            with lock:
                if left.is_set():
                    return
                begun.set()
            answers.append(work())
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            failures.append(error)
        finally:
            if turnstile is not None:
                turnstile.close()
            begun.set()
            ended.set()

    threading.Thread(target=run_it, name="holdtrue-set-aside", daemon=True).start()
    if not begun.wait(deadline.remaining_s()):
        with lock:
            if not begun.is_set():
                left.set()
                raise StoreBusy(
                    f"Waited {deadline.period_s:g} s for other writers of {folder} and gave up.",
                    hint="Nothing was changed; try again.",
                    waited_s=deadline.period_s,
                )
    ended.wait()
    if failures:
        error = failures[0]
        raise store_error(error, folder) if isinstance(error, OSError) else error
    return answers[0]


def _sweep(folder: Path) -> None:
    """Remove what killed runs of this left: copies that were never finished, whose original is in place, and drafts."""
    for stem in (_DAMAGED, _FRESH):
        sweep(folder, stem)
    with contextlib.suppress(FileNotFoundError):
        for place in (folder / KEPT_ASIDE).iterdir():
            if place.name.endswith(_PARTIAL):
                shutil.rmtree(place, ignore_errors=True)


@enforces("INV-026")
def _keep(folder: Path, found: list[str]) -> tuple[Path, Seal]:
    """Copy the bytes of the store's files into a folder of their own, durable before it has its name.

    A run that was killed after this may have left the same bytes already: then there is one folder, not two.
    """
    shelf = folder / KEPT_ASIDE
    make_private_folder(shelf)
    now = dt.datetime.now(dt.UTC)
    place = shelf / f"{now:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"
    partial = place.with_name(place.name + _PARTIAL)
    make_private_folder(partial)
    try:
        seal: Seal = {}
        for end in _PARTS:
            copied = _copy(Path(f"{folder / DATABASE_NAME}{end}"), partial / f"{DATABASE_NAME}{end}")
            if copied is not None:
                seal[end] = copied
        for other in _finished(shelf):
            if _sealed(other) == seal:
                shutil.rmtree(partial)
                return other, seal
        manifest = {
            "format": FORMAT,
            "at": now.isoformat(timespec="seconds"),
            "findings": found,
            "files": {end: {"bytes": size, "sha256": digest} for end, (size, digest) in seal.items()},
        }
        _write(partial / _MANIFEST, [json.dumps(manifest, indent=2).encode()])
        sync_folder(partial)
        failpoints.hit("damage.copied")
        partial.rename(place)
        sync_folder(shelf)
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return place, seal


def _finished(shelf: Path) -> list[Path]:
    return [place for place in sorted(shelf.iterdir()) if place.is_dir() and not place.name.endswith(_PARTIAL)]


def _sealed(place: Path) -> Seal | None:
    """What the manifest of a kept folder says of its files; None where it cannot be read."""
    try:
        files = json.loads((place / _MANIFEST).read_text())["files"]
        return {end: (one_["bytes"], one_["sha256"]) for end, one_ in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def _salvaged(folder: Path, kept: Path, advance: Advance) -> Iterator[tuple[StoreConnection, Salvaged]]:
    """A new store, not yet in place, with what can be read of the kept bytes, which themselves are not opened."""
    with (
        drafting(folder, _DAMAGED) as copy,
        drafting(folder, _DAMAGED) as pages,
        drafting(folder, _FRESH) as draft,
    ):
        for place in (copy.path, pages.path):
            for end in _PARTS:
                _copy(kept / f"{DATABASE_NAME}{end}", Path(f"{place}{end}"))
        fresh = draft.open()
        try:
            schema.migrate(fresh)
            yield fresh, salvage(copy.path, pages.path, fresh, advance)
        finally:
            fresh.close()


@enforces("INV-026")
def _replace(folder: Path, fresh: StoreConnection, deadline: Deadline, advance: Advance) -> None:
    """Put the new store in the place of the damaged one, in one write transaction of the live database.

    `SQLITE_DBCONFIG_RESET_DATABASE` makes SQLite take whatever is in the file for an empty database, so that there are
    locks and a transaction where otherwise there could be none: everyone who has it open sees the old state or the new one.
    https://www.sqlite.org/c3ref/c_dbconfig_defensive.html#sqlitedbconfigresetdatabase
    """
    address = f"file:{quote(os.fsencode(folder / DATABASE_NAME))}"
    address += f"?modeof={quote(os.fsencode(folder / connections._MODE_NAME))}"
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    live = StoreConnection(address, flags, os.path.realpath(folder / DATABASE_NAME))
    try:
        live.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
        connections._configure(live, lambda: not deadline.passed())
        copy_pages(fresh, live, advance, pages=-1)
        live.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
        failpoints.hit("damage.reset")
        _announce(live)
    finally:
        live.close()
    left = findings(folder)
    if left:
        raise StoreCorrupt(f"The new store at {folder} is damaged as well: {left[0]}", hint="The disk may be failing.")


def _announce(live: StoreConnection) -> None:
    """Give the schema a number that no process has seen, so that each reads the schema again; and empty the WAL if it can.

    What was replaced is damaged, so its number may be anything, that of the new schema as well.
    """
    live.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    live.pragma("schema_version", int.from_bytes(os.urandom(3)) + 2**24)
    live.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    live.set_busy_handler(None)
    with contextlib.suppress(apsw.BusyError, apsw.LockedError):
        if live.pragma("journal_mode") == "wal":
            live.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _refuse_while_open(folder: Path) -> None:
    """Raise `StoreBusy` while any process has this database open: SQLite is about to delete its log.

    Everyone who has it open in WAL mode holds a shared lock on it, so an exclusive one cannot be had.
    """
    if not exists(folder / DATABASE_NAME):
        return
    file = _File(folder / DATABASE_NAME, write=True)
    try:
        file.lock_exclusively()
    except apsw.BusyError as error:
        raise StoreBusy(f"A program still has the store at {folder} open.", hint=_END_IT) from error
    finally:
        file.close()


_END_IT = "End every program that uses it, then try again. Nothing was changed."


# -- bytes through SQLite's file layer ---------------------------------------------------------------------------------


class _File:
    """One file, opened by SQLite's own file layer: its close leaves the locks of this process alone."""

    def __init__(self, path: Path, *, write: bool = False) -> None:
        # As a database, whatever it is: for any other kind the layer asks for the database beside it, which may be gone.
        access = apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY
        try:
            self._file = apsw.VFSFile("", os.path.realpath(path), [access | apsw.SQLITE_OPEN_MAIN_DB, 0])
        except UnicodeEncodeError as error:
            raise StoreError(
                f"The path {str(path)[:80]!a} is not UTF-8, and SQLite's file layer takes no other.",
                hint="Rename the folder while no program uses the store.",
            ) from error

    def pieces(self) -> Iterator[bytes]:
        size, offset = self._file.xFileSize(), 0
        while offset < size:
            piece = self._file.xRead(min(_PIECE_BYTES, size - offset), offset)
            yield piece
            offset += len(piece)

    def lock_exclusively(self) -> None:
        """Raises `apsw.BusyError`. Released by `close`."""
        self._file.xLock(apsw.SQLITE_LOCK_SHARED)
        self._file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):
            self._file.xUnlock(apsw.SQLITE_LOCK_NONE)
        self._file.xClose()


def _pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file; none where it is empty or missing."""
    try:
        if path.stat().st_size == 0:
            return
    except FileNotFoundError:
        return
    file = _File(path)
    try:
        yield from file.pieces()
    finally:
        file.close()


def _seal(database: Path) -> Seal:
    seal: Seal = {}
    for end in _PARTS:
        size, digest = 0, hashlib.sha256()
        for piece in _pieces(Path(f"{database}{end}")):
            size += len(piece)
            digest.update(piece)
        if size:
            seal[end] = (size, digest.hexdigest())
    return seal


def _copy(source: Path, target: Path) -> tuple[int, str] | None:
    """Copy a file's bytes to a file of ours, durable. Its size and digest; None where there was nothing to copy."""
    digest = hashlib.sha256()

    def passing() -> Iterator[bytes]:
        for piece in _pieces(source):
            digest.update(piece)
            yield piece

    size = _write(target, passing())
    return (size, digest.hexdigest()) if size else None


def _write(target: Path, pieces: Iterator[bytes] | list[bytes]) -> int:
    """Write a file that is private from creation, durable; returns its size. Without any bytes there is no file."""
    size, descriptor = 0, None
    try:
        for piece in pieces:
            if descriptor is None:
                descriptor = _opened(target)
            while piece:
                written = os.write(descriptor, piece)
                size, piece = size + written, piece[written:]
        if descriptor is not None:
            os.fsync(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return size


def _opened(target: Path) -> int:
    try:
        return open_private_file(target)
    except FileExistsError:  # a draft is there already, empty
        return os.open(target, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
