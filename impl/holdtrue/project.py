"""Project identity: the name under which the memories of a folder are kept.

Owns `project_of`. Everything within one git repository is one project: its sub-folders and its linked worktrees; a folder
outside every repository is a project of its own. Git is never run: its files are read, bounded in size, and believed only
where they cannot claim another's project. A folder that says "I am a worktree of that repository" counts as one when the
repository says so too, so a hostile checkout never gets at the memories of another project.

Faults it survives: a current folder that is gone; files of git that are cut, huge, no text or no files; loops of links;
worktrees that were moved or whose repository is gone (each is then a project of its own).

How a repository is laid out, and which file names what: gitrepository-layout(5), git-worktree(1), git-config(1).
"""
# Paths are the strings of os.path here: pathlib normalises them, and what git's files name is to be taken as it stands.
# ruff: noqa: PTH109, PTH112, PTH113, PTH114, PTH118, PTH119, PTH120

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from holdtrue.records import NAME_LIMIT

_LINE_LIMIT_BYTES = 16 * 1024
_CONFIG_LIMIT_BYTES = 1024 * 1024
_DIGEST_LETTERS = 32

_SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)\s*(\"[^\n]*\")?\s*\]")
_WORKTREE = re.compile(r"\s*worktree\s*=\s*(.*?)\s*", re.IGNORECASE)


def project_of(folder: Path | str | None = None) -> str:
    """The project of a folder, by default the current one: the resolved path of its repository, else its own.

    The repository is the main one for a linked worktree, the inner one within a submodule, and the bare one where nothing
    is checked out. Empty when the current folder is gone. Never raises.

    A path that cannot be a name as it stands (longer than a name may be, not UTF-8, not NFC) is shortened and ends in
    `//` and a digest of its bytes. No resolved path holds `//`, so two folders never share a name.
    """
    try:
        start = os.path.realpath(os.getcwd() if folder is None else folder)
    except (OSError, ValueError):
        return ""
    for place in _upwards(start):
        root = _repository_at(place)
        if root is not None:
            return _name(root)
    return _name(start)


def _upwards(path: str) -> Iterator[str]:
    yield path
    while os.path.dirname(path) != path:
        path = os.path.dirname(path)
        yield path


def _repository_at(place: str) -> str | None:
    """The root of the repository whose checkout or git directory a folder is; None when it is neither."""
    dot_git = os.path.join(place, ".git")
    if os.path.isdir(dot_git):
        # One that may not be looked into is taken for a repository: to keep apart is the safe mistake.
        if _is_git_directory(dot_git) or not os.access(dot_git, os.X_OK):
            return place
    elif (git_directory := _named_by_file(place)) is not None:
        return _main_of_worktree(place, git_directory) or place
    return _main_root(place) if _is_git_directory(place) else None


def _is_git_directory(path: str) -> bool:
    head = os.path.join(path, "HEAD")
    return (
        (os.path.isfile(head) or os.path.islink(head))
        and os.path.isdir(os.path.join(path, "objects"))
        and os.path.isdir(os.path.join(path, "refs"))
    )


def _named_by_file(place: str) -> str | None:
    """The git directory that the file `.git` of a folder names, as in a submodule or a linked worktree."""
    text = _read(os.path.join(place, ".git"), _LINE_LIMIT_BYTES)
    if text is None or not text.startswith("gitdir:"):
        return None
    return os.path.realpath(os.path.join(place, text.removeprefix("gitdir:").strip()))


def _main_of_worktree(place: str, git_directory: str) -> str | None:
    """The main root of the repository of which a folder is a linked worktree; None unless both sides say that it is."""
    common_line = _read(os.path.join(git_directory, "commondir"), _LINE_LIMIT_BYTES)
    back_line = _read(os.path.join(git_directory, "gitdir"), _LINE_LIMIT_BYTES)
    if common_line is None or back_line is None:
        return None
    common = os.path.realpath(os.path.join(git_directory, common_line.strip()))
    back = os.path.realpath(os.path.join(git_directory, back_line.strip()))
    # The first line is what keeps a forged `commondir` from naming a repository that knows nothing of this folder.
    believed = (
        os.path.dirname(git_directory) == os.path.join(common, "worktrees")
        and back == os.path.realpath(os.path.join(place, ".git"))
        and _is_git_directory(common)
    )
    return _main_root(common) if believed else None


def _main_root(common: str) -> str:
    """The folder in which a git directory is checked out, where that folder names it; else the git directory itself."""
    if os.path.basename(common) == ".git":
        return os.path.dirname(common)
    candidates = [os.path.dirname(common)]  # a bare repository in a hidden folder beside its worktrees
    worktree = _configured_worktree(common)  # a submodule
    if worktree is not None:
        candidates.insert(0, os.path.realpath(os.path.join(common, worktree)))
    return next((each for each in candidates if _named_by_file(each) == common), common)


def _configured_worktree(git_directory: str) -> str | None:
    """`core.worktree` of a git directory's own configuration."""
    found = None
    for name in ("config", "config.worktree"):
        section = ""
        for line in (_read(os.path.join(git_directory, name), _CONFIG_LIMIT_BYTES) or "").split("\n"):
            if header := _SECTION.match(line):
                section = header[1].lower() + (header[2] or "")
            elif section == "core" and (setting := _WORKTREE.fullmatch(line)):
                found = setting[1].strip('"').replace('\\"', '"').replace("\\\\", "\\")
    return found or None


def _read(path: str, limit_bytes: int) -> str | None:
    """The text of a regular file of at most `limit_bytes` without NUL; None for anything else. Never blocks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = os.read(descriptor, limit_bytes + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if len(data) > limit_bytes or b"\0" in data else os.fsdecode(data)


def _name(path: str) -> str:
    if path.startswith("//"):  # POSIX lets two slashes at the front stand for something else; no system here does
        path = "/" + path.lstrip("/")
    data = os.fsencode(path)
    readable = unicodedata.normalize("NFC", data.decode("utf-8", "replace"))
    if readable == path and len(path) <= NAME_LIMIT:
        return path
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST_LETTERS]
    return f"{readable[: NAME_LIMIT - len(digest) - 2]}//{digest}"
