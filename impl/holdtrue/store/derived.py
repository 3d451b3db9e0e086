"""The registry of derived data: everything the store computes from a memory's text.

Each copy of a text is a way to keep what was to be forgotten and to disagree with what was updated. So each derived table
stands here with how it is built, purged and verified; add, update, forget and verify iterate this registry and know no
table of their own. A table of the database that is neither a base table nor claimed here fails a test.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import apsw

from holdtrue import failpoints
from holdtrue.clock import now_us
from holdtrue.enforces import enforces
from holdtrue.errors import InvalidInput
from holdtrue.store import schema, vectors
from holdtrue.store.segment import index_text
from holdtrue.store.statements import insert_many, one, run
from holdtrue.store.vectors import BYTES, Vector, claim, is_unit


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
    obstacle: str = ""  # set by `build`: why it cannot, as a clause

    @property
    def degraded(self) -> tuple[str, ...]:
        """What `build` had to put off although there was a vector."""
        if self.placed or self.vector is None or self.vector.blob is None:
            return ()
        return (f"Its vector is put off: {self.obstacle}.",)


class Derived(Protocol):
    """One derived structure. `build` assumes that nothing of this memory is there; `purge` leaves nothing of it.

    `short` is what `doctor --rebuild` calls it. `needs_model` says that it is made of vectors: all such structures are
    rebuilt together, because which of them holds a memory depends on whether its vector could be made. `fill` puts every
    memory into the structure just after it was made anew, in the same transaction; what it cannot make there it leaves
    to those who come later. `strays` are the memories it holds that are gone.
    """

    @property
    def name(self) -> str: ...
    @property
    def short(self) -> str: ...
    @property
    def tables(self) -> tuple[str, ...]: ...
    @property
    def needs_model(self) -> bool: ...
    def build(self, connection: apsw.Connection, source: Source) -> None: ...
    def build_many(self, connection: apsw.Connection, sources: Sequence[Source]) -> None: ...
    def purge(self, connection: apsw.Connection, seq: int) -> None: ...
    def verify(self, connection: apsw.Connection) -> Iterator[str]: ...
    def fill(self, connection: apsw.Connection) -> None: ...
    def strays(self, connection: apsw.Connection) -> list[int]: ...


class FullText:
    """The words of each memory."""

    name = "full-text index"
    short = "words"
    tables = ("memories_fts",)
    needs_model = False

    def build(self, connection: apsw.Connection, source: Source) -> None:
        run(connection, "INSERT INTO memories_fts(rowid, body) VALUES(?, ?)", (source.seq, source.indexed))

    def build_many(self, connection: apsw.Connection, sources: Sequence[Source]) -> None:
        insert_many(connection, "memories_fts(rowid, body)", [(source.seq, source.indexed) for source in sources])

    def purge(self, connection: apsw.Connection, seq: int) -> None:
        run(connection, "DELETE FROM memories_fts WHERE rowid = ?", (seq,))

    def verify(self, connection: apsw.Connection) -> Iterator[str]:
        rows = run(
            connection, "SELECT m.seq, m.text, f.body FROM memories m LEFT JOIN memories_fts f ON f.rowid = m.seq"
        )
        for seq, text, body in rows:
            if body != index_text(text):
                yield f"memory {seq}: the full-text index does not hold its text"
        for seq in self.strays(connection):
            yield f"memory {seq}: the full-text index holds a memory that is gone"

    def fill(self, connection: apsw.Connection) -> None:
        for seq in _every_memory(connection):
            (text,) = run(connection, "SELECT text FROM memories WHERE seq = ?", (seq,))[0]
            run(connection, "INSERT INTO memories_fts(rowid, body) VALUES(?, ?)", (seq, index_text(text)))

    def strays(self, connection: apsw.Connection) -> list[int]:
        rows = run(connection, "SELECT rowid FROM memories_fts WHERE rowid NOT IN (SELECT seq FROM memories)")
        return [seq for (seq,) in rows]


class Vectors:
    """The vector of each memory that has one, with the filters of a search beside it."""

    name = "vectors"
    short = "vectors"
    tables = ("memories_vec",)
    needs_model = True

    def build(self, connection: apsw.Connection, source: Source) -> None:
        if not source.placed or source.vector is None:
            return
        assert source.vector.blob is not None
        scope = (source.user_id, source.project_id, source.session_id, source.at_us)
        vectors.put(connection, source.seq, source.vector.blob, scope)
        vectors.settle(connection)

    def build_many(self, connection: apsw.Connection, sources: Sequence[Source]) -> None:
        rows = [
            (each.seq, each.vector.blob, each.user_id, each.project_id, each.session_id, each.at_us)
            for each in sources
            if each.placed and each.vector is not None and each.vector.blob is not None
        ]
        vectors.put_many(connection, rows)
        if rows:
            vectors.settle(connection)

    def purge(self, connection: apsw.Connection, seq: int) -> None:
        vectors.remove(connection, seq)
        vectors.settle(connection)

    def verify(self, connection: apsw.Connection) -> Iterator[str]:
        known = set(_every_memory(connection))
        for seq in vectors.held(connection):
            if seq not in known:
                yield f"memory {seq}: a vector is left of a memory that is gone"
        if not vectors.readable(connection):
            return  # what is in the rows nobody can tell without sqlite-vec
        rows = run(
            connection,
            """SELECT v.rowid, m.seq, v.user_id IS m.user_id AND v.project_id IS m.project_id
                 AND v.session_id IS m.session_id AND v.at_us IS m.at_us, v.embedding
               FROM memories_vec v LEFT JOIN memories m ON m.seq = v.rowid
               WHERE v.rowid NOT IN (SELECT memory FROM stale_vectors)""",
        )
        for seq, memory, filters_agree, embedding in rows:
            if memory is None:
                continue  # told above, from what needs no sqlite-vec
            if not filters_agree:
                yield f"memory {seq}: its vector carries other filters than the memory"
            elif not is_unit(embedding):
                yield f"memory {seq}: its vector is not of unit length"
        # A search reads tables that a look at each row does not.
        run(connection, "SELECT rowid FROM memories_vec WHERE embedding MATCH ? AND k = 1", (bytes(BYTES),))

    def fill(self, connection: apsw.Connection) -> None:
        """Leave every memory without a vector, and forget whose vectors these were: the next model may be another."""
        run(connection, "DELETE FROM meta WHERE name = 'embedder'")
        run(connection, "DELETE FROM stale_vectors")

    def strays(self, connection: apsw.Connection) -> list[int]:
        known = set(_every_memory(connection))
        return [seq for seq in vectors.held(connection) if seq not in known]

    def holds(self, connection: apsw.Connection, source: Source) -> bool:
        """Whether this memory has a vector that searches can use."""
        if not vectors.readable(connection):
            return source.seq in vectors.held(connection)
        row = one(
            connection,
            """SELECT embedding FROM memories_vec
               WHERE rowid = ? AND user_id = ? AND project_id = ? AND session_id = ? AND at_us = ?
                 AND rowid NOT IN (SELECT memory FROM stale_vectors)""",
            (source.seq, source.user_id, source.project_id, source.session_id, source.at_us),
        )
        return row is not None and is_unit(row[0])


class PendingVectors:
    """The memories whose vector could not be made with their text: no model then, or a model of another space."""

    name = "pending vectors"
    short = "pending"
    tables = ("pending_vectors",)
    needs_model = True

    def build(self, connection: apsw.Connection, source: Source) -> None:
        if source.placed or (source.vector is not None and source.vector.blob is None):
            return  # it is there, or the text has no direction and there is nothing to wait for
        reason = "no model" if source.vector is None else source.obstacle or f"made by {source.vector.embedder}"
        run(connection, "INSERT INTO pending_vectors VALUES(?, ?, ?)", (source.seq, now_us(), reason))

    def build_many(self, connection: apsw.Connection, sources: Sequence[Source]) -> None:
        for source in sources:
            self.build(connection, source)

    def purge(self, connection: apsw.Connection, seq: int) -> None:
        run(connection, "DELETE FROM pending_vectors WHERE memory = ?", (seq,))

    def verify(self, connection: apsw.Connection) -> Iterator[str]:
        for seq in self.strays(connection):
            yield f"memory {seq}: a vector is awaited for a memory that is gone"
        there = set(vectors.held(connection))
        for seq in [seq for (seq,) in run(connection, "SELECT memory FROM pending_vectors") if seq in there]:
            yield f"memory {seq}: a vector is awaited that is already there"

    def fill(self, connection: apsw.Connection) -> None:
        """Let every memory without a vector wait for one, a text without direction as well until it is tried."""
        there = set(vectors.held(connection))
        for seq in _every_memory(connection):
            if seq not in there:
                run(connection, "INSERT INTO pending_vectors VALUES(?, ?, 'rebuilt')", (seq, now_us()))

    def strays(self, connection: apsw.Connection) -> list[int]:
        rows = run(connection, "SELECT memory FROM pending_vectors WHERE memory NOT IN (SELECT seq FROM memories)")
        return [seq for (seq,) in rows]


def _every_memory(connection: apsw.Connection) -> list[int]:
    return [seq for (seq,) in run(connection, "SELECT seq FROM memories ORDER BY seq")]


_VECTORS = Vectors()
_PENDING = PendingVectors()
REGISTRY: tuple[Derived, ...] = (FullText(), _VECTORS, _PENDING)


@enforces("INV-004")
def build(connection: apsw.Connection, source: Source) -> None:
    """Derive everything of a memory, inside the transaction that writes its text."""
    vector = source.vector
    source.placed = vector is not None and claim(connection, vector)
    if vector is not None and not source.placed:
        source.obstacle = vectors.obstacle(connection, vector)
    for derived in REGISTRY:
        failpoints.hit("derived.before_build")
        derived.build(connection, source)


@enforces("INV-004")
def build_many(connection: apsw.Connection, sources: Sequence[Source]) -> None:
    """As `build`, of many memories that are new, structure by structure."""
    claimed: set[str] = set()
    for source in sources:
        vector = source.vector
        if vector is None:
            continue
        # What a store takes of one embedder in a transaction, it takes of all its vectors.
        source.placed = (vector.usable and vector.embedder in claimed) or claim(connection, vector)
        if source.placed:
            claimed.add(vector.embedder)
        else:
            source.obstacle = vectors.obstacle(connection, vector)
    for derived in REGISTRY:
        failpoints.hit("derived.before_build")
        derived.build_many(connection, sources)


@enforces("INV-004")
def purge(connection: apsw.Connection, seq: int) -> None:
    """Remove everything derived of a memory, inside the transaction that changes or removes its text."""
    for derived in REGISTRY:
        failpoints.hit("derived.before_purge")
        derived.purge(connection, seq)


def verify(connection: apsw.Connection) -> list[str]:
    """Every disagreement between the memories and what is derived of them; empty when they agree."""
    return [f"{derived.name}: {finding}" for derived in REGISTRY for finding in derived.verify(connection)]


# -- rebuilding --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did: of which structures, which of them could not be read and were made anew as a whole, of how many
    memories the others were derived anew, how many they still held that are gone, how many awaited vectors were made, of
    how many that were awaited.
    """

    structures: tuple[str, ...]
    made_anew: tuple[str, ...]
    memories: int
    strays: int
    vectors: int
    awaited: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


