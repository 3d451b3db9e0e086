"""Planted bugs as patch files: which files one touches, whether it still applies, and applying it to a copy.

`git apply` does the work, outside every repository: inside a subfolder of one it would silently skip what it thinks
lies elsewhere, and report success.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_LIMIT_S = 60


def touched_files(patch: Path) -> list[str]:
    """The files that the patch changes, relative to the project. Empty when it cannot be read as a patch."""
    done = _git_apply(patch.parent, "--numstat", "-z", str(patch))
    if done.returncode != 0:
        return []
    # `added TAB deleted TAB path NUL`; a rename writes an empty path, then the old and the new one, each with its NUL.
    files: list[str] = []
    for record in done.stdout.split("\0"):
        path = record.rsplit("\t", 1)[-1]
        if path:
            files.append(path)
    return files


def why_not_applicable(root: Path, patch: Path) -> str:
    """Why the patch does not apply to the tree below `root`, in git's words; "" when it does. Changes nothing."""
    return _reason(_git_apply(root, "--check", str(patch)))


def apply(root: Path, patch: Path) -> str:
    """Apply the patch to the tree below `root`; the reason when it does not apply, else ""."""
    return _reason(_git_apply(root, str(patch)))


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == 0:
        return ""
    lines = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
    return "; ".join(lines) or f"git apply ended with {done.returncode}"


def _git_apply(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    outside = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    outside |= {"GIT_CEILING_DIRECTORIES": str(root.resolve().parent), "LC_ALL": "C"}
    # At the top of a repository the ceiling does not hide it, and there it does no harm.
    return subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *arguments],
        cwd=root,
        env=outside,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
