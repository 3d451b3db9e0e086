"""Processes for the properties about connections, checkpoints, closing and forking. Each reports into a JSON file."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from holdtrue import HoldTrueError, Memory
from properties.kit.ledger import Ledger

LIMIT_S = 30.0


def report(path: Path, value: Any) -> None:
    """Put the report in its place whole, so that whoever waits for it never reads half of it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.rename(path)


def use_everything(memory: Memory, folder: Path, name: str) -> None:
    """Every call of the facade that reads or writes, once."""
    kept = memory.add(f"{name} keeps this about the harbour", tags=["t"], user=name, metadata={"n": name}, key=name)
    gone = memory.add(f"{name} lets go of that about the quay", session=name)
    memory.add_many([f"{name} has one more", {"text": f"{name} has another", "project": "p"}])
    memory.update(kept.id, f"{name} keeps this about the lighthouse")
    memory.search(f"lighthouse {name}", limit=3)
    memory.search("harbour", as_of="2020-01-01")
    memory.get(kept.id)
    memory.list(limit=5, user=name)
    memory.forget(gone.id)
    memory.status()
    memory.embed_pending()
    memory.verify()
    target = folder.parent / f"{name}.jsonl"
    memory.export(target)
    memory.import_(target)
    memory.backup(folder.parent / f"{name}.db")


# -- what a connection is asked, and by whom -------------------------------------------------------------------------


