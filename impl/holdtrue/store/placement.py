"""Where an imported record goes: the rules by which a memory from a file meets those that are here.

Owns: `place`, which runs inside a transaction that the writer has begun and puts one batch of records into the tables.
What is here goes first: a memory that was forgotten stays so, a key names what it names, a text that is here under another
id stays one memory. Only a history that goes on where the one here ends changes a memory. Everything is idempotent: placed
a second time, a batch changes nothing, so an import that was cut can be run again from its beginning. Faults it survives:
a kill (a batch is there whole or not at all), other writers between two batches, a file that holds a record twice.

A record that can meet nothing, neither here nor earlier in its batch, takes a fast way: such ones are written together,
table by table. Every other one is looked at alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import apsw

from holdtrue import failpoints
from holdtrue.clock import now_us
from holdtrue.enforces import enforces
from holdtrue.store import derived, memories
from holdtrue.store.connection import StoreConnection
from holdtrue.store.portable import Key, Portable, Tombstone
from holdtrue.store.segment import index_text
from holdtrue.store.statements import insert_many, one, run
from holdtrue.store.vectors import Vector


@dataclass(slots=True)
class Arrival:
    """A memory from line `line` of a file, the vector of its text (None where none could be made) and its index text."""

    line: int
    record: Portable
    vector: Vector | None = None
    indexed: str = field(init=False)

    def __post_init__(self) -> None:
        self.indexed = index_text(self.record.memory.text)


@dataclass(slots=True)
class Placed:
    """What a batch did. `forgotten` counts memories of the file that were left out because they were forgotten here;
    `removed` those that were here and that the file says were forgotten, the oldest of them with the number `oldest`;
    `conflicts` are lines and sentences.
    """

    added: int = 0
    updated: int = 0
    known: int = 0
    merged: int = 0
    forgotten: int = 0
    removed: int = 0
    put_off: int = 0
    oldest: int | None = None
    conflicts: list[tuple[int, str]] = field(default_factory=list)


COUNTS = ("added", "updated", "known", "merged", "forgotten", "removed", "put_off")

Batch = Sequence[Arrival | Tombstone]
_Scoped = tuple[str, str, bytes | str]  # user, project, and the digest or key within them


@enforces("INV-024")
def place(connection: StoreConnection, batch: Batch) -> Placed:
    """Put a batch into the store, in its order. Safe to run again: it keeps nothing but what it answers."""
    placed = Placed()
    here = _Here(connection, batch)
    arrivals = [item for item in batch if isinstance(item, Arrival)]
    if len(arrivals) == len(batch) and here.meets_none(arrivals):
        _insert(connection, arrivals, placed)
        failpoints.hit("import.placed")
        return placed
    fresh: list[Arrival] = []
    for item in batch:
        if isinstance(item, Tombstone):
            _insert(connection, fresh, placed)
            fresh = []
            _bury(connection, item, placed)
        elif here.may_meet(item.record):
            _insert(connection, fresh, placed)
            fresh = []
            _meet(connection, item, placed)
        else:
            fresh.append(item)
        here.note(item)
    _insert(connection, fresh, placed)
    failpoints.hit("import.placed")
    return placed


class _Here:
    """What a batch may meet: ids, texts and keys that are in the store or came earlier in the batch.

    It may hold too much, for instance what the batch itself forgets; never too little.
    """

    def __init__(self, connection: StoreConnection, batch: Batch) -> None:
        self._ids: set[str] = set()
        self._digests: set[_Scoped] = set()
        self._keys: set[_Scoped] = set()
        filled = [t for t in ("memories", "tombstones") if one(connection, f"SELECT 1 FROM {t} LIMIT 1") is not None]
        ids = _listed([item.id if isinstance(item, Tombstone) else item.record.id for item in batch])
        for table in filled:
            rows = run(connection, f"SELECT id FROM {table} WHERE id IN (SELECT value FROM json_each(?))", ids)
            self._ids.update(id_ for (id_,) in rows)
        if "memories" not in filled:
            return
        scopes: dict[tuple[str, str], list[Portable]] = {}
        for item in batch:
            if isinstance(item, Arrival):
                scopes.setdefault((item.record.memory.user, item.record.memory.project), []).append(item.record)
        for scope, records in scopes.items():
            self._read_scope(connection, scope, records)

    def _read_scope(self, connection: StoreConnection, scope: tuple[str, str], records: Sequence[Portable]) -> None:
        numbers = _numbers(connection, *scope)
        if numbers is None:
            return
        digests = [record.memory.digest.hex() for record in records]
        rows = run(
            connection,
            """SELECT digest FROM memories WHERE user_id = ? AND project_id = ?
               AND digest IN (SELECT unhex(value) FROM json_each(?))""",
            (*numbers, *_listed(digests)),
        )
        self._digests.update((*scope, digest) for (digest,) in rows)
        keys = [key for record in records for key, _ in record.keys]
        if keys:
            rows = run(
                connection,
                "SELECT key FROM keys WHERE user_id = ? AND project_id = ? AND key IN (SELECT value FROM json_each(?))",
                (*numbers, *_listed(keys)),
            )
            self._keys.update((*scope, key) for (key,) in rows)

    def meets_none(self, arrivals: Sequence[Arrival]) -> bool:
        """Whether none of these may meet anything, here or among themselves: asked of all at once, which is cheap."""
        records = [arrival.record for arrival in arrivals]
        ids = {record.id for record in records}
        digests = {(each.memory.user, each.memory.project, each.memory.digest) for each in records}
        keys = [(each.memory.user, each.memory.project, key) for each in records for key, _ in each.keys]
        return (
            len(ids) == len(digests) == len(records)
            and len(set(keys)) == len(keys)
            and self._ids.isdisjoint(ids)
            and self._digests.isdisjoint(digests)
            and self._keys.isdisjoint(keys)
        )

    def may_meet(self, record: Portable) -> bool:
        user, project = record.memory.user, record.memory.project
        return (
            record.id in self._ids
            or (user, project, record.memory.digest) in self._digests
            or any((user, project, key) in self._keys for key, _ in record.keys)
        )

    def note(self, item: Arrival | Tombstone) -> None:
        if isinstance(item, Tombstone):
            self._ids.add(item.id)
            return
        memory = item.record.memory
        self._ids.add(item.record.id)
        self._digests.add((memory.user, memory.project, memory.digest))
        self._keys.update((memory.user, memory.project, key) for key, _ in item.record.keys)


# -- what is new -------------------------------------------------------------------------------------------------------


def _insert(connection: StoreConnection, arrivals: Sequence[Arrival], placed: Placed) -> None:
    """Write memories that meet nothing, whole."""
    if not arrivals:
        return
    scopes = _scopes(connection, arrivals)
    rows = [_row(arrival.record, scope) for arrival, scope in zip(arrivals, scopes, strict=True)]
    insert_many(
        connection,
        "memories(id, text, digest, user_id, project_id, session_id, speaker, at_us, valid_from_us, created_us,"
        " updated_us, metadata, source, revision)",
        rows,
    )
    # AUTOINCREMENT counts on under the write lock, so the numbers have no gaps.
    first = connection.last_insert_rowid() - len(rows) + 1
    numbered = list(enumerate((arrival.record for arrival in arrivals), first))
    insert_many(connection, "tags(memory, tag)", [(seq, tag) for seq, each in numbered for tag in each.memory.tags])
    insert_many(connection, "sources", [(seq, *source) for seq, each in numbered for source in each.sources])
    insert_many(connection, "revisions", [(seq, *old) for seq, each in numbered for old in each.revisions])
    insert_many(
        connection,
        "keys(user_id, project_id, key, digest, memory)",
        [
            (*scope[:2], key, digest, seq)
            for (seq, each), scope in zip(numbered, scopes, strict=True)
            for key, digest in each.keys
        ],
    )
    failpoints.hit("import.between_rows_and_derived")
    sources = [
        derived.Source(seq, arrival.indexed, *scope, arrival.record.memory.at_us, arrival.vector)
        for seq, (arrival, scope) in enumerate(zip(arrivals, scopes, strict=True), first)
    ]
    derived.build_many(connection, sources)
    memories.note_many(connection, now_us(), "add", [arrival.record.id for arrival in arrivals])
    placed.added += len(arrivals)
    placed.put_off += sum(_put_off(source) for source in sources)


def _scopes(connection: StoreConnection, arrivals: Sequence[Arrival]) -> list[tuple[int, int, int]]:
    """The numbers of each memory's user, project and session; names that are new get theirs."""
    known: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    scopes = []
    for arrival in arrivals:
        memory = arrival.record.memory
        names = (memory.user, memory.project, memory.session)
        scope = known.get(names)
        if scope is None:
            scope = known[names] = memories.intern(connection, memory)
        scopes.append(scope)
    return scopes


