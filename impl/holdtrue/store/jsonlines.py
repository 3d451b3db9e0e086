"""JSON Lines from anywhere: each line's objects, whatever stands between them.

Owns: how a file of records is cut into lines and objects. Faults it survives: a torn last line, two objects on one line
(each that is complete is read), blank lines, CRLF, a byte order mark, bytes that are no UTF-8, lone surrogates, a line
without end, nesting without end. Reads one line at a time, so memory is bounded by `LINE_LIMIT_BYTES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

LINE_LIMIT_BYTES = 8 * 1024 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = " \t\r\n"


class Line(NamedTuple):
    """A line without its end. `data` is None where it was longer than the limit; `ended` is False for a last one."""

    number: int
    data: bytes | None
    ended: bool


def lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file, counted from 1. Raises `OSError`."""
    number = 0
    while True:
        data = file.readline(LINE_LIMIT_BYTES + 1)
        if not data:
            return
        number += 1
        if number == 1:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        if len(data) > LINE_LIMIT_BYTES and not data.endswith(b"\n"):
            yield Line(number, None, _skip(file))
        else:
            yield Line(number, data, data.endswith(b"\n"))


def _skip(file: BinaryIO) -> bool:
    """Read to the end of the line. True when it has one."""
    while True:
        data = file.readline(LINE_LIMIT_BYTES)
        if data.endswith(b"\n") or not data:
            return bool(data)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What is no JSON, as a sentence. `cut` says that it breaks off as a torn line does."""

    reason: str
    cut: bool = False


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def values(data: bytes) -> Iterator[object]:
    """The JSON values of a line, in order; an `Unreadable` ends them where no further one can be read."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        try:
            text = data.decode("utf-8", "surrogatepass")  # what escapes of halves look like after a careless program
        except UnicodeDecodeError:
            yield Unreadable(f"the line is not UTF-8 (byte {error.start + 1})", cut=error.end >= len(data))
            return
    place, length = 0, len(text)
    while True:
        while place < length and text[place] in _BLANKS:
            place += 1
        if place >= length:
            return
        try:
            value, place = _decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            # A parser that had read everything would still have wanted more.
            cut = error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip(_BLANKS))
            what = "the line breaks off in the middle of a record" if cut else f"the line is not JSON: {error.msg}"
            yield Unreadable(f"{what} (column {error.colno})", cut=cut)
            return
        except RecursionError:
            yield Unreadable("the line is nested too deep")
            return
        except ValueError as error:  # a number without end, NaN
            yield Unreadable(f"the line is not JSON: {str(error)[:80]}")
            return
        yield value
