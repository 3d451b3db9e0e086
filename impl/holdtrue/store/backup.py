"""Backups: a copy of one committed state as a single file, made while others read and write.

Owns: the folder `backups` of a store, the rows of `copies` for backups. The pages are copied by SQLite from one read
transaction that is open all the while, so no step sees a later state than the first. Faults it survives: writers at full
rate; a kill at any point (the final name is given in one step to a file that was read back whole and synced, so it is
there whole or not at all); a full disk; a name that is taken; a store that cannot be written.

What a backup holds a later `forget` must be able to name. So its path is recorded before its state is chosen, and the
record stays in the future until it is made: whatever is forgotten meanwhile, the record is seen.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import apsw

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.errors import (
    HoldTrueError,
    InvalidInput,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    TargetExists,
    TargetRefused,
)
from holdtrue.files import exists, make_private_folder
from holdtrue.records import shown_path
from holdtrue.store import schema
from holdtrue.store.connection import DATABASE_NAME, open_connection, store_error
from holdtrue.store.copies import CopyRecord, Note
from holdtrue.store.draft import BACKUP, Advance, Draft, connect, copy_pages, drafting
from holdtrue.store.erase import BACKUPS
from holdtrue.store.statements import run
from holdtrue.store.view import View

KEEP = 10
KEEP_LIMIT = 1_000
STEP_PAGES = 128  # 512 KiB: what a writer that needs the disk waits for at most
PAUSE_S = 0.001
# What is written without a sync is written out by the next commit of a writer, which then waits for all of it.
SYNC_PAGES = 512
_NAME = re.compile(r"memory-\d{8}T\d{12}Z\.db")
_SIDES = ("-journal", "-wal", "-shm")
_OWN = frozenset({"turn.outer", "turn.inner", *(f"{DATABASE_NAME}{side}" for side in ("", *_SIDES))})
_SHOWN = 3


@dataclass(frozen=True)
class BackupReceipt:
    """What a backup left: its absolute path, its size, how many memories it holds, how long it took.

    `verified`: the file was read back, alone; it has no damage and everything derived agrees with the texts. `recorded` is
    False where the store could not be written: then a later forget cannot name this file. `removed` are the older backups
    that went to make room.
    """

    path: str
    bytes: int
    memories: int
    seconds: float
    recorded: bool
    verified: bool = True
    removed: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        removed = [shown_path(path) for path in self.removed]
        return {**asdict(self), "path": shown_path(self.path), "removed": removed}


@enforces("INV-009")
def back_up(
    folder: Path,
    target: Path | None,
    note: Note,
    *,
    replace: bool = False,
    keep: int = KEEP,
    progress: Advance | None = None,
) -> BackupReceipt:
    """Copy the store's present state to a file of its own and read it back before it gets its name.

    Without a `target` it goes to the store's folder `backups`, of which the newest `keep` stay. Raises `TargetRefused`,
    `TargetExists`, `StoreCorrupt` or another `StoreError`; then nothing is left under the name.
    """
    began_s = time.monotonic()
    chosen = _own_target(folder) if target is None else _checked_target(folder, target, replace=replace)
    record = CopyRecord(note, str(chosen), "backup")
    try:
        with drafting(chosen.parent, BACKUP) as draft:
            record.begin()
            _copy(folder, draft, progress or _ignore, pages=STEP_PAGES, pause_s=PAUSE_S)
            failpoints.hit("backup.copied")
            findings, memories = verify(draft.path)
            if findings:
                raise StoreCorrupt(
                    f"The store is damaged, so no backup was made: {listed(findings)}",
                    hint="Run `holdtrue doctor`; older backups are as they were.",
                )
            size = draft.path.stat().st_size
            failpoints.hit("backup.before_publish")
            draft.publish(chosen, replace=replace)
            failpoints.hit("backup.published")
    except BaseException as error:
        record.withdraw()
        if isinstance(error, apsw.Error | OSError):
            raise _problem(error, chosen, folder) from error
        raise
    removed = make_room(chosen, keep) if target is None else ()
    return BackupReceipt(
        path=str(chosen),
        bytes=size,
        memories=memories,
        seconds=round(time.monotonic() - began_s, 3),
        recorded=record.end(removed),
        removed=removed,
    )


def save_present(folder: Path, progress: Advance) -> Path:
    """Copy the present state into `backups` without reading it back: a damaged one as well.

    For the turn in which it is about to be replaced: what is stored after the copy would be in neither. Raises a
    `StoreError`; then nothing is left under the name.
    """
    chosen = _own_target(folder)
    try:
        with drafting(chosen.parent, BACKUP) as draft:
            _copy(folder, draft, progress, pages=STEP_PAGES)
            draft.publish(chosen, replace=False)
    except (apsw.Error, OSError) as error:
        raise _problem(error, chosen, folder) from error
    return chosen


def given_path(path: object) -> Path:
    """The absolute path that a caller named. Raises `InvalidInput`."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput(f"The path must be a string or path, not {type(path).__name__}.", hint="Name a file.")
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise InvalidInput("The path is blank or malformed.", hint="Name a file, for example ~/memories.db.")
    try:
        os.fsencode(text)
        chosen = Path(text).expanduser()
    except (UnicodeError, RuntimeError) as error:
        raise InvalidInput(f"The path {text[:80]!a} cannot be used: {error}.", hint="Name a file.") from error
    return Path(os.path.abspath(chosen))  # noqa: PTH100 - resolve() would follow links


