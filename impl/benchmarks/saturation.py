"""Four processes that add without pause, against four bare loops on the same tables, in turn in one run.

The bare loop is the lower bound on cost: the same statements, tables, secure delete and FULL sync, by hand, with a busy
handler and nothing else: no turnstile, no checks, no embedding. What it lacks shows in its slowest add.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import apsw

from holdtrue import HoldTrueError, Memory
from holdtrue.records import new_id
from holdtrue.store import connection as connections
from holdtrue.store.segment import index_text
from holdtrue.store.statements import run as run_statement
from impl.benchmarks.figures import Figure, Report, percentile
from properties.kit import raw
from properties.kit.processes import SPAWN, Crew

PROCESSES = 4


def fill(folder: Path, memories: int) -> None:
    """A store of some size, so that the index and the vectors are not empty."""
    with Memory(folder) as memory:
        for start in range(0, memories, 500):
            memory.add_many(
                [f"seed memory {number}: {_words(number)}" for number in range(start, min(start + 500, memories))]
            )


_VOCABULARY = """the billing service retries a webhook twice before it gives up on Tuesdays we deploy after stand up staging
database listens behind pgbouncer parser rejects trailing commas Maya owns invoices due thirty days harbour east town
migration needs rollback plan logs rotate weekly keep port open cache expires hour token refresh fails silently when clock
drifts tests run under one minute release notes belong with change customer asked export format report monthly""".split()  # noqa: SIM905 - a paragraph


def _words(number: int) -> str:
    """Eight common words, others for each number, the same in every run."""
    picked = hashlib.sha256(str(number).encode()).digest()
    return " ".join(_VOCABULARY[byte % len(_VOCABULARY)] for byte in picked[:8])


def product_adder(folder: Path, results: Path, barrier: Any, seconds: float, number: int) -> None:
    with Memory(folder) as memory:
        memory.search("warm the model")
        barrier.wait(60)
        latencies, failures, added, until = [], [], 0, time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.perf_counter()
            try:
                memory.add(f"process {number} adds memory {added}: {_words(added)}", session=f"s{number}")
            except HoldTrueError as error:
                failures.append(str(error))
            latencies.append(time.perf_counter() - began)
            added += 1
    results.write_text(json.dumps({"latencies": latencies, "failures": failures}))


def bare_adder(folder: Path, results: Path, barrier: Any, seconds: float, number: int) -> None:
    connection = connections.open_connection(folder, write=True, keep_waiting=lambda: True)
    connection.pragma("wal_autocheckpoint", 1_000)  # what a plain connection does; the product moves the WAL itself
    names = dict.fromkeys(("user", "project", "session"), 0)
    for kind in names:
        rows = run_statement(connection, "SELECT id FROM names WHERE kind = ? AND name = ''", (kind,))
        names[kind] = rows[0][0]
    (vector,) = run_statement(connection, "SELECT embedding FROM memories_vec LIMIT 1")[0]
    barrier.wait(60)
    latencies, failures, added, until = [], [], 0, time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        try:
            _bare_add(connection, names, f"process {number} adds bare {added}: {_words(added)}", vector)
        except apsw.Error as error:
            failures.append(str(error))
        latencies.append(time.perf_counter() - began)
        added += 1
    connection.close()
    results.write_text(json.dumps({"latencies": latencies, "failures": failures}))


def _bare_add(connection: apsw.Connection, names: dict[str, int], text: str, vector: bytes) -> None:
    now = time.time_ns() // 1000
    digest = hashlib.sha256(text.encode()).digest()
    scope = (names["user"], names["project"])
    run_statement(connection, "BEGIN IMMEDIATE")
    run_statement(
        connection, "SELECT seq FROM memories WHERE user_id = ? AND project_id = ? AND digest = ?", (*scope, digest)
    )
    run_statement(
        connection,
        """INSERT INTO memories(id, text, digest, user_id, project_id, session_id, speaker, at_us, valid_from_us,
             created_us, updated_us, metadata, source, revision) VALUES(?, ?, ?, ?, ?, ?, '', ?, ?, ?, ?, '{}', '', 1)""",
        (new_id(), text, digest, *scope, names["session"], now, now, now, now),
    )
    seq = connection.last_insert_rowid()
    run_statement(connection, "INSERT INTO memories_fts(rowid, body) VALUES(?, ?)", (seq, index_text(text)))
    run_statement(
        connection,
        "INSERT INTO memories_vec(rowid, embedding, user_id, project_id, session_id, at_us) VALUES(?, ?, ?, ?, ?, ?)",
        (seq, vector, *scope, names["session"], now),
    )
    run_statement(connection, "INSERT INTO sources VALUES(?, '', 1, ?)", (seq, now))
    run_statement(connection, "INSERT INTO events(at_us, kind, memory) VALUES(?, 'add', '')", (now,))
    run_statement(connection, "COMMIT")


def one_pass(adder: Any, folder: Path, results: Path, seconds: float) -> list[dict[str, Any]]:
    """Run four adders for so long; one result a process."""
    barrier = SPAWN.Barrier(PROCESSES)
    paths = [results / f"{adder.__name__}-{time.monotonic_ns()}-{number}.json" for number in range(PROCESSES)]
    with Crew() as crew:
        for number, path in enumerate(paths):
            crew.start(adder, folder, path, barrier, seconds, number + 10 * len(list(results.iterdir())))
        codes = crew.wait(seconds + 120)
    if codes != [0] * PROCESSES:
        raise RuntimeError(f"adders ended with {codes}")
    return [json.loads(path.read_text()) for path in paths]


def measure(*, seconds: float, memories: int, place: Path | None = None, progress: Any = None) -> Report:
    """Product and bare loop in alternating slices of about 5 s, `seconds` each in total."""
    say = progress or (lambda _text: None)
    with tempfile.TemporaryDirectory(dir=place, prefix="holdtrue-bench-") as top:
        stores = {"product": Path(top) / "product", "bare": Path(top) / "bare"}
        results = Path(top) / "results"
        results.mkdir()
        say(f"filling two stores with {memories:,} memories")
        for store in stores.values():
            fill(store, memories)
        slices = max(1, round(seconds / 5))
        passes: dict[str, list[list[dict[str, Any]]]] = {"product": [], "bare": []}
        for number in range(slices):
            for name, adder in (("product", product_adder), ("bare", bare_adder)):
                say(f"slice {number + 1} of {slices}: {name}")
                passes[name].append(one_pass(adder, stores[name], results, seconds / slices))
        say("comparing with what is in the store")
        state = raw.read(stores["product"])
    return _report(passes, state, seconds=seconds, memories=memories)


def _report(passes: dict[str, list[list[dict[str, Any]]]], state: raw.Raw, *, seconds: float, memories: int) -> Report:
    latencies = {
        name: [value for one in slices for process in one for value in process["latencies"]]
        for name, slices in passes.items()
    }
    product = [[len(process["latencies"]) for process in one] for one in passes["product"]]
    shares = [min(counts) / max(counts) for counts in product]
    failed = sum(len(process["failures"]) for one in passes["product"] for process in one)
    added = len(latencies["product"]) - failed
    stored = Counter(state.texts())
    duplicated = sum(count - 1 for count in stored.values())
    lost = added + memories - len(stored)
    report = Report(
        "saturation", {"processes": PROCESSES, "seconds": seconds, "memories": memories, "cores": os.cpu_count()}
    )
    report.figures = [
        Figure("adds failed", failed, "", 0),
        Figure("adds lost", lost, "", 0),
        Figure("adds duplicated", duplicated, "", 0),
        Figure("damage found", len(state.damage), "", 0),
        Figure("slowest add", max(latencies["product"]), "s", 0.25),
        Figure("slowest add of the bare loop", max(latencies["bare"]), "s"),
        Figure("p99 add", percentile(latencies["product"], 0.99), "s"),
        Figure("p99 add of the bare loop", percentile(latencies["bare"], 0.99), "s"),
        Figure("throughput / bare loop", len(latencies["product"]) / len(latencies["bare"]), "", 0.75, "higher"),
        Figure("smallest share / largest share", min(shares), "", 0.5, "higher"),
        Figure("adds a second", len(latencies["product"]) / seconds, "1/s"),
        Figure("adds a second of the bare loop", len(latencies["bare"]) / seconds, "1/s"),
    ]
    report.raw = {"adds_by_slice_and_process": product}
    return report
