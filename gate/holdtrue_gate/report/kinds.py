"""The kinds of report by name, and how a document becomes one; a format's module is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from holdtrue_gate.errors import UsageError

KINDS = ("terminal", "json", "junit", "sarif", "github", "gitlab", "html")


def render(kind: str, document: Mapping[str, Any]) -> str:
    """The report of one kind as text, without a final newline. `document` is of the schema `holdtrue.gate/1`."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind of report {kind!r}")
    if kind == "json":
        from holdtrue_gate.report import json

        return json.text(document)
    text: str = import_module(f"holdtrue_gate.report.{kind}").render(document)
    return text


def write(kind: str, document: Mapping[str, Any], path: Path) -> None:
    """Writes a report. Raises UsageError (`report-unwritable`) when the file cannot be written."""
    text = render(kind, document)
    try:
        # Bytes: the same on every system, and a lone surrogate in a path cannot end the report.
        path.write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError as error:
        raise UsageError(
            "report-unwritable", f"the report {path} cannot be written: {error.strerror}", "Choose another file."
        ) from error
