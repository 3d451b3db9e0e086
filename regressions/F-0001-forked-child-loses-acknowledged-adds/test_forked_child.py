"""F-0001: a process that forks while it has a store open: whatever the child does, nothing that was acknowledged is lost.

SQLite keeps one table of its files and locks for a whole process, and a forked child inherits it: it believes to hold
locks that are its parent's. So a child that goes on with the store is the hardest guest there is.
https://www.sqlite.org/howtocorrupt.html, "Carrying an open database connection across a fork()".

Each test is a program of its own, because a test runner cannot fork itself and stay well.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from holdtrue import Memory
from properties.kit import checkers, raw
from properties.kit.expected import index_of, vector_of

RunPython = Callable[..., CompletedProcess[str]]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

PROGRAM = """
import json, os, signal, sys, threading, time
from holdtrue import HoldTrueError, Memory, failpoints

store, at_fork, in_child, out = sys.argv[1:]

def no_model(self):
    raise RuntimeError("not needed here, and half a second dearer")

Memory._load_embedder = no_model
memory = Memory(store)
acked, problems = [], []

def add(text):
    try:
        acked.append(memory.add(text).text)
    except HoldTrueError as error:
        problems.append([text, error.code])
    except BaseException as error:
        problems.append([text, repr(error)])

def look():
    try:
        memory.search("parent")
    except HoldTrueError as error:
        problems.append(["a search", error.code])

def report(who):
    with open(f"{out}.{who}", "w") as file:
        json.dump({"acked": acked, "problems": problems}, file)

class Channel:
    def __init__(self): self.end, self.far = os.pipe()
    def wait(self):
        if not os.read(self.end, 1): sys.exit(9)
    def tell(self): os.write(self.far, b"x")

def arm(rules):
    failpoints._armed = failpoints._Armed(failpoints._parse(rules), None) if rules else None

for number in range(3):
    add(f"parent, before the fork, {number}")
busy = None
if at_fork == "while a thread adds":
    arm("writer.before_commit=delay(0.4)")
    busy = threading.Thread(target=add, args=("parent, during the fork",))
elif at_fork == "while a thread reads":
    arm("reader.snapshot=delay(0.4)")
    busy = threading.Thread(target=memory.search, args=("parent",))
elif at_fork == "while a thread is idle with its connection":
    ready, over = threading.Event(), threading.Event()
    def read():
        memory.search("parent"); ready.set(); over.wait(20)
    threading.Thread(target=read, daemon=True).start()
    ready.wait(10)
if busy:
    busy.start()
    time.sleep(0.15)
go, done = Channel(), Channel()
child = os.fork()
if child == 0:
    signal.alarm(25)  # a child that hangs is told by its exit code
    acked, problems = [], []
    arm("")
    os.close(go.far)
    if in_child == "closes":
        memory.close()
    elif in_child == "uses":
        add("child, 1")
        look()
        add("child, 2")
    elif in_child == "uses and closes":
        add("child, 1")
        memory.close()
    elif in_child == "uses after the parent has closed":
        add("child, 1")
        done.tell()
        go.wait()
        add("child, 2")
        add("child, 3")
    elif in_child == "opens anew":
        memory = Memory(store)
        add("child, 1")
        memory.close()
    report("child")
    sys.exit(0)
arm("")
if in_child == "uses after the parent has closed":
    done.wait()
add("parent, after the fork")
if busy: busy.join()
if in_child == "uses after the parent has closed":
    memory.close()
    go.tell()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if in_child != "uses after the parent has closed":
    add("parent, after the child")
    memory.close()
report("parent")
"""

AT_FORK = ["idle", "while a thread adds", "while a thread reads", "while a thread is idle with its connection"]
IN_CHILD = ["exits", "closes", "opens anew", "uses"]
COMBINATIONS = [
    *(("idle", action) for action in [*IN_CHILD, "uses after the parent has closed"]),
    *(("while a thread adds", action) for action in ("exits", "closes", "uses and closes")),
    *(("while a thread reads", action) for action in ("exits", "uses after the parent has closed")),
    (AT_FORK[3], "uses and closes"),
]


@pytest.mark.parametrize(("at_fork", "in_child"), COMBINATIONS, ids=[" ".join(pair) for pair in COMBINATIONS])
def test_nothing_acknowledged_is_lost_when_a_process_forks(
    run_python: RunPython, tmp_path: Path, store: Path, at_fork: str, in_child: str
) -> None:
    out = tmp_path / "out"
    done = run_python(PROGRAM, store, at_fork, in_child, out, HOLDTRUE_WRITE_WAIT_S="3", HOLDTRUE_MODEL_WAIT_S="10")
    assert (done.stdout, done.stderr) == ("0\n", ""), "the child or its parent did not end well"
    parent, child = (json.loads(Path(f"{out}.{who}").read_text()) for who in ("parent", "child"))
    assert parent["problems"] == []
    acked = parent["acked"] + child["acked"]
    state = raw.read(store)
    present = Counter(state.texts())
    problems = checkers.derived_agree(state, index_of, vector_of)
    problems += [f"acknowledged {text!r} is there {present[text]} times" for text in acked if present[text] != 1]
    problems += [f"{text!r} is there though its add was refused" for text, _ in child["problems"] if present[text]]
    # A child may be refused the store, with an error that says so; it may not be left to wait, or told a bare error.
    problems += [f"{text!r}: {code}" for text, code in child["problems"] if code in ("STORE_BUSY",) or "(" in code]
    assert not problems, checkers.report(problems, f"fork {at_fork}, the child {in_child}")
    with Memory(store) as third:
        assert sorted(record.text for record in third.list(limit=500)) == sorted(state.texts())
        assert third.add("a third process goes on").created
