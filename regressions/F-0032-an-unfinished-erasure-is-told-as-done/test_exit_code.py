"""F-0032: a script that cleans a secret took a forget that a reader held up for a finished one: it ended with 0."""

from __future__ import annotations

from pathlib import Path

from holdtrue import Memory
from holdtrue.cli import run
from properties.kit import raw


def test_a_forget_whose_bytes_are_still_there_ends_with_the_code_for_degraded(store: Path) -> None:
    with Memory(store) as memory:
        id_ = memory.add("to be forgotten").id
        other = memory.add("to be forgotten too").id
        reader = raw.connect(store)
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM memories").fetchall()
        held_up = run(["forget", id_, "--store", str(store)])
        reader.close()
        free = run(["forget", other, "--store", str(store)])
    assert (held_up, free) == (4, 0)
