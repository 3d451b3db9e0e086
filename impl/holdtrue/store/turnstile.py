"""Whose turn it is to write, between processes.

Owns: the two side files `turn.outer` and `turn.inner`. A writer takes the outer lock, then the inner one, then releases
the outer: so at most one process waits at the inner lock, and it gets the turn when the holder steps out, however
quickly that holder comes back. Faults it survives: a holder that is killed (the kernel releases its locks), a fork (a
child does not inherit POSIX record locks), a writer that knows no turnstile (SQLite's own lock still holds it off).
"""

from __future__ import annotations

from pathlib import Path

from holdtrue import failpoints
from holdtrue.files import RecordLock


class Turnstile:
    """One a process and store, used by the writer thread alone: waiting here cannot be cancelled."""

    def __init__(self, folder: Path) -> None:
        self._outer = RecordLock(folder / "turn.outer")
        try:
            self._inner = RecordLock(folder / "turn.inner")
        except BaseException:
            self._outer.close()
            raise

    def enter(self) -> None:
        failpoints.hit("turnstile.waiting")
        self._outer.acquire()
        try:
            self._inner.acquire()
        finally:
            self._outer.release()
        failpoints.hit("turnstile.entered")

    def leave(self) -> None:
        self._inner.release()

    def close(self) -> None:
        self._outer.close()
        self._inner.close()
