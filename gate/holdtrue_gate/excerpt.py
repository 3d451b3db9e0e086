"""Excerpts of source around the frames of a failure, read from the replayed tree while it is still there."""

from __future__ import annotations

import io
import os
import stat
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdtrue_gate.journal import Frame, Raised, RunRecord

LINES_BEFORE = 5
LINES_AFTER = 2
LINE_CHARS = 240
FILE_LIMIT_BYTES = 2 * 1024 * 1024
PLACES_LIMIT = 400

Excerpt = tuple[tuple[int, str], ...]


def _links(raised: Raised) -> Iterator[Raised]:
    waiting = [raised]
    while waiting:
        link = waiting.pop()
        yield link
        waiting.extend(link.members)
        waiting.extend(other for other in (link.cause, link.context) if other is not None)


def _last(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame.inside and not frame.hidden][-1:]


def _places(record: RunRecord) -> list[tuple[str, int]]:
    """Where a reading of this record may say that the failure is: the last own frame of each exception in it."""
    found: dict[tuple[str, int], None] = {}
    raised = [error for error in record.collect_errors.values() if error is not None]
    raised += [phase.raised for node in record.nodes.values() for phase in node.failed if phase.raised is not None]
    for one in raised:
        for link in _links(one):
            for frame in (*_last(link.frames), *_last(link.remote)):
                found[frame.file, frame.line] = None
    return list(found)[:PLACES_LIMIT]


def _lines(path: Path, tree: Path) -> list[str]:
    """The lines of a regular file of the tree; none of one that lies elsewhere, is too large or cannot be read.

    The journal was written by a process that ran untrusted code: a name in it may be anything.
    """
    try:
        if not path.resolve().is_relative_to(tree.resolve()):
            return []
        # A FIFO would let us wait for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size > FILE_LIMIT_BYTES:
                return []
            data = file.read(FILE_LIMIT_BYTES)
    except (OSError, ValueError, RuntimeError):
        return []
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, UnicodeDecodeError):
        encoding = "utf-8"
    return data.decode(encoding, "replace").split("\n")


def of(record: RunRecord, tree: Path) -> dict[str, Excerpt]:
    """For each place `file:line` that a reading may name: the lines around it as (number, text), numbers from 1."""
    files: dict[str, list[str]] = {}
    found: dict[str, Excerpt] = {}
    for file, line in _places(record):
        lines = files[file] if file in files else files.setdefault(file, _lines(tree / file, tree))
        if 1 <= line <= len(lines):
            first, last = max(1, line - LINES_BEFORE), min(len(lines), line + LINES_AFTER)
            # A line may be a whole minified file.
            shown = [(number, lines[number - 1].rstrip("\r")[:LINE_CHARS]) for number in range(first, last + 1)]
            while len(shown) > 1 and shown[-1][0] > line and not shown[-1][1].strip():
                shown.pop()
            found[f"{file}:{line}"] = tuple(shown)
    return found
