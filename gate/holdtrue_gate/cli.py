"""The `gate` command: parses the command line, calls a room, prints what it says. No rule of the gate lives here."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from holdtrue_gate import decision
from holdtrue_gate.check import CheckReport, Options, check
from holdtrue_gate.demo import demo_command
from holdtrue_gate.errors import EXIT_CANNOT_JUDGE, EXIT_NO, EXIT_PASS, UsageError
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.spec_commands import COMMANDS

EXITS = {decision.PASS: EXIT_PASS, decision.FAIL: EXIT_NO, decision.CANNOT_JUDGE: EXIT_CANNOT_JUDGE}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdtrue")
def gate() -> None:
    """Prove that a fix is proved by its test, and that every invariant is kept by code and tests.

    Exit codes: 0 pass, 1 the gate says no, 2 usage or configuration, 3 cannot judge.
    """


@gate.command("check")
@click.argument("revision", metavar="[REV|A..B]", default="HEAD")
@directory_option
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Runs of each new test on each side (default: [tool.gate] runs, or 3).",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Seconds one test may take (default: timeout_s, or 60).",
)
@click.option(
    "--python",
    "python",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Interpreter that runs the tests (default: the project's .venv or venv, then the active one, then this one).",
)
@json_option
@report_option
@guarded
def check_command(
    revision: str,
    directory: Path,
    runs: int | None,
    timeout_s: float | None,
    python: Path | None,
    as_json: bool,
    reports: tuple[tuple[str, Path], ...],
) -> None:
    """Judge whether the new tests of a commit fail without its change, and why.

    Each new test runs on the commit and on its parent with the commit's test files laid over it, in two trees outside
    your own. Your working tree, index and branches are not touched.

    A fix (a `Finding:` trailer, or a subject that begins with fix, fixes or fixed) passes when at least one new test
    fails at the parent with its own assertion, or with what its finding declares, and no new test is without value.
    Beside such a proof, a test of a name that the fix adds is let through, and so is a test that passes on both sides
    when it is an old one that was changed, or a further parameter of the proof.

    A feature needs green tests, and no red at the parent: missing names are natural there, and a test that passes on
    both sides is reported and does not block. A product change without any new test cannot be judged, whatever the
    commit is called.

    \b
    Verdicts that are proof:  own-assertion, own-probabilistic, declared-exception
    Problems (exit 3):        no-parent, history-missing, no-tests, overlay-failed
    """
    _stop_on_terminate()
    if python is not None:
        python = _interpreter(python)
    options = Options(runs=runs, timeout_s=timeout_s, python=python)
    with _progress() as progress:
        report = check(directory, revision, options, progress)
    _publish(report, as_json, reports)
    sys.exit(EXITS[report.result])


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A spinner with the commit at work, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading the history") as status:
        yield lambda text: status.update(f"judging {text}")


def _interpreter(given: Path) -> Path:
    found = shutil.which(str(given))
    if found is None:
        raise UsageError(
            "no-interpreter", f"{given} is not a program that can be run", "Give the path of a Python interpreter."
        )
    # Absolute, but not resolved: a link into a virtual environment is what makes it that environment.
    return Path(found).absolute()


def _stop_on_terminate() -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # As Ctrl-C does: the trees must be removed and the replays ended.
    signal.signal(signal.SIGTERM, stop)


def _publish(report: CheckReport, as_json: bool, reports: tuple[tuple[str, Path], ...]) -> None:
    from holdtrue_gate.report import json as json_report
    from holdtrue_gate.report import terminal

    for kind, path in reports:
        try:
            if kind == "json":
                path.write_text(json_report.render(report) + "\n", encoding="utf-8")
            else:
                terminal.write(report, path)
        except OSError as error:
            raise UsageError(
                "report-unwritable", f"the report {path} cannot be written: {error.strerror}", "Choose another file."
            ) from error
    if as_json:
        click.echo(json_report.render(report))
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        text = terminal.render(report, width=width, colour=sys.stdout.isatty())
        encoding = sys.stdout.encoding or "utf-8"
        click.echo(text.encode(encoding, "replace").decode(encoding))


for _command in (demo_command, *COMMANDS):
    gate.add_command(_command)


def main() -> None:
    """Entry point of the console script `gate`."""
    gate(prog_name="gate")
