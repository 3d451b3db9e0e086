"""A small project with one invariant that all its parts agree on; each test spoils one part of it."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner, Result

from holdtrue_gate.cli import gate

FILES = {
    ".gitignore": "__pycache__/\n",
    "pyproject.toml": """\
[project]
name = "shop"

[tool.pytest.ini_options]
# Importing hypothesis would double the time of every run.
addopts = ["--import-mode=importlib", "-p", "no:hypothesispytest", "-p", "no:anyio"]
pythonpath = ["src"]

[tool.gate]
source = ["src"]
tests = ["properties"]
failpoint_journal_env = "SHOP_JOURNAL"
""",
    "src/shop/__init__.py": "",
    "src/shop/enforces.py": """\
def enforces(*invariants):
    return lambda function: function
""",
    "src/shop/failpoints.py": """\
import json
import os


def hit(point):
    journal = os.environ.get("SHOP_JOURNAL")
    if journal:
        with open(journal, "a") as file:
            file.write(json.dumps({"point": point, "event": "reached", "pid": os.getpid()}) + "\\n")
""",
    "src/shop/stock.py": """\
from shop import failpoints
from shop.enforces import enforces


class Shelf:
    def __init__(self, pieces):
        self.pieces = pieces

    @enforces("INV-001")
    def take(self, wanted):
        failpoints.hit("shelf.before_take")
        if wanted > self.pieces:
            return 0
        self.pieces -= wanted
        return wanted
""",
    "properties/test_inv_001_no_oversell.py": """\
import pytest

from shop.stock import Shelf


@pytest.mark.parametrize("wanted", [4, 5])
def test_more_than_there_is_cannot_be_taken(wanted):
    shelf = Shelf(3)
    assert shelf.take(wanted) == 0
    assert shelf.pieces == 3


def test_what_is_taken_is_gone():
    shelf = Shelf(3)
    assert shelf.take(2) == 2
    assert shelf.pieces == 1
""",
    "invariants/INV-001-no-oversell.toml": """\
id = "INV-001"
slug = "no-oversell"
category = "data"
severity = "A"
statement = "A shelf never hands out more pieces than it holds."
violated_by = "Counting down without looking."
crash_model = "none"
enforced_by = ["shop.stock:Shelf.take"]
properties = ["properties/test_inv_001_no_oversell.py::test_more_than_there_is_cannot_be_taken"]
failpoints = ["shelf.before_take"]

[[sabotage]]
name = "no-look"
patch = "invariants/sabotage/INV-001-no-look.patch"
caught_by = ["properties/test_inv_001_no_oversell.py::test_more_than_there_is_cannot_be_taken"]
""",
}

SPEC = "invariants/INV-001-no-oversell.toml"
STOCK = "src/shop/stock.py"
PROPERTY = "properties/test_inv_001_no_oversell.py"
PATCH = "invariants/sabotage/INV-001-no-look.patch"


@dataclass
class Toy:
    """The project at `root`, and how the tests change it and ask the gate about it."""

    root: Path

    @classmethod
    def build(cls, root: Path) -> Toy:
        shutil.copytree(_template(), root, dirs_exist_ok=True)
        return cls(root)

    @classmethod
    def make(cls, root: Path) -> Toy:
        """Build it from nothing; `build` copies what this made once."""
        toy = cls(root)
        for file, text in FILES.items():
            toy.write(file, text)
        toy.plant(PATCH, STOCK, "if wanted > self.pieces:", "if False:")
        toy.git("init", "-q", "--template=")
        assert toy.gate("trace", "--stamp", "INV-001").exit_code == 0
        return toy

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def read(self, file: str) -> str:
        return (self.root / file).read_text(encoding="utf-8")

    def change(self, file: str, old: str, new: str) -> None:
        before = self.read(file)
        assert old in before, f"{old!r} is not in {file}"
        self.write(file, before.replace(old, new))

    def plant(self, patch: str, file: str, old: str, new: str) -> None:
        """Write the patch that makes this change, and leave the file as it is."""
        before = self.read(file)
        assert old in before, f"{old!r} is not in {file}"
        changed = self.root / "changed"
        changed.write_text(before.replace(old, new), encoding="utf-8")
        done = subprocess.run(
            ["git", "diff", "--no-index", "--no-prefix", file, "changed"],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        changed.unlink()
        body = done.stdout[done.stdout.index("@@ ") :]
        self.write(patch, f"--- a/{file}\n+++ b/{file}\n{body}")

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=Toy", "-c", "user.email=toy@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "all of it")

    def gate(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(gate, [command, "-C", str(self.root), *arguments])


@functools.cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="toy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Toy.make(folder)
    return folder
