"""Private files and cross-process locks.

Owns: folders (0700) and files (0600) that are private from creation whatever the umask, and `RecordLock`. Faults it
survives: a folder made by two processes at once, a holder that dies (the kernel releases its lock), a fork (POSIX record
locks are not inherited, so a forked child never believes it holds its parent's turn).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from holdtrue.errors import StoreReadOnly, StoreUnusable


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
                folder.mkdir(mode=0o700)
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


def create_private_file(path: Path) -> None:
    """Create an empty file with mode 0600 if there is none. Never truncates."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    os.close(descriptor)


_OTHER_PATH = "Choose another --store path."


class RecordLock:
    """An exclusive POSIX record lock on a whole side file, one holder a process.

    The kernel drops a record lock when ANY descriptor of the file is closed by the process, so nothing else may open
    the side file, and this object keeps its one descriptor until `close`.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

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