def _row(record: Portable, scope: tuple[int, int, int]) -> tuple[Any, ...]:
    memory = record.memory
    return (
        record.id,
        memory.text,
        memory.digest,
        *scope,
        memory.speaker,
        memory.at_us,
        record.valid_from_us,
        record.created_us,
        record.updated_us,
        memory.metadata,
        memory.source,
        record.revision,
    )


def _put_off(source: derived.Source) -> bool:
    return not source.placed and (source.vector is None or source.vector.blob is not None)


# -- what meets something ----------------------------------------------------------------------------------------------


def _bury(connection: StoreConnection, tombstone: Tombstone, placed: Placed) -> None:
    """Forget here what the file says was forgotten, at the time it was."""
    if _is_buried(connection, tombstone.id):
        return
    if one(connection, "SELECT 1 FROM memories WHERE id = ?", (tombstone.id,)) is not None:
        seq = memories.forget(connection, tombstone.id)
        placed.oldest = seq if placed.oldest is None else min(placed.oldest, seq)
        placed.removed += 1
    run(connection, "INSERT OR REPLACE INTO tombstones VALUES(?, ?)", (tombstone.id, tombstone.forgotten_us))


def _is_buried(connection: StoreConnection, id_: str) -> bool:
    return one(connection, "SELECT 1 FROM tombstones WHERE id = ?", (id_,)) is not None


