"""How commands print: one document for a person or a program, the reports that were asked for, and being interrupted."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from holdtrue_gate.errors import EXIT_CANNOT_JUDGE, EXIT_NO, EXIT_PASS, CannotJudgeError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

Reports = tuple[tuple[str, Path], ...]

EXITS = {"pass": EXIT_PASS, "fail": EXIT_NO, "cannot-judge": EXIT_CANNOT_JUDGE}
MARKS = {"pass": "[green]pass[/]", "fail": "[red]fail[/]", "cannot-judge": "[yellow]cannot judge[/]"}
_REPORT_WIDTH = 120


def document(data: dict[str, Any]) -> str:
    """The JSON text of a report, sorted and without the final newline: the same bytes for the same data."""
    return json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True)


def emit(data: dict[str, Any], show: Callable[[Console], None], as_json: bool, reports: Reports = ()) -> None:
    """Print the answer for a person or a program, and write the reports that were asked for. Raises UsageError."""
    text = document(data)
    for kind, _ in reports:
        if kind not in ("json", "terminal"):
            raise UsageError(
                "report-kind",
                f"this command writes no {kind} report",
                "It writes --report json=FILE and terminal=FILE.",
            )
    if as_json:
        click.echo(text)
    else:
        show(console())
    for kind, path in reports:
        try:
            with path.open("w", encoding="utf-8") as file:
                if kind == "json":
                    file.write(text + "\n")
                else:
                    show(console(file))
        except OSError as error:
            raise UsageError(
                "report-unwritable", f"the report {path} cannot be written: {error.strerror}", "Choose another file."
            ) from error


def console(file: Any = None) -> Console:
    """A console for stdout, or for a report."""
    # Rich costs a tenth of a second to import, which `--json` and `--help` do not have to pay.
    from rich.console import Console

    width = _REPORT_WIDTH if file is not None or not sys.stdout.isatty() else None
    return Console(file=file, width=width, highlight=False, soft_wrap=False, emoji=False)


def line(console: Console, text: str, style: str | None = None) -> None:
    """One line exactly as it is: not wrapped, so that it can be searched, and with no markup read into it."""
    console.print(text, markup=False, soft_wrap=True, style=style)


def safe(text: str) -> str:
    """Text of a repository on one line, without what a terminal would obey: control characters, lone surrogates."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in " ".join(text.split())
    )
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def exit_with(result: str) -> None:
    """End the command with the exit code of a result; a pass returns."""
    if EXITS[result] != EXIT_PASS:
        raise click.exceptions.Exit(EXITS[result])


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the replays and remove the copies, and are no answer about the project."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        raise CannotJudgeError("interrupted", "it was interrupted, so nothing is known", "Run it again.") from None
    finally:
        signal.signal(signal.SIGTERM, before)
