"""Replays that need not run twice: their records, kept by the content of everything that they rest on.

Format: one file an entry, `<key>.json` with `{"schema", "key", "sha256", "payload"}`; the payload is a text and its digest
says whether it came back whole. It lies in a folder of the user's own (mode 0700). Faults this module survives: an entry
that is torn, forged, too large, a link or a folder; several gates at once (an entry is written beside and renamed); a full
or read-only disk. A cache that does not work costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SCHEMA = "holdtrue.gate.cache/1"
ENTRY_LIMIT_BYTES = 16 * 2**20
TOTAL_LIMIT_BYTES = 256 * 2**20
_FOLDER = "holdtrue-gate"
_PART = "replays"


def home() -> Path:
    """The gate's folder below the user's cache folder (XDG Base Directory specification; it need not exist)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path is invalid by the specification and must be ignored.
    base = Path(given) if given and Path(given).is_absolute() else Path.home() / ".cache"
    return base / _FOLDER


def private_folder(folder: Path) -> None:
    """Makes a folder below `home()` and that itself, both with mode 0700. Raises OSError."""
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


@dataclass(frozen=True)
class Info:
    """Where the cache is, and what it holds."""

    folder: str
    entries: int
    bytes: int
    limit_bytes: int
    environments: int
    environment_bytes: int


class Cache:
    """The entries below a folder. `None` is the answer to every question that it cannot answer for sure."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = TOTAL_LIMIT_BYTES) -> None:
        self._home = folder or home()
        self._folder = self._home / _PART
        self._limit_bytes = limit_bytes

    def get(self, key: str) -> str | None:
        """The payload of a key, when it is there and whole."""
        path = self._path(key)
        if not _private(self._folder):
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(descriptor, "rb") as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode) or state.st_size > ENTRY_LIMIT_BYTES:
                    return None
                entry = json.loads(file.read(ENTRY_LIMIT_BYTES + 1))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("schema") != SCHEMA or entry.get("key") != key:
            return None
        payload = entry.get("payload")
        if not isinstance(payload, str) or entry.get("sha256") != _digest(payload):
            return None
        with contextlib.suppress(OSError):
            # Its time says when it was last of use: the oldest goes first.
            os.utime(path)
        return payload

    def put(self, key: str, payload: str) -> bool:
        """Keeps a payload; whether it was kept."""
        entry = {"schema": SCHEMA, "key": key, "sha256": _digest(payload), "payload": payload}
        data = json.dumps(entry).encode("ascii")
        if len(data) > min(ENTRY_LIMIT_BYTES, self._limit_bytes):
            return False
        try:
            private_folder(self._folder)
            if not _private(self._folder):
                return False
            descriptor, name = tempfile.mkstemp(prefix=".new-", dir=self._folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                Path(name).replace(self._path(key))
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError:
            return False
        self._shrink()
        return True

    def clear(self) -> int:
        """Removes everything, environments that were built too; the number of entries."""
        from holdtrue_gate.repo import remove_tree

        number = sum(1 for _ in self._entries())
        for path in (self._home / part for part in (_PART, "environments")):
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
        return number

    def info(self) -> Info:
        """What there is."""
        found = list(self._entries())
        environments = self._home / "environments"
        built = [path for path in environments.iterdir() if path.is_dir()] if environments.is_dir() else []
        return Info(
            str(self._home),
            len(found),
            sum(size for _, size, _ in found),
            self._limit_bytes,
            len(built),
            sum(path.lstat().st_size for folder in built for path in folder.rglob("*") if path.is_file()),
        )

    def _path(self, key: str) -> Path:
        # The key is ours, but a name is made of nothing but digits whoever calls.
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """(time of last use, bytes, path) of each file in the folder."""
        with contextlib.suppress(OSError), os.scandir(self._folder) as found:
            for entry in found:
                with contextlib.suppress(OSError):
                    state = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(state.st_mode):
                        yield state.st_mtime, state.st_size, entry.path

    def _shrink(self) -> None:
        """Removes the entries that were of use longest ago, until the rest fits."""
        found = sorted(self._entries())
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total <= self._limit_bytes:
                return
            with contextlib.suppress(OSError):
                Path(path).unlink()
            total -= size


def _digest(payload: str) -> str:
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()


def _private(folder: Path) -> bool:
    """Whether the folder is one, our own, and nobody else may write into it: a forged record would be a forged verdict."""
    try:
        state = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(state.st_mode):
        return False
    return not hasattr(os, "getuid") or (state.st_uid == os.getuid() and not state.st_mode & 0o022)
