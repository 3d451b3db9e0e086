"""Stores as earlier releases wrote them: their statements are frozen here, and no code of the product makes them.

Each builder writes a store with raw SQL and returns nothing; `contents` reads every row back, byte for byte, without the
product. A release that brings a new schema adds its own builder; none is ever changed.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from properties.kit import expected, raw

APPLICATION_ID = 0x486F6C64
FIRST_US = 1_767_225_600_000_000  # 2026-01-01
EMBEDDER = "static-minilm-256@5b732112e4438ada/256"

_VERSION_1 = (
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE names(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE(kind, name))",
    """CREATE TABLE memories(
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        digest BLOB NOT NULL CHECK(length(digest) = 32),
        user_id INTEGER NOT NULL REFERENCES names(id),
        project_id INTEGER NOT NULL REFERENCES names(id),
        session_id INTEGER NOT NULL REFERENCES names(id),
        speaker TEXT NOT NULL,
        at_us INTEGER NOT NULL,
        valid_from_us INTEGER NOT NULL,
        created_us INTEGER NOT NULL,
        updated_us INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        source TEXT NOT NULL,
        revision INTEGER NOT NULL CHECK(revision >= 1),
        UNIQUE(user_id, project_id, digest))""",
    "CREATE INDEX memories_by_time ON memories(at_us DESC, seq DESC)",
    """CREATE TABLE tags(memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE, tag TEXT NOT NULL,
        PRIMARY KEY(tag, memory)) WITHOUT ROWID""",
    "CREATE INDEX tags_by_memory ON tags(memory)",
    """CREATE TABLE keys(user_id INTEGER NOT NULL, project_id INTEGER NOT NULL, key TEXT NOT NULL,
        digest BLOB NOT NULL, memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE,
        PRIMARY KEY(user_id, project_id, key)) WITHOUT ROWID""",
    "CREATE INDEX keys_by_memory ON keys(memory)",
    """CREATE TABLE sources(memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE, source TEXT NOT NULL,
        times INTEGER NOT NULL, last_us INTEGER NOT NULL, PRIMARY KEY(memory, source)) WITHOUT ROWID""",
    """CREATE TABLE revisions(memory INTEGER NOT NULL REFERENCES memories(seq) ON DELETE CASCADE,
        revision INTEGER NOT NULL, text TEXT NOT NULL, from_us INTEGER NOT NULL, until_us INTEGER NOT NULL,
        PRIMARY KEY(memory, revision)) WITHOUT ROWID""",
    "CREATE TABLE tombstones(id TEXT PRIMARY KEY, forgotten_us INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE erasures(id TEXT PRIMARY KEY, since_us INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE events(seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, kind TEXT NOT NULL,
        memory TEXT NOT NULL)""",
    "CREATE VIRTUAL TABLE memories_fts USING fts5(body, tokenize='porter unicode61 remove_diacritics 2')",
    "INSERT INTO memories_fts(memories_fts, rank) VALUES('secure-delete', 1)",
    """CREATE VIRTUAL TABLE memories_vec USING vec0(embedding float[256] distance_metric=cosine,
        user_id integer, project_id integer, session_id integer, at_us integer, chunk_size=128)""",
    "CREATE TABLE pending_vectors(memory INTEGER PRIMARY KEY, since_us INTEGER NOT NULL, reason TEXT NOT NULL)",
)

_TEXTS = (
    "The harbour opens at six, and the pilot boat leaves at {n}.",
    "Maya keeps the key number {n} of the mill.",
    "部署は水曜日の{n}時です。",
    "Naïve café number {n}, with an e\u0301 in two parts.",
    "!!! {n} ...",
)


def version_1(folder: Path, memories: int = 30, *, hot: bool = False) -> None:
    """A store of schema version 1 with all kinds of rows. `hot` leaves what was committed last in its WAL."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    connection = _fresh(folder)
    connection.execute("BEGIN IMMEDIATE").fetchall()
    for statement in _VERSION_1:
        connection.execute(statement).fetchall()
    connection.pragma("user_version", 1)
    connection.pragma("application_id", APPLICATION_ID)
    _meta(connection, created_us=str(FIRST_US), embedder=EMBEDDER)
    connection.execute("COMMIT").fetchall()
    half = memories // 2 if hot else memories
    _rows(connection, range(half))
    if hot:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        _rows(connection, range(half, memories))
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()


def version_1_with_hot_log(folder: Path) -> None:
    version_1(folder, hot=True)


def version_1_without_memories(folder: Path) -> None:
    version_1(folder, memories=0)


def empty_file(folder: Path) -> None:
    """What a process leaves that was killed between making the file and writing to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "memory.db").touch(mode=0o600)


CORPUS: dict[str, Callable[[Path], None]] = {
    "version-1": version_1,
    "version-1-hot-log": version_1_with_hot_log,
    "version-1-no-memories": version_1_without_memories,
    "empty-file": empty_file,
}


