"""Backups in a loop beside four processes that add without pause, against the same four with nobody backing up.

The two alternate in slices of one run, each on a store of its own of the same size. Each backup is opened alone and read
at the end of its slice.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from holdtrue import HoldTrueError, Memory
from impl.benchmarks.figures import Figure, Report, percentile
from impl.benchmarks.saturation import PROCESSES, fill, product_adder
from properties.kit import raw
from properties.kit.processes import SPAWN, Crew


def maker(folder: Path, results: Path, target: Path, barrier: Any, seconds: float) -> None:
    """Make one backup after the other, each in the place of the one before."""
    made, failures = [], []
    with Memory(folder) as memory:
        barrier.wait(60)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                receipt = memory.backup(target, replace=True)
            except HoldTrueError as error:
                failures.append(str(error))
            else:
                made.append({"seconds": receipt.seconds, "bytes": receipt.bytes, "memories": receipt.memories})
    results.write_text(json.dumps({"made": made, "failures": failures}))


def one_pass(folder: Path, results: Path, target: Path | None, seconds: float, number: int) -> dict[str, Any]:
    """Four adders for so long, and where a target is given a maker of backups beside them."""
    barrier = SPAWN.Barrier(PROCESSES + (target is not None))
    paths = [results / f"adder-{number}-{place}.json" for place in range(PROCESSES)]
    made = results / f"maker-{number}.json"
    with Crew() as crew:
        for place, path in enumerate(paths):
            crew.start(product_adder, folder, path, barrier, seconds, place + 10 * number)
        if target is not None:
            crew.start(maker, folder, made, target, barrier, seconds)
        codes = crew.wait(seconds + 120)
    if any(codes):
        raise RuntimeError(f"processes ended with {codes}")
    answer = {"adders": [json.loads(path.read_text()) for path in paths], "made": [], "failures": [], "damage": 0}
    if target is not None:
        answer |= json.loads(made.read_text())
        alone = Path(tempfile.mkdtemp(dir=results))
        shutil.copyfile(target, alone / "memory.db")
        state = raw.read(alone)
        answer["damage"] = len(state.damage) + len(state.orphans)
        shutil.rmtree(alone)
    return answer


def measure(*, seconds: float, memories: int, place: Path | None = None, progress: Any = None) -> Report:
    """With and without backups in alternating slices of about 5 s, `seconds` each in total."""
    say = progress or (lambda _text: None)
    slices = max(1, round(seconds / 5))
    passes: dict[str, list[dict[str, Any]]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory(dir=place, prefix="holdtrue-bench-") as top:
        results = Path(top) / "results"
        results.mkdir()
        say(f"filling two stores with {memories:,} memories")
        stores = {name: Path(top) / name for name in passes}
        for store in stores.values():
            fill(store, memories)
        for number in range(slices):
            for name, targets in (("without", None), ("with", Path(top) / "copy.db")):
                say(f"slice {number + 1} of {slices}: {name} backups")
                passes[name].append(
                    one_pass(stores[name], results, targets, seconds / slices, 2 * number + (name == "with"))
                )
    return _report(passes, seconds=seconds, memories=memories)


def _report(passes: dict[str, list[dict[str, Any]]], *, seconds: float, memories: int) -> Report:
    latencies = {
        name: [value for one in slices for adder in one["adders"] for value in adder["latencies"]]
        for name, slices in passes.items()
    }
    failed = sum(len(adder["failures"]) for slices in passes.values() for one in slices for adder in one["adders"])
    made = [backup for one in passes["with"] for backup in one["made"]]
    report = Report(
        "backups", {"processes": PROCESSES, "seconds": seconds, "memories": memories, "cores": os.cpu_count()}
    )
    report.figures = [
        Figure("adds failed", failed, "", 0),
        Figure("backups failed", sum(len(one["failures"]) for one in passes["with"]), "", 0),
        Figure("damage found in the last of each slice", sum(one["damage"] for one in passes["with"]), "", 0),
        Figure("slowest add beside backups", max(latencies["with"]), "s", 0.25),
        Figure("slowest add without", max(latencies["without"]), "s"),
        Figure("p99 add beside backups", percentile(latencies["with"], 0.99), "s"),
        Figure("p99 add without", percentile(latencies["without"], 0.99), "s"),
        Figure("throughput / without", len(latencies["with"]) / len(latencies["without"]), ""),
        Figure("backups", len(made), ""),
        Figure("slowest backup", max((backup["seconds"] for backup in made), default=float("nan")), "s"),
        Figure("largest backup", max((backup["bytes"] for backup in made), default=0) / 2**20, "MiB"),
    ]
    report.raw = {"backups": made}
    return report
