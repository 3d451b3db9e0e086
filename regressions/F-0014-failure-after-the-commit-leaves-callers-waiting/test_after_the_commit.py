"""F-0014: once a commit stands, its callers are told so; a thread that cannot go on leaves nobody waiting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from properties.kit import raw

PROGRAM = """
import json, sys, threading
from holdtrue import HoldTrueError, Memory

told = {}

def add(text):
    try:
        told[text] = "stored" if memory.add(text).created else "there"
    except HoldTrueError as error:
        told[text] = error.code

with Memory(sys.argv[1]) as memory:
    for text in ("first", "second", "third"):
        caller = threading.Thread(target=add, args=(text,), daemon=True)
        caller.start()
        caller.join(5)
        told.setdefault(text, "still waiting")
print(json.dumps(told))
"""


@pytest.mark.parametrize("point", ["writer.after_commit", "turnstile.entered", "writer.before_commit"])
def test_a_caller_is_answered_whatever_fails_around_its_commit(
    run_python: Callable[..., CompletedProcess[str]], store: Path, point: str
) -> None:
    done = run_python(PROGRAM, store, HOLDTRUE_FAILPOINTS=f"{point}=raise@2", HOLDTRUE_MODEL_WAIT_S="10")
    told = json.loads(done.stdout)
    assert "still waiting" not in told.values(), told
    stored = [text for text, answer in told.items() if answer == "stored"]
    assert sorted(raw.read(store).texts()) == sorted(stored)
    assert len(stored) >= 2
