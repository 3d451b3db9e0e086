"""A store of many memories: how long it takes to open it, and how long a forget keeps the others from writing.

Lower bounds of the same run: a bare SQLite connection that reads one row; the same deletions by hand with the same
synchronisation and the same truncation of the WAL, and nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw

from holdtrue import Memory
from holdtrue.store import connection as connections
from holdtrue.store.statements import run as run_statement
from impl.benchmarks.figures import Figure, Report, percentile
from impl.benchmarks.saturation import fill
from properties.kit import raw
from properties.kit.processes import SPAWN, Crew

OPENS = 100
FORGETS = 40
# Where SQLite's write lock of a WAL database lies in the shared memory file. https://www.sqlite.org/walformat.html#locks
_WRITE_LOCK = 120


def opener(folder: Path, results: Path) -> None:
    """Open the store, read one page of one memory, close; as often as asked. The modules are loaded before."""
    with Memory(folder) as memory:
        memory.list(limit=1)
    product, bare = [], []
    for _ in range(OPENS):
        began = time.perf_counter()
        memory = Memory(folder)
        memory.list(limit=1)
        product.append(time.perf_counter() - began)
        memory.close()
        began = time.perf_counter()
        connection = apsw.Connection(str(folder / "memory.db"))
        connection.execute("SELECT * FROM memories ORDER BY at_us DESC, seq DESC LIMIT 1").fetchall()
        bare.append(time.perf_counter() - began)
        connection.close()
    results.write_text(json.dumps({"product": product, "bare": bare}))


def forgetter(folder: Path, results: Path, ready: Any, go: Any, by_hand: bool) -> None:
    """Forget memories spread over the store, one at a time, with a pause after each."""
    with Memory(folder) as memory:
        total = memory.list(limit=1).total
        ids = [next(iter(memory.list(limit=1, offset=number * (total // FORGETS)))).id for number in range(FORGETS)]
        memory.forget(ids.pop())  # so that the connection and the statements are there
        bare = connections.open_connection(folder, write=True, keep_waiting=lambda: True)
        took = []
        ready.set()
        go.wait(60)
        for id_ in ids:
            began = time.perf_counter()
            if by_hand:
                _forget_by_hand(bare, id_)
            else:
                memory.forget(id_)
            took.append(time.perf_counter() - began)
            time.sleep(0.05)
        bare.close()
    results.write_text(json.dumps(took))


def _forget_by_hand(connection: apsw.Connection, id_: str) -> None:
    run_statement(connection, "BEGIN IMMEDIATE")
    (seq,) = run_statement(connection, "SELECT seq FROM memories WHERE id = ?", (id_,))[0]
    for table in ("memories_fts", "memories_vec"):
        run_statement(connection, f"DELETE FROM {table} WHERE rowid = ?", (seq,))
    run_statement(connection, "DELETE FROM memories WHERE seq = ?", (seq,))
    run_statement(connection, "INSERT INTO tombstones VALUES(?, ?)", (id_, time.time_ns() // 1000))
    run_statement(connection, "COMMIT")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def held_spans(shared_memory: Path, until: Any) -> list[float]:
    """For how long at a time the write lock is held, in seconds, asked of the kernel without ever taking it."""
    wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _WRITE_LOCK, 1, 0)
    spans: list[float] = []
    since: float | None = None
    with shared_memory.open("r+b") as file:
        while not until():
            kind = struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, wanted))[0]
            now = time.perf_counter()
            if kind == fcntl.F_UNLCK:
                if since is not None:
                    spans.append(now - since)
                since = None
            elif since is None:
                since = now
            time.sleep(0.0002)
    return spans


def watch_forgets(folder: Path, results: Path, *, by_hand: bool) -> tuple[list[float], list[float]]:
    """The spans of the write lock and what each call took, in seconds."""
    ready, go = SPAWN.Event(), SPAWN.Event()
    path = results / f"forget-{by_hand}.json"
    with Crew() as crew:
        process = crew.start(forgetter, folder, path, ready, go, by_hand)
        if not ready.wait(120):
            raise RuntimeError("the forgetting process did not get ready")
        go.set()
        spans = held_spans(folder / "memory.db-shm", lambda: process.exitcode is not None or path.exists())
        crew.wait(120)
    return spans, json.loads(path.read_text())


def measure(*, memories: int, progress: Any = None) -> Report:
    say = progress or (lambda _text: None)
    with tempfile.TemporaryDirectory(prefix="holdtrue-bench-") as top:
        store, results = Path(top) / "store", Path(top) / "results"
        results.mkdir()
        say(f"filling a store with {memories:,} memories")
        fill(store, memories)
        say(f"opening it {OPENS} times")
        with Crew() as crew:
            crew.start(opener, store, results / "opens.json")
            if crew.wait(300) != [0]:
                raise RuntimeError("the opening process failed")
        opens = json.loads((results / "opens.json").read_text())
        say(f"forgetting {FORGETS} of them, then as many by hand")
        spans, took = watch_forgets(store, results, by_hand=False)
        bare_spans, bare_took = watch_forgets(store, results, by_hand=True)
        damage = raw.read(store).damage
    report = Report("large store", {"memories": memories, "opens": OPENS, "forgets": FORGETS})
    report.figures = [
        Figure("median open with a first read", percentile(opens["product"], 0.5), "s", 0.020),
        Figure("p99 open with a first read", percentile(opens["product"], 0.99), "s"),
        Figure("median open, bare connection and one row", percentile(opens["bare"], 0.5), "s"),
        Figure("longest hold of the write lock by a forget", max(spans), "s", 0.050),
        Figure("median hold by a forget", percentile(spans, 0.5), "s"),
        Figure("longest hold, the same by hand", max(bare_spans), "s"),
        Figure("median forget", percentile(took, 0.5), "s"),
        Figure("median forget by hand", percentile(bare_took, 0.5), "s"),
        Figure("damage found", len(damage), "", 0),
    ]
    return report
