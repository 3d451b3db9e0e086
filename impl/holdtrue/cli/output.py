"""What the command line prints: one JSON document, or lines for people.

Stored text comes from anywhere, so the lines for people show control characters instead of sending them to the
terminal, and no stored text can pass for one of these lines: a line of a memory's text begins with four blanks, a line
about the memory with two at most, and names in it hold no newline. Nothing here can fail on a text: JSON is always valid
UTF-8, lines use what the terminal can show.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from holdtrue.controls import one_line as one_line
from holdtrue.controls import visible as visible
from holdtrue.enforces import enforces
from holdtrue.errors import HoldTrueError
from holdtrue.records import counted as counted
from holdtrue.records import valid_unicode

if TYPE_CHECKING:
    import datetime as dt

    from holdtrue.records import Hit, Record

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PIPE_COLUMNS = 120
_HIT_LINES = 3


class Printer:
    """Writes one command's answer. `as_json` decides the form; colours are for terminals only."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.coloured = not as_json and is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
        self.columns = shutil.get_terminal_size((_PIPE_COLUMNS, 24)).columns if self.coloured else _PIPE_COLUMNS

    def document(self, value: Mapping[str, Any]) -> None:
        write(sys.stdout, to_json(value) + "\n")

    def line(self, text: str = "") -> None:
        write(sys.stdout, text + "\n")

    def notices(self, degraded: Sequence[str]) -> None:
        """What was done without; on stderr, so that it never mixes with an answer."""
        if not self.as_json:
            for sentence in degraded:
                write(sys.stderr, f"holdtrue: degraded: {one_line(sentence)}\n")

    def masked(self, record: Record) -> None:
        """That what was given held a secret, which is not stored."""
        if record.masked and not self.as_json:
            write(sys.stderr, "holdtrue: a secret in it was masked and is not stored\n")

    def style(self, text: str, *names: str) -> str:
        if not self.coloured:
            return text
        return f"\x1b[{';'.join(_STYLES[name] for name in names)}m{text}\x1b[0m"

    # -- memories ------------------------------------------------------------------------------------------------------

    def hit(self, number: int, hit: Hit) -> None:
        head = (
            f"{self.style(f'{number:>2}', 'bold')}  {self.style(f'{hit.score:.2f}', 'green')}  {self._head(hit.record)}"
        )
        self.line(head)
        self._body(hit.record, lines=_HIT_LINES)
        for name, value in hit.why.items():
            self.line(self.style(f"  {name}: {one_line(_plain(value))}", "dim"))

    def row(self, record: Record) -> None:
        """One line: date, id, the beginning of the text."""
        head = f"{local_time(record.at)}  {record.id}  "
        text = one_line(" ".join(record.text.split()))
        self.line(
            f"{self.style(local_time(record.at), 'cyan')}  {self.style(record.id, 'dim')}  "
            + _cut(text, self.columns - len(head))
        )

    def record(self, record: Record) -> None:
        """Everything about one memory."""
        for line in visible(record.text).split("\n"):
            self.line(f"    {line}")
        self.line()
        for name, value in record.as_dict().items():
            if name != "text" and value not in ("", [], {}):
                self.line(f"{self.style(f'{name:<10}', 'dim')}  {one_line(_plain(value))}")

    def _head(self, record: Record) -> str:
        return f"{self.style(local_time(record.at), 'cyan')}  {self.style(record.id, 'dim')}"

    @enforces("INV-021")
    def _body(self, record: Record, *, lines: int) -> None:
        shown = [line for line in visible(record.text).splitlines() if line.strip()]
        for line in shown[:lines]:
            self.line("    " + _cut(line, self.columns - 4))
        if len(shown) > lines:
            self.line(self.style(f"  ... {counted(len(shown) - lines, 'more line', 'more lines')}", "dim"))
        labels = [
            f"{name} {value}"
            for name, value in (
                ("user", _label(record.user)),
                ("project", _label(record.project)),
                ("session", _label(record.session)),
                ("speaker", _label(record.speaker)),
                ("tags", ", ".join(map(_label, record.tags))),
            )
            if value
        ]
        if labels:
            self.line(self.style("  · " + " · ".join(labels), "dim"))


def to_json(value: Mapping[str, Any]) -> str:
    """JSON without NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)


def local_time(moment: dt.datetime) -> str:
    try:
        return moment.astimezone().isoformat(sep=" ", timespec="minutes")[:16]
    except (OverflowError, ValueError, OSError):
        return moment.isoformat(sep=" ", timespec="minutes")[:16]


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


class OutputFailed(HoldTrueError):
    """Standard output takes no more, as a full disk does. What the command was asked for is done."""

    code = "OUTPUT_FAILED"
    exit_code = 4
    default_hint = "What was asked for was done; only the answer is lost. Make room where the output goes."


def write(stream: TextIO | None, text: str) -> None:
    """Write text to a standard stream, in UTF-8 unless it is a terminal with another encoding. None is a closed one.

    A lone surrogate, as an argument or a path may hold one, becomes U+FFFD.
    """
    if stream is None:
        return
    encoding = (is_terminal(stream) and stream.encoding) or "utf-8"
    try:
        stream.flush()
        stream.buffer.write(valid_unicode(text).encode(encoding, "replace"))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(f"The answer could not be written: {error.strerror}.") from error


def _label(value: str) -> str:
    """A name in a line of names: in quotation marks where it could pass for two."""
    ambiguous = any(mark in value for mark in '·,"') or value != value.strip()
    return one_line(json.dumps(value, ensure_ascii=False) if ambiguous else value)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: max(columns - 3, 1)] + "..."
