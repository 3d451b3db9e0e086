"""The `gate` command: parses the command line, calls a room, prints what it says. No rule of the gate lives here."""

from __future__ import annotations

import importlib
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from holdtrue_gate import decision
from holdtrue_gate.check import Ablation, CheckReport, Options, check
from holdtrue_gate.errors import EXIT_CANNOT_JUDGE, EXIT_NO, EXIT_PASS, UsageError
from holdtrue_gate.lazy import LazyGroup
from holdtrue_gate.options import commit_report_option, directory_option, guarded, json_option

EXITS = {decision.PASS: EXIT_PASS, decision.FAIL: EXIT_NO, decision.CANNOT_JUDGE: EXIT_CANNOT_JUDGE}


# Each is imported when it is asked for: most of a short command's time would go into the modules of the others.
MODULES = {
    "demo": "holdtrue_gate.demo",
    "report": "holdtrue_gate.report_command",
    "trace": "holdtrue_gate.spec_commands",
    "book": "holdtrue_gate.spec_commands",
    "show": "holdtrue_gate.spec_commands",
    "sabotage": "holdtrue_gate.spec_commands",
    "finding": "holdtrue_gate.finding_commands",
    "findings": "holdtrue_gate.finding_commands",
    "release": "holdtrue_gate.release_command",
    "ablate": "holdtrue_gate.ablate_command",
    "prove": "holdtrue_gate.prove_command",
    "revive": "holdtrue_gate.revive_command",
    "cache": "holdtrue_gate.cache_command",
    "weaken": "holdtrue_gate.weaken_command",
}


@click.group(cls=LazyGroup, modules=MODULES, context_settings={"help_option_names": ["-h", "--help"]})
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
@click.option(
    "-j", "--jobs", "jobs", type=click.IntRange(1, 256), metavar="N", help="Replays at a time (default: the cores)."
)
@click.option(
    "--isolate",
    "isolate",
    is_flag=True,
    help="Build an environment from the commit's metadata and run the tests in it.",
)
@click.option(
    "--no-fork",
    "no_fork",
    is_flag=True,
    help="Start pytest anew for each run, instead of forking after it has collected.",
)
@click.option("--no-cache", "no_cache", is_flag=True, help="Run every replay, and keep no record of it.")
@click.option(
    "--allow-weakened",
    "allow_weakened",
    is_flag=True,
    help="Tell which tests became less strict without a reason, and do not fail for it.",
)
@click.option("--ablate", "ablate", is_flag=True, help="For a fix, also ask which of its hunks the new tests need.")
@json_option
@commit_report_option
@guarded
def check_command(
    revision: str,
    directory: Path,
    runs: int | None,
    timeout_s: float | None,
    python: Path | None,
    jobs: int | None,
    isolate: bool,
    no_fork: bool,
    no_cache: bool,
    allow_weakened: bool,
    ablate: bool,
    as_json: bool,
    reports: tuple[tuple[str, Path], ...],
) -> None:
    """Judge whether the new tests of a commit fail without its change, and why.

    Each new test runs on the commit and on its parent with the commit's test files laid over it, in two trees outside
    your own. Your working tree, index and branches are not touched.

    A fix (a `Finding:` trailer, or a subject that begins with fix, fixes or fixed) passes when at least one new test
    fails at the parent with its own assertion, or with what its finding declares, and no new test is without value.
    Beside such a proof, a test of a name that the fix adds is let through, and so is a test that passes on both sides
    when it is an old one that was changed, or a further parameter of the proof. A test that needs a name which the fix
    adds is proof when it goes red by its own assertion at the commit without a part of the change that is not the name.

    A feature needs green tests, and no red at the parent: missing names are natural there, and a test that passes on
    both sides is reported and does not block. A product change without any new test cannot be judged, whatever the
    commit is called.

    Tests that the commit deletes, skips or makes less strict are named, and tests that it changed are also run as they
    were. What is certain fails the commit, of whatever kind, unless its message gives the reason: `Test-change: REASON`.

    \b
    Verdicts that are proof:  own-assertion, own-probabilistic, declared-exception
    Problems (exit 3):        no-parent, history-missing, no-tests, overlay-failed
    """
    _stop_on_terminate()
    if python is not None:
        python = _interpreter(python)
    options = Options(
        runs=runs,
        timeout_s=timeout_s,
        python=python,
        ablation=Ablation.FIXES if ablate else Ablation.WHEN_NEEDED,
        isolate=isolate,
        fork=False if no_fork else None,
        cache=not no_cache,
        allow_weakened=allow_weakened,
        **({} if jobs is None else {"jobs": jobs}),
    )
    if not as_json:
        _load_while_waiting()
    with _progress() as progress:
        report = check(directory, revision, options, progress)
    _publish(report, as_json, reports)
    sys.exit(EXITS[report.result])


# By then the replays are at work, and this process waits for them.
_LOAD_AFTER_S = 0.2


def _load_while_waiting() -> None:
    """Imports what prints the report while the tests run."""

    def load() -> None:
        importlib.import_module("holdtrue_gate.publication")
        importlib.import_module("holdtrue_gate.report.terminal")
        importlib.import_module("rich.console")

    timer = threading.Timer(_LOAD_AFTER_S, load)
    timer.daemon = True
    timer.start()


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
    from holdtrue_gate.publication import publish
    from holdtrue_gate.report import json as json_report

    publish(json_report.as_dict(report), as_json=as_json, reports=reports)


def main() -> None:
    """Entry point of the console script `gate`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background jobs so, and every program below would inherit it: a test that is interrupted on
        # purpose would wait for ever. A handler that does nothing ignores it here alone.
        signal.signal(signal.SIGINT, lambda _number, _frame: None)
    gate(prog_name="gate")
