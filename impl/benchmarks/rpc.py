"""A client of a stdio server that adds as little of its own as it can: JSON-RPC lines, one call at a time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class NoAnswer(Exception):
    """The server ended, or was silent for too long: the outcome of the call is unknown."""


class StdioServer:
    """A server process in a group of its own."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        self.began_s = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(variables or {})},
            start_new_session=True,
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._next = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "id" in message:
                self._answers.put(message)
        self._answers.put(None)

    def request(self, method: str, limit_s: float = 60.0, **params: Any) -> dict[str, Any]:
        """The result of a request. Raises `NoAnswer`."""
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        try:
            self._write(message)
            while True:
                answer = self._answers.get(timeout=limit_s)
                if answer is None:
                    raise NoAnswer(method)
                if answer["id"] == self._next:
                    return dict(answer["result"])
        except (OSError, queue.Empty) as error:
            raise NoAnswer(method) from error

    def initialize(self) -> float:
        """Shake hands; the seconds from the start of the process to its answer."""
        self.request("initialize", **HANDSHAKE)
        took_s = time.perf_counter() - self.began_s
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return took_s

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a tool; `{"error": ...}` when it refused. Raises `NoAnswer`."""
        result = self.request("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            return {"error": result["content"][0]["text"]}
        return dict(result["structuredContent"])

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
