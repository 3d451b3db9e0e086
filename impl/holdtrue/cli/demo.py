"""The demonstration: four server processes share a store, one is killed while it writes, and the books are balanced.

It drives real `holdtrue serve` processes through the SDK's own client. Each writer keeps an append-only ledger file, a
line before and a line after each call; a call without a reply is unknown, never failed, and is tried again with the same
idempotency key. At the end the ledgers are read back and compared with what another server lists.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from holdtrue.cli.output import Printer, is_terminal
from holdtrue.errors import HoldTrueError

if TYPE_CHECKING:
    from mcp import ClientSession

SERVERS = 4
VICTIM = 3
IN_FLIGHT = 4  # calls a client has under way at once, so that the kill meets some that are not answered
PAGE = 500
CALL_LIMIT_S = 45.0
DEMO_LIMIT_S = 180.0

# Stored by different servers, found through another. No query repeats its sentence.
FACTS = (
    (1, "We deploy on Tuesdays after the stand-up and never on a Friday.", "which day of the week do we deploy?"),
    (2, "The staging database listens on port 6432, behind pgbouncer.", "port of the database in staging"),
    (3, "ERR_POOL_TIMEOUT in billing means that pool_size is too small: 17 is right.", "ERR_POOL_TIMEOUT"),
)


class DemoFailed(HoldTrueError):
    code = "DEMO_FAILED"
    default_hint = "Report it with the log that was printed."


class Ledger:
    """An append-only file of one writer: what it asked for, and what it was told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, event: str, **facts: Any) -> None:
        os.write(self._descriptor, json.dumps({"event": event, **facts}).encode() + b"\n")

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass
class Balance:
    """The ledgers against the store."""

    asked: int
    acknowledged: int
    found: int
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)

    def even(self) -> bool:
        return self.asked == self.acknowledged == self.found and not (self.lost or self.duplicated or self.unasked)


def balance(entries: list[dict[str, Any]], stored: list[dict[str, Any]]) -> Balance:
    """Compare ledger entries with the `{"id", "text"}` of every stored memory.

    Lost is an acknowledged memory that is not there under its id with its text; duplicated is a text that is there more
    than once; unasked is a text that nobody asked to be stored.
    """
    asked = {entry["key"]: entry["text"] for entry in entries if entry["event"] == "ask"}
    acknowledged = {entry["key"]: entry["id"] for entry in entries if entry["event"] == "acknowledged"}
    text_of = {memory["id"]: memory["text"] for memory in stored}
    copies = Counter(memory["text"] for memory in stored)
    wanted = set(asked.values())
    return Balance(
        asked=len(asked),
        acknowledged=len(acknowledged),
        found=sum(text_of.get(id_) == asked[key] for key, id_ in acknowledged.items()),
        lost=[asked[key] for key, id_ in acknowledged.items() if text_of.get(id_) != asked[key]],
        duplicated=[text for text, count in copies.items() if count > 1],
        unasked=[text for text in copies if text not in wanted],
    )


@dataclass
class Report:
    """What the demonstration found, for `--json`."""

    store: str
    killed: dict[str, Any] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    searches: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    passed: bool = False


