"""The comparison of two stores by their raw tables, tried on stores that differ in one thing each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdtrue import Memory
from properties.kit import raw, tables


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "store") as memory:
        first = memory.add("the harbour is east", tags=["a"], key="k", source="wiki", user="maya", metadata={"x": 1})
        memory.update(first.id, "the harbour is west")
        memory.add("the mill is north")
        memory.forget(memory.add("soon gone").id)
    return tmp_path / "store"


def test_a_store_does_not_differ_from_itself(store: Path) -> None:
    state = tables.read(store)
    assert [memory["text"] for memory in state.memories] == ["the harbour is west", "the mill is north"]
    assert len(state.tombstones) == 1
    assert tables.differences(state, tables.read(store)) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE memories SET text = 'other' WHERE seq = 1",
        "UPDATE memories SET digest = randomblob(32) WHERE seq = 1",
        *(
            f"UPDATE memories SET {column} = {column} + 1 WHERE seq = 1"
            for column in ("at_us", "valid_from_us", "created_us", "updated_us", "revision")
        ),
        "UPDATE memories SET speaker = 'x' WHERE seq = 1",
        "UPDATE memories SET metadata = '{}' WHERE seq = 1",
        "UPDATE memories SET source = 'x' WHERE seq = 1",
        "UPDATE names SET name = 'other' WHERE name = 'maya'",
        "UPDATE memories SET session_id = user_id WHERE seq = 1",
        "UPDATE tags SET tag = 'b'",
        "UPDATE sources SET times = times + 1 WHERE memory = 1",
        "UPDATE sources SET last_us = last_us + 1 WHERE memory = 1",
        "UPDATE keys SET digest = randomblob(32)",
        "DELETE FROM keys",
        "UPDATE revisions SET until_us = until_us + 1",
        "UPDATE revisions SET text = 'other'",
        "DELETE FROM tombstones",
        "UPDATE tombstones SET forgotten_us = forgotten_us + 1",
        "DELETE FROM memories WHERE seq = 2",
    ],
)
def test_each_change_of_one_thing_is_told(store: Path, statement: str) -> None:
    before = tables.read(store)
    connection = raw.connect(store)
    connection.execute("PRAGMA foreign_keys = ON").fetchall()
    connection.execute(statement).fetchall()
    connection.close()
    after = tables.read(store)
    assert tables.differences(before, after)
    assert tables.differences(after, before)


def test_another_order_of_the_same_memories_is_told(store: Path) -> None:
    state = tables.read(store)
    assert tables.differences(state, replace(state, memories=state.memories[::-1])) == [
        "the memories stand in another order"
    ]
