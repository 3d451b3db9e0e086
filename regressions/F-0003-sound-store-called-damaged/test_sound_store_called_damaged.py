"""F-0003: FTS5 keeps what a connection has read of an index: a check on that connection sees damage where none is."""

from __future__ import annotations

from holdtrue import Memory


def test_verify_finds_a_sound_store_sound_after_each_change_of_another_connection(memory: Memory) -> None:
    # FTS5 keeps what a connection has read of an index: a check on that connection must not take it for damage.
    memory.add_many(["the harbour is east of town", "the mill is north of town"])
    id_ = memory.add("the gate").id
    assert memory.verify() == []
    memory.update(id_, "the gate is west of town")
    assert memory.verify() == []
    memory.forget(id_)
    assert memory.verify() == []
    memory.add("the gate is south of town")
    assert memory.verify() == []
