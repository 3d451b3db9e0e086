"""A process that forks while it has a store open: whatever the child does, nothing that was acknowledged is lost.

SQLite keeps one table of its files and locks for a whole process, and a forked child inherits it: it believes to hold
locks that are its parent's. So a child that goes on with the store is the hardest guest there is.
https://www.sqlite.org/howtocorrupt.html, "Carrying an open database connection across a fork()".

What such a child may do and may not is proved in `regressions/F-0001-forked-child-loses-acknowledged-adds`.
Each test is a program of its own, because a test runner cannot fork itself and stay well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from properties.kit import checkers, raw
from properties.kit.expected import index_of, vector_of

RunPython = Callable[..., CompletedProcess[str]]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

MANY = """
import json, os, sys, threading
from holdtrue import Memory
memory = Memory(sys.argv[1])
memory.add("before any fork")
over = threading.Event()
acked = ["before any fork"]
def keep_adding(name):
    number = 0
    while not over.is_set():
        acked.append(memory.add(f"{name} {number}").text)
        memory.search(name)
        number += 1
threads = [threading.Thread(target=keep_adding, args=(f"thread {n}",)) for n in range(3)]
for thread in threads: thread.start()
codes = []
for number in range(8):
    child = os.fork()
    if child == 0:
        if number % 2: memory.close()
        if number % 4 < 2: os._exit(0)
        sys.exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
for thread in threads: thread.join()
memory.close()
json.dump({"codes": codes, "acked": acked}, sys.stdout)
"""


def test_children_that_only_leave_disturb_no_thread_of_their_parent(run_python: RunPython, store: Path) -> None:
    done = run_python(MANY, store, HOLDTRUE_MODEL_WAIT_S="10")
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["codes"] == [0] * 8
    state = raw.read(store)
    assert sorted(state.texts()) == sorted(told["acked"])
    assert checkers.derived_agree(state, index_of, vector_of) == []


UNTOUCHED = """
import os, sys
from holdtrue import Memory
memory = Memory(sys.argv[1])
child = os.fork()
if child == 0:
    memory.add("child, through a memory that was never used before the fork")
    memory.close()
    sys.exit(0)
memory.add("parent")
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
memory.close()
print(code)
"""


def test_a_memory_that_was_not_used_before_the_fork_serves_both(run_python: RunPython, store: Path) -> None:
    done = run_python(UNTOUCHED, store)
    assert (done.stdout, done.stderr) == ("0\n", "")
    wanted = ["child, through a memory that was never used before the fork", "parent"]
    assert sorted(raw.read(store).texts()) == wanted
