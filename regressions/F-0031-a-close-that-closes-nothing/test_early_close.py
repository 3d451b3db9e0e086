"""F-0031: the thread that makes pending vectors could be waited for before it was started, and then the close failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

PROGRAM = """
import os, sys, threading, time
from holdtrue import HoldTrueError, Memory

real_start, about_to_start = threading.Thread.start, threading.Event()

def start(self):
    if self.name == "holdtrue-catch-up":
        about_to_start.set()
        time.sleep(1.0)
    real_start(self)

threading.Thread.start = start
memory = Memory(sys.argv[1])
memory.add("its vector is put off")
about_to_start.wait(20)
told = "closed"
try:
    memory.close()
except Exception as error:
    told = f"{type(error).__name__}: {error}"
try:
    memory.add("too late")
    told += ", and open"
except HoldTrueError as error:
    told += f", {error.code}"
print(told)
sys.stdout.flush()
os._exit(0)
"""


def test_a_close_while_a_thread_is_about_to_start_closes_the_store(
    run_python: Callable[..., CompletedProcess[str]], store: Path
) -> None:
    done = run_python(PROGRAM, store, HOLDTRUE_MODEL_WAIT_S="0")
    assert done.stdout == "closed, STORE_CLOSED\n", done.stderr
