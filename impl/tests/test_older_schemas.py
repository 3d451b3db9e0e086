"""Stores of earlier releases: every door opens them, they become what a new store is, and nothing is done twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdtrue import Memory
from holdtrue.cli import run as command
from holdtrue.errors import StoreMissing, StoreTooNew
from holdtrue.store import schema
from properties.kit import checkers, expected, old_schemas, raw

DOORS: dict[str, Callable[[Memory], Any]] = {
    "open": lambda memory: memory.open(),
    "list": lambda memory: memory.list(),
    "search": lambda memory: memory.search("harbour"),
    "status": lambda memory: memory.status(),
    "add": lambda memory: memory.add("new here"),
    "verify": lambda memory: memory.verify(),
    "rebuild": lambda memory: memory.rebuild(),
    "backup": lambda memory: memory.backup(),
}


def structure(store: Path) -> set[tuple[str, str]]:
    """Every table and index with the statement that made it, without what vec0 and FTS5 make for themselves."""
    connection = raw.connect(store)
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {(str(name), plain(str(sql))) for name, sql in rows if not re.match(r"memories_(fts|vec)_", str(name))}


def plain(sql: str) -> str:
    return " ".join(sql.replace("IF NOT EXISTS ", "").split())


@pytest.mark.parametrize("door", sorted(DOORS))
@pytest.mark.parametrize("name", sorted(old_schemas.CORPUS))
def test_every_door_opens_an_older_store_and_every_row_of_it_is_there(store: Path, name: str, door: str) -> None:
    old_schemas.CORPUS[name](store)
    before = old_schemas.contents(store)
    with Memory(store) as memory:
        DOORS[door](memory)
    if door == "backup":
        with Memory(store) as memory:
            memory.open()
    assert old_schemas.missing(before, old_schemas.contents(store)) == []
    state = raw.read(store)
    assert state.user_version == schema.VERSION
    assert checkers.derived_agree(state, expected.index_of, expected.vector_of) == []


@pytest.mark.parametrize("name", sorted(old_schemas.CORPUS))
def test_an_older_store_becomes_what_a_new_one_is_and_a_second_open_changes_nothing(
    store: Path, tmp_path: Path, name: str
) -> None:
    with Memory(tmp_path / "new") as memory:
        memory.open()
    old_schemas.CORPUS[name](store)
    with Memory(store) as memory:
        memory.open()
    assert structure(store) == structure(tmp_path / "new")
    first = (store / "memory.db").read_bytes()
    with Memory(store) as memory:
        memory.open()
        memory.list()
    assert (store / "memory.db").read_bytes() == first


def test_a_reading_command_brings_an_older_store_up_to_date(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old_schemas.version_1(store)
    assert command(["list", "--store", str(store), "--limit", "1"]) == 0
    assert "of 30" in capfd.readouterr().out
    assert raw.read(store).user_version == schema.VERSION


def test_the_statements_of_a_release_are_never_changed_afterwards() -> None:
    ours = {plain(statement) for statement in (*schema.MIGRATIONS[0], schema.VECTOR_TABLE)}
    assert ours == {plain(statement) for statement in old_schemas._VERSION_1}


def test_a_store_of_a_later_release_is_refused_with_its_version(store: Path) -> None:
    old_schemas.version_1(store)
    connection = raw.connect(store)
    connection.pragma("user_version", 999)
    connection.close()
    before = old_schemas.contents(store)
    with Memory(store) as memory, pytest.raises(StoreTooNew, match="999"):
        memory.open()
    assert old_schemas.contents(store) == before


def test_an_embedding_in_the_background_makes_no_store(store: Path) -> None:
    with Memory(store) as memory:
        assert memory.embed_pending() == 0
        with pytest.raises(StoreMissing):
            memory.doctor()
    assert not store.exists()


def test_a_row_that_is_gone_or_changed_is_noticed(store: Path) -> None:
    old_schemas.version_1(store)
    before = old_schemas.contents(store)
    connection = raw.connect(store)
    connection.execute("DELETE FROM memories_vec WHERE rowid = 3").fetchall()
    connection.execute("UPDATE memories SET speaker = 'x' WHERE seq = 4").fetchall()
    connection.close()
    assert len(old_schemas.missing(before, old_schemas.contents(store))) == 2