class Watch:
    """Notes each statement of every connection that this process opens: which connection, which thread, what it says."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connections: list[apsw.Connection] = []
        self.opened_by: list[int] = []
        self.statements: list[list[tuple[int, str]]] = []
        self.settings: list[dict[str, Any] | None] = []
        apsw.connection_hooks.append(self.note)

    def note(self, connection: apsw.Connection) -> None:
        with self.lock:
            number = len(self.connections)
            self.connections.append(connection)
            self.opened_by.append(threading.get_ident())
            self.statements.append([])
            self.settings.append(None)

        def trace(_cursor: Any, statement: str, _bindings: Any) -> bool:
            self.statements[number].append((threading.get_ident(), statement))
            if self.settings[number] is None and not statement.lstrip().upper().startswith("PRAGMA"):
                self.settings[number] = configured(connection, [text for _, text in self.statements[number]])
            return True

        connection.exec_trace = trace


_PRAGMA = re.compile(r"""\s*PRAGMA\s+(?:\w+\.)?"?(\w+)"?\s*(?:[=(]\s*['"]?([\w-]+))?""", re.IGNORECASE)
SWITCHES = {
    "defensive": apsw.SQLITE_DBCONFIG_DEFENSIVE,
    "trusted_schema": apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA,
    "dqs_dml": apsw.SQLITE_DBCONFIG_DQS_DML,
    "dqs_ddl": apsw.SQLITE_DBCONFIG_DQS_DDL,
    "foreign_keys": apsw.SQLITE_DBCONFIG_ENABLE_FKEY,
}


def configured(connection: apsw.Connection, statements: list[str]) -> dict[str, Any]:
    """The switches of a connection at its first statement that is no PRAGMA, and the PRAGMAs that came before."""
    switches = {name: connection.config(number, -1) for name, number in SWITCHES.items()}
    told = filter(None, map(_PRAGMA.match, statements))
    return {**switches, "pragmas": sorted({f"{found[1]}={found[2] or ''}".lower() for found in told})}


def use_from_threads(folder: Path, result: Path, threads: int) -> None:
    """Several threads use one `Memory` at once, and it is closed under them."""
    watch = Watch()
    memory = Memory(folder)
    memory.open()
    problems: list[str] = []

    def work(number: int) -> None:
        try:
            use_everything(memory, folder, f"thread-{number}")
            while True:
                memory.list(limit=3)
                memory.add(f"thread {number} goes on until the store is closed, {time.monotonic_ns()}")
        except HoldTrueError as error:
            if error.code != "STORE_CLOSED":
                problems.append(f"{error.code}: {error}")
        except Exception as error:  # noqa: BLE001 - reported, so that the property can name it
            problems.append(f"{type(error).__name__}: {error}")

    crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in crew:
        thread.start()
    time.sleep(2.0)
    memory.close()
    for thread in crew:
        thread.join(LIMIT_S)
    strays = [
        f"connection {number}, of thread {owner}, was used by thread {thread}: {statement[:80]}"
        for number, owner in enumerate(watch.opened_by)
        for thread, statement in watch.statements[number]
        if thread != owner
    ]
    used = [settings for settings in watch.settings if settings is not None]
    report(result, {"problems": problems, "strays": strays[:5], "connections": len(used), "settings": used})


# -- what the process does to files beside SQLite --------------------------------------------------------------------

_FILE_EVENTS = ("open", "os.", "shutil.", "pathlib.")


def use_under_audit(folder: Path, result: Path) -> None:
    """Use everything and report each event of the interpreter that names a file of the database."""
    seen: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_FILE_EVENTS) and event not in ("os.listdir", "os.scandir"):
            names = [Path(os.fsdecode(one)).name for one in arguments if isinstance(one, str | bytes | os.PathLike)]
            if any(name in ("memory.db", "memory.db-wal", "memory.db-shm") for name in names):
                seen.append(f"{event} {names}")

    with Memory(folder) as memory:
        memory.add("the store is there")
        sys.addaudithook(hook)
        use_everything(memory, folder, "audited")
    report(result, seen)


def use_step_by_step(folder: Path, asked: Any, done: Any, result: Path) -> None:
    """Hold the store open and make one call each time it is asked; `result` names the calls."""
    memory = Memory(folder)
    kept = memory.add("the store is there")
    calls: dict[str, Callable[[], object]] = {
        "list": memory.list,
        "search": lambda: memory.search("store"),
        "status": memory.status,
        "verify": memory.verify,
        "update": lambda: memory.update(kept.id, "the store is still there"),
        "export": lambda: memory.export(folder.parent / "steps.jsonl"),
        "backup": lambda: memory.backup(folder.parent / "steps.db"),
    }
    report(result, list(calls))
    for call in calls.values():
        asked.wait(LIMIT_S)
        asked.clear()
        call()
        done.set()
    asked.wait(LIMIT_S)
    memory.close()


# -- closing ---------------------------------------------------------------------------------------------------------


def close_while_blocked(folder: Path, result: Path, unlink: bool, blocked_s: float) -> None:
    """Close while the writer stands at a failpoint (armed from outside), and see what is on disk once it goes on."""
    memory = Memory(folder)
    refusals: list[str] = []

    def write() -> None:
        try:
            memory.add("first")
            memory.add("second")
            memory.forget(memory.add("third").id)
        except HoldTrueError as error:
            refusals.append(error.code)

    told = _close_beside(memory, write, folder, unlink, blocked_s)
    report(result, {**told, "refusals": refusals})


def close_while_restoring(folder: Path, backup: Path, result: Path, blocked_s: float) -> None:
    """Close while a restore stands at a failpoint (armed from outside), and see what is on disk once it goes on."""
    memory = Memory(folder)
    refusals: list[str] = []

    def restore() -> None:
        try:
            memory.restore(backup, backup=False)
        except HoldTrueError as error:
            refusals.append(error.code)

    told = _close_beside(memory, restore, folder, False, blocked_s)
    report(result, {**told, "refusals": refusals})


def _close_beside(
    memory: Memory, work: Callable[[], None], folder: Path, unlink: bool, blocked_s: float
) -> dict[str, Any]:
    thread = threading.Thread(target=work)
    thread.start()
    began = time.monotonic()
    time.sleep(0.8)  # it stands at the point by now
    closing = time.monotonic()
    memory.close()
    closed_s = time.monotonic() - closing
    if unlink:
        # Without the side file whose mode it takes, SQLite makes no database at all; so that one stays.
        for path in folder.glob("memory.db*"):
            path.unlink()
    before = _contents(folder)
    time.sleep(max(0.0, began + blocked_s - time.monotonic()) + 0.6)
    thread.join(LIMIT_S)
    return {"closed_s": closed_s, "before": before, "after": _contents(folder)}


def _contents(folder: Path) -> dict[str, str]:
    """Every file but the shared memory, which holds no memory and is written by readers too."""
    found = {}
    for path in sorted(folder.iterdir()):
        if not path.name.endswith("-shm"):
            try:
                found[path.name] = f"{path.stat().st_size} {hash(path.read_bytes())}"
            except FileNotFoundError:
                found[path.name] = "went away while it was looked at"
    return found


# -- checkpoints -----------------------------------------------------------------------------------------------------


def pin_a_state(folder: Path, pinned: Any, release: Any, limit_s: float) -> None:
    """A reader outside the product that keeps the state it has seen first."""
    connection = apsw.Connection(str(folder / "memory.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("BEGIN").fetchall()
    connection.execute("SELECT count(*) FROM memories").fetchall()
    pinned.set()
    release.wait(limit_s)
    connection.execute("ROLLBACK").fetchall()
    connection.close()


def read_in_turns(folder: Path, number: int, stop: Any) -> None:
    """One of several readers whose snapshots overlap, so that at no moment nobody reads."""
    connection = apsw.Connection(str(folder / "memory.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(5_000)
    time.sleep(0.02 * number)
    while not stop.is_set():
        connection.execute("BEGIN").fetchall()
        connection.execute("SELECT count(*) FROM memories").fetchall()
        time.sleep(0.05)
        connection.execute("ROLLBACK").fetchall()
    connection.close()


def add_and_forget(folder: Path, ledger_path: Path, count: int) -> None:
    """Add texts and forget every third, so that the WAL is emptied again and again."""
    ledger = Ledger(ledger_path)
    with Memory(folder) as memory:
        for number in range(count):
            text = f"{ledger_path.stem} says number {number}"
            asked = ledger.ask("add", text=text)
            try:
                record = memory.add(text)
            except HoldTrueError as error:
                ledger.refused(asked, error.code, str(error))
                continue
            ledger.ok(asked, id=record.id)
            if number % 3 == 2:
                passing = memory.add(f"{ledger_path.stem} will not keep number {number}")
                memory.forget(passing.id)


# -- forking ---------------------------------------------------------------------------------------------------------


def fork_while_writing(folder: Path, ledger_path: Path, result: Path, threads: int, forks: int, way: str) -> None:
    """Threads write while the main thread forks; each child tries to use the store and ends in the given way."""
    memory = Memory(folder)
    memory.add("the store is open from here on")
    ledger = Ledger(ledger_path)
    lock = threading.Lock()
    stop = threading.Event()

    def write(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            with lock:
                asked = ledger.ask("add", text=f"thread {number} says {count}")
            try:
                record = memory.add(f"thread {number} says {count}")
            except HoldTrueError as error:
                with lock:
                    ledger.refused(asked, error.code, str(error))
            else:
                with lock:
                    ledger.ok(asked, id=record.id)

    crew = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for thread in crew:
        thread.start()
    told = []
    for number in range(forks):
        time.sleep(0.15)
        near, far = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # a child that hangs is a finding of its own
            os.close(near)
            answer = _in_the_child(memory, folder, number)
            os.write(far, answer.encode())
            if way == "exec":
                os.execv(sys.executable, [sys.executable, "-c", "pass"])
            if way == "close":
                memory.close()
            os._exit(0)
        os.close(far)
        parts = []
        while part := os.read(near, 4096):
            parts.append(part)
        os.close(near)
        told.append(b"".join(parts).decode())
        os.waitpid(child, 0)
    time.sleep(0.2)
    stop.set()
    for thread in crew:
        thread.join(LIMIT_S)
    memory.close()
    report(result, told)


def _in_the_child(memory: Memory, folder: Path, number: int) -> str:
    answers = []
    for attempt in (
        lambda: memory.add(f"a child, number {number}"),
        memory.list,
        lambda: Memory(folder).add(f"a child's own, number {number}"),
        lambda: Memory(folder).search("thread"),
    ):
        try:
            attempt()
            answers.append("done")
        except HoldTrueError as error:
            answers.append(error.code)
    return " ".join(answers)


# -- forgetting ------------------------------------------------------------------------------------------------------


def store_for_forgetting(folder: Path, result: Path, secret: dict[str, Any], before: str, neighbours: int) -> None:
    """A memory with a past and many fields among neighbours that share some of them; reports its id and its vector."""
    with Memory(folder) as memory:
        for number in range(neighbours):
            memory.add(f"neighbour number {number} speaks of the harbour", project="shared", tags=["shared"])
        record = memory.add(before, **secret, project="shared")
        vectors = [_vector(folder, record.id)]
        record = memory.update(record.id, before.replace("former", "present"))
        vectors.append(_vector(folder, record.id))
        # Said again elsewhere: what only the second add brings is a part of the memory as well.
        again = {"source": secret["source"] + "-again", "session": secret["session"] + "-again"}
        memory.add(record.text, user=secret["user"], project="shared", **again)
        for number in range(neighbours):
            memory.add(f"neighbour number {number} came later", project="shared", tags=["shared"])
    report(result, {"id": record.id, "vectors": [vector.hex() for vector in vectors if vector]})


def _vector(folder: Path, id_: str) -> bytes | None:
    from properties.kit import raw

    (row,) = [row for row in raw.read(folder).rows if row.id == id_]
    return row.vector


def idle_with_the_store_open(folder: Path, ready: Any, release: Any, limit_s: float) -> None:
    """A server between two calls: it has read and written, and keeps its connections."""
    memory = Memory(folder)
    memory.add("the idle one was here")
    memory.search("harbour")
    ready.set()
    release.wait(limit_s)
    memory.close()


def forget_one(folder: Path, ledger_path: Path, id_: str, result: Path) -> None:
    ledger = Ledger(ledger_path)
    with Memory(folder) as memory:
        asked = ledger.ask("forget", id=id_)
        try:
            receipt = memory.forget(id_)
        except HoldTrueError as error:
            ledger.refused(asked, error.code, str(error))
            return
        ledger.ok(asked, erased=receipt.erased)
        report(result, receipt.as_dict())
