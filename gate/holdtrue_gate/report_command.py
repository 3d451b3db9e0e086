"""`gate report`: a stored document becomes any of the reports."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdtrue_gate.errors import UsageError
from holdtrue_gate.options import COMMIT_REPORT_KINDS, guarded, json_option
from holdtrue_gate.publication import say
from holdtrue_gate.report import document, kinds


@click.command("report")
@click.argument("kind", metavar="KIND", type=click.Choice(COMMIT_REPORT_KINDS))
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path, allow_dash=True))
@json_option
@guarded
def report_command(kind: str, file: Path | None, as_json: bool) -> None:
    """Print a report of a stored check.

    FILE is what `gate check --json` printed or `--report json=FILE` wrote; without it, or with `-`, stdin is read. Nothing
    is run again, and the exit code is 0 whatever the document says. KIND is terminal, json, junit, sarif, github, gitlab
    or html. With --json an error is printed as JSON.
    """
    found = document.read(_bytes(file))
    if kind == "terminal":
        from holdtrue_gate.report import terminal

        say(terminal.render(found, colour=sys.stdout.isatty()))
    else:
        # Bytes: the same in every locale.
        click.echo(kinds.render(kind, found).encode("utf-8", "backslashreplace"))


def _bytes(file: Path | None) -> bytes:
    if file is None or str(file) == "-":
        return sys.stdin.buffer.read(document.SIZE_LIMIT_BYTES + 1)
    try:
        with file.open("rb") as stream:
            return stream.read(document.SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(
            "unreadable-document", f"{file} cannot be read: {error.strerror}", "Name a file that `gate check` wrote."
        ) from error
