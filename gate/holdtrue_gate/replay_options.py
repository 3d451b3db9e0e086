"""Options of the commands that replay tests: how often, how long, with which interpreter."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from holdtrue_gate.errors import UsageError
from holdtrue_gate.options import F


def replay_options(function: F) -> F:
    """`--runs`, `--timeout`, `--python`: passes `runs: int | None, timeout_s: float | None, python: Path | None`."""
    for option in (
        click.option(
            "--python",
            "python",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="PATH",
            help="Interpreter that runs the tests (default: as for `gate check`).",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(0, min_open=True),
            metavar="S",
            help="Seconds one test may take (default: timeout_s, or 60).",
        ),
        click.option(
            "--runs",
            type=click.IntRange(1, 1000),
            metavar="N",
            help="Runs of each test on each side (default: [tool.gate] runs, or 3).",
        ),
    ):
        function = option(function)
    return function


@contextmanager
def spinner(what: str) -> Iterator[Callable[[str], None]]:
    """What is at work, on a terminal's stderr only; called with a text, it tells that."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(what) as status:
        yield lambda text: status.update(f"{what}: {escape(text)}")


def interpreter(given: Path | None) -> Path | None:
    """The interpreter that the command line names, as an absolute path. Raises UsageError when it cannot be run."""
    if given is None:
        return None
    found = shutil.which(str(given))
    if found is None:
        raise UsageError(
            "no-interpreter", f"{given} is not a program that can be run", "Give the path of a Python interpreter."
        )
    # Absolute, but not resolved: a link into a virtual environment is what makes it that environment.
    return Path(found).absolute()
