"""Drafts: database files under a temporary name, on their way to become a backup or the source of a restore.

Owns: files named `STEM-<16 hex digits>.partial` in the folder that is given, private from creation, and the lock file
beside each. Faults it survives: a kill at any point (the next one who works there removes what is left; a draft that
somebody works on is locked and left alone), a name that is taken, a folder that does not know hard links.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from holdtrue.files import open_private_file, sync_folder
from holdtrue.store import connection as connections
from holdtrue.store.connection import StoreConnection

Advance = Callable[[int, int | None], None]

# What drafts are of: a backup, an export, the source of a restore, a new store, a copy of a damaged one.
BACKUP, EXPORT, RESTORE, FRESH, DAMAGED = ".holdtrue-backup", ".holdtrue-export", "restoring", "salvaging", "damaged"
STEMS = (BACKUP, EXPORT, RESTORE, FRESH, DAMAGED)
_ENDING, _LOCK = ".partial", ".lock"
_LEFT = r"-([0-9a-f]{16})\.(?:partial(?:-journal|-wal|-shm)?|lock)"
_SIDES = ("-journal", "-wal", "-shm")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Draft:
    """One draft. Its path is nobody else's; what `open` gave is closed before `publish`."""

    def __init__(self, folder: Path, stem: str) -> None:
        descriptor = None
        while descriptor is None:
            token = os.urandom(8).hex()
            lock = folder / f"{stem}-{token}{_LOCK}"
            descriptor = _locked(lock)
        self.path = folder / f"{stem}-{token}{_ENDING}"
        self._lock = lock
        self._descriptor: int | None = descriptor
        try:
            os.close(open_private_file(self.path))
        except BaseException:
            self.discard()
            raise

    def open(self) -> StoreConnection:
        """A writing connection to the draft, configured as those of a store are; it never creates the file.

        It keeps its journal in memory and waits for no disk: a draft that a kill cuts is thrown away, and `publish` syncs
        one that is not.
        """
        connection = connect(self.path, apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.pragma("journal_mode", "memory")
            connection.pragma("synchronous", "OFF")
            connection.pragma("cache_size", -1_024)  # what is copied goes to the file soon, not all at the end
        except BaseException:
            connection.close()
            raise
        return connection

    def sync(self) -> None:
        """Wait until what was written so far is on the disk.

        Closing the descriptor drops this process's locks on the draft: nobody else opens it, so nobody misses them.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def publish(self, target: Path, *, replace: bool) -> None:
        """Give the draft, synced, its final name. Raises `FileExistsError` where there is one, unless it is replaced."""
        self.sync()
        if replace:
            self.path.replace(target)
        else:
            self._claim(target)
        sync_folder(target.parent)

    def _claim(self, target: Path) -> None:
        try:
            # A link fails where the name is taken, in one step; a rename would overwrite.
            os.link(self.path, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # As on a memory stick. Claim the name with an empty file, then replace that: a kill between the two leaves
            # the empty file, which no reader takes for a store.
            os.close(open_private_file(target))
            try:
                self.path.replace(target)
            except BaseException:
                with contextlib.suppress(OSError):
                    target.unlink()
                raise

    def discard(self) -> None:
        """Remove what is left under the temporary names. Does nothing the second time."""
        if self._descriptor is None:
            return
        _remove(self.path)
        with contextlib.suppress(OSError):
            self._lock.unlink()
        os.close(self._descriptor)
        self._descriptor = None


@contextmanager
def drafting(folder: Path, stem: str) -> Iterator[Draft]:
    """A new draft in the folder, gone at the end unless it was published. What killed ones left there goes first."""
    sweep(folder, stem)
    draft = Draft(folder, stem)
    try:
        yield draft
    finally:
        draft.discard()


def pattern(*stems: str) -> str:
    """What the names of all drafts of these stems match, of their lock files, and of what SQLite lays beside them."""
    return f"(?:{'|'.join(map(re.escape, stems))}){_LEFT}"


def is_lock(name: str) -> bool:
    """Whether this is the name of a draft's lock file, which holds nothing."""
    return name.endswith(_LOCK) and _OF_ANY.fullmatch(name) is not None


def drafts(folder: Path) -> list[Path]:
    """The drafts in a folder, worked on or left by a kill, with what SQLite laid beside them. Raises `OSError`."""
    names = sorted(name for name in os.listdir(folder) if _OF_ANY.fullmatch(name) and not is_lock(name))  # noqa: PTH208
    return [folder / name for name in names]


def sweep(folder: Path, stem: str) -> None:
    """Remove the drafts of this stem that nobody works on any more."""
    left = re.compile(pattern(stem))
    tokens = {found[1] for name in os.listdir(folder) if (found := left.fullmatch(name))}  # noqa: PTH208 - names
    for token in tokens:
        lock = folder / f"{stem}-{token}{_LOCK}"
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder / f"{stem}-{token}{_ENDING}")
                lock.unlink()
            finally:
                os.close(descriptor)


def copy_pages(
    source: apsw.Connection, target: apsw.Connection, advance: Advance, *, pages: int, pause_s: float = 0.0
) -> None:
    """Copy a database into another, `pages` at a step with a pause after each; `advance` is called after each.

    All steps are one write transaction of the target: it ends with the last step, or nothing has changed.
    """
    with target.backup("main", source, "main") as copying:
        while True:
            with target.effect() if isinstance(target, StoreConnection) else contextlib.nullcontext():
                done = copying.step(pages)
            advance(copying.page_count - copying.remaining, copying.page_count)
            if done:
                return
            time.sleep(pause_s)


def connect(path: Path, flags: int, *, immutable: bool = False, exclusive: bool = False) -> StoreConnection:
    """Open a database file that is not a store's own, configured as those are.

    `immutable`: nobody changes it, so it is read without locks. `exclusive`: nobody else has it open, so that SQLite
    keeps the index of a WAL in memory and leaves no file of shared memory.
    """
    name = f"file:{quote(os.fsencode(path))}{'?immutable=1' if immutable else ''}"
    flags |= apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOMUTEX
    connection = StoreConnection(name, flags, os.path.realpath(path))
    try:
        if exclusive:
            connection.pragma("locking_mode", "exclusive")  # before anything else: the first read opens the WAL
        connections._configure(connection, None)
        connection.leave_files_alone()
    except BaseException:
        connection.close()
        raise
    return connection


_OF_ANY = re.compile(pattern(*STEMS))


def _locked(lock: Path) -> int | None:
    """A descriptor that holds the lock of a new draft; None where somebody swept the file up before it was held.

    The lock is a file of its own: on some systems a flock on the draft itself would keep SQLite out of it.
    """
    descriptor = open_private_file(lock)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there, here = os.stat(lock), os.fstat(descriptor)  # noqa: PTH116
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove(path: Path) -> None:
    for side in ("", *_SIDES):
        with contextlib.suppress(OSError):
            os.unlink(f"{path}{side}")  # noqa: PTH108
