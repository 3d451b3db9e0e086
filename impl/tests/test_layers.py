"""The table of layers: an import goes down, never up or sideways, wherever in a file it stands.

The table is written out here, so that a new room is a decision and not an accident.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import holdtrue

SOURCE = Path(holdtrue.__file__).parent
FRONT = "__init__"

LAYERS = {
    0: {
        "records",
        "config",
        "configfile",
        "project",
        "errors",
        "files",
        "filesystem",
        "clock",
        "failpoints",
        "enforces",
        "lifetime",
        "controls",
        "masking",
        "credentials",
        "logs",
    },
    1: {"store"},
    2: {"models", "modelserver"},
    3: {"search"},
    4: {"ingest", "maintain", "tiers"},
    5: {"memory"},
    6: {"cli", "mcp_server", "hooks", "clients", "__main__", FRONT},
}
LAYER_OF = {room: layer for layer, rooms in LAYERS.items() for room in rooms}
# The command line is the door to the other doors.
SIDEWAYS = {("__main__", "cli"), ("cli", "mcp_server"), ("cli", "hooks"), ("cli", "clients")}


def room_of(path: Path, root: Path) -> str:
    first = path.relative_to(root).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Line and room of every import of this package in a file: at the top, inside a function, by `import_module`."""
    package = ["holdtrue", *path.relative_to(root).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("import_module", "__import__"):
                names = [str(node.args[0].value)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "holdtrue":
                known = len(parts) > 1 and ((root / parts[1]).is_dir() or (root / f"{parts[1]}.py").is_file())
                yield node.lineno, parts[1] if known else FRONT


def layer_faults(root: Path) -> list[str]:
    """Every import that the table forbids and every room that it does not name."""
    faults = []
    for path in sorted(root.rglob("*.py")):
        room = room_of(path, root)
        if room not in LAYER_OF:
            faults.append(f"{room} has no layer")
            continue
        if room == FRONT:
            continue  # it names what it offers and imports nothing: see the test of its own
        for line, target in imported_rooms(path, root):
            down = LAYER_OF.get(target, 99) < LAYER_OF[room]
            ground = LAYER_OF[room] == LAYER_OF.get(target) == 0
            front = target == FRONT and LAYER_OF[room] == LAYER_OF[FRONT]
            if not (down or ground or front or target == room or (room, target) in SIDEWAYS):
                faults.append(f"{path.relative_to(root)}:{line}: {room} imports {target}")
    return faults


def test_imports_of_the_product_go_down_only() -> None:
    assert layer_faults(SOURCE) == []


def tree(folder: Path, **files: str) -> Path:
    for name in ("records", "errors", "memory"):
        (folder / f"{name}.py").write_text("")
    for name in ("store", "models", "search", "ingest", "maintain"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    for name, text in files.items():
        (folder / f"{name.replace('__', '/')}.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("where", "text", "target"),
    [
        ("store__writer", "from holdtrue.search import query", "search"),
        ("store__writer", "import holdtrue.memory", "memory"),
        ("store__writer", "from holdtrue import memory", "memory"),
        ("store__writer", "from holdtrue import Memory", "__init__"),
        ("store__writer", "from .. import memory", "memory"),
        ("store__writer", "from ..models import load_embedder", "models"),
        ("store__writer", "def late():\n    from holdtrue.memory import Memory", "memory"),
        ("store__writer", "import importlib\nimportlib.import_module('holdtrue.memory')", "memory"),
        ("store__writer", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import holdtrue.search", "search"),
        ("records", "from holdtrue.store import writer", "store"),
        ("ingest__queue", "from holdtrue.maintain import owner", "maintain"),
        ("search__query", "try:\n    import holdtrue.memory as m\nexcept ImportError:\n    pass", "memory"),
    ],
)
def test_an_import_that_goes_up_or_sideways_is_found(tmp_path: Path, where: str, text: str, target: str) -> None:
    (fault,) = layer_faults(tree(tmp_path, **{where: text}))
    assert fault.endswith(f" imports {target}")


def test_imports_that_go_down_or_stay_in_their_room_are_allowed(tmp_path: Path) -> None:
    files = {
        "store__writer": "from holdtrue.store import schema\nfrom . import schema\nfrom holdtrue import records",
        "memory": "from holdtrue.store.writer import Writer\ndef late():\n    import holdtrue.models",
        "records": "from holdtrue.errors import HoldTrueError\nimport json",
    }
    assert layer_faults(tree(tmp_path, **files)) == []


def test_a_room_without_a_layer_is_found(tmp_path: Path) -> None:
    assert layer_faults(tree(tmp_path, attic="")) == ["attic has no layer"]


HEAVY = ("torch", "transformers", "sentence_transformers", "sklearn", "scipy", "numpy", "tokenizers", "model2vec")


@pytest.mark.parametrize("imported", ["holdtrue", "holdtrue.memory", "holdtrue.store.sqlite"])
def test_an_import_loads_neither_a_model_nor_what_runs_one(
    run_python: Callable[..., CompletedProcess[str]], imported: str
) -> None:
    done = run_python(f"import sys, {imported}\nprint([name for name in {HEAVY} if name in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_front_imports_no_room_before_it_is_asked(run_python: Callable[..., CompletedProcess[str]]) -> None:
    done = run_python("import sys, holdtrue\nprint([name for name in sys.modules if name.startswith('holdtrue.')])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_opening_a_memory_loads_no_model(run_python: Callable[..., CompletedProcess[str]], store: Path) -> None:
    program = f"import sys\nfrom holdtrue import Memory\nmemory = Memory({str(store)!r})\nmemory.open()\n"
    program += f"memory.list()\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = run_python(program)
    assert (done.stdout, done.stderr) == ("[]\n", "")
