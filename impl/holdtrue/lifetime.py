"""How long a server process lives: no longer than its client.

Owns: the way out. Faults it survives: a client that closes the pipe, a signal, a parent that dies while another process
holds the pipe open, a thread that is busy and cannot be stopped. Whatever was acknowledged is on disk before its answer
is written, so leaving needs no clean-up to be safe; it takes a bounded moment to finish what is queued.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

CLOSE_S = 0.8  # what is queued gets this long; with the drain before it the process is gone within 2 s
PARENT_POLL_S = 0.5


class Lifetime:
    """`close` finishes what this process has begun; it is called once, in a thread, and waited for a bounded time."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close
        self._leaving = threading.Lock()

    def leave(self, code: int = 0) -> None:
        """End this process. Returns only to a second caller, whose process is about to end."""
        if not self._leaving.acquire(blocking=False):
            return
        closing = threading.Thread(target=self._close_quietly, name="holdtrue-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        # Not sys.exit(): the interpreter would wait for worker threads, and one may wait for a lock for half a minute.
        os._exit(code)

    def _close_quietly(self) -> None:
        with contextlib.suppress(Exception):
            self._close()

    def watch_signals(self) -> None:
        """Leave on SIGTERM, SIGINT and SIGHUP; one that the parent had ignored (nohup) stays ignored."""
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.leave()

    def watch_parent(self) -> None:
        """Leave when the parent has died. A parent that is the first process of the machine is not watched."""
        # PR_SET_PDEATHSIG is bound to the thread that started this process, not to the process: a client that starts
        # servers from a pool of threads would kill them at random.
        parent = os.getppid()
        if parent > 1:
            threading.Thread(target=self._poll_parent, args=(parent,), name="holdtrue-parent", daemon=True).start()

    def _poll_parent(self, parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_S)
        self.leave()
