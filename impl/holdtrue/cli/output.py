"""What the command line prints: one JSON document, or lines for people.

Stored text comes from anywhere, so the lines for people show control characters instead of sending them to the
terminal. Nothing here can fail on a text: JSON is always valid UTF-8, lines use what the terminal can show.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from holdtrue.errors import HoldTrueError
from holdtrue.records import valid_unicode

if TYPE_CHECKING:
    import datetime as dt

    from holdtrue.records import Hit, Record

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PIPE_COLUMNS = 120
_HIT_LINES = 3
# C0 but tab and newline, DEL, C1, and the controls that reorder text: a memory may not drive or deceive a terminal.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


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
                write(sys.stderr, f"holdtrue: degraded: {visible(sentence)}\n")

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
            self.line(self.style(f"    {name}: {visible(_plain(value))}", "dim"))

    def row(self, record: Record) -> None:
        """One line: date, id, the beginning of the text."""
        head = f"{local_time(record.at)}  {record.id}  "
        text = visible(" ".join(record.text.split()))
        self.line(
            f"{self.style(local_time(record.at), 'cyan')}  {self.style(record.id, 'dim')}  "
            + _cut(text, self.columns - len(head))
        )

    def record(self, record: Record) -> None:
        """Everything about one memory."""
        self.line(visible(record.text))
        self.line()
        for name, value in record.as_dict().items():
            if name != "text" and value not in ("", [], {}):
                self.line(f"{self.style(f'{name:<10}', 'dim')}  {visible(_plain(value))}")

    def _head(self, record: Record) -> str:
        return f"{self.style(local_time(record.at), 'cyan')}  {self.style(record.id, 'dim')}"

    def _body(self, record: Record, *, lines: int) -> None:
        shown = [line for line in visible(record.text).splitlines() if line.strip()]
        for line in shown[:lines]:
            self.line("    " + _cut(line, self.columns - 4))
        if len(shown) > lines:
            self.line(self.style(f"    ... {len(shown) - lines} more lines", "dim"))
        labels = [
            f"{name} {visible(value)}"
            for name, value in (
                ("user", record.user),
                ("project", record.project),
                ("session", record.session),
                ("speaker", record.speaker),
                ("tags", ", ".join(record.tags)),
            )
            if value
        ]
        if labels:
            self.line(self.style("    " + " · ".join(labels), "dim"))


def to_json(value: Mapping[str, Any]) -> str:
    """JSON without NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)


def visible(text: str) -> str:
    """The text with control characters written out as escapes."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), valid_unicode(text))


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
    default_hint = "What was asked for was done; only the answer is lost. `holdtrue list` shows what is stored."


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


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: max(columns - 3, 1)] + "..."
