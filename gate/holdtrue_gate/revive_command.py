"""`gate revive`: would today's tests notice if an old bug came back?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdtrue_gate import revive
from holdtrue_gate.check import Options
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.output import Reports, emit, exit_with, interruptible, line, safe
from holdtrue_gate.replay_options import interpreter, replay_options, spinner

if TYPE_CHECKING:
    from rich.console import Console

_WORDS = {revive.NOTICED: "noticed", revive.NOT_NOTICED: "not noticed", revive.CANNOT_JUDGE: "cannot judge"}
_STYLES = {revive.NOTICED: "bold green", revive.NOT_NOTICED: "bold red", revive.CANNOT_JUDGE: "bold yellow"}


@click.command("revive")
@click.argument("ref", metavar="REF")
@click.option(
    "--at", "at", default="HEAD", show_default=True, metavar="REV", help="The commit to take the fix back on."
)
@click.option(
    "--tests",
    "tests",
    multiple=True,
    metavar="PATH",
    help="Tests to ask: a file, a folder or a node id; may be given several times (default: those of its finding).",
)
@directory_option
@replay_options
@json_option
@report_option
@guarded
def revive_command(
    ref: str,
    at: str,
    tests: tuple[str, ...],
    directory: Path,
    runs: int | None,
    timeout_s: float | None,
    python: Path | None,
    as_json: bool,
    reports: Reports,
) -> None:
    """Take the fix REF back on today's code, as far as it still applies; would today's tests notice?

    Its product hunks are looked for at their place, and where their lines have moved to; those that no longer apply are
    named. The tests are those that its finding names today, else its new test files. Exit code 0: noticed, by an assertion
    of their own; 1: not noticed; 3: cannot judge.
    """
    options = Options(runs=runs, timeout_s=timeout_s, python=interpreter(python))
    with interruptible(), spinner("taking the fix back") as progress:
        revival = revive.run(directory, ref, at, tests, options, progress)
    emit(revival.as_dict(), lambda console: show(console, revival), as_json, reports)
    exit_with(revival.result)


def show(console: Console, revival: revive.Revival) -> None:
    """The answer for a person."""
    line(console, f"{revival.sha[:10]}  {safe(revival.subject)}", style="bold")
    line(console, f"  taken back at {revival.at[:10]}")
    for part in revival.parts:
        hunk = part.place.hunk
        where = f"{safe(part.place.file)}:{part.place.line}" if part.place.applies else ""
        told = " ".join(word for word in (part.how, where, f"({safe(part.why)})" if part.why else "") if word)
        line(console, f"  {'-' if part.taken else ' '} {hunk.id} {safe(hunk.file)}:{hunk.head[0]}  {told}")
    for notice in revival.tests:
        if notice.outcome != "passed":
            what = safe(f"{notice.exception or notice.outcome}: {notice.message}")
            line(console, f"  {'✔' if notice.notices else '·'} {safe(notice.id)}  {safe(notice.location or '')}")
            line(console, f"      {what if len(what) <= 160 else what[:159] + '…'}")
    console.print(f"[{_STYLES[revival.answer]}]{_WORDS[revival.answer]}[/]", end="  ")
    line(console, safe(revival.reason))
