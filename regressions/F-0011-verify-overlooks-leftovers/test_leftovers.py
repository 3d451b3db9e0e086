"""F-0011: a leftover revision is a text that nobody can forget, and a vector of NaN is found before any real one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from holdtrue import Memory
from properties.kit import raw

NOT_A_VECTOR = struct.pack("<256f", *[float("nan")] * 256)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("INSERT INTO revisions VALUES(999, 1, 'a text that nobody can forget', 1, 2)", ()),
        ("INSERT INTO sources VALUES(999, 'somewhere', 1, 1)", ()),
        ("UPDATE memories_vec SET embedding = ? WHERE rowid = 1", (NOT_A_VECTOR,)),
    ],
    ids=["revision", "source", "vector"],
)
def test_verify_tells_what_was_planted(store: Path, statement: str, values: tuple[bytes, ...]) -> None:
    with Memory(store) as memory:
        memory.add("the harbour is east of town")
        assert memory.verify() == []
        connection = raw.connect(store)
        connection.execute("PRAGMA foreign_keys = OFF").fetchall()
        connection.execute(statement, values).fetchall()
        connection.close()
        assert len(memory.verify()) == 1
