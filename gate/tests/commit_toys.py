"""Toy repositories for the gate: a parent commit and a commit under judgement, in a few lines each."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from holdtrue_gate.check import CheckReport, CommitReport, Options, check
from holdtrue_gate.verdict import Judgement

SETTINGS = "[tool.gate]\nplugin_autoload = false\nruns = {runs}\ntimeout_s = {timeout_s}\n"
IDENTITY = (
    "-c",
    "user.name=T",
    "-c",
    "user.email=t@example.org",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "init.defaultBranch=main",
)


class Toy:
    """A repository in `root`. Contents are dedented; a value of None removes the file; bytes are written as they are."""

    def __init__(self, root: Path, *, runs: int = 1, timeout_s: float = 30) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.git("init", "-q")
        self.write({"pyproject.toml": SETTINGS.format(runs=runs, timeout_s=timeout_s)})

    def git(self, *arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *IDENTITY, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    def write(self, files: Mapping[str, str | bytes | None]) -> None:
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(textwrap.dedent(content).lstrip("\n"), encoding="utf-8")

    def commit(self, message: str, files: Mapping[str, str | bytes | None]) -> str:
        self.write(files)
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def check(self, revision: str = "HEAD", **options: object) -> CheckReport:
        return check(self.root, revision, Options(**{"python": Path(sys.executable), **options}))  # type: ignore[arg-type]

    def judged(self, **options: object) -> CommitReport:
        """The report of the newest commit."""
        (commit,) = self.check(**options).commits
        return commit

    def verdicts(self, **options: object) -> dict[str, str]:
        return verdicts(self.judged(**options))


def verdicts(commit: CommitReport) -> dict[str, str]:
    """Verdicts by the part of the node id after the file."""
    return {test.id.partition("::")[2] or test.id: str(test.verdict) for test in commit.tests}


def only(commit: CommitReport) -> Judgement:
    """The one test of a commit."""
    (test,) = commit.tests
    return test
