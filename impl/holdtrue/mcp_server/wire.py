"""JSON-RPC over the process' standard streams, one message a line.

Owns: descriptors 0 and 1. They are taken away before anything heavy is imported: the protocol moves to private
duplicates, descriptor 0 reads nothing and descriptor 1 is stderr, so that no print of a library, in Python or in C, can
break into the protocol. Faults it survives: lines that are not JSON or not JSON-RPC, bytes that are not UTF-8, escapes of
lone surrogates, lines without end, a client that closes its side while calls are under way (they are answered first, in
a bounded time), a client that has stopped reading.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BufferedReader, FileIO
from typing import TYPE_CHECKING, Any

from holdtrue.errors import InvalidInput
from holdtrue.records import valid_unicode

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCMessage

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

LINE_LIMIT_BYTES = 4 * 1024 * 1024  # a memory of 50,000 characters takes 600 KB when every one is an escaped pair
DRAIN_S = 0.9

PARSE_ERROR = -32700
INVALID_REQUEST = -32600


class StreamsClosed(InvalidInput):
    code = "STREAMS_CLOSED"
    default_hint = "An MCP client starts this command with both; to serve without them, use --http."


def take_standard_streams() -> tuple[int, int]:
    """Private duplicates of descriptors 0 and 1. From here on 0 is empty and 1 is stderr. Raises `StreamsClosed`."""
    import fcntl

    try:
        # 3 and above: a duplicate must not land on a standard stream that happens to be closed.
        inbound = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
        outbound = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as error:
        raise StreamsClosed("Standard input or output is closed.") from error
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return inbound, outbound


class Wire:
    """The transport of one session. `on_first_answer` is called once, after the client has its first answer;
    `on_broken` when the client can no longer be answered.
    """

    def __init__(
        self, inbound: int, outbound: int, *, on_first_answer: Callable[[], object], on_broken: Callable[[], object]
    ) -> None:
        self._lines = BufferedReader(FileIO(inbound, closefd=False), 65_536)
        self._outbound = outbound
        self._on_first_answer: Callable[[], object] | None = on_first_answer
        self._on_broken = on_broken
        self._unanswered: set[int | str] = set()

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        import anyio

        self._write_lock = anyio.Lock()
        self._reading, self._writing = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)
        to_server, from_client = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        to_client, from_server = anyio.create_memory_object_stream["SessionMessage"](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, to_server)
            tasks.start_soon(self._write, from_server)
            yield from_client, to_client

    async def _read(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCNotification, JSONRPCRequest

        async with to_server:
            while True:
                line = await anyio.to_thread.run_sync(self._next_line, abandon_on_cancel=True, limiter=self._reading)
                if line is None:
                    break
                if not line.strip():
                    continue
                message, fit = parse(line)
                if not fit:
                    await self._send(message)
                    continue
                if isinstance(message, JSONRPCRequest):
                    self._unanswered.add(message.id)
                elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                    cancelled = (message.params or {}).get("requestId")
                    if isinstance(cancelled, int | str):  # anything else names no request, and may not even be hashable
                        self._unanswered.discard(cancelled)
                await to_server.send(SessionMessage(message))
            # The server cancels its calls when this stream ends; a client that writes all its requests and closes still
            # gets its answers.
            with anyio.move_on_after(DRAIN_S):
                while self._unanswered:
                    await anyio.sleep(0.005)

    async def _write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for outgoing in from_server:
                await self._send(outgoing.message)

    async def _send(self, message: JSONRPCMessage) -> None:
        import anyio

        data = encode(message)
        async with self._write_lock:
            try:
                await anyio.to_thread.run_sync(self._write_all, data, limiter=self._writing)
            except OSError:
                self._on_broken()
                return
        answered = getattr(message, "id", None)
        if answered is not None and not hasattr(message, "method"):
            self._unanswered.discard(answered)
            if self._on_first_answer is not None:
                told, self._on_first_answer = self._on_first_answer, None
                told()

    def _next_line(self) -> bytes | None:
        """One line, or what there is of an over-long one; None at the end."""
        try:
            line = self._lines.readline(LINE_LIMIT_BYTES)
            if not line:
                return None
            rest = line
            while len(rest) == LINE_LIMIT_BYTES and not rest.endswith(b"\n"):
                rest = self._lines.readline(LINE_LIMIT_BYTES)
        except OSError:
            return None
        return line

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._outbound, left) :]


def parse(line: bytes) -> tuple[JSONRPCMessage, bool]:
    """The message of a line and True; for a line that holds none, the error to answer it with and False."""
    from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

    def refusal(id_: int | str | None, code: int, message: str) -> tuple[JSONRPCMessage, bool]:
        return JSONRPCError(jsonrpc="2.0", id=id_, error=ErrorData(code=code, message=message)), False

    text = line.decode("utf-8", "replace")
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False), True
    except ValueError:
        pass
    # The SDK's parser refuses a lone surrogate such as "\ud83d", which cutting a text in two produces easily; without
    # an answer the client would wait for ever.
    try:
        value = _without_surrogates(json.loads(text))
    except (ValueError, RecursionError):
        return refusal(None, PARSE_ERROR, "The line is not a JSON document.")
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False), True
    except ValueError:
        given = value.get("id") if isinstance(value, dict) else None
        known = given if isinstance(given, int | str) and not isinstance(given, bool) else None
        return refusal(known, INVALID_REQUEST, "The line is JSON but no JSON-RPC 2.0 message.")


def encode(message: JSONRPCMessage) -> bytes:
    """One line of valid UTF-8."""
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:
        # A lone surrogate, for example from a path that is not UTF-8.
        text = json.dumps(_without_surrogates(message.model_dump(by_alias=True, exclude_unset=True)))
    return text.encode("utf-8", "replace") + b"\n"


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return valid_unicode(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {valid_unicode(name): _without_surrogates(item) for name, item in value.items()}
    return value
