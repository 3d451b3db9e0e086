"""The JSON document as every other report reads it: checked once, then asked for through these functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from holdtrue_gate.errors import UsageError

Data = Mapping[str, Any]

SCHEMA_FILE = "gate-1.schema.json"
SIZE_LIMIT_BYTES = 256 * 1024 * 1024
_HINT = "Give the output of `gate check --json`, or what `--report json=FILE` wrote."
_LINE = re.compile(r"(?P<file>.+):(?P<line>[0-9]{1,9})", re.DOTALL)


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of `holdtrue.gate/1`."""
    text = resources.files("holdtrue_gate.report").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def read(data: bytes) -> dict[str, Any]:
    """The document in some bytes. Raises UsageError (`bad-document`) for what is none: nothing of it is believed before."""
    if len(data) > SIZE_LIMIT_BYTES:
        raise _bad(f"it is larger than {SIZE_LIMIT_BYTES // 2**20} MiB")
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _bad("it is not UTF-8") from None
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except ValueError as error:
        raise _bad(f"it is not JSON: {str(error)[:120]}") from None
    if isinstance(found, dict) and isinstance(found.get("error"), dict):
        raise _bad(f"it tells of an error ({str(found['error'].get('code'))[:60]}) and holds no commits")
    validate(found)
    return dict(found)


def validate(document: object) -> None:
    """Raises UsageError (`bad-document`) with the first place where a document is not of the schema."""
    # jsonschema costs a tenth of a second to import; only a stored document pays.
    from jsonschema import Draft202012Validator

    try:
        error = next(iter(Draft202012Validator(schema()).iter_errors(document)), None)
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    if error is not None:
        message = error.message if len(error.message) <= 160 else f"is not what {error.validator!r} asks for"
        raise _bad(f"at {error.json_path[:120]}: {message}")


def _bad(why: str) -> UsageError:
    return UsageError("bad-document", f"this is no gate report: {why}", _HINT)


def place(location: object) -> tuple[str, int | None]:
    """`file:line` as its two parts; no file gives an empty string."""
    text = location if isinstance(location, str) else ""
    match = _LINE.fullmatch(text)
    return (match["file"], int(match["line"])) if match else (text, None)


def file_of(id_: str) -> str:
    """The file of a node id."""
    return id_.partition("::")[0]


def in_repository(file: str) -> bool:
    """Whether a path can be one inside the repository: relative, and leading nowhere above it."""
    return bool(file) and not file.startswith(("/", "\\")) and ":" not in file[:2] and ".." not in file.split("/")


def span(value: object) -> tuple[int, int] | None:
    """The first line of a hunk's side and how many lines it has: (first, lines); None when it has none to tell."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        first, lines = value
        if _whole(first) and _whole(lines):
            return int(first), int(lines)
    return None


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def spoken(value: object) -> str:
    """A value of any type as a person reads it; nothing is an empty string."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def red_run(test: Data) -> Data | None:
    """The run that shows how a test fails: the first red one of the side that gave the verdict, else any red one."""
    red = [run for run in test["runs"] if run["outcome"] != "passed"]
    same = [run for run in red if run["side"] == test.get("side", "parent")]
    found: list[Data] = same or red
    return found[0] if found else None
