"""The JSON report of a `gate sabotage` run, brought along to a release: read, and held against the tree it is for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from holdtrue_gate.errors import UsageError
from holdtrue_gate.release import Evidence, PlantedBug
from holdtrue_gate.sabotage import CANNOT_JUDGE, CAUGHT, NOT_CAUGHT, SCHEMA

_HINT = "Make it anew with `gate sabotage --rev HEAD --report json=FILE`."


def read(path: Path, commit: str, tree_sha256: str) -> tuple[Evidence, tuple[PlantedBug, ...]]:
    """The outcomes in the file. Raises UsageError when it is no such report, or one of another commit or other files."""
    try:
        raw = path.read_bytes()
        data = json.loads(raw.decode("utf-8"))
    except OSError as error:
        raise UsageError("sabotage-report", f"{path} cannot be read: {error.strerror}", _HINT) from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UsageError("sabotage-report", f"{path} is not JSON: {error}", _HINT) from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UsageError("sabotage-report", f"{path} is no report of the schema {SCHEMA}", _HINT)
    subject = data.get("subject")
    if not isinstance(subject, dict):
        raise UsageError("sabotage-report", f"{path} does not say which tree it is about", _HINT)
    if subject.get("commit") != commit:
        other = subject.get("commit")
        of = f"commit {str(other)[:10]}" if other else "a work tree that is no commit"
        raise UsageError("sabotage-report", f"{path} is about {of}, not about {commit[:10]}", _HINT)
    if subject.get("sha256") != tree_sha256:
        raise UsageError("sabotage-report", f"{path} is about other files than those of {commit[:10]}", _HINT)
    entries = data.get("sabotage")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError("sabotage-report", f"{path} holds no list `sabotage`", _HINT)
    bugs = tuple(_bug(entry, path) for entry in entries)
    if len({(bug.invariant, bug.name) for bug in bugs}) != len(bugs):
        raise UsageError("sabotage-report", f"{path} tells of one planted bug twice", _HINT)
    return Evidence(path.name, hashlib.sha256(raw).hexdigest()), bugs


def _bug(entry: dict[str, Any], path: Path) -> PlantedBug:
    invariant, name, status, why = (entry.get(key) for key in ("invariant", "name", "status", "why"))
    texts = isinstance(invariant, str) and isinstance(name, str) and isinstance(why, str)
    if not texts or status not in (CAUGHT, NOT_CAUGHT, CANNOT_JUDGE):
        raise UsageError("sabotage-report", f"{path} holds an entry that is no outcome", _HINT)
    if status == CAUGHT and not entry.get("caught_by"):
        raise UsageError("sabotage-report", f"{path}: {invariant} {name} is called caught and by nothing", _HINT)
    return PlantedBug(str(invariant), str(name), str(status), str(why))
