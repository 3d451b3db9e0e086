"""Options that every command of `gate` shares, and the one place where its errors become exit codes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from holdtrue_gate.errors import EXIT_CANNOT_JUDGE, EXIT_INTERRUPTED, GateError
from holdtrue_gate.report.kinds import KINDS

F = TypeVar("F", bound=Callable[..., Any])

REPORT_KINDS = ("terminal", "json")
# What a document of judged commits can become.
COMMIT_REPORT_KINDS = KINDS


def directory_option(function: F) -> F:
    """`-C DIR`: passes `directory: Path`, an existing folder (default: the current one)."""
    return click.option(
        "-C",
        "--directory",
        "directory",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(),
        show_default="current folder",
        metavar="DIR",
        help="Work on the project in DIR.",
    )(function)


def json_option(function: F) -> F:
    """`--json`: passes `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(function)


def report_option(function: F) -> F:
    """`--report KIND=FILE` for KIND terminal or json, repeatable: passes `reports: tuple[tuple[str, Path], ...]`."""
    return _reports(REPORT_KINDS)(function)


def commit_report_option(function: F) -> F:
    """`--report KIND=FILE` for every kind that a document of judged commits can become; passes the same."""
    return _reports(COMMIT_REPORT_KINDS)(function)


def _reports(kinds: Sequence[str]) -> Callable[[F], F]:
    def parse(
        _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
    ) -> tuple[tuple[str, Path], ...]:
        return tuple(_report(value, kinds) for value in values)

    return click.option(
        "--report",
        "reports",
        multiple=True,
        metavar="KIND=FILE",
        callback=parse,
        help=f"Also write a report to FILE; KIND is {', '.join(kinds[:-1])} or {kinds[-1]}. May be given several times.",
    )


def _report(value: str, kinds: Sequence[str]) -> tuple[str, Path]:
    """One `KIND=FILE`. What cannot be written is said now, not after minutes of replays."""
    kind, separator, name = value.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{value!r} is not KIND=FILE, for example json=gate.json")
    if kind not in kinds:
        raise click.BadParameter(f"unknown kind {kind!r}; known kinds: {', '.join(kinds)}")
    path = Path(name)
    if path.is_dir():
        raise click.BadParameter(f"{name!r} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise click.BadParameter(f"the folder {str(path.parent)!r} does not exist; make it first")
    return kind, path


def guarded(function: F) -> F:
    """Turns a `GateError` into its message on stderr (with `--json`, a JSON object on stdout) and its exit code.

    Goes directly above the function, below the click decorators, so that it sees the values of the options.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except GateError as error:
            print_error(error, as_json=bool(kwargs.get("as_json")))
            raise click.exceptions.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            # click would exit with 1, and 1 means that the gate says no.
            click.echo("gate: interrupted: nothing was judged", err=True)
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from error

    return wrapper  # type: ignore[return-value]


def print_error(error: GateError, *, as_json: bool) -> None:
    """One error, for a person or for a program."""
    if as_json:
        result = "cannot-judge" if error.exit_code == EXIT_CANNOT_JUDGE else "usage"
        click.echo(
            json.dumps({"schema": "holdtrue.gate/1", "result": result, "error": error.as_json()}, sort_keys=True)
        )
    else:
        click.echo(f"gate: {error.code}: {error.message}", err=True)
        if error.hint:
            click.echo(f"      {error.hint}", err=True)
