"""What the tests of the product share: a store of their own, and Python in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdtrue import Memory

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0

# The settings of whoever runs the tests are no part of them.
os.environ["XDG_CONFIG_HOME"] = str(Path(tempfile.gettempdir()) / "holdtrue-tests-without-settings")

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of a store that does not exist yet."""
    return tmp_path / "store"


@pytest.fixture
def memory(store: Path) -> Iterator[Memory]:
    with Memory(store) as opened:
        yield opened


@pytest.fixture
def run_python() -> RunPython:
    """Run a program in a fresh interpreter, at most a minute; further arguments become its `sys.argv[1:]`."""

    def run(program: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDTRUE_")}
        path = os.pathsep.join([str(ROOT / "impl"), str(ROOT)])
        return subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**kept, "PYTHONPATH": path, **variables},
        )

    return run
