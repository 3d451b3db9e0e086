"""How fast a process is of use: `initialize` against a bare server of the same SDK, and a cold search on the shell.

Both sides run from a wheel installed into a fresh environment, with bytecode, as a user's would, in turn in one run. The
lower bound of the cold search is the same interpreter importing click and NumPy and ending.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from impl.benchmarks.figures import Figure, Report, percentile
from impl.benchmarks.rpc import StdioServer
from impl.benchmarks.saturation import fill

BARE = """
from mcp.server import MCPServer

server = MCPServer("bare")


@server.tool()
def echo(text: str) -> str:
    return text


server.run()
"""


def install_wheel(top: Path) -> Path:
    """Build the wheel, install it alone into a new environment that sees this one's dependencies; its interpreter."""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", top, root], check=True)
    (wheel,) = top.glob("holdtrue-*.whl")
    venv.create(top / "venv", symlinks=True)
    python = top / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel], check=True)
    (packages,) = (top / "venv" / "lib").glob("python*/site-packages")
    # Its own holdtrue comes first; an editable install of this environment would come later on the path.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def measure(*, rounds: int, memories: int, progress: Any = None) -> Report:
    say = progress or (lambda _text: None)
    variables = {"PYTHONDONTWRITEBYTECODE": "", "HOLDTRUE_HOME": ""}
    with tempfile.TemporaryDirectory(prefix="holdtrue-bench-") as folder:
        top = Path(folder)
        say("building and installing the wheel")
        python = install_wheel(top)
        bare = top / "bare.py"
        bare.write_text(BARE)
        store = top / "store"
        say(f"filling a store with {memories:,} memories")
        fill(store, memories)
        commands = {
            "product": [str(python), "-m", "holdtrue", "serve", "--store", str(store)],
            "bare": [str(python), str(bare)],
        }
        starts: dict[str, list[float]] = {"product": [], "bare": []}
        searches: list[float] = []
        floor: list[float] = []
        for number in range(rounds + 1):
            say(f"round {number} of {rounds}")
            for name, command in commands.items():
                server = StdioServer(command, variables)
                took_s = server.initialize()
                server.kill()
                if number:  # the first round writes bytecode and fills the page cache
                    starts[name].append(took_s)
            took_s = _search(python, store, variables)
            floor_s = _run([str(python), "-c", "import click, numpy"], variables)
            if number:
                searches.append(took_s)
                floor.append(floor_s)
    report = Report("start-up", {"rounds": rounds, "memories": memories})
    medians = {name: percentile(values, 0.5) for name, values in starts.items()}
    report.figures = [
        Figure("initialize / bare MCPServer", medians["product"] / medians["bare"], "", 1.25),
        Figure("initialize, median", medians["product"], "s"),
        Figure("initialize of the bare server, median", medians["bare"], "s"),
        Figure("cold search, median", percentile(searches, 0.5), "s", 0.4),
        Figure("cold search / importing click and NumPy", percentile(searches, 0.5) / percentile(floor, 0.5), ""),
        Figure("importing click and NumPy, median", percentile(floor, 0.5), "s"),
    ]
    report.raw = {"initialize_s": starts, "search_s": searches}
    return report


def _search(python: Path, store: Path, variables: dict[str, str]) -> float:
    command = [str(python.parent / "holdtrue"), "search", "memory 77", "--store", str(store), "--json"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, env={**os.environ, **variables}, check=True)
    took_s = time.perf_counter() - began
    if not json.loads(done.stdout)["hits"]:
        raise RuntimeError("the cold search found nothing")
    return took_s


def _run(command: list[str], variables: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env={**os.environ, **variables}, check=True)
    return time.perf_counter() - began
