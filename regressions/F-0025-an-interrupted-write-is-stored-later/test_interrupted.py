"""F-0025: whoever gives up waiting, for whatever reason, takes his write along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from properties.kit import raw

PROGRAM = """
import os, signal, sys, threading, time
import apsw
from holdtrue import Memory

memory = Memory(sys.argv[1])
memory.add("before")
foreign = apsw.Connection(sys.argv[1] + "/memory.db")
foreign.execute("BEGIN IMMEDIATE").fetchall()
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    memory.add("interrupted")
except KeyboardInterrupt:
    print("interrupted")
foreign.execute("ROLLBACK").fetchall()
time.sleep(0.5)
memory.add("after")
memory.close()
"""


def test_a_write_that_ctrl_c_ended_is_not_stored_when_the_lock_is_free_again(
    run_python: Callable[..., CompletedProcess[str]], store: Path
) -> None:
    done = run_python(PROGRAM, store, HOLDTRUE_MODEL_WAIT_S="10")
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert raw.read(store).texts() == ["before", "after"]
