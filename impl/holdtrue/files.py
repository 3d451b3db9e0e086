"""Private files and cross-process locks.

Owns: folders (0700) and files (0600) that are private from creation whatever the umask (INV-016), the sync of a folder,
the whole replacement of a file (INV-019), and `RecordLock`. Faults it survives: a folder made by two processes at once, a
umask that takes the owner's own bits, a link laid in the place of a file, a kill while a file is replaced, a holder that
dies (the kernel releases its lock), a fork (POSIX record locks are not inherited, so a forked child never believes it
holds its parent's turn).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from pathlib import Path

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.errors import StoreReadOnly, StoreUnusable

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


@enforces("INV-016")
def make_private_folder(path: Path) -> None:
    """Create a folder with mode 0700, parents included; an existing one is left as it is.

    Raises `StoreUnusable` when a file stands in the way or the folder cannot be made.
    """
    try:
        missing = []
        current = path
        while not exists(current) and current != current.parent:
            missing.append(current)
            current = current.parent
        for folder in reversed(missing):
            # The mode is given to mkdir itself: a later chmod would leave a moment in which others can look in.
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=_FOLDER_MODE)
                failpoints.hit("files.folder_made")
                if stat.S_IMODE(folder.lstat().st_mode) & 0o777 != _FOLDER_MODE:
                    folder.chmod(_FOLDER_MODE)  # a umask can only take away: this gives the owner's bits back
    except OSError as error:
        if error.errno == errno.EROFS:
            raise StoreReadOnly(f"{path} cannot be made: its file system is read-only.", hint=_OTHER_PATH) from error
        raise StoreUnusable(f"Cannot create the folder {path}: {error.strerror}.", hint=_OTHER_PATH) from error
    if not path.is_dir():
        raise StoreUnusable(f"{path} is not a folder.", hint="A store is a folder: choose another --store path.")


def exists(path: Path) -> bool:
    """Whether there is something at the path. Raises `StoreUnusable` where no path like it can be."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except NotADirectoryError as error:
        raise StoreUnusable(
            f"{path.parent} is not a folder.", hint="A store is a folder: choose another --store path."
        ) from error
    except OSError as error:
        raise StoreUnusable(f"Cannot look at {str(path)[:200]!a}: {error.strerror}.", hint=_OTHER_PATH) from error
    return True


def open_private_file(path: Path) -> int:
    """Create a file with mode 0600 and return its descriptor, open for reading and writing.

    Raises `FileExistsError` when there is anything at the path, a link included, and other kinds of `OSError`.
    """
    return _open_private(path, os.O_EXCL)


def create_private_file(path: Path) -> None:
    """Create an empty file with mode 0600 if there is none. Never truncates."""
    try:
        descriptor = open_private_file(path)
    except FileExistsError:
        return
    os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make what was created, renamed or removed in a folder durable. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that keeps no folder back has no sync of one
            raise
    finally:
        os.close(descriptor)


@enforces("INV-016")
def _open_private(path: Path, flags: int) -> int:
    """Open a file for reading and writing, made with mode 0600 if there is none; a link is not followed."""
    # The mode is given to open itself: a later chmod would leave a moment in which others can open it.
    descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
    try:
        failpoints.hit("files.file_made")
        found = os.fstat(descriptor)
        if stat.S_IMODE(found.st_mode) & 0o777 != _FILE_MODE and found.st_uid == os.geteuid():
            # The umask took the owner's bits, or somebody gave others some: SQLite lends this mode to a new database.
            os.fchmod(descriptor, _FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


_OTHER_PATH = "Choose another --store path."

_NAME_CUT = 40  # letters of a name that go into the names of its side files, so that those are never too long


@enforces("INV-019")
def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in the place of a file, with mode 0600: a reader, also one after a crash, finds the old content or the
    new one, whole. Any number of processes may do this to one file at once; the last one wins.

    Raises `OSError`; then the old content is in place, unless the message says that it may be either.
    A link at the path would itself be replaced: resolve it before.
    """
    temporary = path.with_name(f".{path.name[:_NAME_CUT]}.{os.getpid()}-{os.urandom(8).hex()}.tmp")
    descriptor = open_private_file(temporary)
    try:
        try:
            _keep_owner(descriptor, path)
            failpoints.hit("files.temporary_made")
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        failpoints.hit("files.before_replace")
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    failpoints.hit("files.replaced")
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; the file may be the old one or the new one") from error


def remove_leftovers(path: Path) -> None:
    """Remove what killed writers of a file left beside it. Only for the holder of a lock that every writer takes."""
    pattern = re.compile(rf"\.{re.escape(path.name[:_NAME_CUT])}\.[0-9]+-[0-9a-f]{{16}}\.tmp")
    with os.scandir(path.parent) as entries:
        left = [entry.path for entry in entries if pattern.fullmatch(entry.name)]
    for leftover in left:
        with contextlib.suppress(OSError):
            os.unlink(leftover)  # noqa: PTH108 - the folder may hold many, and only these become paths


def lock_path(path: Path) -> Path:
    """The side file on which the writers of a file take turns."""
    return path.with_name(f".{path.name[:_NAME_CUT]}.lock")


def _keep_owner(descriptor: int, path: Path) -> None:
    """With sudo a file must stay its owner's: one of root's with mode 0600 would shut them out."""
    with contextlib.suppress(OSError):
        before = path.stat()
        if os.geteuid() == 0 and before.st_uid != 0:
            os.fchown(descriptor, before.st_uid, before.st_gid)


class RecordLock:
    """An exclusive POSIX record lock on a whole side file, one holder a process.

    The kernel drops a record lock when ANY descriptor of the file is closed by the process, so nothing else may open
    the side file, and this object keeps its one descriptor until `close`.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = _open_private(path, 0)

    def acquire(self) -> None:
        """Wait for the lock. The wait cannot be cancelled from Python: only the writer thread may call this."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)

    def try_acquire(self) -> bool:
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def release(self) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
