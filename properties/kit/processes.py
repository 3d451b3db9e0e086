"""Real processes with bounded waits, cleaned up by process group.

Workers are functions of an importable module, started with the spawn method, so nothing is shared but the disk. Each
leads a process group of its own: whatever it starts dies with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from multiprocess import get_context

SPAWN = get_context("spawn")
START_LIMIT_S = 30.0


def _lead_group(target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.setsid()
    target(*arguments)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes started inside; the product reads them when it is imported."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _light_main() -> Iterator[None]:
    """Keep a spawned child from importing the test runner again: that costs more than the work of most workers."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass
class Crew:
    """The processes of one example. Leaving the context kills whatever of them is left."""

    members: list[Any] = field(default_factory=list)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self.members:
            # Also after its end: what it started may live on in its group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # it may not have got as far as leading a group
            process.join(5)

    def start(self, target: Callable[..., None], *arguments: Any, variables: Mapping[str, str] | None = None) -> Any:
        process = SPAWN.Process(target=_lead_group, args=(target, arguments), daemon=True)
        with environment(variables or {}), _light_main():
            process.start()
        self.members.append(process)
        return process

    def wait(self, limit_s: float) -> list[int | None]:
        """Wait for all, at most `limit_s` in total, and return their exit codes; None for one that still runs."""
        deadline = time.monotonic() + limit_s
        for process in self.members:
            process.join(max(0.0, deadline - time.monotonic()))
        return [process.exitcode for process in self.members]
