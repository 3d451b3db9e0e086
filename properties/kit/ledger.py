"""The acknowledgement ledger: what a process asked for and what it was told, outside the store it asks.

One append-only file a process, one write a line, written before the call and after it. SIGKILL keeps what was written,
because the page cache survives it. A call without a reply is unknown, never a success and never a failure.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["ok", "refused", "unknown"]


class Ledger:
    """The writing end, owned by one process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._number = 0

    def ask(self, action: str, **arguments: Any) -> int:
        """Write down a call that is about to be made; returns its number."""
        self._number += 1
        self._write({"event": "ask", "number": self._number, "action": action, "arguments": arguments})
        return self._number

    def ok(self, number: int, **answer: Any) -> None:
        self._write({"event": "ok", "number": number, "answer": answer})

    def refused(self, number: int, code: str, message: str) -> None:
        self._write({"event": "refused", "number": number, "answer": {"code": code, "message": message}})

    def _write(self, line: dict[str, Any]) -> None:
        line |= {"pid": os.getpid(), "ns": time.monotonic_ns()}
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")


@dataclass(frozen=True)
class Call:
    """One call of one process. `ended_ns` and `answer` are None while the outcome is unknown."""

    process: str
    number: int
    action: str
    arguments: dict[str, Any]
    outcome: Outcome
    began_ns: int
    ended_ns: int | None
    answer: dict[str, Any] | None


def read(paths: Iterable[Path]) -> list[Call]:
    """Every call of every ledger. A last line that a kill cut is dropped: it holds no reply."""
    calls = []
    for path in sorted(paths):
        asked: dict[tuple[int, int], dict[str, Any]] = {}
        replies: dict[tuple[int, int], dict[str, Any]] = {}
        for text in path.read_bytes().split(b"\n"):
            try:
                line = json.loads(text)
            except ValueError:
                continue
            key = (line["pid"], line["number"])
            (asked if line["event"] == "ask" else replies)[key] = line
        assert replies.keys() <= asked.keys(), f"{path} holds a reply to a call that was never made"
        for key, ask in asked.items():
            reply = replies.get(key)
            calls.append(
                Call(
                    process=f"{path.stem}/{key[0]}",
                    number=key[1],
                    action=ask["action"],
                    arguments=ask["arguments"],
                    outcome=reply["event"] if reply else "unknown",
                    began_ns=ask["ns"],
                    ended_ns=reply["ns"] if reply else None,
                    answer=reply["answer"] if reply else None,
                )
            )
    return calls
