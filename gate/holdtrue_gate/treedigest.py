"""One digest for the files of a project, wherever they lie: a commit in git, or a copy on disk.

SHA-256 over one line a file, sorted by path: its mode as git writes it (100644, 100755, 120000), the SHA-256 of its bytes
or of where the link points, and its path. Byte-code caches and submodules are left out, as in every tree that the gate
writes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from holdtrue_gate.errors import UsageError
from holdtrue_gate.repo import EMPTY_MODES, EXECUTABLE_MODE, LINK_MODE, Repository

_FILE_MODE = "100644"


@dataclass(frozen=True)
class Subject:
    """What was judged: the digest of the files, and the commit that has exactly them; None when HEAD has others."""

    sha256: str
    commit: str | None

    def as_dict(self) -> dict[str, object]:
        """The shape that `--json` prints."""
        return {"commit": self.commit, "sha256": self.sha256}


def of_folder(root: Path) -> str:
    """The digest of every file below a folder."""
    found: dict[str, tuple[str, str]] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*files, *links):
            path = Path(folder) / name
            found[path.relative_to(root).as_posix()] = _entry(path)
    return _digest(found)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_commit(repository: Repository, sha: str) -> str:
    """The digest of the project as a commit has it. Raises CannotJudgeError."""
    prefix = repository.prefix
    found: dict[str, tuple[str, str]] = {}
    for path, entry in repository.listing(sha).items():
        if not path.startswith(prefix) or entry.mode in EMPTY_MODES or "__pycache__" in path.split("/"):
            continue
        mode = entry.mode if entry.mode in (LINK_MODE, EXECUTABLE_MODE) else _FILE_MODE
        found[path.removeprefix(prefix)] = (mode, hashlib.sha256(repository.blob(entry.sha)).hexdigest())
    return _digest(found)


def subject(checkout: Path, copy: Path, revision: str | None) -> Subject:
    """What a copy of a project is: of `revision`, or of the work tree around `checkout` (None)."""
    digest = of_folder(copy)
    with Repository(checkout) as repository:
        try:
            sha = repository.resolve(revision or "HEAD")
        except UsageError:
            # No commit yet.
            return Subject(digest, None)
        return Subject(digest, sha if of_commit(repository, sha) == digest else None)


def _entry(path: Path) -> tuple[str, str]:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return LINK_MODE, hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    mode = EXECUTABLE_MODE if status.st_mode & stat.S_IXUSR else _FILE_MODE
    return mode, file_sha256(path)


def _digest(entries: dict[str, tuple[str, str]]) -> str:
    whole = hashlib.sha256()
    for path in sorted(entries):
        mode, content = entries[path]
        whole.update(f"{mode} {content} ".encode() + os.fsencode(path) + b"\0")
    return whole.hexdigest()
