"""How a command says what it found about commits: on stdout, in reports, and to a CI that listens."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from holdtrue_gate.report import kinds

GITHUB_VARIABLE = "GITHUB_ACTIONS"


def publish(document: Mapping[str, Any], *, as_json: bool, reports: Sequence[tuple[str, Path]] = ()) -> None:
    """Writes the reports, prints the document (as JSON or for a person), and in a step of GitHub Actions annotates the
    change and adds to the step's summary. Raises UsageError (`report-unwritable`)."""
    for kind, path in reports:
        kinds.write(kind, document, path)
    on_github = os.environ.get(GITHUB_VARIABLE) == "true"
    if as_json:
        click.echo(kinds.render("json", document))
    else:
        text = _for_a_person(document)
        say(_quieted(text) if on_github else text)
    if on_github:
        from holdtrue_gate.report import github

        # stdout may be a document; the runner reads stderr as well.
        click.echo(github.render(document), err=True)
        github.add_summary(document)


def say(text: str) -> None:
    """Prints text; what the terminal's encoding does not have becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding))


def _for_a_person(document: Mapping[str, Any]) -> str:
    from holdtrue_gate.report import terminal

    width = shutil.get_terminal_size((120, 24)).columns
    return terminal.render(document, width=width, colour=sys.stdout.isatty())


def _quieted(text: str) -> str:
    from holdtrue_gate.report import github

    return github.quieted(text)