def _meet(connection: StoreConnection, arrival: Arrival, placed: Placed) -> None:
    """Place one record that may meet a tombstone, its own memory, another one of its text, or a key."""
    record = arrival.record
    if _is_buried(connection, record.id):
        placed.forgotten += 1
        return
    seq = _seq(connection, "SELECT seq FROM memories WHERE id = ?", (record.id,))
    if seq is not None:
        _meet_itself(connection, seq, arrival, placed)
        return
    scope = _numbers(connection, record.memory.user, record.memory.project)
    if scope is not None and not record.exact and _is_told(connection, scope, arrival, placed):
        return
    if scope is not None:
        seq = memories.seq_of_digest(connection, *scope, record.memory.digest)
    if seq is not None:
        _merge(connection, seq, arrival, placed)
        return
    free, taken = _keys_by_freedom(connection, scope, record.keys, None)
    _insert(connection, [Arrival(arrival.line, replace(record, keys=free), arrival.vector)], placed)
    _report_keys(taken, arrival, placed)


def _is_told(connection: StoreConnection, scope: tuple[int, int], arrival: Arrival, placed: Placed) -> bool:
    """Whether the key of a text, given as an add gives it, has the answer: the memory that it named, or a conflict."""
    for key, digest in arrival.record.keys:
        row = one(
            connection,
            "SELECT digest FROM keys WHERE user_id = ? AND project_id = ? AND key = ?",
            (*scope, key),
        )
        if row is None:
            continue
        if row[0] == digest:
            placed.known += 1
        else:
            placed.conflicts.append((arrival.line, f"the key {_short(key)} names another text here"))
        return True
    return False


def _meet_itself(connection: StoreConnection, seq: int, arrival: Arrival, placed: Placed) -> None:
    """The memory of this id is here: it is the same, an older or a newer state of it, or another one."""
    record, memory = arrival.record, arrival.record.memory
    here = run(
        connection,
        """SELECT m.text, m.revision, m.valid_from_us, m.at_us, m.created_us, m.metadata, m.source, m.speaker, u.name,
             p.name, s.name, m.user_id, m.project_id, m.session_id
           FROM memories m JOIN names u ON u.id = m.user_id JOIN names p ON p.id = m.project_id
           JOIN names s ON s.id = m.session_id WHERE m.seq = ?""",
        (seq,),
    )[0]
    text, revision, valid_from_us = here[:3]
    tags = tuple(tag for (tag,) in run(connection, "SELECT tag FROM tags WHERE memory = ? ORDER BY tag", (seq,)))
    told = (record.memory.at_us, record.created_us, memory.metadata, memory.source, memory.speaker)
    if (*here[3:11], tags) != (*told, memory.user, memory.project, memory.session, memory.tags):
        placed.conflicts.append((arrival.line, f"memory {record.id} is another one here; it was left as it is"))
        return
    replaced = run(
        connection, "SELECT revision, text, from_us, until_us FROM revisions WHERE memory = ? ORDER BY revision", (seq,)
    )
    present = (revision, text, valid_from_us)
    offered = (record.revision, memory.text, record.valid_from_us)
    if present == offered or offered in [old[:3] for old in replaced]:
        placed.known += 1
    elif set(replaced) <= set(record.revisions) and present in [old[:3] for old in record.revisions]:
        if not _renew(connection, seq, here[11:14], arrival, placed):
            return
    else:
        reason = f"memory {record.id} has other revisions here; it was left as it is"
        placed.conflicts.append((arrival.line, reason))
        return
    _absorb(connection, seq, (here[11], here[12]), arrival, placed)


