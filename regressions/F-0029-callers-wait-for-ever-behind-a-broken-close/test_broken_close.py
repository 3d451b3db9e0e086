"""F-0029: what went wrong after a commit had failed kept the writer from telling anyone that it had failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

PROGRAM = """
import os, sys, threading
from holdtrue import HoldTrueError, Memory, failpoints
from holdtrue.store.connection import StoreConnection

memory = Memory(sys.argv[1])
memory.add("acknowledged")
real_hit, real_close, broken = failpoints.hit, StoreConnection.close, []

def hit(point):
    if point == "writer.before_commit" and not broken:
        broken.append(point)
        raise OSError(5, "the disk did not take it")
    real_hit(point)

def close(self, force=False):
    real_close(self, force)
    if len(broken) == 1:
        broken.append("close")
        raise RuntimeError("the file system broke while it was closed")

failpoints.hit, StoreConnection.close = hit, close
told = []

def add():
    try:
        memory.add("refused")
    except HoldTrueError as error:
        told.append(error.code)

thread = threading.Thread(target=add, daemon=True)
thread.start()
thread.join(10)
print(told, len(broken))
sys.stdout.flush()
os._exit(0)
"""


def test_a_write_whose_connection_cannot_be_closed_is_still_refused(
    run_python: Callable[..., CompletedProcess[str]], store: Path
) -> None:
    done = run_python(PROGRAM, store, HOLDTRUE_MODEL_WAIT_S="10")
    assert done.stdout == "['STORE_UNAVAILABLE'] 2\n", done.stderr