def contents(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table that version 1 had, with the columns it had, in order. Tables that are missing are empty."""
    connection = raw.connect(folder)
    try:
        return {table: _read(connection, table, columns) for table, columns in _COLUMNS.items()}
    except apsw.Error as error:
        raise AssertionError(f"{folder} cannot be read: {type(error).__name__}: {error}") from error
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()


def missing(before: dict[str, list[tuple[Any, ...]]], after: dict[str, list[tuple[Any, ...]]]) -> list[str]:
    """What is not there any more, or not as it was, as sentences."""
    return [
        f"{table} has lost {str(row)[:160]}" for table, rows in before.items() for row in set(rows) - set(after[table])
    ]


_COLUMNS = {
    "meta": "name, value",
    "names": "id, kind, name",
    "memories": """seq, id, text, digest, user_id, project_id, session_id, speaker, at_us, valid_from_us, created_us,
        updated_us, metadata, source, revision""",
    "tags": "memory, tag",
    "keys": "user_id, project_id, key, digest, memory",
    "sources": "memory, source, times, last_us",
    "revisions": "memory, revision, text, from_us, until_us",
    "tombstones": "id, forgotten_us",
    "events": "seq, at_us, kind, memory",
    "memories_fts": "rowid, body",
    "memories_vec": "rowid, embedding, user_id, project_id, session_id, at_us",
}


def _read(connection: apsw.Connection, table: str, columns: str) -> list[tuple[Any, ...]]:
    there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
    return connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall() if there else []


def _fresh(folder: Path) -> apsw.Connection:
    path = folder / "memory.db"
    path.touch(mode=0o600)
    connection = raw.connect(folder)
    connection.pragma("journal_mode", "wal")
    connection.pragma("wal_autocheckpoint", 0)
    connection.pragma("secure_delete", "ON")
    return connection


def _meta(connection: apsw.Connection, **values: str) -> None:
    for name, value in values.items():
        connection.execute("INSERT INTO meta VALUES(?, ?)", (name, value)).fetchall()


def _rows(connection: apsw.Connection, numbers: range) -> None:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    for number in numbers:
        _memory(connection, number)
    connection.execute("COMMIT").fetchall()


def _memory(connection: apsw.Connection, number: int) -> None:
    """One memory with all that belongs to it; each seventh was updated, each ninth awaits its vector."""
    text = _TEXTS[number % len(_TEXTS)].format(n=number)
    at_us = FIRST_US + number * 1_000_000
    id_ = f"019b7{number:03x}-0000-7000-8000-{number:012x}"
    digest = hashlib.sha256(unicodedata.normalize("NFC", text).encode()).digest()
    scope = [
        _name(connection, "user", f"user {number % 3}"),
        _name(connection, "project", ""),
        _name(connection, "session", "s"),
    ]
    revision = 2 if number % 7 == 3 else 1
    values = (
        id_,
        text,
        digest,
        *scope,
        "Maya",
        at_us,
        at_us,
        at_us,
        at_us + revision,
        json.dumps({"n": number}),
        "test",
    )
    connection.execute(
        """INSERT INTO memories(id, text, digest, user_id, project_id, session_id, speaker, at_us, valid_from_us,
             created_us, updated_us, metadata, source, revision) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (*values, revision),
    ).fetchall()
    seq = connection.last_insert_rowid()
    run = connection.execute
    for tag in ("all", f"tag {number % 4}"):
        run("INSERT INTO tags VALUES(?, ?)", (seq, tag)).fetchall()
    run("INSERT INTO keys VALUES(?, ?, ?, ?, ?)", (scope[0], scope[1], f"key {number}", digest, seq)).fetchall()
    run("INSERT INTO sources VALUES(?, 'test', 1, ?)", (seq, at_us)).fetchall()
    if revision == 2:
        run("INSERT INTO revisions VALUES(?, 1, ?, ?, ?)", (seq, f"before {number}", at_us - 9, at_us)).fetchall()
    run("INSERT INTO events(at_us, kind, memory) VALUES(?, 'add', ?)", (at_us, id_)).fetchall()
    run("INSERT INTO tombstones VALUES(?, ?)", (f"019b6{number:03x}-0000-7000-8000-{number:012x}", at_us)).fetchall()
    run("INSERT INTO memories_fts(rowid, body) VALUES(?, ?)", (seq, expected.index_of(text))).fetchall()
    vector = expected.vector_of(text)
    if number % 9 == 4:
        run("INSERT INTO pending_vectors VALUES(?, ?, 'no model')", (seq, at_us)).fetchall()
    elif vector is not None:
        run(
            """INSERT INTO memories_vec(rowid, embedding, user_id, project_id, session_id, at_us)
               VALUES(?, ?, ?, ?, ?, ?)""",
            (seq, vector, *scope, at_us),
        ).fetchall()


def _name(connection: apsw.Connection, kind: str, name: str) -> int:
    connection.execute("INSERT OR IGNORE INTO names(kind, name) VALUES(?, ?)", (kind, name)).fetchall()
    ((number,),) = connection.execute("SELECT id FROM names WHERE kind = ? AND name = ?", (kind, name)).fetchall()
    return int(number)
