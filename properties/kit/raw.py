"""Raw storage: what is in the database, read without the product.

The checkers judge from here, so that a product that lies to its readers is found out.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import apsw


@dataclass(frozen=True)
class Row:
    """A memory as stored: its text, the text in the full-text index, its vector's bytes, whether one is awaited."""

    seq: int
    id: str
    text: str
    indexed: str | None
    vector: bytes | None
    pending: bool


@dataclass(frozen=True)
class Raw:
    """Everything a checker looks at, of one committed state."""

    rows: tuple[Row, ...]
    orphans: tuple[str, ...]
    damage: tuple[str, ...]
    user_version: int

    def texts(self) -> list[str]:
        return [row.text for row in self.rows]


def connect(folder: Path) -> apsw.Connection:
    """A bare connection that knows vec0 and nothing of the product."""
    connection = apsw.Connection(str(folder / "memory.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(5_000)
    spec = importlib.util.find_spec("sqlite_vec")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    connection.enable_load_extension(True)
    connection.load_extension(str(Path(next(iter(spec.submodule_search_locations))) / "vec0"))
    connection.enable_load_extension(False)
    return connection


def read(folder: Path) -> Raw:
    """Read the whole store. Runs SQLite's and FTS5's own integrity checks.

    A store that cannot be read, or lacks a table, is an `AssertionError`: no promise holds there.
    """
    try:
        return _read(folder)
    except apsw.Error as error:
        raise AssertionError(f"raw storage at {folder} cannot be read: {type(error).__name__}: {error}") from error


def _read(folder: Path) -> Raw:
    connection = connect(folder)
    try:
        damage = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        try:
            connection.execute("INSERT INTO memories_fts(memories_fts, rank) VALUES('integrity-check', 1)").fetchall()
        except apsw.Error as error:
            damage.append(f"FTS5 integrity-check: {error}")
        connection.execute("BEGIN")
        indexed = dict(connection.execute("SELECT rowid, body FROM memories_fts").fetchall())
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        stale = {seq for (seq,) in connection.execute("SELECT memory FROM stale_vectors")}
        vectors = {}
        if "memories_vec" in tables:  # a process without sqlite-vec makes a store without it
            vectors = dict(connection.execute("SELECT rowid, embedding FROM memories_vec").fetchall())
        vectors = {seq: vector for seq, vector in vectors.items() if seq not in stale}
        pending = {row[0] for row in connection.execute("SELECT memory FROM pending_vectors")}
        memories = connection.execute("SELECT seq, id, text FROM memories ORDER BY seq").fetchall()
        known = {seq for seq, _, _ in memories}
        orphans = [
            f"{name} holds memory {seq}, which is gone"
            for name, seqs in (("memories_fts", indexed), ("memories_vec", vectors), ("pending_vectors", pending))
            for seq in set(seqs) - known
        ]
        for table in ("tags", "keys", "sources", "revisions"):
            left = connection.execute(f"SELECT count(*) FROM {table} WHERE memory NOT IN (SELECT seq FROM memories)")
            (count,) = left.fetchall()[0]
            if count:
                orphans.append(f"{table} holds {count} rows of memories that are gone")
        rows = tuple(
            Row(seq, id_, text, indexed.get(seq), vectors.get(seq), seq in pending) for seq, id_, text in memories
        )
        return Raw(rows, tuple(orphans), tuple(damage), connection.pragma("user_version"))
    finally:
        connection.close()
