"""Changing a few keys of a `finding.toml` and no other byte of it: comments, order and line ends stay.

The file is edited as text and then read again: unless it says exactly what it said before plus the change, nothing is
written. A library that keeps formatting would do the same for one more dependency of every project that uses the gate;
a finding is a flat table, and the check afterwards does not depend on how the text was edited.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdtrue_gate.errors import ConfigError

Value = str | datetime.date | list[str]

_KEY = re.compile(r"""[ \t]*(?P<key>[A-Za-z0-9_-]+|"[^"\\\n]*"|'[^'\n]*')[ \t]*=[ \t]*""")
_AFTER = re.compile(r"[ \t]*(#[^\n]*)?\r?\n?\Z")


def literal(value: Value) -> str:
    """A value as TOML source on one line."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, list):
        return "[" + ", ".join(literal(entry) for entry in value) + "]"
    # A JSON string is a TOML basic string, except that TOML also refuses a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def edited(text: str, changes: Mapping[str, Value], removals: Iterable[str] = ()) -> str:
    """The text with top-level keys set (in place, or after `status` when they are new) and others taken out.

    Raises ConfigError when the file is no TOML, or the result would say anything else.
    """
    try:
        before = tomllib.loads(text)
        fresh = _edit(text, changes, set(removals))
        wanted = {key: value for key, value in before.items() if key not in set(removals)} | dict(changes)
        agrees = tomllib.loads(fresh) == wanted
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("finding-toml", f"the file is not TOML: {error}") from error
    if not agrees:
        raise ConfigError(
            "finding-edit", "the file is written in a way that cannot be changed safely", "Edit it by hand."
        )
    return fresh


def write(path: Path, changes: Mapping[str, Value], removals: Iterable[str] = ()) -> None:
    """Change the file at once: a reader sees the old or the new one. Raises ConfigError."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("finding-toml", f"{path.name} is not UTF-8 (byte {error.start})") from error
    fresh = edited(text, changes, removals)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(fresh.encode("utf-8"))
        Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _edit(text: str, changes: Mapping[str, Value], removals: set[str]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    left = dict(changes)
    parts: list[str] = []
    place: int | None = None
    in_table = False
    for statement in _statements(text):
        match = None if in_table else _KEY.match(statement)
        in_table = in_table or statement.lstrip(" \t").startswith("[")
        if in_table and place is None:
            place = len(parts)
        key = match["key"].strip("\"'") if match else ""
        if match is None or not key:
            parts.append(statement)
        elif key in removals:
            continue
        elif key in left:
            parts.append(statement[: match.end()] + literal(left.pop(key)) + _after(statement[match.end() :]))
        else:
            parts.append(statement)
        if key == "status":
            place = len(parts)
    if left:
        at = len(parts) if place is None else place
        if at and not parts[at - 1].endswith("\n"):
            parts[at - 1] += newline
        parts[at:at] = [f"{key} = {literal(value)}{newline}" for key, value in left.items()]
    return "".join(parts)


def _statements(text: str) -> Iterable[str]:
    """The text in pieces: one line each, or as many as a value with line breaks takes."""
    piece = ""
    # Not splitlines: it also breaks at characters that are ordinary ones inside a comment or a text of TOML.
    for one in re.split(r"(?<=\n)", text):
        piece += one
        try:
            tomllib.loads(piece)
        except tomllib.TOMLDecodeError:
            # The value goes on in the next line.
            continue
        if piece:
            yield piece
        piece = ""
    if piece:
        yield piece


def _after(rest: str) -> str:
    """What follows the value that `rest` begins with: blanks, a comment, the end of the line."""
    for end in range(1, len(rest) + 1):
        tail = rest[end:]
        if _AFTER.match(tail):
            try:
                tomllib.loads(f"k = {rest[:end]}")
            except tomllib.TOMLDecodeError:
                continue
            return tail
    return ""
