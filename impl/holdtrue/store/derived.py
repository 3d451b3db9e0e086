"""The registry of derived data: everything the store computes from a memory's text.

Each copy of a text is a way to keep what was to be forgotten and to disagree with what was updated. So each derived table
stands here with how it is built, purged and verified; add, update, forget and verify iterate this registry and know no
table of their own. A table of the database that is neither a base table nor claimed here fails a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import apsw

from holdtrue import failpoints
from holdtrue.clock import now_us
from holdtrue.enforces import enforces
from holdtrue.store.segment import index_text
from holdtrue.store.statements import run
from holdtrue.store.vectors import Vector, claim, is_unit


@dataclass(slots=True)
class Source:
    """What derived data is computed from: one row of `memories`, its index text, and its vector, None without a model.

    Index text and vector come from the caller's thread: what a long text takes must not be paid under the write lock.
    """

    seq: int
    indexed: str
    user_id: int
    project_id: int
    session_id: int
    at_us: int
    vector: Vector | None
    placed: bool = False  # set by `build`: the vector can stand beside those of the store

    @property
    def degraded(self) -> tuple[str, ...]:
        """What `build` had to put off although there was a vector."""
        if self.placed or self.vector is None or self.vector.blob is None:
            return ()
        return ("Its vector is put off: the vectors in the store were made by another model.",)


class Derived(Protocol):
    """One derived structure. `build` assumes that nothing of this memory is there; `purge` leaves nothing of it."""

    @property
    def name(self) -> str: ...
    @property
    def tables(self) -> tuple[str, ...]: ...
    def build(self, connection: apsw.Connection, source: Source) -> None: ...
    def purge(self, connection: apsw.Connection, seq: int) -> None: ...
    def verify(self, connection: apsw.Connection) -> Iterator[str]: ...


class FullText:
    """The words of each memory."""

    name = "full-text index"
    tables = ("memories_fts",)

    def build(self, connection: apsw.Connection, source: Source) -> None:
        run(connection, "INSERT INTO memories_fts(rowid, body) VALUES(?, ?)", (source.seq, source.indexed))

    def purge(self, connection: apsw.Connection, seq: int) -> None:
        run(connection, "DELETE FROM memories_fts WHERE rowid = ?", (seq,))

    def verify(self, connection: apsw.Connection) -> Iterator[str]:
        rows = run(
            connection, "SELECT m.seq, m.text, f.body FROM memories m LEFT JOIN memories_fts f ON f.rowid = m.seq"
        )
        for seq, text, body in rows:
            if body != index_text(text):
                yield f"memory {seq}: the full-text index does not hold its text"
        for (seq,) in run(connection, "SELECT rowid FROM memories_fts WHERE rowid NOT IN (SELECT seq FROM memories)"):
            yield f"memory {seq}: the full-text index holds a memory that is gone"


class Vectors:
    """The vector of each memory that has one, with the filters of a search beside it."""

    name = "vectors"
    tables = ("memories_vec",)

    def build(self, connection: apsw.Connection, source: Source) -> None:
        if not source.placed or source.vector is None:
            return
        run(
            connection,
            "INSERT INTO memories_vec(rowid, embedding, user_id, project_id, session_id, at_us) VALUES(?, ?, ?, ?, ?, ?)",
            (source.seq, source.vector.blob, source.user_id, source.project_id, source.session_id, source.at_us),
        )

    def purge(self, connection: apsw.Connection, seq: int) -> None:
        run(connection, "DELETE FROM memories_vec WHERE rowid = ?", (seq,))

    def verify(self, connection: apsw.Connection) -> Iterator[str]:
        rows = run(
            connection,
            """SELECT v.rowid, m.seq, v.user_id IS m.user_id AND v.project_id IS m.project_id
                 AND v.session_id IS m.session_id AND v.at_us IS m.at_us, v.embedding
               FROM memories_vec v LEFT JOIN memories m ON m.seq = v.rowid""",
        )
        for seq, memory, filters_agree, embedding in rows:
            if memory is None:
                yield f"memory {seq}: a vector is left of a memory that is gone"
            elif not filters_agree:
                yield f"memory {seq}: its vector carries other filters than the memory"
            elif not is_unit(embedding):
                yield f"memory {seq}: its vector is not of unit length"


class PendingVectors:
    """The memories whose vector could not be made with their text: no model then, or a model of another space."""

    name = "pending vectors"
    tables = ("pending_vectors",)

    def build(self, connection: apsw.Connection, source: Source) -> None:
        if source.placed or (source.vector is not None and source.vector.blob is None):
            return  # it is there, or the text has no direction and there is nothing to wait for
        reason = "no model" if source.vector is None else f"made by {source.vector.embedder}"
        run(connection, "INSERT INTO pending_vectors VALUES(?, ?, ?)", (source.seq, now_us(), reason))

    def purge(self, connection: apsw.Connection, seq: int) -> None:
        run(connection, "DELETE FROM pending_vectors WHERE memory = ?", (seq,))

    def verify(self, connection: apsw.Connection) -> Iterator[str]:
        rows = run(connection, "SELECT memory FROM pending_vectors WHERE memory NOT IN (SELECT seq FROM memories)")
        for (seq,) in rows:
            yield f"memory {seq}: a vector is awaited for a memory that is gone"
        rows = run(connection, "SELECT p.memory FROM pending_vectors p JOIN memories_vec v ON v.rowid = p.memory")
        for (seq,) in rows:
            yield f"memory {seq}: a vector is awaited that is already there"


REGISTRY: tuple[Derived, ...] = (FullText(), Vectors(), PendingVectors())


@enforces("INV-004")
def build(connection: apsw.Connection, source: Source) -> None:
    """Derive everything of a memory, inside the transaction that writes its text."""
    vector = source.vector
    source.placed = vector is not None and claim(connection, vector)
    for derived in REGISTRY:
        failpoints.hit("derived.before_build")
        derived.build(connection, source)


@enforces("INV-004")
def purge(connection: apsw.Connection, seq: int) -> None:
    """Remove everything derived of a memory, inside the transaction that changes or removes its text."""
    for derived in REGISTRY:
        failpoints.hit("derived.before_purge")
        derived.purge(connection, seq)


def verify(connection: apsw.Connection) -> list[str]:
    """Every disagreement between the memories and what is derived of them; empty when they agree."""
    return [f"{derived.name}: {finding}" for derived in REGISTRY for finding in derived.verify(connection)]
