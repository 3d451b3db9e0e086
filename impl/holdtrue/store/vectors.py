"""Vectors: how they are written, and whose embedding space they lie in.

Owns: `memories_vec`, the `embedder` entry of `meta`, `pending_vectors`, `stale_vectors`. A vector is written in the
transaction of the text it belongs to, and only in the space the store has recorded; any other memory waits in
`pending_vectors`. Faults it survives: a process without sqlite-vec. It can neither make `memories_vec` nor touch a row
of it, so it notes in `stale_vectors`, in the same transaction, which rows no longer count; no reader uses those, and the
next writer that has sqlite-vec makes the table and removes them. What the table holds is counted in `memories_vec_rowids`,
an ordinary table in which vec0 keeps one row for each of its own.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import apsw

from holdtrue.store import schema
from holdtrue.store.connection import StoreConnection
from holdtrue.store.statements import insert_many, one, run

DIMENSION = 256
BYTES = DIMENSION * 4
_FLOATS = struct.Struct(f"<{DIMENSION}f")
NORM_TOLERANCE = 0.01
_SETTLED_AT_ONCE = 64  # stale rows removed in one go: what holds the write lock must not take long


class Vector:
    """A unit vector of `DIMENSION` float32 values, little-endian, and the key of the embedder that made it.

    `blob` is None for a text that has no direction (punctuation, unknown letters): stored, found by its words alone.
    `usable` says that it is finite and of unit length: vec0 accepts anything, then answers NULL distances that sort
    before real ones. It is worked out here, by the caller's thread, and not under the write lock; who has looked at many
    at once passes what they found.
    """

    __slots__ = ("blob", "embedder", "usable")

    def __init__(self, embedder: str, blob: bytes | None, usable: bool | None = None) -> None:
        self.embedder = embedder
        self.blob = blob
        self.usable = blob is not None and (is_unit(blob) if usable is None else usable)

    def fits(self, recorded: str | None) -> bool:
        """Whether it may stand beside, or be compared with, the vectors of the recorded embedder."""
        return self.usable and recorded in (None, self.embedder)


def is_unit(blob: bytes) -> bool:
    """Whether these are `DIMENSION` finite float32 values of unit length."""
    if len(blob) != BYTES:
        return False
    norm = math.hypot(*_FLOATS.unpack(blob))
    return math.isfinite(norm) and abs(norm - 1.0) <= NORM_TOLERANCE


def recorded_embedder(connection: apsw.Connection) -> str | None:
    """The key of the embedder whose vectors the store holds; None before the first one."""
    row = one(connection, "SELECT value FROM meta WHERE name = 'embedder'")
    return None if row is None else str(row[0])


def claim(connection: apsw.Connection, vector: Vector) -> bool:
    """Whether a vector may be stored; the embedder of the first one is recorded beside it."""
    recorded = recorded_embedder(connection)
    if not vector.fits(recorded) or off(connection):
        return False
    if recorded is None:
        run(connection, "INSERT INTO meta VALUES('embedder', ?)", (vector.embedder,))
    return True


def obstacle(connection: apsw.Connection, vector: Vector) -> str:
    """Why a vector cannot stand in the store, or be compared with those there, as a clause; "" when it can."""
    if off(connection):
        return off(connection).rstrip(".")
    if vector.blob is not None and len(vector.blob) != BYTES:
        return f"the model makes vectors of {len(vector.blob) // 4} dimensions, and the store holds {DIMENSION}"
    if vector.blob is not None and not vector.usable:
        return "the model made no usable vector"
    return "" if vector.fits(recorded_embedder(connection)) else "the vectors in the store were made by another model"


# -- without sqlite-vec ------------------------------------------------------------------------------------------------


def off(connection: apsw.Connection) -> str:
    """Why this connection cannot touch vectors, as a sentence; "" when it can."""
    return connection.vectors_off if isinstance(connection, StoreConnection) else ""


def has_table(connection: apsw.Connection) -> bool:
    """Whether `memories_vec` was made: a process without sqlite-vec makes a store without it."""
    return one(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'memories_vec_rowids'") is not None


def readable(connection: apsw.Connection) -> bool:
    """Whether a search by meaning can be asked of this connection."""
    return not off(connection) and has_table(connection)


def held(connection: apsw.Connection) -> list[int]:
    """The memories that have a vector, by number. Needs no sqlite-vec."""
    if not has_table(connection):
        return []
    rows = run(
        connection, "SELECT rowid FROM memories_vec_rowids WHERE rowid NOT IN (SELECT memory FROM stale_vectors)"
    )
    return [seq for (seq,) in rows]


def count(connection: apsw.Connection) -> int:
    """How many memories have a vector."""
    if not has_table(connection):
        return 0
    ((rows,),) = run(
        connection, "SELECT count(*) FROM memories_vec_rowids WHERE rowid NOT IN (SELECT memory FROM stale_vectors)"
    )
    return int(rows)


def stale(connection: apsw.Connection) -> bool:
    """Whether rows are left that a process without sqlite-vec could not remove. Their bytes are in the database."""
    return one(connection, "SELECT 1 FROM stale_vectors LIMIT 1") is not None


def settle(connection: apsw.Connection) -> bool:
    """Remove stale rows, up to 64, in the open transaction or in one of its own. True when none is left."""
    rows = run(connection, "SELECT memory FROM stale_vectors LIMIT ?", (_SETTLED_AT_ONCE + 1,))
    if not rows:
        return True
    if off(connection):
        return False
    run(connection, "SAVEPOINT settling")
    try:
        there = has_table(connection)
        for (seq,) in rows[:_SETTLED_AT_ONCE]:
            if there:
                run(connection, "DELETE FROM memories_vec WHERE rowid = ?", (seq,))
            run(connection, "DELETE FROM stale_vectors WHERE memory = ?", (seq,))
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back itself
            run(connection, "ROLLBACK TO settling")
            run(connection, "RELEASE settling")
        raise
    run(connection, "RELEASE settling")
    return len(rows) <= _SETTLED_AT_ONCE


def put(connection: apsw.Connection, seq: int, blob: bytes, scope: tuple[int, int, int, int]) -> None:
    """Write a vector with its user, project, session and time. The table is made where nobody could make it before."""
    statement = """INSERT INTO memories_vec(rowid, embedding, user_id, project_id, session_id, at_us)
        VALUES(?, ?, ?, ?, ?, ?)"""
    try:
        run(connection, statement, (seq, blob, *scope))
    except apsw.SQLError:
        if has_table(connection):
            raise
        run(connection, schema.VECTOR_TABLE)
        run(connection, statement, (seq, blob, *scope))


def put_many(connection: apsw.Connection, rows: Sequence[tuple[int, bytes, int, int, int, int]]) -> None:
    """As `put`, of many: number of the memory, vector, user, project, session, time."""
    if rows and not has_table(connection):
        run(connection, schema.VECTOR_TABLE)
    insert_many(connection, "memories_vec(rowid, embedding, user_id, project_id, session_id, at_us)", rows)


def remove(connection: apsw.Connection, seq: int) -> None:
    """Remove the vector of a memory, or see to it that nobody uses it and that it is removed."""
    if off(connection):
        if has_table(connection):
            row = "SELECT rowid FROM memories_vec_rowids WHERE rowid = ?"
            run(connection, f"INSERT OR IGNORE INTO stale_vectors {row}", (seq,))
        return
    try:
        run(connection, "DELETE FROM memories_vec WHERE rowid = ?", (seq,))
    except apsw.SQLError:
        if has_table(connection):
            raise
    run(connection, "DELETE FROM stale_vectors WHERE memory = ?", (seq,))
