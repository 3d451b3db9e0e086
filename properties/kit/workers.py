"""What the processes of the properties do. Importable by a spawned child, and light: no test runner, no Hypothesis."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from holdtrue import HoldTrueError, Memory
from properties.kit.ledger import Ledger

Step = dict[str, Any]


def perform(folder: Path, ledger_path: Path, steps: Sequence[Step], threads: int = 1) -> None:
    """Carry out steps such as `{"action": "add", "text": ...}` and write each down before and after.

    With several threads the steps are dealt out among them; they share one `Memory` and one ledger.
    """
    memory = Memory(folder)
    ledger = Ledger(ledger_path)
    lock = threading.Lock()

    def run(mine: Sequence[Step]) -> None:
        for step in mine:
            action = step["action"]
            arguments = {name: value for name, value in step.items() if name != "action"}
            with lock:
                number = ledger.ask(action, **arguments)
            try:
                answer = _do(memory, action, arguments)
            except HoldTrueError as error:
                with lock:
                    ledger.refused(number, error.code, str(error))
            except Exception as error:  # noqa: BLE001 - an unplanned error is a finding, not the end of the history
                with lock:
                    ledger.refused(number, type(error).__name__, str(error))
            else:
                with lock:
                    ledger.ok(number, **answer)

    crew = [threading.Thread(target=run, args=(steps[start::threads],)) for start in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    memory.close()


def wait_for_file_and_perform(folder: Path, ledger_path: Path, steps: Sequence[Step]) -> None:
    """Begin as soon as the database's file is there, at most after 30 s."""
    until = time.monotonic() + 30
    while not (folder / "memory.db").exists() and time.monotonic() < until:
        time.sleep(0.005)
    perform(folder, ledger_path, steps)


def perform_and_tell(folder: Path, ledger_path: Path, steps: Sequence[Step], told: Any, go_on: Any) -> None:
    """As `perform`, in one thread; the step `tell` tells the parent and waits, at most 30 s, for its sign to go on."""
    global _tell

    def tell() -> None:
        told.set()
        go_on.wait(30)
        time.sleep(0.3)  # the holder needs a moment to let go

    _tell = tell
    perform(folder, ledger_path, steps)


_tell: Any = None


def _do(memory: Memory, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if action == "add":
        record = memory.add(**arguments)
        return {"id": record.id, "created": record.created, "text": record.text, "degraded": list(record.degraded)}
    if action == "update":
        return {"text": memory.update(**arguments).text}
    if action == "forget":
        return memory.forget(**arguments).as_dict()
    if action == "get":
        return {"text": memory.get(**arguments).text}
    if action == "list":
        return {"total": memory.list(**arguments).total}
    if action == "status":
        return {"memories": memory.status()["memories"]}
    if action == "search":
        hits = memory.search(explain=True, **arguments)
        return {"hits": [{"id": hit.id, "text": hit.text, "lexical": hit.why["lexical"]} for hit in hits]}
    if action == "tell":
        _tell()
        return {}
    if action == "sleep":
        time.sleep(arguments["seconds"])
        return {}
    raise AssertionError(f"unknown action {action!r}")


def hold_writer(folder: Path, held: Any, release: Any, limit_s: float) -> None:
    """Hold SQLite's write lock from outside the product until told, at most `limit_s`: a shell, an old release."""
    connection = apsw.Connection(str(folder / "memory.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE").fetchall()
    held.set()
    release.wait(limit_s)
    connection.execute("ROLLBACK").fetchall()
    connection.close()


def occupy_fresh_file(folder: Path, held: Any, hold_s: float) -> None:
    """Be the first on a database that does not exist yet, and hold it in a rollback-journal transaction."""
    connection = apsw.Connection(str(folder / "memory.db"))
    connection.execute("BEGIN IMMEDIATE").fetchall()
    held.set()
    time.sleep(hold_s)
    connection.execute("COMMIT").fetchall()
    connection.close()


def meet_and_add(folder: Path, ledger_path: Path, barrier: Any, text: str) -> None:
    """Wait for the others, then open the store for the first time and add."""
    barrier.wait(30)
    perform(folder, ledger_path, [{"action": "add", "text": text}])
