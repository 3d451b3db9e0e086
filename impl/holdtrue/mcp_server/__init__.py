"""The MCP server: seven tools over one `Memory`, on the official SDK.

The handshake is answered before the store is opened or a model is loaded; both happen in a thread as soon as the client
has its first answer. Calls run in threads: those that write wait in one pool, those that read in another, so that no
number of waiting writes holds up a search.

It is built on the SDK's low-level `Server`: that lets a tool's schema be the one written in `tools.py`, and lets every
refusal, wrong types and missing arguments included, be a result with a stable code.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from holdtrue import __version__, logs
from holdtrue.config import Settings
from holdtrue.errors import HoldTrueError
from holdtrue.lifetime import Lifetime
from holdtrue.mcp_server import tools
from holdtrue.mcp_server.wire import Wire, take_standard_streams

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel.server import Server

    from holdtrue.memory import Memory

logger = logs.logger(__name__)

READERS = 8  # a search keeps a core busy: more at once would only wait for each other
WRITERS = 256  # a write mostly waits, and its patience runs from its start, so none should wait for a thread


class InternalError(HoldTrueError):
    """A defect of HoldTrue, told without its details: they are in the log."""

    code = "INTERNAL_ERROR"
    default_hint = "Look at the server's log on stderr and report it."


class MemoryService:
    """The one `Memory` of a server, opened at its first use, and the threads that call it."""

    def __init__(self, store: str | None) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._memory: Memory | None = None
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdtrue-read")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="holdtrue-write")

    def memory(self) -> Memory:
        with self._lock:
            if self._memory is None:
                from holdtrue.memory import Memory  # SQLite is loaded here, after the handshake

                self._memory = Memory(self._store)
            return self._memory

    def prepare(self) -> None:
        """Open or make the store and load the model, in a thread of its own."""
        threading.Thread(target=self._prepare, name="holdtrue-prepare", daemon=True).start()

    def _prepare(self) -> None:
        try:
            memory = self.memory()
            memory.warm()
            memory.open()
            memory.embed_pending()
            from holdtrue import credentials  # noqa: F401 - its formats are compiled now, and not in the first add
        except Exception as error:  # noqa: BLE001 - every call meets the same problem and reports it
            logger.warning("The store is not ready: %s", error)

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Run a tool in a thread: its answer, and that as JSON. Raises a `HoldTrueError`."""
        tool = tools.find(name)
        pool = self._writers if tool.writes else self._readers
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, self._run, tool, arguments)
        except HoldTrueError:
            raise
        except Exception as error:
            logger.exception("%s failed", name)
            raise InternalError(f"{name} failed unexpectedly: {type(error).__name__}.") from error

    def _run(self, tool: tools.MemoryTool, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
        answer = tools.run(self.memory, tool, arguments)
        return answer, _to_json(answer)  # a page of 500 long texts takes a while: not in the event loop

    def close(self) -> None:
        with self._lock:
            memory = self._memory
        if memory is not None:
            memory.close()


def build(service: MemoryService) -> Server[Any]:
    """The SDK's server with the seven tools."""
    import mcp_types as types
    from mcp.server.lowlevel.server import Server

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in tools.TOOLS.values()])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            answer, text = await service.call(params.name, params.arguments or {})
        except HoldTrueError as error:
            # No structured content: clients check it against the schema of the tool's answer, errors included.
            problem = types.TextContent(type="text", text=_to_json(error.as_dict()))
            return types.CallToolResult(content=[problem], is_error=True)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=answer)

    return Server(
        "holdtrue",
        title="HoldTrue memory",
        version=__version__,
        instructions=tools.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: tools.MemoryTool) -> types.Tool:
    import mcp_types as types

    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=tool.output,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _to_json(answer: dict[str, Any]) -> str:
    """Inside a JSON string a recalled text cannot end its quotation."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False)


def serve_stdio(store: str | None) -> None:
    """Serve one client on the standard streams until it leaves. Does not return: the process ends."""
    inbound, outbound = take_standard_streams()
    service = MemoryService(store)
    lifetime = Lifetime(service.close)
    lifetime.watch_signals()
    lifetime.watch_parent()
    log_to_stderr()
    import anyio

    server = build(service)
    wire = Wire(inbound, outbound, on_first_answer=service.prepare, on_broken=lifetime.leave)

    async def session() -> None:
        async with wire.streams() as (from_client, to_client):
            await server.run(from_client, to_client, server.create_initialization_options())
        lifetime.leave()

    run_to_the_end(anyio.run, session, lifetime)


def run_to_the_end(run: Callable[[Any], object], main: Callable[[], Any], lifetime: Lifetime) -> None:
    """Run an event loop and end the process with it."""
    try:
        run(main)
    except BaseException:
        logger.exception("The server failed")
        lifetime.leave(1)
    lifetime.leave()


def log_to_stderr() -> None:
    """Warnings go to stderr; the setting `log` tells more or less. What other packages log is made clean here."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(logs.CLEAN)
    logs.tell_of_failed_threads(logger)
    logging.basicConfig(
        handlers=[handler],
        level=Settings.from_environment(warn=False).log,  # the store's own look at the settings warns
        format="%(asctime)s holdtrue[%(process)d] %(levelname)s %(message)s",
    )
