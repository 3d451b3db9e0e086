"""Restores: the state of a backup takes the place of the store's, under everyone who has it open.

Owns: drafts named `restoring-...` in the store's folder. Faults it survives: readers and writers of other processes (the
state changes in one write transaction of the open database: every reader sees the old one or the new one), a kill at any
point (the same: until the commit it is the old state), a backup of an older version, a damaged backup (refused before
anything is changed), a damaged page of the store, a store that does not open (its bytes are kept aside first, see
`holdtrue.store.damage`). What was forgotten since the backup stays forgotten: the store's
tombstones are applied to the copy before it is put in place, so its text comes back neither as rows nor as bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.errors import (
    HoldTrueError,
    OutcomeUnknown,
    SourceUnreadable,
    StoreCorrupt,
    StoreTooNew,
    StoreUnusable,
)
from holdtrue.files import make_private_folder
from holdtrue.records import shown_path
from holdtrue.store import copies, memories, schema
from holdtrue.store.backup import (
    KEEP,
    STEP_PAGES,
    damage,
    listed,
    make_room,
    make_single,
    own_file,
    save_present,
    verify,
)
from holdtrue.store.connection import StoreConnection, store_error
from holdtrue.store.copies import recorded_as
from holdtrue.store.damage import SetAside
from holdtrue.store.draft import RESTORE, Advance, Draft, connect, copy_pages, drafting
from holdtrue.store.statements import one, run

T = TypeVar("T")

UNVERIFIED = "unverified"  # in `copies`, the kind of a backup of a state that was damaged or was not read back yet


@dataclass(frozen=True)
class RestoreReceipt:
    """What a restore did: from which file, how many memories the store holds now, how many of the backup stayed forgotten.

    `backup` is the file that holds the state before, None where there was none or none was wanted; `backup_findings` what
    is wrong with it, as with the state that it was copied from. `erased` is False while a reader of the old state keeps
    bytes of it in the WAL. `removed` are the older backups that went to make room. `set_aside` is there where the store
    was so damaged that it did not open: where its bytes are kept, and what of it could be read. Then `backup` holds that.
    """

    path: str
    memories: int
    kept_forgotten: int
    erased: bool
    seconds: float
    backup: str | None = None
    backup_findings: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    set_aside: SetAside | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "path": shown_path(self.path),
            "backup": None if self.backup is None else shown_path(self.backup),
            "backup_findings": list(self.backup_findings),
            "removed": [shown_path(path) for path in self.removed],
            "set_aside": None if self.set_aside is None else self.set_aside.as_dict(),
        }


class Steps(Protocol):
    """What a restore needs of the store, each with the patience of its caller."""

    def make(self) -> None:
        """Make the store if there is none. Raises `StoreCorrupt` for one that does not open."""

    def set_aside(self, advance: Advance) -> SetAside | None:
        """Keep the bytes of a damaged store and begin a new one with what can be read. None for a sound one."""

    def alone(self, operation: Callable[[StoreConnection], T]) -> T:
        """Run an operation in this process's turn to write, with no transaction open."""

    def write(self, operation: Callable[[StoreConnection], Any]) -> bool:
        """Run an operation in a write transaction. True when no byte that is to be erased is left then."""


def restore(
    folder: Path,
    given: Path,
    store: Steps,
    *,
    save: bool = True,
    keep: int = KEEP,
    progress: Advance | None = None,
) -> RestoreReceipt:
    """Let the state of a backup take the place of the store's.

    With `save` the state before is kept as a backup, copied in the same turn, so that nothing falls between. A store that
    is so damaged that it does not open is set aside first, `save` or not. Raises `SourceUnreadable`, `StoreTooNew`,
    `StoreCorrupt`, `StoreUnusable` or another `StoreError`; then the old state is in place, or what could be read of it
    where it was set aside; except for `OutcomeUnknown`.
    """
    began_s = time.monotonic()
    advance = progress or _ignore
    check_given(folder, given)  # before anything is made
    make_private_folder(folder)
    saved: Path | None = None

    def swap(live: StoreConnection) -> tuple[int, int]:
        nonlocal saved
        saved = None
        if save and _holds_anything(live):
            saved = save_present(folder, advance)
        try:
            return put_in_place(live, draft, saved, advance)
        except OutcomeUnknown:
            raise
        except BaseException:
            if saved is not None:
                with contextlib.suppress(OSError):
                    saved.unlink()  # the state that it holds is in place
            raise

    try:
        with drafting(folder, RESTORE) as draft:
            _prepare(folder, given, draft, advance)
            failpoints.hit("restore.prepared")
            aside = _make(store, advance)
            try:
                memories_now, kept_forgotten = store.alone(swap)
            except StoreCorrupt:
                # It opens, and yet what must be read of it or written to it cannot be.
                if aside is not None or (aside := store.set_aside(advance)) is None:
                    raise
                memories_now, kept_forgotten = store.alone(swap)
    except OSError as error:
        raise store_error(error, folder) from error
    # From here on the restore stands, whatever happens.
    findings, removed = _look_after(saved, keep, given)
    erased = False

    def settle(live: StoreConnection) -> None:
        copies.drop(live, removed)
        if saved is not None and not findings:
            run(live, "UPDATE copies SET kind = 'backup' WHERE path = ?", (recorded_as(str(saved)),))

    with contextlib.suppress(HoldTrueError):
        erased = store.write(settle)
    return RestoreReceipt(
        path=str(given),
        memories=memories_now,
        kept_forgotten=kept_forgotten,
        erased=erased,
        seconds=round(time.monotonic() - began_s, 3),
        backup=None if saved is None else str(saved),
        backup_findings=findings,
        removed=removed,
        set_aside=aside,
    )


