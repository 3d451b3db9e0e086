"""Reads and writes of the product while a foreign process holds SQLite's write lock for 25 s, then for 40 s.

The lower bound is the same reads with nobody holding anything, measured just before in the same processes.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdtrue import HoldTrueError, Memory
from impl.benchmarks.figures import Figure, Report, percentile
from impl.benchmarks.saturation import fill
from properties.kit import raw
from properties.kit.processes import SPAWN, Crew
from properties.kit.workers import hold_writer

PAUSE_S = 0.02
FREE_S = 3.0


def reader(folder: Path, results: Path, held: Any, released: Any) -> None:
    """Read without end, first free, then while the lock is held and an add of this process waits."""
    with Memory(folder) as memory:
        ids = [record.id for record in memory.list(limit=100)]
        memory.search("warm the model")
        free = _read_until(memory, ids, lambda began: time.monotonic() >= began + FREE_S)
        held.wait(60)
        answer: dict[str, Any] = {}
        adder = threading.Thread(target=_add, args=(memory, answer))
        adder.start()
        busy = _read_until(memory, ids, lambda _began: released.is_set())
        adder.join(60)
    results.write_text(json.dumps({"free": free, "held": busy, "add": answer}))


def _read_until(memory: Memory, ids: list[str], over: Callable[[float], bool]) -> list[float]:
    began, latencies, number = time.monotonic(), [], 0
    while not over(began):
        start = time.perf_counter()
        if number % 2:
            memory.search(f"seed memory {number}")
        else:
            memory.get(ids[number % len(ids)])
        latencies.append(time.perf_counter() - start)
        number += 1
        time.sleep(PAUSE_S)
    return latencies


def _add(memory: Memory, answer: dict[str, Any]) -> None:
    began = time.monotonic()
    try:
        answer["id"] = memory.add("begun while the writer was held").id
    except HoldTrueError as error:
        answer["refused"] = error.code
        answer["message"] = error.message
    answer["seconds"] = time.monotonic() - began


def measure(*, memories: int, holds_s: tuple[float, ...] = (25.0, 40.0), progress: Any = None) -> list[Report]:
    """One report a hold. Under 30 s the add must be stored once, above it must be refused and not be stored."""
    say = progress or (lambda _text: None)
    reports = []
    for hold_s in holds_s:
        with tempfile.TemporaryDirectory(prefix="holdtrue-bench-") as top:
            store, results = Path(top) / "store", Path(top) / "results.json"
            fill(store, memories)
            held, release, released = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
            with Crew() as crew:
                crew.start(reader, store, results, held, released)
                time.sleep(FREE_S + 3)
                crew.start(hold_writer, store, held, release, hold_s + 30)
                held.wait(60)
                say(f"the writer is held for {hold_s:g} s")
                time.sleep(hold_s)
                release.set()
                crew.members[1].join(30)
                released.set()
                crew.wait(60)
            measured = json.loads(results.read_text())
            times_stored = raw.read(store).texts().count("begun while the writer was held")
        reports.append(_report(measured, times_stored, hold_s=hold_s, memories=memories))
    return reports


def _report(measured: dict[str, Any], times_stored: int, *, hold_s: float, memories: int) -> Report:
    report = Report("held writer", {"held_s": hold_s, "memories": memories})
    refused = "refused" in measured["add"]
    report.figures = [
        Figure("slowest get or search", max(measured["held"]), "s", 0.05),
        Figure("p99 get or search", percentile(measured["held"], 0.99), "s"),
        Figure("p99 held / p99 free", percentile(measured["held"], 0.99) / percentile(measured["free"], 0.99), ""),
        Figure("slowest get or search, nobody holding", max(measured["free"]), "s"),
        Figure("reads", len(measured["held"]), ""),
        Figure("the add was stored, times", times_stored, "", 0 if refused else 1, "lower" if refused else "higher"),
        Figure("the add took", measured["add"]["seconds"], "s", note=measured["add"].get("refused", "stored")),
    ]
    report.raw = {"add": measured["add"]}
    return report
