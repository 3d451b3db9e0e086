"""F-0028: covering a failed commit gave up at once when another program held the lock, so the cause was not told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

# The commit fails; before the store is opened again to cover it, another program takes the lock and keeps it 0.4 s.
PROGRAM = """
import os, sys, threading, time
import apsw
from holdtrue import HoldTrueError, Memory, failpoints

memory = Memory(sys.argv[1])
memory.add("acknowledged")
other = apsw.Connection(sys.argv[1] + "/memory.db")
real, opening = failpoints.hit, threading.Event()

def hit(point):
    if point == "writer.before_commit" and not opening.is_set():
        opening.set()
        raise OSError(5, "the disk did not take it")
    if point == "writer.before_open":
        other.execute("BEGIN IMMEDIATE").fetchall()
        threading.Timer(0.4, lambda: other.execute("ROLLBACK").fetchall()).start()
    real(point)

failpoints.hit = hit
try:
    memory.add("refused")
except HoldTrueError as error:
    print(error.code)
failpoints.hit = real
print([record.text for record in memory.list()])
sys.stdout.flush()
os._exit(0)
"""


def test_a_failed_write_beside_a_busy_program_is_still_refused_by_its_own_cause(
    run_python: Callable[..., CompletedProcess[str]], store: Path
) -> None:
    done = run_python(PROGRAM, store, HOLDTRUE_MODEL_WAIT_S="10")
    assert done.stdout == "STORE_UNAVAILABLE\n['acknowledged']\n", done.stderr
