"""Salvage: what can still be read of a damaged database, brought into a new one.

Owns: how rows are read round what is damaged, and which of them are believed. Works on a copy that nobody else has open;
never on a store. Faults it survives: damaged pages anywhere (rows are asked for in ranges that are halved round whatever
cannot be read), a damaged or missing header (a copy gets a new one), a file that was cut off, a database that is gone while
its WAL is there, a text whose bytes are wrong (its digest tells).
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from holdtrue.records import text_digest
from holdtrue.store import derived, leaves, schema
from holdtrue.store.draft import Advance
from holdtrue.store.segment import index_text
from holdtrue.store.statements import one, run

Row = tuple[Any, ...]

# How each base table is read: by which key, in ranges of a number, of a UUIDv7's 48 bits of time, or of a text.
# `stale_vectors` names vectors of the old file, and the new one has none of them.
KEYS: dict[str, tuple[str, str]] = {
    "meta": ("name", "text"),
    "names": ("id", "number"),
    "tombstones": ("id", "uuid"),
    "memories": ("seq", "number"),
    "tags": ("memory", "number"),
    "keys": ("memory", "number"),
    "sources": ("memory", "number"),
    "revisions": ("memory", "number"),
    "aliases": ("memory", "number"),
    "erasures": ("id", "uuid"),
    "events": ("seq", "number"),
    "copies": ("path", "text"),
}
LEFT_OUT = frozenset({"stale_vectors"})
_OF_MEMORIES = ("tags", "keys", "sources", "revisions", "aliases")
_NOT_CARRIED = ("embedder", "names_epoch")  # meta that belongs to the vectors, and to the processes, of the old file
_PAGE_ROWS = 512
_FAILURES_LIMIT = 50_000  # of a table; a file of which nothing can be read is given up after some seconds
_ROW_BYTES = 16  # a row with less cannot be
_HIGHEST_UUID_MS = 2**48
_LOST_SHOWN = 100
_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.TooBigError, apsw.MismatchError, UnicodeError)


@dataclass
class Salvaged:
    """What was brought over, and what is known to be lost.

    `lost` is the number of memories that the damaged file's index of ids still names and whose rows could not be read;
    None where that index cannot be read either, so that nobody knows. `lost_ids` are up to 100 of them. `incomplete` are
    the tables of which something could not be read.
    """

    memories: int = 0
    revisions: int = 0
    tombstones: int = 0
    lost: int | None = None
    lost_ids: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def complete(self) -> bool:
        return self.lost == 0 and not self.incomplete


@dataclass
class _Reading:
    """One damaged database and what could not be read of it so far."""

    connection: apsw.Connection | None
    failures: dict[str, int] = field(default_factory=dict)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Row]:
        """Every row of a table that can be read; each at most once."""
        key, kind = KEYS[table]
        try:
            if self._columns(table, columns) is None:
                return
        except _UNREADABLE:
            self._failed(table)
            return
        if kind == "text":
            yield from self._of_texts(table, columns, key)
        elif kind == "uuid":
            yield from self._of_ranges(table, columns, key, 0, _HIGHEST_UUID_MS, _uuid_at)
        else:
            yield from self._of_ranges(table, columns, key, self._lowest(table, key), self._beyond(table, key), int)

    def ids(self) -> list[str] | None:
        """The ids of all memories as their index names them, without a look at the memories. None where it is damaged."""
        if self.connection is None:
            return None
        statement = "SELECT id FROM memories INDEXED BY sqlite_autoindex_memories_1 ORDER BY id"
        try:
            return [id_ for (id_,) in run(self.connection, statement)]
        except _UNREADABLE:
            return None

    def _columns(self, table: str, columns: Sequence[str]) -> list[str] | None:
        """The columns that are there; None where the table, of an older schema, is not."""
        if self.connection is None:
            return None
        there = [name for (name,) in run(self.connection, "SELECT name FROM pragma_table_info(?)", (table,))]
        if not there:
            return None
        missing = set(columns) - set(there)
        if missing:
            raise apsw.SQLError(f"{table} has no column {missing.pop()}")
        return there

    def _of_ranges(
        self, table: str, columns: Sequence[str], key: str, low: int, high: int, at: Callable[[int], Any]
    ) -> Iterator[Row]:
        """Read the range; where that fails, its halves, the widest first: so whatever the limit of failures cuts off is
        close to what is damaged. `at` gives the key at a number.
        """
        assert self.connection is not None
        listed = ", ".join(columns)
        ranges = [(low - high, low, high)] if low < high else []

        def halve() -> None:
            middle = low + (high - low) // 2
            heapq.heappush(ranges, (low - middle, low, middle))
            heapq.heappush(ranges, (middle - high, middle, high))

        while ranges and self.failures.get(table, 0) < _FAILURES_LIMIT:
            _, low, high = heapq.heappop(ranges)
            statement = f"SELECT {listed} FROM {table} WHERE {key} >= ? AND {key} < ? ORDER BY {key}"
            try:
                page = run(self.connection, f"{statement} LIMIT {_PAGE_ROWS + 1}", (at(low), at(high)))
                if len(page) > _PAGE_ROWS:
                    # The last key may go on beyond the page, as that of a memory with many tags does.
                    if high - low > 1:
                        halve()
                        continue
                    page = run(self.connection, statement, (at(low), at(high)))
            except _UNREADABLE:
                self._failed(table)
                if high - low > 1:
                    halve()
                continue
            yield from page

    def _of_texts(self, table: str, columns: Sequence[str], key: str) -> Iterator[Row]:
        """Read from the lowest key up to what cannot be read, then from the highest one down to it."""
        assert self.connection is not None
        listed = ", ".join([key, *columns])
        seen: set[Any] = set()
        for beyond, order in ((">", "ASC"), ("<", "DESC")):
            last: Any = None
            limit = _PAGE_ROWS
            while True:
                where = "" if last is None else f"WHERE {key} {beyond} ?"
                statement = f"SELECT {listed} FROM {table} {where} ORDER BY {key} {order} LIMIT {limit}"
                try:
                    page = run(self.connection, statement, () if last is None else (last,))
                except _UNREADABLE:
                    if limit == 1:
                        self._failed(table)
                        break
                    limit = max(1, limit // 8)
                    continue
                for row in page:
                    if row[0] not in seen:
                        seen.add(row[0])
                        yield row[1:]
                if len(page) < limit:
                    return
                last = page[-1][0]

    def _lowest(self, table: str, key: str) -> int:
        return self._asked(f"SELECT min({key}) FROM {table}", 0)

    def _beyond(self, table: str, key: str) -> int:
        """A number above every key of the table, as far as that can be told."""
        assert self.connection is not None
        highest = self._asked(f"SELECT max({key}) FROM {table}", -1)
        if highest < 0:
            # Its last page cannot be read: no more rows than fit into the file, or as many memories as were ever stored.
            highest = self._lowest(table, key) + self._asked("PRAGMA page_count", 0) * schema.PAGE_BYTES // _ROW_BYTES
            if table in ("memories", *_OF_MEMORIES):
                highest = self._asked("SELECT seq FROM sqlite_sequence WHERE name = 'memories'", highest)
        return min(highest, 2**62) + 1

    def _asked(self, statement: str, otherwise: int) -> int:
        assert self.connection is not None
        try:
            row = one(self.connection, statement)
        except _UNREADABLE:
            return otherwise
        return row[0] if row is not None and isinstance(row[0], int) else 0

    def _failed(self, table: str) -> None:
        self.failures[table] = self.failures.get(table, 0) + 1


def salvage(damaged: Path, pages: Path, fresh: apsw.Connection, advance: Advance) -> Salvaged:
    """Bring every memory that can be read of a damaged copy into a new database, in one transaction.

    `damaged` and `pages` are two copies, may have their WAL beside them, are changed, and belong to nobody else; `fresh` is
    an empty store. A memory comes with its id, times, tags, sources, keys and revisions; tombstones come first, and what
    they name does not come back. A text is believed when its digest is right. Words are derived at once; every vector is
    awaited.
    """
    with contextlib.closing(_Copy(damaged)) as copy:
        run(fresh, "BEGIN IMMEDIATE")
        salvaged = _bring_over(_Reading(copy.connection), pages, fresh, advance)
        # Numbers of names that other processes remember belong to the old file.
        run(fresh, "INSERT OR REPLACE INTO meta VALUES('names_epoch', ?)", (os.urandom(8).hex(),))
        run(fresh, "COMMIT")
    return salvaged


def _bring_over(reading: _Reading, pages: Path, fresh: apsw.Connection, advance: Advance) -> Salvaged:
    carrier = _Carrier(reading, fresh)
    for table in ("meta", "tombstones", "erasures", "copies"):
        carrier.copy(table)
    run(fresh, "UPDATE copies SET holds = ?", (2**62,))  # memories get other numbers here
    run(fresh, "DELETE FROM meta WHERE name IN (SELECT value FROM json_each(?))", (json.dumps(_NOT_CARRIED),))
    forgotten = {id_ for (id_,) in run(fresh, "SELECT id FROM tombstones")}
    names = {row[0]: row for row in reading.rows("names", carrier.columns["names"]) if _is_name(row)}
    expected = reading.ids()
    memories: dict[int, str] = {}

    def take(rows: Iterable[Row]) -> None:
        for row in rows:
            if (
                row[0] not in memories
                and carrier.believes(row)
                and row[1] not in forgotten
                and carrier.memory(row, names)
            ):
                memories[row[0]] = row[1]
                advance(len(memories), None if expected is None else len(expected))

    take(reading.rows("memories", carrier.columns["memories"]))
    if "memories" in reading.failures or expected is None or not set(memories.values()).issuperset(expected):
        log = Path(f"{pages}-wal")
        if reading.connection is None or "names" in reading.failures:
            found = leaves.rows(pages, log, "names", carrier.columns["names"])
            names = {row[0]: row for row in found if _is_name(row)} | names
        take(leaves.rows(pages, log, "memories", carrier.columns["memories"]))
    for table in _OF_MEMORIES:
        carrier.copy(table, within=memories)
    run(
        fresh,
        "INSERT INTO sources SELECT seq, source, 1, created_us FROM memories WHERE seq NOT IN (SELECT memory FROM sources)",
    )
    carrier.copy("events")
    came = set(memories.values())
    lost = None if expected is None else [id_ for id_ in expected if id_ not in came and id_ not in forgotten]
    unread = set(reading.failures) if reading.connection is not None else set(KEYS)
    return Salvaged(
        memories=len(memories),
        revisions=_count(fresh, "revisions"),
        tombstones=_count(fresh, "tombstones"),
        lost=None if lost is None else len(lost),
        lost_ids=() if lost is None else tuple(map(str, lost[:_LOST_SHOWN])),
        incomplete=tuple(sorted(unread - {"memories"} if lost == [] else unread)),
    )


def _is_name(row: Row) -> bool:
    return _fits(row, (int, str, str)) and row[1] in ("user", "project", "session")


class _Carrier:
    """Puts rows into the new database, each if it fits there."""

    def __init__(self, reading: _Reading, fresh: apsw.Connection) -> None:
        self._reading = reading
        self._fresh = fresh
        self.columns: dict[str, list[str]] = {}
        self.types: dict[str, list[type]] = {}
        for table in KEYS:
            described = run(fresh, "SELECT name, type FROM pragma_table_info(?)", (table,))
            self.columns[table] = [name for name, _ in described]
            self.types[table] = [{"INTEGER": int, "TEXT": str, "BLOB": bytes}[type_] for _, type_ in described]

    def copy(self, table: str, within: dict[int, str] | None = None) -> None:
        """Copy a table; with `within`, only rows of these memories."""
        columns = self.columns[table]
        place = columns.index("memory") if within is not None else 0
        for row in self._reading.rows(table, columns):
            if _fits(row, self.types[table]) and (within is None or row[place] in within):
                self._insert(table, row)

    def memory(self, row: Row, names: dict[int, Row]) -> bool:
        """Put a memory in, with the names it needs and what is derived of it. False where the new database refuses it."""
        scope = []
        for kind in ("user", "project", "session"):
            number = row[self.columns["memories"].index(f"{kind}_id")]
            # A name that cannot be read gets one that nobody else has: a memory must not pass into another's scope.
            named = names.get(number, (number, kind, f"unreadable {kind} {number}"))
            self._insert("names", named)
            scope.append(number)
        if not self._insert("memories", row):
            return False
        at_us = row[self.columns["memories"].index("at_us")]
        derived.build(
            self._fresh, derived.Source(row[0], index_text(row[2]), scope[0], scope[1], scope[2], at_us, None)
        )
        return True

    def believes(self, row: Row) -> bool:
        """Whether a row of memories is what was stored: its digest is that of its text, its metadata can be read."""
        if not _fits(row, self.types["memories"]):
            return False
        values = dict(zip(self.columns["memories"], row, strict=True))
        try:
            return text_digest(values["text"]) == values["digest"] and isinstance(json.loads(values["metadata"]), dict)
        except (ValueError, RecursionError):
            return False

    def _insert(self, table: str, row: Row) -> bool:
        values = ", ".join("?" * len(row))
        try:
            how = "REPLACE" if table == "meta" else "IGNORE"  # a new store has a date already
            run(self._fresh, f"INSERT OR {how} INTO {table} VALUES({values})", row)
        except apsw.ConstraintError:
            return False
        return self._fresh.changes() > 0


def _fits(row: Row, types: Sequence[type]) -> bool:
    return all(isinstance(value, wanted) for value, wanted in zip(row, types, strict=True))


def _count(connection: apsw.Connection, table: str) -> int:
    return int(run(connection, f"SELECT count(*) FROM {table}")[0][0])


def _uuid_at(milliseconds: int) -> str:
    """The beginning of every UUIDv7 of a millisecond, as text that sorts before them all.

    Before the first one and from the last one on stand all ids that are none.
    """
    if milliseconds in (0, _HIGHEST_UUID_MS):
        return "" if milliseconds == 0 else "\U0010ffff"
    digits = f"{milliseconds:012x}"
    return f"{digits[:8]}-{digits[8:]}"


# -- opening what cannot be opened -------------------------------------------------------------------------------------


class _Copy:
    """A damaged copy, opened as leniently as SQLite can. `connection` is None where it cannot be opened at all."""

    def __init__(self, path: Path) -> None:
        self.connection: apsw.Connection | None = None
        log = Path(f"{path}-wal")
        if path.stat().st_size == 0 and log.exists() and log.stat().st_size:
            # With one page, of zeros, SQLite does not take the log for a leftover; the true page is in the log.
            path.write_bytes(bytes(schema.PAGE_BYTES))
        for attempt in (_as_it_is, _give_header):
            attempt(path)
            connection = _lenient(path)
            if connection is not None:
                self.connection = connection
                return

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close(True)


def _lenient(path: Path) -> apsw.Connection | None:
    name = f"file:{quote(os.fsencode(path))}"
    connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        # With a writable schema SQLite opens a file that is shorter than its header says, and a schema it cannot read.
        run(connection, "PRAGMA writable_schema = ON")
        if one(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'memories'") is not None:
            return connection
    except _UNREADABLE:
        pass
    connection.close(True)
    return None


def _as_it_is(path: Path) -> None:
    pass


def _give_header(path: Path) -> None:
    """Put a header before the first page, which may be sound behind a damaged one.

    The format is in https://www.sqlite.org/fileformat.html, section 1.3.
    """
    size = path.stat().st_size
    if size < schema.PAGE_BYTES:
        return
    header = struct.pack(
        ">16sH6B12I20x2I",
        b"SQLite format 3\0",
        schema.PAGE_BYTES,
        *(2, 2, 0, 64, 32, 32),  # WAL to write and to read, nothing reserved, fractions of a payload
        *(1, size // schema.PAGE_BYTES),  # changes, pages
        *(0, 0, 1, 4, 0, 0, 1),  # no free pages, schema cookie, schema format, cache, no vacuum, UTF-8
        *(schema.VERSION, 0, schema.APPLICATION_ID),
        *(1, apsw.SQLITE_VERSION_NUMBER),
    )
    with path.open("r+b") as file:
        file.write(header)
