"""Private keys in PEM (RFC 7468) and armour (RFC 4880): whole blocks, and what there is of one that was cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdtrue.credentials.found import KEY, Credential

_KIND = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_BEGIN = re.compile(f"-----BEGIN {_KIND}", re.IGNORECASE)
_END = re.compile(f"-----END {_KIND}", re.IGNORECASE)
# Between the lines of a key stands a newline, one that was written out, or what joins the lines in source code.
_GAP = r"(?:\s|\\+[nrt]|[\"'+,>#*])*+"
_LINE = re.compile(
    rf"({_GAP})(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset):[^\n\\]{{0,200}}+|([A-Za-z0-9+/=]++))"
)
_BREAK = re.compile(r"\n|\\n")
_LONG_LINE = 16


def find(text: str) -> Iterator[Credential]:
    done = 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < done:
            continue
        dashes = text.find("-----", begin.end())
        end = _END.match(text, dashes) if dashes >= 0 else None
        done = end.end() if end is not None else _end_of_lines(text, begin.end())
        if done > begin.end():
            yield Credential(begin.start(), done, KEY, "private-key")
    done = 0
    for end in _END.finditer(text):
        start = _start_of_lines(text[done : end.start()]) + done
        done = end.end()
        if start < end.start():
            yield Credential(start, done, KEY, "private-key")


def _end_of_lines(text: str, position: int) -> int:
    """Where the lines of a key without an end stop: before the first word of something else."""
    end, on_header_line = position, True
    while (line := _LINE.match(text, end)) is not None:
        on_header_line = on_header_line and "\n" not in line[1] and "\\n" not in line[1]
        # The last line of a key may be short; a short word with others on its line is prose.
        short = line[2] is not None and len(line[2]) < _LONG_LINE
        if short and (on_header_line or text[line.end() : line.end() + 1] not in ("", "\n", "\r", "\\", '"', "'")):
            break
        end = line.end()
    return end


def _start_of_lines(text: str) -> int:
    """Where the lines of a key begin that stand at the end of a text, when its header was cut off."""
    start = len(text)
    breaks = [0, *(found.end() for found in _BREAK.finditer(text))]
    for begin in reversed(breaks):
        line = text[begin:start]
        bare = re.sub(r"\\n$", "", line.strip()).strip("\r\\ ")
        if bare and re.fullmatch("[A-Za-z0-9+/=]{4,}", bare) is None:
            last = re.search("[A-Za-z0-9+/=]{16,}$", bare)
            return start if last is None else begin + line.rindex(last[0])
        start = begin
    return start
