"""Private copies of a project, to plant a bug in: nothing is ever written to the project itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.repo import GIT_LIMIT_S, Repository, clean_environment


def copy_working_tree(root: Path, target: Path) -> None:
    """Copy the files below `root` that git tracks or would add, as they are on disk now, into the new folder `target`."""
    for file in _files(root):
        source, copy = root / file, target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        elif source.is_file():
            shutil.copy2(source, copy)
        # Anything else is a tracked file that was deleted, or a submodule.


def copy_revision(repository: Repository, revision: str, target: Path) -> None:
    """Write the project as a commit has it into the new folder `target`. Raises UsageError when there is no such commit."""
    listing = repository.listing(repository.resolve(revision))
    prefix = repository.prefix
    repository.write_tree(
        {file.removeprefix(prefix): entry for file, entry in listing.items() if file.startswith(prefix)}, target
    )


def copy_of_copy(tree: Path, target: Path) -> None:
    """Another copy, so that what one run of the tests leaves behind cannot reach the next."""
    shutil.copytree(tree, target, symlinks=True)


def _files(root: Path) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(
            command, cwd=root, env=clean_environment(), capture_output=True, timeout=GIT_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CannotJudgeError("git-slow", f"git ls-files did not answer within {GIT_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        raise CannotJudgeError("git-failed", f"git ls-files: {done.stderr.decode('utf-8', 'replace').strip()}")
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return sorted({name for name in names if name})