def _renew(
    connection: StoreConnection, seq: int, scope: tuple[int, int, int], arrival: Arrival, placed: Placed
) -> bool:
    """Bring a memory to the newer state that the file holds. False when another one has that text already."""
    record, memory = arrival.record, arrival.record.memory
    other = memories.seq_of_digest(connection, *scope[:2], memory.digest)
    if other is not None and other != seq:
        reason = f"another memory has the newer text of memory {record.id} already; it was left as it is"
        placed.conflicts.append((arrival.line, reason))
        return False
    for old in record.revisions:
        run(connection, "INSERT OR IGNORE INTO revisions VALUES(?, ?, ?, ?, ?)", (seq, *old))
    run(
        connection,
        "UPDATE memories SET text = ?, digest = ?, revision = ?, updated_us = ?, valid_from_us = ? WHERE seq = ?",
        (memory.text, memory.digest, record.revision, record.updated_us, record.valid_from_us, seq),
    )
    derived.purge(connection, seq)
    source = derived.Source(seq, arrival.indexed, *scope, memory.at_us, arrival.vector)
    derived.build(connection, source)
    memories.note_many(connection, now_us(), "update", [record.id])
    placed.updated += 1
    placed.put_off += _put_off(source)
    return True


def _merge(connection: StoreConnection, seq: int, arrival: Arrival, placed: Placed) -> None:
    """Another memory has this text: one text of one user and project is one memory, so it takes the sources and keys."""
    ((user_id, project_id, id_),) = run(
        connection, "SELECT user_id, project_id, id FROM memories WHERE seq = ?", (seq,)
    )
    if arrival.record.exact:
        # One that is a memory here meets itself and comes not to this place.
        run(
            connection,
            """INSERT INTO aliases VALUES(?, ?)
               ON CONFLICT(id) DO UPDATE SET memory = excluded.memory WHERE memory <> excluded.memory""",
            (arrival.record.id, seq),
        )
    changed = _absorb(connection, seq, (user_id, project_id), arrival, placed)
    if changed:
        memories.note_many(connection, now_us(), "add-again", [id_])
    if arrival.record.exact:
        placed.merged += 1
    else:
        placed.known += 1


def _absorb(connection: StoreConnection, seq: int, scope: tuple[int, int], arrival: Arrival, placed: Placed) -> bool:
    """Give a memory the sources and keys of a record. True when that changed anything.

    Of a source that both know, the larger count and the later time stay: sums would grow with each import.
    """
    record = arrival.record
    before = connection.total_changes()
    for source in record.sources:
        grown = (
            """DO UPDATE SET times = max(times, excluded.times), last_us = max(last_us, excluded.last_us)
               WHERE excluded.times > times OR excluded.last_us > last_us"""
            if record.exact
            else "DO NOTHING"  # the same line of a file is the same telling, whenever it is read
        )
        run(connection, f"INSERT INTO sources VALUES(?, ?, ?, ?) ON CONFLICT(memory, source) {grown}", (seq, *source))
    free, taken = _keys_by_freedom(connection, scope, record.keys, seq)
    insert_many(
        connection,
        "keys(user_id, project_id, key, digest, memory)",
        [(*scope, key, digest, seq) for key, digest in free],
    )
    _report_keys(taken, arrival, placed)
    return connection.total_changes() > before


def _keys_by_freedom(
    connection: StoreConnection, scope: tuple[int, int] | None, keys: Iterable[Key], seq: int | None
) -> tuple[list[Key], list[Key]]:
    """Those keys that name nothing yet, and those that name another memory than `seq` or another text."""
    free: list[Key] = []
    taken: list[Key] = []
    for key, digest in keys:
        row = scope and one(
            connection,
            "SELECT memory, digest FROM keys WHERE user_id = ? AND project_id = ? AND key = ?",
            (*scope, key),
        )
        if not row:
            free.append((key, digest))
        elif row != (seq, digest):
            taken.append((key, digest))
    return free, taken


def _report_keys(taken: Iterable[Key], arrival: Arrival, placed: Placed) -> None:
    for key, _ in taken:
        placed.conflicts.append((arrival.line, f"the key {_short(key)} names another text here and keeps it"))


def _numbers(connection: StoreConnection, user: str, project: str) -> tuple[int, int] | None:
    """The numbers of a user and a project; None where no memory has them. Makes none: what is left out leaves no name."""
    found = []
    for kind, name in (("user", user), ("project", project)):
        known = connection.names.get((kind, name))
        if known is None:
            known = _seq(connection, "SELECT id FROM names WHERE kind = ? AND name = ?", (kind, name))
        if known is None:
            return None
        found.append(known)
    return found[0], found[1]


def _seq(connection: apsw.Connection, statement: str, values: tuple[Any, ...]) -> int | None:
    row = one(connection, statement, values)
    return None if row is None else int(row[0])


def _listed(values: Sequence[str]) -> tuple[str]:
    return (json.dumps(values),)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