def check_given(folder: Path, given: Path) -> None:
    """Raise what `restore` would for a file that is missing, cannot be opened or is no store. Its pages are not read."""
    _open_given(folder, given).close()


def _make(store: Steps, advance: Advance) -> SetAside | None:
    """Make the store if there is none; set it aside, and return that, if it is so damaged that it does not open."""
    try:
        store.make()
    except StoreCorrupt:
        aside = store.set_aside(advance)
        if aside is None:
            store.make()  # another process has set it aside meanwhile
        return aside
    return None


def _holds_anything(live: StoreConnection) -> bool:
    try:
        return one(live, "SELECT 1 FROM memories LIMIT 1") is not None
    except apsw.CorruptError:
        return True


def _look_after(saved: Path | None, keep: int, given: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read the saved state back, make room for it. Returns what is wrong with it, and what was removed."""
    if saved is None:
        return (), ()
    try:
        findings, _ = verify(saved)
        # One that is damaged takes nobody's place.
        return tuple(findings[:3]), () if findings else make_room(saved, keep, given)
    except (apsw.Error, OSError, HoldTrueError) as error:
        return (f"It could not be read back: {error}",), ()


def _prepare(folder: Path, given: Path, draft: Draft, progress: Advance) -> None:
    """Copy the given file into the draft, bring that up to date and check it. The given file stays as it is.

    Raises `StoreTooNew`, `StoreCorrupt`, `StoreUnusable` or another `StoreError`. Takes no lock of the store.
    """
    source = _open_given(folder, given)
    try:
        target = draft.open()
        try:
            run(source, "BEGIN")
            run(source, "SELECT 1 FROM sqlite_schema LIMIT 1")
            copy_pages(source, target, progress, pages=STEP_PAGES)
            run(source, "ROLLBACK")
            make_single(target)
            # Before it is changed: a migration of a damaged file could fail in any way.
            if schema.version_of(target) < schema.VERSION:
                _refuse(damage(target), given)
                schema.migrate(target)
        finally:
            target.close()
    except apsw.Error as error:
        raise _problem(error, given, folder) from error
    finally:
        source.close()
    findings, _ = verify(draft.path)
    _refuse(findings, given)


@enforces("INV-025")
def put_in_place(live: StoreConnection, draft: Draft, saved: Path | None, progress: Advance) -> tuple[int, int]:
    """Let the draft's state take the place of the live one, in one write transaction. Returns how many memories there
    are now and how many of the backup stayed forgotten.

    For the thread whose turn it is, with no transaction open: nobody of ours writes between what is read here and the
    commit. Raises a `StoreError`; then the old state is in place, except for `OutcomeUnknown`.
    """
    target = draft.open()
    try:
        if schema.version_of(target) != schema.VERSION:
            raise StoreUnusable("The copy of the backup is gone.", hint="Nothing was changed; try again.")
        page_bytes, wanted = target.pragma("page_size"), live.pragma("page_size")
        if page_bytes != wanted:
            raise StoreUnusable(
                f"The backup has pages of {page_bytes} bytes, the store of {wanted}.",
                hint="Nothing was changed. Restore it into a folder that holds no store.",
            )
        forgotten = _carry_over(live, target, saved)
        (count,) = run(target, "SELECT count(*) FROM memories")[0]
        failpoints.hit("restore.before_copy")

        def advance(done: int, total: int | None) -> None:
            failpoints.hit("restore.step")
            if done != total:  # after the last step it stands, and nothing may make it look as if it had failed
                progress(done, total)

        try:
            copy_pages(target, live, advance, pages=STEP_PAGES)
        except apsw.IOError as error:
            raise OutcomeUnknown(
                f"The disk failed: {error}. Whether the backup is in place cannot be told.",
                hint="Look with `holdtrue list`; restoring again is safe.",
            ) from error
        failpoints.hit("restore.copied")
        live.names.clear()
        return int(count), forgotten
    finally:
        target.close()


def _carry_over(live: StoreConnection, target: StoreConnection, saved: Path | None) -> int:
    """Take into the copy what must outlive the old state: what is forgotten, what is to be erased, which files to name."""
    tombstones = run(live, "SELECT id, forgotten_us FROM tombstones")
    erasures = run(live, "SELECT id, since_us FROM erasures")
    if saved is not None:
        run(live, "BEGIN IMMEDIATE")
        copies.note(live, str(saved), UNVERIFIED)  # also when the rest fails: the file is there
        with live.effect():
            run(live, "COMMIT")
    files = run(live, "SELECT path, kind, at_us, holds FROM copies")
    run(target, "BEGIN IMMEDIATE")
    _insert(target, "tombstones", tombstones)
    rows = run(target, "SELECT m.id FROM memories m JOIN tombstones t ON t.id = m.id")
    for (id_,) in rows:
        memories.forget(target, id_)
    _insert(target, "tombstones", tombstones)  # with the time they were really forgotten at
    _insert(target, "erasures", erasures)
    _insert(target, "copies", files)
    # Numbers of names that other processes remember belong to the old state.
    run(target, "INSERT OR REPLACE INTO meta VALUES('names_epoch', ?)", (os.urandom(8).hex(),))
    run(target, "COMMIT")
    return len(rows)


def _insert(connection: apsw.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    listed = list(rows)
    if not listed:
        return
    columns = ", ".join(f"value ->> {number}" for number in range(len(listed[0])))
    run(connection, f"INSERT OR REPLACE INTO {table} SELECT {columns} FROM json_each(?)", (json.dumps(listed),))


def _open_given(folder: Path, given: Path) -> StoreConnection:
    """Open a backup to read from, so that neither it nor anything beside it changes. Refuses what is none."""
    if own_file(folder, given):
        raise StoreUnusable(f"{given} is a file of the store itself.", hint="Name a backup.")
    try:
        found = given.stat()
    except OSError as error:
        raise SourceUnreadable(f"The backup {given} cannot be read: {error.strerror}.", hint=_NAME_ONE) from error
    if not stat.S_ISREG(found.st_mode):
        raise SourceUnreadable(f"The backup {given} is not a file.", hint=_NAME_ONE)
    if not os.access(given, os.R_OK):
        raise SourceUnreadable(f"The backup {given} cannot be read by this user.", hint=_NAME_ONE)
    if _size(given, "-journal"):
        raise StoreUnusable(
            f"{given.name}-journal lies beside {given}: a transaction in it was never finished.",
            hint="Open it once with the program that wrote it, or name another backup.",
        )
    try:
        connection = _connect_given(given)
        try:
            _check_version(connection, given)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise _problem(error, given, folder) from error
    return connection


def _connect_given(given: Path) -> StoreConnection:
    if os.path.lexists(f"{given}-shm"):
        # Somebody may have it open, as when it is the database of another store: read it as one of them.
        return connect(given, apsw.SQLITE_OPEN_READONLY)
    if not _size(given, "-wal"):
        return connect(given, apsw.SQLITE_OPEN_READONLY, immutable=True)
    # A copy that somebody made by hand, with its WAL. Exclusive access is for connections that could write; this one never
    # does, and its close makes no checkpoint.
    return connect(given, apsw.SQLITE_OPEN_READWRITE, exclusive=True)


def _check_version(source: StoreConnection, given: Path) -> None:
    try:
        version = schema.version_of(source)
    except StoreTooNew as error:
        raise StoreTooNew(
            f"The backup {given} has schema version {source.pragma('user_version')}; this program knows {schema.VERSION}.",
            hint="Upgrade holdtrue: `pip install --upgrade holdtrue`. Nothing was changed.",
        ) from error
    except StoreUnusable as error:
        raise StoreUnusable(f"The backup file {given} is a database, but no HoldTrue store.", hint=_NAME_ONE) from error
    if version == 0:
        raise StoreUnusable(f"The backup file {given} is empty.", hint=_NAME_ONE)


def _refuse(findings: list[str], given: Path) -> None:
    if findings:
        raise StoreCorrupt(f"The backup file {given} is damaged, not the store: {listed(findings)}", hint=_OTHER)


def _problem(error: BaseException, given: Path, folder: Path) -> HoldTrueError:
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return StoreCorrupt(f"The backup file {given} is damaged or no database: {error}.", hint=_OTHER)
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError):
        return StoreUnusable(
            f"SQLite cannot read {given}: {error}.", hint="Copy it, with all that lies beside it, to a folder of yours."
        )
    return store_error(error, folder)


def _size(path: Path, side: str) -> int:
    try:
        return os.stat(f"{path}{side}").st_size  # noqa: PTH116
    except OSError:
        return 0


_NAME_ONE = "Nothing was changed. Name a file that `holdtrue backup` made."
_OTHER = "Nothing was changed. Name another backup: `backups` in the store's folder holds those that it made itself."


def _ignore(done: int, total: int | None) -> None:
    pass