ALL = "all"
REBUILD_ROWS = 64  # one batch is one transaction, and everybody else's writes wait for it
_REBUILD_CHARACTERS = 250_000


def chosen(names: Iterable[str]) -> tuple[Derived, ...]:
    """The structures of these short names, with those that must be rebuilt with them; "all" names every one.

    Raises `InvalidInput` for a name that no structure has.
    """
    wanted = set(names)
    known = [entry.short for entry in REGISTRY]
    unknown = sorted(wanted - {ALL, *known})
    if unknown:
        raise InvalidInput(
            f"There is no derived data called {unknown[0][:80]!r}.", hint=f"The names are: {', '.join(known)}, {ALL}."
        )
    named = [entry for entry in REGISTRY if ALL in wanted or entry.short in wanted]
    with_model = any(entry.needs_model for entry in named)
    return tuple(entry for entry in REGISTRY if entry in named or (with_model and entry.needs_model))


def unreadable(connection: apsw.Connection, entry: Derived) -> str:
    """Why a structure's own tables cannot be read, as a sentence; "" when they can.

    Its connection must be fresh: FTS5 keeps what a connection has read of an index. Raises `apsw.BusyError`.
    """
    try:
        for table in entry.tables:
            if one(connection, "SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)) is None:
                if entry is _VECTORS and _never_made(connection):
                    continue
                return f"The table {table} is not there."
            for (line,) in run(connection, f"PRAGMA integrity_check('{table}')"):
                if line != "ok":
                    return str(line)
        if entry is _VECTORS and not vectors.has_table(connection) and not _never_made(connection):
            return "The tables behind memories_vec are not there."
        for _ in entry.verify(connection):
            pass
    except apsw.BusyError:
        raise
    except (apsw.CorruptError, apsw.SQLError, UnicodeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _never_made(connection: apsw.Connection) -> bool:
    """Whether no vector was ever stored, as where nobody has sqlite-vec: every memory waits for its own."""
    waiting = "SELECT 1 FROM memories WHERE seq NOT IN (SELECT memory FROM pending_vectors) LIMIT 1"
    return not vectors.has_table(connection) and one(connection, waiting) is None


def sources_after(connection: apsw.Connection, seq: int) -> list[tuple[Source, str, bytes]]:
    """The memories after this number that make one batch: what they are derived from, their texts and digests."""
    rows = run(
        connection,
        """SELECT seq, text, digest, user_id, project_id, session_id, at_us FROM memories
           WHERE seq > ? ORDER BY seq LIMIT ?""",
        (seq, REBUILD_ROWS),
    )
    batch: list[tuple[Source, str, bytes]] = []
    characters = 0
    for number, text, digest, user_id, project_id, session_id, at_us in rows:
        characters += len(text)
        if batch and characters > _REBUILD_CHARACTERS:
            break
        batch.append((Source(number, index_text(text), user_id, project_id, session_id, at_us, None), text, digest))
    return batch


def strays(connection: apsw.Connection, entries: Collection[str]) -> list[int]:
    """The memories that are gone and that some of these structures still hold."""
    return sorted({seq for entry in REGISTRY if entry.short in entries for seq in entry.strays(connection)})


def purge_gone(connection: apsw.Connection, seqs: Sequence[int], entries: Collection[str]) -> None:
    """Purge memories that are gone, inside a transaction; one that is there again is left alone."""
    for seq in seqs:
        if one(connection, "SELECT 1 FROM memories WHERE seq = ?", (seq,)) is None:
            for entry in REGISTRY:
                if entry.short in entries:
                    entry.purge(connection, seq)


@enforces("INV-004")
def rebuild(
    connection: apsw.Connection, sources: Sequence[Source], digests: Sequence[bytes], entries: Collection[str]
) -> int:
    """Derive some structures of some memories anew, inside one transaction. Returns of how many memories.

    `digests` are those of the texts that the sources were made from: a memory whose text has changed since, or that is
    gone, was derived anew by whoever changed it. Whose it is and of when is read again: a restore may have put a memory of
    another user with the same text into its place. A vector that stands there and is sound is kept where there is no
    better one, so that no memory loses its vector to a missing model.
    """
    named = [entry for entry in REGISTRY if entry.short in entries]
    done = 0
    for source, digest in zip(sources, digests, strict=True):
        row = one(
            connection,
            "SELECT digest, user_id, project_id, session_id, at_us FROM memories WHERE seq = ?",
            (source.seq,),
        )
        if row is None or row[0] != digest:
            continue
        _, source.user_id, source.project_id, source.session_id, source.at_us = row
        failpoints.hit("derived.rebuild")
        kept = False
        if any(entry.needs_model for entry in named):
            source.placed = source.vector is not None and claim(connection, source.vector)
            directionless = source.vector is not None and source.vector.blob is None
            kept = not source.placed and not directionless and _VECTORS.holds(connection, source)
        for entry in named:
            if not (kept and entry is _VECTORS):
                entry.purge(connection, source.seq)
        for entry in named:
            if not (kept and entry.needs_model):
                entry.build(connection, source)
        done += 1
    return done


def reset(connection: apsw.Connection, entries: Iterable[str]) -> None:
    """Make some structures anew, whatever is left of their tables, and fill them, inside one transaction.

    Raises an `apsw.Error` where not even the rest of a table can be removed.
    """
    named = [entry for entry in REGISTRY if entry.short in entries]
    for entry in named:
        for table in entry.tables:
            _drop(connection, table)
    for entry in named:
        for table in entry.tables:
            for statement in _recipe(table):
                run(connection, statement)
    for entry in named:
        entry.fill(connection)


def _recipe(table: str) -> list[str]:
    """The statements of all migrations that make a table and what belongs to it."""
    return [
        statement
        for migration in (*schema.MIGRATIONS, (schema.VECTOR_TABLE,))
        for statement in migration
        if re.search(rf"\b{table}\b", statement)
    ]


def _drop(connection: apsw.Connection, table: str) -> None:
    """Remove a table, also a virtual one whose own tables are damaged or missing."""
    run(connection, "SAVEPOINT dropping")
    try:
        run(connection, f"DROP TABLE IF EXISTS {table}")
    except apsw.Error:
        run(connection, "ROLLBACK TO dropping")
        _drop_by_hand(connection, table)
    run(connection, "RELEASE dropping")


def _drop_by_hand(connection: apsw.Connection, table: str) -> None:
    """Take a virtual table out of the schema without asking its module, then what it kept: ordinary tables by now."""
    with _unguarded(connection):
        run(connection, "PRAGMA writable_schema = ON")
        try:
            run(connection, "DELETE FROM sqlite_schema WHERE type = 'table' AND name = ? AND rootpage = 0", (table,))
        finally:
            run(connection, "PRAGMA writable_schema = RESET")
        for (kept,) in run(
            connection, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?", (f"{table}_*",)
        ):
            run(connection, f'DROP TABLE "{kept}"')


@contextlib.contextmanager
def _unguarded(connection: apsw.Connection) -> Iterator[None]:
    """Let the schema and the tables behind virtual tables be written."""
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    try:
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
