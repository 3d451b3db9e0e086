"""`gate ablate`: the table of a commit's new tests against the hunks of its change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdtrue_gate.ablate import JUDGED, HunkReport, Status, Table, place
from holdtrue_gate.check import Ablation, CommitReport, Options, check
from holdtrue_gate.decision import function_of
from holdtrue_gate.errors import UsageError
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.output import MARKS, Reports, emit, exit_with, interruptible, line, safe
from holdtrue_gate.replay_options import interpreter, replay_options, spinner

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "holdtrue.gate.ablate/1"

_STYLES = {
    Status.PINNED: "green",
    Status.UNPINNED: "bold red",
    Status.SKIPPED: "dim",
    Status.INSEPARABLE: "cyan",
}
_NAMED_TESTS = 3


@click.command("ablate")
@click.argument("revision", metavar="[REV]", default="HEAD")
@directory_option
@replay_options
@json_option
@report_option
@guarded
def ablate_command(
    revision: str,
    directory: Path,
    runs: int | None,
    timeout_s: float | None,
    python: Path | None,
    as_json: bool,
    reports: Reports,
) -> None:
    """Take each hunk of a commit's change back by itself; do its new tests notice?

    A hunk is pinned when a new test fails without it, by its own assertion, and unpinned when all of them pass. Hunks that
    cannot work without each other are taken back together. Comments, docstrings and annotations are skipped. Exit code 0:
    every hunk that could be judged is pinned; 1: one is not; 3: none could be judged.
    """
    if ".." in revision:
        raise UsageError(
            "bad-revision", f"{revision!r} is a range", "Name one commit; `gate check --ablate` takes ranges."
        )
    options = Options(runs=runs, timeout_s=timeout_s, python=interpreter(python), ablation=Ablation.ALL)
    with interruptible(), spinner("taking each hunk back"):
        (commit,) = check(directory, revision, options).commits
    data = as_dict(revision, commit)
    emit(data, lambda console: show(console, commit), as_json, reports)
    exit_with(data["result"])


def why_nothing(commit: CommitReport) -> str:
    """Why no hunk of the commit could be judged; "" when one could."""
    if any(hunk.status in JUDGED for hunk in commit.hunks):
        return ""
    if commit.problems:
        return commit.problems[0].message
    if not commit.hunks:
        return "the commit changes no product file"
    if all(hunk.status is Status.SKIPPED for hunk in commit.hunks):
        return "the change is one of words alone"
    return next(hunk.reason for hunk in commit.hunks if hunk.status is not Status.SKIPPED)


def as_dict(revision: str, commit: CommitReport) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "schema": SCHEMA,
        "revision": revision,
        "sha": commit.sha,
        "parent": commit.parent,
        "subject": commit.subject,
        "result": Table(commit.hunks).result,
        "reason": why_nothing(commit),
        "hunks": [hunk.as_dict() for hunk in commit.hunks],
    }


def show(console: Console, commit: CommitReport) -> None:
    """The table for a person: a row a hunk, the tests that pin it, and what to know of those that none does."""
    from rich.table import Table as Grid
    from rich.text import Text

    line(console, f"{commit.sha[:10]}  {safe(commit.subject)}", style="bold")
    if commit.hunks:
        grid = Grid("hunk", "where", "status", "pinned by")
        grid.columns[1].overflow = "fold"
        grid.columns[3].overflow = "fold"
        for hunk in commit.hunks:
            style = _STYLES.get(hunk.status, "yellow")
            name = "+".join(hunk.group) if hunk.group else hunk.id
            grid.add_row(
                Text(hunk.id if name == hunk.id else f"{hunk.id} ({name})"),
                Text(safe(place(hunk))),
                Text(str(hunk.status), style=style),
                Text(_pins(hunk)),
            )
        console.print(grid)
        for hunk in commit.hunks:
            if hunk.status is not Status.PINNED:
                line(console, f"  {hunk.id} {safe(place(hunk))}: {safe(hunk.reason)}")
    nothing = why_nothing(commit)
    if nothing:
        line(console, f"  {safe(nothing)}")
    judged = [hunk for hunk in commit.hunks if hunk.status in JUDGED]
    pinned = sum(hunk.status is Status.PINNED for hunk in judged)
    console.print(f"gate ablate: {MARKS[Table(commit.hunks).result]}, {pinned} of {len(judged)} judged hunks pinned")


def _pins(hunk: HunkReport) -> str:
    # The parameters of one test say the same thing; the file's name is enough to find it.
    counts = Counter(function_of(id_).rpartition("/")[2] for id_ in hunk.tests)
    names = [safe(name) + (f" ({count} parameters)" if count > 1 else "") for name, count in counts.items()]
    more = len(names) - _NAMED_TESTS
    return "\n".join([*names[:_NAMED_TESTS], f"and {more} more"] if more > 0 else names)