class Stage:
    """What the person watching sees: moving bars on a terminal, lines otherwise, nothing with `--json`."""

    def __init__(self, printer: Printer) -> None:
        self.printer = printer
        self._silent = printer.as_json
        self._bars: Any = None
        self._tasks: dict[int, Any] = {}
        self._live = not self._silent and is_terminal(sys.stdout)

    def say(self, text: str = "", *styles: str) -> None:
        if self._silent:
            return
        if self._bars is not None:
            from rich.text import Text

            self._bars.console.print(Text.from_ansi(self.printer.style(text, *styles)))
            return
        self.printer.line(self.printer.style(text, *styles))
        sys.stdout.flush()

    def start_bars(self, totals: dict[int, int]) -> None:
        if not self._live:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bars = Progress(TextColumn("  {task.description}"), BarColumn(40), MofNCompleteColumn())
        self._tasks = {n: self._bars.add_task(f"server {n}", total=total) for n, total in totals.items()}
        self._bars.start()

    def stop_bars(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def stored(self, server: int, count: int) -> None:
        if self._bars is not None:
            self._bars.update(self._tasks[server], completed=count)


class Demonstration:
    def __init__(self, folder: Path, logs: Path, stage: Stage, memories: int) -> None:
        self.folder = folder
        self.stage = stage
        self.project = f"demo-{uuid.uuid4().hex[:8]}"  # a store that was there before keeps its memories apart
        self.report = Report(store=str(folder))
        self._log = (logs / "servers.log").open("a+", encoding="utf-8", errors="replace")
        self._ledgers = {n: Ledger(logs / f"ledger-{n}.jsonl") for n in range(1, SERVERS + 1)}
        self._work = {n: deque(_items(n, memories)) for n in range(1, SERVERS + 1)}
        self._totals = {n: len(items) for n, items in self._work.items()}
        self._kill_at = self._totals[VICTIM] // 2
        self._acknowledged: Counter[int] = Counter()
        self._pids: dict[int, int] = {}
        self._unanswered: set[str] = set()

    async def run(self) -> Report:
        import anyio

        began_s = time.monotonic()
        self._ready = {n: anyio.Event() for n in self._work}
        self._done = {n: anyio.Event() for n in self._work}
        self._audited = anyio.Event()
        try:
            with anyio.fail_after(DEMO_LIMIT_S):
                async with anyio.create_task_group() as tasks:
                    for server in self._work:
                        tasks.start_soon(self._write, server)
        finally:
            self.stage.stop_bars()
        self.report.seconds = round(time.monotonic() - began_s, 2)
        return self.report

    async def _write(self, server: int) -> None:
        """Store this server's share, through as many processes as it takes, then stay until the audit is done."""
        first = True
        while True:
            async with self._connect(server) as (session, pid):
                if first:
                    self._pids[server] = pid
                    self._ready[server].set()
                    await self._all(self._ready)
                    if server == 1:
                        for number, started in sorted(self._pids.items()):
                            self.stage.say(f"  server {number}  pid {started}")
                        self.stage.say()
                        self.stage.say(
                            f"Together they store {sum(self._totals.values())} memories, all at once", "bold"
                        )
                        self.stage.start_bars(self._totals)
                elif server == VICTIM:
                    again = self.report.killed["unanswered"]
                    self.stage.say(f"  server {server} is back as pid {pid} and asks again for the {again} unanswered")
                    self.report.killed["restarted_pid"] = pid
                first = False
                await self._store(server, session, pid)
                if self._work[server]:
                    continue
                self._done[server].set()
                if server == 1:
                    await self._all(self._done)
                    self.stage.stop_bars()
                    await self._audit(session)
                    self._audited.set()
                await self._audited.wait()
                return

    async def _all(self, events: dict[int, Any]) -> None:
        for event in events.values():
            await event.wait()

    async def _store(self, server: int, session: ClientSession, pid: int) -> None:
        import anyio

        unanswered: list[tuple[str, str]] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.start_soon(self._store_some, server, session, pid, unanswered)
        if unanswered:
            self._unanswered = {key for key, _ in unanswered}
            self.report.killed["unanswered"] = len(unanswered)
            self._work[server].extendleft(unanswered)

    async def _store_some(
        self, server: int, session: ClientSession, pid: int, unanswered: list[tuple[str, str]]
    ) -> None:
        from mcp import MCPError

        ledger = self._ledgers[server]
        while self._work[server]:
            key, text = self._work[server].popleft()
            ledger.note("ask", key=key, text=text)
            try:
                answer = await _call(
                    session, "memory_store", text=text, key=key, project=self.project, session=f"server {server}"
                )
            except MCPError as error:
                if not self.report.killed or server != VICTIM:
                    raise DemoFailed(f"Server {server} left without being killed: {error}.") from error
                ledger.note("unknown", key=key)
                unanswered.append((key, text))
                return
            ledger.note("acknowledged", key=key, id=answer["id"])
            self._acknowledged[server] += 1
            if key in self._unanswered and not answer["created"]:
                self.report.killed["stored_unanswered"] += 1
            self.stage.stored(server, self._acknowledged[server])
            if server == VICTIM and not self.report.killed and self._acknowledged[server] >= self._kill_at:
                os.kill(pid, signal.SIGKILL)
                self.report.killed = {
                    "server": server,
                    "pid": pid,
                    "acknowledged_before": self._acknowledged[server],
                    "unanswered": 0,
                    "stored_unanswered": 0,
                }
                self.stage.say(
                    f"  server {server}  pid {pid} gets SIGKILL while it writes, with {self._acknowledged[server]} "
                    "acknowledged",
                    "yellow",
                )

    async def _audit(self, session: ClientSession) -> None:
        """Balance the books and search, all through one server that was not killed."""
        stored: list[dict[str, Any]] = []
        while True:
            page = await _call(session, "memory_list", limit=PAGE, offset=len(stored), project=self.project)
            stored += page["memories"]
            if len(stored) >= page["total"] or not page["memories"]:
                break
        entries = [entry for ledger in self._ledgers.values() for entry in ledger.entries()]
        books = balance(entries, stored)
        self.report.ledger = {
            "acknowledged": books.acknowledged,
            "found": books.found,
            "lost": len(books.lost),
            "duplicated": len(books.duplicated),
            "unasked": len(books.unasked),
        }
        killed = self.report.killed
        self.stage.say(
            f"  {killed['stored_unanswered']} of the {killed['unanswered']} unanswered had been stored before the kill; "
            "asked again with their keys, each is there once"
        )
        self.stage.say()
        self.stage.say("The ledgers, compared with what server 1 lists", "bold")
        for name, count in self.report.ledger.items():
            bad = count if name in ("lost", "duplicated", "unasked") else count != books.asked
            self.stage.say(f"  {name:<12} {count:>5}", "red" if bad else "green")
        self.stage.say()
        self.stage.say("Three searches through server 1", "bold")
        for server, text, query in FACTS:
            answer = await _call(session, "memory_search", query=query, limit=3, project=self.project)
            best = answer["hits"][0] if answer["hits"] else {"text": "", "score": 0.0}
            right = best["text"] == text
            self.report.searches.append(
                {"query": query, "found": best["text"], "score": best["score"], "stored_by": server, "right": right}
            )
            self.stage.say(f"  {query}", "cyan")
            self.stage.say(f"    {best['score']:.2f}  {best['text'] or 'nothing'}  (told to server {server})")
            if not right:
                self.stage.say(f"    expected: {text}", "red")
        self.report.passed = (
            books.even() and "restarted_pid" in killed and all(search["right"] for search in self.report.searches)
        )

    @asynccontextmanager
    async def _connect(self, server: int) -> AsyncIterator[tuple[ClientSession, int]]:
        """A server process of its own and a session with it; also its process id."""
        from mcp import ClientSession, StdioServerParameters, stdio_client

        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "holdtrue", "serve", "--store", str(self.folder)],
            env={name: value for name, value in os.environ.items() if name.startswith(("HOLDTRUE_", "PYTHON"))},
        )
        log: TextIO = self._log
        async with stdio_client(parameters, errlog=log) as streams, ClientSession(*streams) as session:
            await session.initialize()
            status = await _call(session, "memory_status")
            yield session, int(status["pid"])

    def log_tail(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()[-4000:]

    def close(self) -> None:
        self._log.close()
        for ledger in self._ledgers.values():
            ledger.close()


def run_demo(store: str | None, *, memories: int, as_json: bool) -> int:
    """Run it in a folder of its own, or in `store`. Returns the exit code: 1 when a promise was broken."""
    import anyio

    printer = Printer(as_json=as_json)
    stage = Stage(printer)
    with tempfile.TemporaryDirectory(prefix="holdtrue-demo-") as scratch:
        logs = Path(scratch)
        folder = Path(store).expanduser().absolute() if store else logs / "store"
        stage.say(f"Four servers share one store: {folder}", "bold")
        demonstration = Demonstration(folder, logs, stage, memories)
        try:
            report = anyio.run(demonstration.run)
        except BaseException as error:
            cause = _first(error)
            if isinstance(cause, KeyboardInterrupt | HoldTrueError):
                raise cause from None
            raise DemoFailed(
                f"The demonstration broke off: {type(cause).__name__}: {cause}. {demonstration.log_tail()}".strip()
            ) from error
        finally:
            demonstration.close()
    if as_json:
        printer.document(vars(report))
    else:
        verdict = "Nothing was lost, nothing is there twice." if report.passed else "A promise was broken."
        stage.say()
        stage.say(f"{verdict} ({report.seconds:.1f} s)", "bold", "green" if report.passed else "red")
    return 0 if report.passed else 1


def _first(error: BaseException) -> BaseException:
    """The first real error inside the groups that task groups make."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _call(client: ClientSession, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments, read_timeout_seconds=CALL_LIMIT_S)
    if result.is_error:
        raise DemoFailed(f"{tool} was refused: {getattr(result.content[0], 'text', result.content)}")
    answer: dict[str, Any] = result.structured_content
    return answer


_SUBJECTS = (
    "The cache",
    "The invoice job",
    "The login page",
    "The nightly export",
    "The search index",
    "The mail queue",
)
_EVENTS = (
    "was restarted",
    "was moved to Berlin",
    "failed twice",
    "got a new owner",
    "was reviewed",
    "ran out of memory",
)
_PEOPLE = ("Maya", "Jonas", "Priya", "Tomasz", "Aiko")


def _items(server: int, memories: int) -> list[tuple[str, str]]:
    """The keys and texts that one server is told: everyday notes, and its fact early among them."""
    notes = [
        f"{_SUBJECTS[n % 6]} {_EVENTS[(n // 6 + server) % 6]}, as {_PEOPLE[n % 5]} wrote in ticket OPS-{server}{n:04d}."
        for n in range(memories)
    ]
    notes[1:1] = [text for teller, text, _ in FACTS if teller == server]
    return [(f"demo-{server}-{n}", text) for n, text in enumerate(notes)]
