"""The corpus: toy commits as entries of `corpus/*.toml`, and the worker that judges one of them.

An entry holds the files at the parent and what the commit changes, and what the gate must say of it:

    [[toy]]
    name = "a-test-that-only-imports-proves-nothing"    the id of the test
    about = "rule 5a"                                   the rule or trap, in a few words
    message = "fix: it"                                 the commit's message (this is the default)
    gate = { timeout_s = 5 }                            keys of [tool.gate]; plugin_autoload = false, runs = 1 are given
    environment = { PYTHONPATH = "/nowhere" }           variables of the caller
    needs = ["xdist"]                                   modules without which the toy is skipped
    parent = { "m.py" = "A = 1\n" }                     text; {base64 = "..."}, {link = "..."}
    commit = { "m.py" = "A = 2\n", "old.py" = false }   false removes
    [toy.expected]
    kind = "fix"
    result = "pass"
    problems = []
    tests = { "test_m.py::test_a" = "own-assertion" }   exactly these ids
    details = { "test_m.py::test_a" = { symbol = "m.b" } }   further fields; text is searched for as an expression
    notes = ["..."]                                     expressions that the notes must hold
    error = "config-key"                                instead of all this: the code of the error
"""

from __future__ import annotations

import base64
import importlib.util
import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from gate.tests.commit_toys import Toy
from holdtrue_gate.errors import GateError

CORPUS = Path(__file__).parent / "corpus"
GIVEN = {"plugin_autoload": False, "runs": 1, "timeout_s": 30}


def entries() -> dict[str, dict[str, Any]]:
    """Every toy by `theme/name`. Raises ValueError when a name is there twice."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(CORPUS.glob("*.toml")):
        for toy in tomllib.loads(file.read_text(encoding="utf-8"))["toy"]:
            name = f"{file.stem}/{toy['name']}"
            if name in found:
                raise ValueError(f"{name} is there twice")
            found[name] = toy
    return found


def missing(toy: Mapping[str, Any]) -> list[str]:
    """Modules that the toy needs and this interpreter does not have."""
    return [name for name in toy.get("needs", []) if importlib.util.find_spec(name) is None]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value) if isinstance(value, int | float) else '"' + str(value) + '"'


def _write(root: Path, files: Mapping[str, Any]) -> None:
    for name, content in files.items():
        path = root / name
        if path.is_symlink() or path.exists():
            path.unlink()
        if content is False:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_bytes(content.encode("utf-8"))
        elif "link" in content:
            path.symlink_to(content["link"])
        else:
            path.write_bytes(base64.b64decode(content["base64"]))


def build(toy: Mapping[str, Any], root: Path) -> Toy:
    """The repository of an entry, with the commit under judgement as HEAD."""
    made = Toy.__new__(Toy)
    made.root = root
    root.mkdir(parents=True)
    made.git("init", "-q")
    settings = GIVEN | toy.get("gate", {})
    project = toy["parent"].get("pyproject.toml", "")
    table = "[tool.gate]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in settings.items())
    _write(root, {**toy["parent"], "pyproject.toml": f"{project}\n{table}"})
    made.git("add", "-A", "-f")
    made.git("commit", "-q", "-m", "base")
    changed = dict(toy["commit"])
    if "pyproject.toml" in changed:
        changed["pyproject.toml"] += f"\n{table}"
    _write(root, changed)
    made.git("add", "-A", "-f")
    made.git("commit", "-q", "--allow-empty", "-m", toy.get("message", "fix: it"))
    return made


def judge(toy: Mapping[str, Any]) -> dict[str, Any]:
    """What the gate says of an entry, as plain data: this runs in a worker process."""
    variables = {"GIT_CONFIG_GLOBAL": os.devnull, **toy.get("environment", {})}
    with tempfile.TemporaryDirectory(prefix="gate-corpus-") as folder:
        made = build(toy, Path(folder) / toy.get("folder", "repo"))
        with mock.patch.dict(os.environ, variables):
            try:
                report = made.judged(jobs=2)
            except GateError as error:
                return {"error": error.code, "message": error.message}
    return {
        "kind": str(report.kind),
        "result": report.result,
        "reason": report.reason,
        "problems": [problem.code for problem in report.problems],
        "told": [problem.message for problem in report.problems],
        "notes": list(report.notes),
        "blocking": list(report.blocking),
        "tests": {
            test.id: {
                "verdict": str(test.verdict),
                "proof": test.proof,
                "exception": test.exception or "",
                "message": test.message,
                "location": test.location or "",
                "reason": test.reason,
                "symbol": test.symbol or "",
                "side": test.side,
                "changed": test.changed,
            }
            for test in report.tests
        },
    }