def own_file(folder: Path, path: Path) -> bool:
    """Whether the path is one of the store's own files, by whatever name, there already or not."""
    if path.name.casefold() in _OWN and os.path.realpath(path.parent) == os.path.realpath(folder):
        return True
    return any(_same(path, folder / name) for name in _OWN)


def verify(path: Path) -> tuple[list[str], int]:
    """What is wrong with a file that is opened alone, read-only, and how many memories it holds."""
    try:
        connection = connect(path, apsw.SQLITE_OPEN_READONLY)
        try:
            view = View(connection)
            # The derived tables of an older version are not those that this program knows.
            findings = view.verify() if view.schema_version() == schema.VERSION else damage(connection)
            (memories,) = run(connection, "SELECT count(*) FROM memories")[0]
            return findings, int(memories)
        finally:
            connection.close()
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        return [f"{error}"], 0


def damage(connection: apsw.Connection) -> list[str]:
    """SQLite's own check of a database: pages, indexes, constraints, the full-text index."""
    return [str(row[0]) for row in run(connection, "PRAGMA integrity_check") if row[0] != "ok"]


def _copy(folder: Path, draft: Draft, progress: Advance, *, pages: int, pause_s: float = 0.0) -> None:
    """Copy one committed state of the store into the draft."""
    source = open_connection(folder, write=False)
    target = draft.open()
    try:
        run(source, "BEGIN")
        # The first read chooses the state; every step copies from it, however much is written meanwhile.
        run(source, "SELECT 1 FROM sqlite_schema LIMIT 1")
        failpoints.hit("backup.snapshot")

        def advance(done: int, total: int | None) -> None:
            failpoints.hit("backup.step")
            if pause_s and done // SYNC_PAGES > (done - pages) // SYNC_PAGES:
                draft.sync()
            progress(done, total)

        copy_pages(source, target, advance, pages=pages, pause_s=pause_s)
        run(source, "ROLLBACK")
        source.check_unchanged()
        make_single(target)
    finally:
        target.close()
        source.close()


def make_single(connection: apsw.Connection) -> None:
    """Make a database that was copied from one with a WAL a single file that needs none beside it."""
    mode = connection.pragma("journal_mode", "delete")
    if mode != "delete":
        raise StoreError(f"SQLite kept the journal mode {mode}.", hint="Nothing was changed; try again.")


def _own_target(folder: Path) -> Path:
    if not exists(folder / DATABASE_NAME):
        raise StoreError(f"There is no store at {folder}.")
    place = folder / BACKUPS
    try:
        make_private_folder(place)
    except StoreError as error:
        raise type(error)(error.message, hint="No backup was made. Name a path for it.") from error
    return place / f"memory-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%f}Z.db"


def _checked_target(folder: Path, target: Path, *, replace: bool) -> Path:
    """The target, if a backup may go there. Raises `TargetRefused` or `TargetExists`."""
    if own_file(folder, target):
        raise TargetRefused(f"{target} is a file of the store itself.", hint="Name another file.")
    if target.is_symlink():
        target = Path(os.path.realpath(target))  # the file that it leads to is meant, and stays where it is
    if not target.parent.is_dir():
        raise TargetRefused(f"There is no folder {target.parent}.", hint="Make it first, or name another path.")
    if target.is_dir():
        raise TargetRefused(f"{target} is a folder.", hint=f"Name a file in it, for example {target / 'memory.db'}.")
    if os.path.lexists(target) and not target.is_file():
        raise TargetRefused(f"{target} is no ordinary file.", hint="Name another path.")
    for side in _SIDES:
        # SQLite would take what stands in it for a part of the new file.
        if os.path.lexists(f"{target}{side}"):
            raise TargetRefused(
                f"{target.name}{side} lies beside {target}: a program has a database open there, or died with it open.",
                hint="Name another path.",
            )
    if not replace and os.path.lexists(target):
        raise _taken(target)
    return target


def _taken(target: Path) -> TargetExists:
    return TargetExists(f"{target} is there already.", path=str(target))


def make_room(newest: Path, keep: int, spared: Path | None = None) -> tuple[str, ...]:
    """Remove the oldest backups of the store's own folder, so that with the newest one `keep` are left, and `spared`."""
    place = newest.parent
    # One that was written after the newest is another process's, made meanwhile.
    others = sorted(
        name
        for name in os.listdir(place)  # noqa: PTH208 - names
        if _NAME.fullmatch(name) and name != newest.name and _written_ns(place / name) <= _written_ns(newest)
    )
    removed = []
    for name in others[: max(0, len(others) - (keep - 1))]:
        path = place / name
        if spared is not None and _same(path, spared):
            continue
        with contextlib.suppress(OSError):  # what cannot go now goes with the next
            path.unlink()
            removed.append(str(path))
    return tuple(removed)


def _written_ns(path: Path) -> int:
    """When a file was written; for ever ago where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _problem(error: BaseException, target: Path, folder: Path) -> HoldTrueError:
    """What an error of SQLite or of the system means for the backup."""
    if isinstance(error, FileExistsError):
        return _taken(target)
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, apsw.FullError) or number in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"The disk that holds {target.parent} is full.",
            hint="No backup was made. Free space there, or name a path on another disk.",
        )
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreReadOnly(
            f"{target.parent} cannot be written by this user.", hint="No backup was made. Name another path."
        )
    return store_error(error, folder)


def _same(one_path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one_path, other)  # noqa: PTH121
    except OSError:
        return False


def listed(findings: Sequence[str]) -> str:
    more = len(findings) - _SHOWN
    return "; ".join(findings[:_SHOWN]) + (f"; and {more} more." if more > 0 else ".")


def _ignore(done: int, total: int | None) -> None:
    pass
