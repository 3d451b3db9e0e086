"""Reading one TOML table field by field, so that a person hears of every mistake in it at once.

Owns the wording of those messages: each names the file, the key, what stands there and what to write instead. A reader
never raises; it notes problems and returns an empty value, and its owner decides what to do when there are any.
"""

from __future__ import annotations

import datetime
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdtrue_gate.errors import ConfigError


class ProblemsError(ConfigError):
    """Files cannot be used; `problems` holds every reason, one a line of the message."""

    def __init__(self, code: str, problems: list[str]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(code, f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}:\n{lines}")
        self.problems = problems


@dataclass(frozen=True)
class Form:
    """A shape that a text must have: the pattern, which the whole text must match, and how to say it to a person."""

    pattern: str
    wanted: str

    def fits(self, text: str) -> bool:
        return re.search(self.pattern, text) is not None


# `\Z` and not `$`, which would let a trailing newline through; every pattern here means the same in a JSON Schema once
# `\Z` is written `$`, because there `$` is the very end.
PROSE = Form(r"\S", "write a sentence")


class TableReader:
    """One table of a TOML file. `where` begins every message, for example `invariants/INV-001-x.toml: sabotage 2`."""

    def __init__(self, table: Mapping[str, object], where: str, problems: list[str]) -> None:
        self._table = table
        self._where = where
        self._problems = problems
        self._known: list[str] = []

    def note(self, message: str) -> None:
        self._problems.append(f"{self._where}: {message}")

    def text(self, key: str, form: Form = PROSE, *, required: bool = True) -> str:
        value = self._take(key, required)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.note(f"`{key}` is {_name(value)}; write a text in quotes.")
            return ""
        if not form.fits(value):
            self.note(f"`{key}` is {value!r}; {form.wanted}.")
            return ""
        return value

    def choice(self, key: str, choices: Iterable[str], *, required: bool = True) -> str:
        wanted = list(choices)
        value = self._take(key, required)
        if value is None:
            return ""
        if not isinstance(value, str) or value not in wanted:
            self.note(f"`{key}` is {value!r}; write one of {', '.join(wanted)}.")
            return ""
        return value

    def texts(self, key: str, form: Form, *, required: bool = True, filled: bool = False) -> tuple[str, ...]:
        """A list of different texts; `filled` refuses an empty one."""
        value = self._take(key, required)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.note(f"`{key}` is {_name(value)}; write a list of texts.")
            return ()
        if filled and not value:
            self.note(f"`{key}` is empty; name at least one.")
        good: list[str] = []
        for entry in value:
            if not isinstance(entry, str):
                self.note(f"`{key}` holds {_name(entry)}; write texts in quotes.")
            elif not form.fits(entry):
                self.note(f"`{key}` holds {entry!r}; {form.wanted}.")
            elif entry in good:
                self.note(f"`{key}` names {entry!r} twice; keep one.")
            else:
                good.append(entry)
        return tuple(good)

    def text_or_texts(self, key: str, form: Form, *, default: str) -> tuple[str, ...]:
        """One text, or a list of them; `default` when the key is not there."""
        value = self._table.get(key)
        if isinstance(value, list):
            return self.texts(key, form, filled=True)
        return (self.text(key, form, required=False) or default,)

    def date(self, key: str, *, required: bool = True) -> datetime.date | None:
        value = self._take(key, required)
        if value is None:
            return None
        if type(value) is not datetime.date:
            self.note(f"`{key}` is {_name(value)}; write a date without quotes, for example 2030-12-31.")
            return None
        return value

    def table(self, key: str) -> TableReader | None:
        value = self._take(key, required=False)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.note(f"`{key}` is {_name(value)}; write a table [{key}].")
            return None
        return TableReader(value, f"{self._where}: {key}", self._problems)

    def tables(self, key: str) -> list[TableReader]:
        value = self._take(key, required=False)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.note(f"`{key}` is {_name(value)}; write tables [[{key}]].")
            return []
        return [
            TableReader(entry, f"{self._where}: {key} {number}", self._problems)
            for number, entry in enumerate(value, start=1)
        ]

    def finish(self) -> None:
        """Call when every known key was asked for: whatever is left is unknown."""
        for key in self._table:
            if key not in self._known:
                close = difflib.get_close_matches(key, self._known, n=1)
                advice = f"did you mean `{close[0]}`?" if close else f"the keys are {', '.join(self._known)}."
                self.note(f"`{key}` is not a key here; {advice}")

    def _take(self, key: str, required: bool) -> object | None:
        self._known.append(key)
        value = self._table.get(key)
        if value is None and required:
            self.note(f"`{key}` is missing.")
        return value


def read_toml(path: Path, where: str, problems: list[str]) -> dict[str, object] | None:
    """The file's tables, or None with the reason in `problems`."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        problems.append(f"{where}: cannot be read: {error.strerror}.")
    except UnicodeDecodeError as error:
        problems.append(f"{where}: is not UTF-8 (byte {error.start}); save it as UTF-8.")
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{where}: is not TOML: {error}.")
    return None


def _name(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or a time")
