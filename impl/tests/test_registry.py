"""The registry of derived data: no table outside it, nothing of a forgotten memory inside it, and `verify` tells every
disagreement that is planted behind the product's back."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from holdtrue import Memory
from holdtrue.store import derived, schema
from holdtrue.store.connection import open_connection
from holdtrue.store.vectors import Vector
from properties.kit import raw

DERIVED_TABLES = {table for entry in derived.REGISTRY for table in entry.tables}
# What FTS5 and vec0 keep for a table, and what SQLite keeps for all. vec0 does not call its chunks shadow tables, so a
# suffix decides. https://www.sqlite.org/fts5.html#fts5_data_structures
_OWN = r"_(data|idx|content|docsize|config|chunks|rowids|info|vector_chunks\d\d|metadatachunks\d\d|metadatatext\d\d)"
OWN_TABLES = {"sqlite_sequence", "sqlite_stat1"}


def unclaimed(connection: apsw.Connection) -> list[str]:
    """Tables, indexes, triggers and views that are no base table, no table of the registry and belong to neither."""
    claimed = schema.BASE_TABLES | DERIVED_TABLES | OWN_TABLES
    strangers = []
    for kind, name, table in connection.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall():
        own = any(re.fullmatch(mother + _OWN, table) for mother in DERIVED_TABLES)
        if kind not in ("table", "index") or not (table in claimed or own):
            strangers.append(f"{kind} {name}")
    return strangers


@pytest.fixture
def planted(memory: Memory, store: Path) -> tuple[Memory, apsw.Connection, dict[str, int]]:
    """A store of three memories, a bare connection that may do anything, and the number of each text."""
    memory.add_many(["the harbour is east", "the mill is north", {"text": "the gate is west", "user": "maya"}])
    connection = raw.connect(store)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    seqs = {text.split()[1]: seq for seq, text in connection.execute("SELECT seq, text FROM memories").fetchall()}
    assert memory.verify() == []
    return memory, connection, seqs


def test_every_table_of_a_store_is_a_base_table_or_claimed_by_the_registry(memory: Memory, store: Path) -> None:
    memory.add("a text", tags=["t"], key="k")
    connection = raw.connect(store)
    assert unclaimed(connection) == []
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert names >= schema.BASE_TABLES | DERIVED_TABLES
    assert not schema.BASE_TABLES & DERIVED_TABLES
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE cache(text TEXT)",
        "CREATE TABLE memories_fts_copy(text TEXT)",
        "CREATE VIRTUAL TABLE extra USING fts5(body)",
        "CREATE VIEW shown AS SELECT text FROM memories",
        "CREATE TRIGGER t AFTER INSERT ON memories BEGIN SELECT 1; END",
    ],
)
def test_a_table_outside_the_registry_is_found(memory: Memory, store: Path, statement: str) -> None:
    memory.open()
    connection = raw.connect(store)
    connection.execute(statement).fetchall()
    assert unclaimed(connection)
    connection.close()


@pytest.mark.parametrize("entry", derived.REGISTRY, ids=lambda entry: entry.name)
def test_every_entry_can_build_purge_and_verify_and_names_its_tables(entry: derived.Derived) -> None:
    assert entry.name
    assert entry.tables
    assert all(callable(getattr(entry, part)) for part in ("build", "purge", "verify"))


def rows_of(connection: apsw.Connection, seq: int) -> dict[str, int]:
    """How many rows each derived table and each base table below `memories` holds of this memory."""
    counts = {}
    for table in sorted(DERIVED_TABLES):
        column = "memory" if table == "pending_vectors" else "rowid"
        counts[table] = connection.execute(f"SELECT count(*) FROM {table} WHERE {column} = ?", (seq,)).fetchall()[0][0]
    for table in ("tags", "keys", "sources", "revisions", "aliases"):
        counts[table] = connection.execute(f"SELECT count(*) FROM {table} WHERE memory = ?", (seq,)).fetchall()[0][0]
    return counts


def test_forget_leaves_nothing_in_any_derived_table_nor_below_the_memory(memory: Memory, store: Path) -> None:
    id_ = memory.add("the harbour is east", tags=["a", "b"], key="k", source="chat").id
    memory.update(id_, "the harbour is west")
    kept = memory.add("the mill is north", tags=["a"])
    connection = raw.connect(store)
    (seq,), (kept_seq,) = connection.execute("SELECT seq FROM memories ORDER BY seq").fetchall()
    connection.execute("INSERT INTO aliases VALUES('as a file called it', ?)", (seq,)).fetchall()
    before = rows_of(connection, seq)
    assert [table for table, count in before.items() if not count] == ["pending_vectors"]
    kept_before = rows_of(connection, kept_seq)
    memory.forget(id_)
    assert not any(rows_of(connection, seq).values())
    assert rows_of(connection, kept_seq) == kept_before
    assert memory.get(kept.id).tags == ("a",)
    connection.close()


def test_each_entry_is_built_purged_and_built_again_to_the_same_rows(memory: Memory, store: Path) -> None:
    memory.add("the harbour is east")
    memory.close()
    connection = open_connection(store, write=True, keep_waiting=lambda: False)
    (row,) = connection.execute("SELECT seq, text, user_id, project_id, session_id, at_us FROM memories").fetchall()
    before = (connection.execute("SELECT rowid, * FROM memories_fts").fetchall(), raw.read(store).rows)
    for entry in derived.REGISTRY:
        entry.purge(connection, row[0])
        entry.purge(connection, row[0])  # a purge of what is not there does nothing
    assert not any(rows_of(connection, row[0])[table] for table in DERIVED_TABLES)
    derived.build(connection, derived.Source(*row, vector=None))
    assert rows_of(connection, row[0])["pending_vectors"] == 1
    assert connection.execute("SELECT rowid, * FROM memories_fts").fetchall() == before[0]
    assert derived.verify(connection) == []
    connection.close()


def sql(statement: str, *values: object) -> Callable[[apsw.Connection, dict[str, int]], None]:
    """A planted change; `:harbour` and its like stand for the number of that memory."""

    def plant(connection: apsw.Connection, seqs: dict[str, int]) -> None:
        text = statement
        for name, seq in seqs.items():
            text = text.replace(f":{name}", str(seq))
        connection.execute(text, values).fetchall()

    return plant


def replace_vector(blob: bytes) -> Callable[[apsw.Connection, dict[str, int]], None]:
    def plant(connection: apsw.Connection, seqs: dict[str, int]) -> None:
        connection.execute("UPDATE memories_vec SET embedding = ? WHERE rowid = ?", (blob, seqs["harbour"])).fetchall()

    return plant


ORPHAN_VECTOR = """INSERT INTO memories_vec(rowid, embedding, user_id, project_id, session_id, at_us)
    SELECT 999, embedding, user_id, project_id, session_id, at_us FROM memories_vec WHERE rowid = :harbour"""

# (what was planted, how, what `verify` must say, of which memory)
PLANTS = [
    ("wrong words", sql("UPDATE memories_fts SET body = 'other words' WHERE rowid = :harbour"), "full-text", "harbour"),
    ("no words", sql("DELETE FROM memories_fts WHERE rowid = :harbour"), "full-text", "harbour"),
    ("words of nobody", sql("INSERT INTO memories_fts(rowid, body) VALUES(999, 'ghost')"), "full-text", 999),
    (
        "text changed alone",
        sql("UPDATE memories SET text = 'another text' WHERE seq = :harbour"),
        "full-text",
        "harbour",
    ),
    ("vector of nobody", sql(ORPHAN_VECTOR), "vectors", 999),
    ("other user", sql("UPDATE memories_vec SET user_id = 99 WHERE rowid = :harbour"), "vectors", "harbour"),
    ("other project", sql("UPDATE memories_vec SET project_id = 99 WHERE rowid = :mill"), "vectors", "mill"),
    ("other session", sql("UPDATE memories_vec SET session_id = 99 WHERE rowid = :mill"), "vectors", "mill"),
    ("other time", sql("UPDATE memories_vec SET at_us = at_us + 1 WHERE rowid = :mill"), "vectors", "mill"),
    ("awaited by nobody", sql("INSERT INTO pending_vectors VALUES(999, 0, 'x')"), "pending", 999),
    ("awaited and there", sql("INSERT INTO pending_vectors VALUES(:gate, 0, 'x')"), "pending", "gate"),
    ("vector of NaN", replace_vector(struct.pack("<256f", *[float("nan")] * 256)), "vectors", "harbour"),
    ("vector of zeros", replace_vector(b"\0" * 1024), "vectors", "harbour"),
]


@pytest.mark.parametrize(
    ("plant", "entry", "whose"), [entry[1:] for entry in PLANTS], ids=[entry[0].replace(" ", "-") for entry in PLANTS]
)
def test_verify_tells_each_planted_disagreement_and_whose_it_is(
    planted: tuple[Memory, apsw.Connection, dict[str, int]],
    plant: Callable[[apsw.Connection, dict[str, int]], None],
    entry: str,
    whose: str | int,
) -> None:
    memory, connection, seqs = planted
    plant(connection, seqs)
    connection.close()
    number = seqs[whose] if isinstance(whose, str) else whose
    findings = memory.verify()
    assert [finding for finding in findings if finding.startswith(entry) and f"memory {number}:" in finding], findings


@pytest.mark.parametrize(
    "statement",
    [
        *(f"UPDATE memories SET {name} = 1 << 60" for name in ("valid_from_us", "created_us", "updated_us")),
        "UPDATE sources SET last_us = -(1 << 60)",
        "INSERT INTO revisions SELECT seq, 1, 'before', 0, 1 << 60 FROM memories",
    ],
)
def test_verify_tells_a_time_that_no_date_can_hold_and_whose_it_is(memory: Memory, store: Path, statement: str) -> None:
    memory.add("the harbour is east")
    connection = raw.connect(store)
    connection.execute(statement).fetchall()
    connection.close()
    assert "memory 1: a time of it lies outside the years 1 to 9999" in memory.verify()
    assert memory.backup().memories == 1


def test_a_rebuild_takes_the_filters_of_whoever_has_the_text_when_it_writes(memory: Memory, store: Path) -> None:
    memory.add("the harbour is east", user="maya", session="s")
    memory.close()
    connection = open_connection(store, write=True, keep_waiting=lambda: False)
    ((source, _, digest),) = derived.sources_after(connection, 0)
    (blob,) = connection.execute("SELECT embedding FROM memories_vec").fetchall()[0]
    (key,) = connection.execute("SELECT value FROM meta WHERE name = 'embedder'").fetchall()[0]
    source.vector = Vector(key, blob)
    connection.execute("INSERT INTO names VALUES(97, 'user', 'other'), (98, 'project', 'p'), (99, 'session', 't')")
    connection.execute("UPDATE memories SET user_id = 97, project_id = 98, session_id = 99, at_us = 5").fetchall()
    assert derived.rebuild(connection, [source], [digest], ["vectors", "pending"]) == 1
    rows = connection.execute("SELECT user_id, project_id, session_id, at_us FROM memories_vec").fetchall()
    connection.close()
    assert rows == [(97, 98, 99, 5)]


def test_verify_tells_a_full_text_index_that_lost_its_words_though_the_bodies_are_right(
    planted: tuple[Memory, apsw.Connection, dict[str, int]],
) -> None:
    memory, connection, _ = planted
    connection.execute("DELETE FROM memories_fts_data WHERE id > 10").fetchall()
    connection.close()
    assert memory.verify()


@pytest.mark.parametrize("table", ["tags", "keys", "sources", "revisions", "aliases"])
def test_verify_tells_rows_that_belong_to_no_memory(
    planted: tuple[Memory, apsw.Connection, dict[str, int]], table: str
) -> None:
    memory, connection, _ = planted
    connection.execute("PRAGMA foreign_keys = OFF").fetchall()
    columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    values = ["999" if name == "memory" else "randomblob(32)" if name == "digest" else "1" for (name,) in columns]
    connection.execute(f"INSERT INTO {table} VALUES({', '.join(values)})").fetchall()
    connection.close()
    assert memory.verify()
