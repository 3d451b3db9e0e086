"""What a reader sees: one committed state of the store, asked for records, words, neighbours and counts.

A view lives inside one read transaction, so all its answers agree with each other. It orders nothing by meaning: search
asks it for the two legs and fuses them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from holdtrue import failpoints
from holdtrue.clock import MAX_US, MIN_US
from holdtrue.enforces import enforces
from holdtrue.records import Filters, Page, Record
from holdtrue.store import derived, frozen, schema, vectors
from holdtrue.store.connection import StoreConnection
from holdtrue.store.memories import SELECT_RECORD, find, record_of
from holdtrue.store.segment import index_text
from holdtrue.store.statements import one, run
from holdtrue.store.vectors import Vector, recorded_embedder

_MANY = 1_000  # memories, from which on a common word is left out beside rarer ones
NEIGHBOURS_LIMIT = 4096  # vec0 refuses a larger k


class _Unknown(Exception):
    """A filter names a user, project or session that the store has never seen: nothing can match."""


class View:
    """Reads inside one snapshot. Memories are addressed by `seq`, an integer that never leaves the store's callers."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def get(self, id_: str) -> Record:
        """Raises `NotFound`."""
        return record_of(find(self._connection, id_))

    def records(self, seqs: Sequence[int]) -> dict[int, Record]:
        rows = run(
            self._connection, SELECT_RECORD + " WHERE m.seq IN (SELECT value FROM json_each(?))", (_json_list(seqs),)
        )
        return {row[0]: record_of(row) for row in rows}

    def page(self, filters: Filters, *, limit: int, offset: int) -> Page:
        """Newest first, by the time of the memory."""
        try:
            where, values = self._where(filters)
        except _Unknown:
            return Page((), 0)
        total = run(self._connection, f"SELECT count(*) FROM memories m WHERE {where}", values)[0][0]
        rows = run(
            self._connection,
            f"{SELECT_RECORD} WHERE {where} ORDER BY m.at_us DESC, m.seq DESC LIMIT ? OFFSET ?",
            (*values, limit, offset),
        )
        return Page(tuple(record_of(row) for row in rows), total)

    @enforces("INV-008")
    def lexical(self, phrases: Sequence[str], filters: Filters, *, limit: int) -> dict[int, float]:
        """The memories that hold any of the phrases, with their BM25 weight (larger is better, not negative).

        Each phrase reaches FTS5 inside a quoted string, where nothing is syntax: no column filter, NEAR, operator,
        prefix star or caret. https://www.sqlite.org/fts5.html#full_text_query_syntax
        """
        if not phrases:
            return {}
        try:
            where, values = self._where(filters)
        except _Unknown:
            return {}
        expression = " OR ".join(_quoted(phrase) for phrase in self._weighing(phrases))
        # Without a filter there is nothing to look up in `memories`: a word that stands in every memory costs a third.
        source = "memories_fts f" if where == "1" else "memories_fts f JOIN memories m ON m.seq = f.rowid"
        rows = run(
            self._connection,
            f"""SELECT f.rowid, -bm25(memories_fts) FROM {source}
                WHERE memories_fts MATCH ? AND {where} ORDER BY rank, f.rowid DESC LIMIT ?""",
            (expression, *values, limit),
        )
        return dict(rows)

    def _weighing(self, phrases: Sequence[str]) -> Sequence[str]:
        """The phrases that BM25 gives a weight; in a small store all of them.

        FTS5 counts a phrase that stands in more than half of the rows as nothing (its inverse document frequency is cut
        off at 1e-6), but reads every one of those rows for it: most of the time of a search for common words.
        """
        (newest,) = run(self._connection, "SELECT coalesce(max(seq), 0) FROM memories")[0]
        if len(phrases) < 2 or newest < _MANY:
            return phrases
        half = newest // 2
        telling = []
        for phrase in phrases:
            rows = "SELECT 1 FROM memories_fts WHERE memories_fts MATCH ? LIMIT ?"
            if run(self._connection, f"SELECT count(*) FROM ({rows})", (_quoted(phrase), half + 1))[0][0] <= half:
                telling.append(phrase)
        return telling or phrases

    def nearest(self, vector: bytes, filters: Filters, *, limit: int) -> dict[int, float]:
        """The nearest memories by cosine similarity, in [-1, 1].

        Every filter is part of the search itself, so however many nearer memories it excludes, `limit` are found if
        there are so many.
        """
        failpoints.hit("view.before_nearest")
        if not vectors.readable(self._connection):
            return {}
        try:
            clauses, values = self._vector_filters(filters)
        except _Unknown:
            return {}
        where = " AND ".join(["embedding MATCH ?", "k = ?", *clauses])
        rows = run(
            self._connection,
            f"SELECT rowid, 1.0 - distance FROM memories_vec WHERE {where}",
            (vector, min(limit, NEIGHBOURS_LIMIT), *values),
        )
        return _finite(rows)

    def similarities(self, vector: bytes, seqs: Iterable[int]) -> dict[int, float]:
        """The cosine similarity of each of these memories that has a vector."""
        if not vectors.readable(self._connection):
            return {}
        rows = run(
            self._connection,
            """SELECT rowid, 1.0 - vec_distance_cosine(embedding, ?) FROM memories_vec
               WHERE rowid IN (SELECT value FROM json_each(?) EXCEPT SELECT memory FROM stale_vectors)""",
            (vector, _json_list(seqs)),
        )
        return _finite(rows)

    def replaced(self, filters: Filters) -> Iterable[tuple[int, str, int]]:
        """The texts that `update` has replaced and that were valid at `as_of`: seq, text, revision."""
        try:
            where, values = self._where(filters, valid=False)
        except _Unknown:
            return ()
        return run(
            self._connection,
            f"""SELECT m.seq, r.text, r.revision FROM revisions r JOIN memories m ON m.seq = r.memory
                WHERE r.from_us <= ? AND ? < r.until_us AND {where}""",
            (filters.as_of_us, filters.as_of_us, *values),
        )

    def embedder(self) -> str | None:
        """The key of the embedder whose vectors the store holds."""
        return recorded_embedder(self._connection)

    def vectors_off(self) -> str:
        """Why no vector can be touched here, as a sentence; "" when they can."""
        return vectors.off(self._connection)

    def obstacle(self, vector: Vector) -> str:
        """Why a query's vector cannot be compared with those of the store, as a clause; "" when it can."""
        return vectors.obstacle(self._connection, vector)

    def read_only(self) -> bool:
        """Whether this user can only read the store."""
        connection = self._connection
        return isinstance(connection, StoreConnection) and not frozen.writable(connection.path)

    def held(self, ids: Sequence[str]) -> dict[str, int]:
        """Which of these ids the store knows, with their revisions; a forgotten one counts as newer than any."""
        listed = (_json_list(ids),)
        held = dict(
            run(
                self._connection,
                "SELECT id, revision FROM memories WHERE id IN (SELECT value FROM json_each(?))",
                listed,
            )
        )
        for (id_,) in run(
            self._connection, "SELECT id FROM tombstones WHERE id IN (SELECT value FROM json_each(?))", listed
        ):
            held[id_] = 2**63
        return held

    def pending(self, *, limit: int) -> list[tuple[int, str]]:
        """Memories that wait for a vector: seq, text."""
        rows = run(
            self._connection,
            "SELECT m.seq, m.text FROM pending_vectors w JOIN memories m ON m.seq = w.memory ORDER BY m.seq LIMIT ?",
            (limit,),
        )
        return list(rows)

    def vector(self, seq: int) -> bytes | None:
        if not vectors.readable(self._connection):
            return None
        row = one(self._connection, "SELECT embedding FROM memories_vec WHERE rowid = ?", (seq,))
        return None if row is None else bytes(row[0])

    def counts(self) -> dict[str, int]:
        """How many rows the store holds, by kind."""
        tables = ("memories", "pending_vectors", "revisions", "tombstones", "erasures", "events")
        names = ("memories", "pending_vectors", "revisions", "forgotten", "erasures_waiting", "events")
        return {"vectors": vectors.count(self._connection)} | {
            name: int(run(self._connection, f"SELECT count(*) FROM {table}")[0][0])
            for name, table in zip(names, tables, strict=True)
        }

    def schema_version(self) -> int:
        return schema.version_of(self._connection)

    def verify(self) -> list[str]:
        """Every damage and disagreement found: SQLite's own integrity check, then each derived table."""
        damage = [str(row[0]) for row in run(self._connection, "PRAGMA integrity_check") if row[0] != "ok"]
        for table, *_ in run(self._connection, "PRAGMA foreign_key_check"):
            damage.append(f"{table}: a row belongs to a memory that is gone")
        return damage + derived.verify(self._connection)

    def strange_times(self) -> list[str]:
        """The memories with a time that no date can hold. They are read and exported with the nearest one: no damage, so
        that backups are made and restored all the same.
        """
        rows = run(
            self._connection,
            """SELECT seq FROM memories WHERE min(at_us, valid_from_us, created_us, updated_us) < ?1
                 OR max(at_us, valid_from_us, created_us, updated_us) > ?2
               UNION SELECT memory FROM sources WHERE last_us NOT BETWEEN ?1 AND ?2
               UNION SELECT memory FROM revisions WHERE min(from_us, until_us) < ?1 OR max(from_us, until_us) > ?2""",
            (MIN_US, MAX_US),
        )
        return [f"memory {seq}: a time of it lies outside the years 1 to 9999" for (seq,) in rows]

    def _name_id(self, kind: str, name: str) -> int:
        row = one(self._connection, "SELECT id FROM names WHERE kind = ? AND name = ?", (kind, name))
        if row is None:
            raise _Unknown
        return int(row[0])

    def _scope(self, filters: Filters) -> list[tuple[str, int]]:
        """Comparisons on columns that `memories` and `memories_vec` share."""
        compared: list[tuple[str, int]] = []
        for kind, name in (("user", filters.user), ("project", filters.project), ("session", filters.session)):
            if name is not None:
                compared.append((f"{kind}_id =", self._name_id(kind, name)))
        if filters.since_us is not None:
            compared.append(("at_us >=", filters.since_us))
        if filters.until_us is not None:
            compared.append(("at_us <", filters.until_us))
        return compared

    def _where(self, filters: Filters, *, valid: bool = True) -> tuple[str, list[Any]]:
        compared = self._scope(filters)
        clauses = [f"m.{comparison} ?" for comparison, _ in compared]
        values: list[Any] = [value for _, value in compared]
        if filters.tags:
            clauses.append(f"m.seq IN ({_WITH_TAGS})")
            values += [_json_list(filters.tags), len(filters.tags)]
        if valid and filters.as_of_us is not None:
            clauses.append("m.valid_from_us <= ?")
            values.append(filters.as_of_us)
        return " AND ".join(clauses) or "1", values

    def _vector_filters(self, filters: Filters) -> tuple[list[str], list[Any]]:
        compared = self._scope(filters)
        clauses = [f"{comparison} ?" for comparison, _ in compared]
        values: list[Any] = [value for _, value in compared]
        among = []
        if filters.tags:
            among.append(_WITH_TAGS)
            values += [_json_list(filters.tags), len(filters.tags)]
        if filters.as_of_us is not None:
            among.append("SELECT seq FROM memories WHERE valid_from_us <= ?")
            values.append(filters.as_of_us)
        if vectors.stale(self._connection):
            # Dropping them afterwards would leave fewer than `limit`, so they are excluded from the search itself.
            among.append("SELECT seq FROM memories WHERE seq NOT IN (SELECT memory FROM stale_vectors)")
        if among:
            clauses.append(f"rowid IN ({' INTERSECT '.join(among)})")
        return clauses, values


_WITH_TAGS = """SELECT memory FROM tags WHERE tag IN (SELECT value FROM json_each(?))
    GROUP BY memory HAVING count(*) = ?"""


def _finite(rows: Iterable[tuple[int, float | None]]) -> dict[int, float]:
    """Similarities by memory. vec0 answers NULL for a vector of zeros or NaN, which another program may have stored."""
    return {seq: similarity for seq, similarity in rows if similarity is not None}


def _quoted(phrase: str) -> str:
    """A phrase as an FTS5 string, in which nothing is syntax."""
    return '"' + index_text(phrase).replace('"', '""') + '"'


def _json_list(values: Iterable[int | str]) -> str:
    return json.dumps(list(values))
