"""Export and import of a large store, against the `sqlite3` shell that dumps the same database and loads the dump.

The shell's dump holds everything as it is, the tables behind the indexes included, so its load computes nothing. The
product writes what the memories are and makes index and vectors again; with `--vectors` only the index. Both are commands
in processes of their own, in turn in one run. A share of the time is the processor's, so a machine that does anything else
meanwhile spoils the ratio.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from impl.benchmarks.figures import Figure, Report
from impl.benchmarks.saturation import fill
from properties.kit import raw, tables

SHELL = "sqlite3"
ROUNDS = 3


class Timed:
    """One command that was run to its end: seconds and the most memory it had, in MiB."""

    def __init__(self, command: Sequence[str], *, source: Path | None = None, target: Path | None = None) -> None:
        began = time.perf_counter()
        nothing = Path(os.devnull)
        with (source or nothing).open("rb") as stdin, (target or nothing).open("wb") as stdout:
            process = subprocess.Popen(command, stdin=stdin, stdout=stdout)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{command} ended with {process.returncode}")
        self.seconds = time.perf_counter() - began
        # Kilobytes on Linux, bytes on macOS.
        self.memory_mib = usage.ru_maxrss / 2 ** (20 if sys.platform == "darwin" else 10)


def product(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "holdtrue", *map(str, arguments)]


def by_shell(store: Path, place: Path) -> dict[str, Timed]:
    dump, loaded = place / "dump.sql", place / "loaded.db"
    loaded.unlink(missing_ok=True)
    return {
        "dump": Timed([SHELL, str(store / "memory.db"), ".dump"], target=dump),
        "load": Timed([SHELL, str(loaded)], source=dump),
    }


def by_product(store: Path, place: Path, *options: str) -> dict[str, Timed]:
    target = place / "imported"
    shutil.rmtree(target, ignore_errors=True)
    return {
        "export": Timed(product("export", place / "export.jsonl", "--force", "--store", store, *options)),
        "import": Timed(product("import", place / "export.jsonl", "--store", target)),
    }


def measure(*, memories: int, place: Path | None = None, progress: Any = None) -> Report:
    """Three rounds of the shell and the product, and one of the product with vectors."""
    say = progress or (lambda _text: None)
    ways = {"shell": by_shell, "product": by_product, "with vectors": lambda *at: by_product(*at, "--vectors")}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    parts: dict[str, list[float]] = {}
    memory: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=place, prefix="holdtrue-bench-") as top:
        folder = Path(top)
        store = folder / "store"
        say(f"filling a store with {memories:,} memories")
        fill(store, memories)
        for number in range(ROUNDS):
            for name, way in ways.items():
                if name == "with vectors" and number > 0:
                    continue
                done = way(store, folder)
                seconds[name].append(sum(timed.seconds for timed in done.values()))
                for part, timed in done.items():
                    parts.setdefault(f"{name}: {part}", []).append(timed.seconds)
                    memory[f"{name}: {part}"] = max(memory.get(f"{name}: {part}", 0.0), timed.memory_mib)
                say(f"round {number + 1} of {ROUNDS}: {name} {seconds[name][-1]:.1f} s")
        say("comparing the stores")
        differing = tables.differences(tables.read(store), tables.read(folder / "imported"))
        damage = raw.read(folder / "imported").damage
        sizes = {name: (folder / name).stat().st_size for name in ("dump.sql", "export.jsonl")}
    report = Report("transfer", {"memories": memories, "rounds": ROUNDS, "cores": os.cpu_count()})
    shell = median(seconds["shell"])
    report.figures = [
        Figure("differences after export and import", len(differing), "", 0),
        Figure("damage found", len(damage), "", 0),
        Figure("export and import / dump and load", median(seconds["product"]) / shell, "", 2.0),
        Figure("with vectors / dump and load", median(seconds["with vectors"]) / shell, ""),
        Figure("dump and load", shell, "s"),
        *(Figure(part, median(values), "s") for part, values in parts.items()),
        Figure("most memory of an import", memory["product: import"], "MiB"),
        Figure("most memory of an export", memory["product: export"], "MiB"),
    ]
    report.raw = {"seconds": seconds, "parts": parts, "memory_mib": memory, "bytes_with_vectors": sizes}
    return report


if __name__ == "__main__":
    how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    print(measure(memories=how_many, progress=lambda text: print(f"    {text}", file=sys.stderr, flush=True)).text())
