"""Instruments of the door tests: a real `holdtrue serve` spoken to line by line, every wait bounded."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
ANSWER_LIMIT_S = 40.0


def environment(**extra: str) -> dict[str, str]:
    """This process' environment without settings of HoldTrue, and `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDTRUE_")}
    return {**kept, **extra}


def python_path(folder: Path) -> str:
    """A PYTHONPATH on which the modules of a folder come first."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))


def holdtrue(*arguments: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command line as a process of its own."""
    options.setdefault("env", environment())
    options.setdefault("stdin", None if "input" in options else subprocess.DEVNULL)
    return subprocess.run(
        [sys.executable, "-m", "holdtrue", *arguments],
        capture_output=True,
        timeout=ANSWER_LIMIT_S,
        check=False,
        **options,
    )


class ServerProcess:
    """A server in a process group of its own; `lines` are all lines it wrote to stdout."""

    def __init__(self, store: Path, *arguments: str, command: list[str] | None = None, **variables: str) -> None:
        self.log = store.parent / f"{store.name}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                command or [sys.executable, "-m", "holdtrue", "serve", "--store", str(store), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(**variables),
                start_new_session=True,
            )
        self.lines: list[bytes] = []
        self._answers: dict[Any, queue.SimpleQueue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._next = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(10)
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line)
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                self._answer(message.get("id")).put(message)

    def _answer(self, id_: Any) -> queue.SimpleQueue[dict[str, Any]]:
        with self._lock:
            return self._answers.setdefault(id_, queue.SimpleQueue())

    def write(self, line: bytes) -> None:
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self, id_: Any, limit_s: float = ANSWER_LIMIT_S) -> dict[str, Any]:
        """The answer to a request, or a failure that shows the server's log."""
        try:
            return self._answer(id_).get(timeout=limit_s)
        except queue.Empty:
            raise AssertionError(
                f"no answer to {id_!r} in {limit_s} s; stdout {self.lines[-3:]}; log {self.log.read_text()[-2000:]}"
            ) from None

    def send(self, method: str, **params: Any) -> int:
        self._next += 1
        message = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        self.write(json.dumps(message).encode())
        return self._next

    def initialize(self) -> dict[str, Any]:
        answer = self.answer(self.send("initialize", **HANDSHAKE))
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer["result"]

    def start_call(self, tool: str, arguments: Any) -> int:
        return self.send("tools/call", name=tool, arguments=arguments)

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool that works."""
        result = self.answer(self.start_call(tool, arguments))["result"]
        assert result["isError"] is False, result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a tool that must refuse: code, message, hint, in this order."""
        return error_of(self.answer(self.start_call(tool, arguments)))

    def ended_within(self, limit_s: float) -> int:
        """The exit code; fails when the process is still there."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {limit_s} s; log {self.log.read_text()[-2000:]}") from None


def error_of(answer: dict[str, Any]) -> dict[str, Any]:
    result = answer["result"]
    assert result["isError"] is True, result
    assert "structuredContent" not in result  # clients check it against the tool's schema, which an error does not fit
    error = json.loads(result["content"][0]["text"])
    assert list(error)[:3] == ["code", "message", "hint"]
    assert error["message"]
    assert "Traceback" not in error["message"]
    return error
