"""What a write does to the tables: add, update, forget, inside a transaction that the writer has begun.

Owns: the rules of identity. The same NFC text of one user and project is one memory; a key names one text of one user
and project. The checks and the write lie in one transaction under the write lock, so no other process comes between.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import apsw

from holdtrue import failpoints
from holdtrue.clock import MAX_US, clamped, now_us
from holdtrue.enforces import enforces
from holdtrue.errors import InvalidInput, KeyConflict, NotFound, TextConflict
from holdtrue.records import COUNT_LIMIT, NewMemory, Record, new_id, text_digest
from holdtrue.store import derived, erase
from holdtrue.store.connection import StoreConnection
from holdtrue.store.segment import index_text
from holdtrue.store.statements import insert_many, one, run
from holdtrue.store.vectors import Vector

_NAMES_KEPT = 1_000
_EVENTS_KEPT = 10_000
_EVENTS_STEP = 100

_COLUMNS = """m.seq, m.id, m.text, u.name, p.name, s.name, m.speaker, m.at_us, m.created_us, m.updated_us, m.metadata,
    m.source, m.revision,
    (SELECT json_group_array(tag) FROM (SELECT tag FROM tags WHERE memory = m.seq ORDER BY tag)),
    (SELECT CAST(min(total(times), 9007199254740992) AS INTEGER) FROM sources WHERE memory = m.seq)"""  # never overflows
_FROM = """memories m JOIN names u ON u.id = m.user_id JOIN names p ON p.id = m.project_id
    JOIN names s ON s.id = m.session_id"""
SELECT_RECORD = f"SELECT {_COLUMNS} FROM {_FROM}"


@dataclass(slots=True)
class Addition:
    """One memory to add, the vector of its text (None where no model could make one) and its index text."""

    memory: NewMemory
    vector: Vector | None
    indexed: str = field(init=False)

    def __post_init__(self) -> None:
        self.indexed = index_text(self.memory.text)


def record_of(row: Sequence[Any], *, created: bool = False) -> Record:
    """The record of a row of `SELECT_RECORD`."""
    (
        _,
        id_,
        text,
        user,
        project,
        session,
        speaker,
        at,
        created_us,
        updated_us,
        metadata,
        source,
        revision,
        tags,
        seen,
    ) = row
    return Record(
        id=id_,
        text=text,
        user=user,
        project=project,
        session=session,
        speaker=speaker,
        at=_moment(at),
        created_at=_moment(created_us),
        updated_at=_moment(updated_us),
        tags=tuple(json.loads(tags)),
        metadata=json.loads(metadata),
        source=source,
        revision=revision,
        sources=seen,
        created=created,
    )


def find(connection: apsw.Connection, id_: str) -> Sequence[Any]:
    """The row of `SELECT_RECORD` with this public id. Raises `NotFound`."""
    row = one(connection, f"{SELECT_RECORD} WHERE m.id = ?", (id_,))
    if row is None:
        raise NotFound(f"There is no memory {id_[:80]!r}.", id=id_[:80])
    return tuple(row)


@dataclass(frozen=True)
class Added:
    """What an add did: the new memory's id and microsecond, or the record that was there already."""

    memory: NewMemory
    id: str
    at_us: int
    existing: Record | None
    degraded: tuple[str, ...] = ()

    def record(self) -> Record:
        """The record as a read would give it. For the caller's thread: nothing here needs the write lock."""
        if self.existing is not None:
            return self.existing
        memory, moment = self.memory, _moment(self.at_us)
        return Record(
            id=self.id,
            text=memory.text,
            user=memory.user,
            project=memory.project,
            session=memory.session,
            speaker=memory.speaker,
            at=_moment(memory.at_us),
            created_at=moment,
            updated_at=moment,
            tags=memory.tags,
            metadata=json.loads(memory.metadata),
            source=memory.source,
            revision=1,
            created=True,
            degraded=self.degraded,
        )


@enforces("INV-007")
def add(connection: StoreConnection, addition: Addition) -> Added:
    """Store a memory, or answer the one that has this text, or this key, already.

    Raises `KeyConflict` when the key was used for another text.
    """
    memory = addition.memory
    now = now_us()
    user_id, project_id = _known(connection, "user", memory.user), _known(connection, "project", memory.project)
    seq = None
    if user_id is not None and project_id is not None:
        seq = _seq_of_key(connection, user_id, project_id, memory)
        if seq is None:
            seq = seq_of_digest(connection, user_id, project_id, memory.digest)
    failpoints.hit("memories.between_check_and_insert")
    created = seq is None
    id_ = new_id()
    degraded: tuple[str, ...] = ()
    if seq is None:
        # Only now: a name that no memory has would outlive everything that forget looks at.
        user_id, project_id, session_id = intern(connection, memory)
        source = _insert(connection, addition, id_, (user_id, project_id, session_id), now)
        seq, degraded = source.seq, source.degraded
    if memory.key is not None:
        values = (user_id, project_id, memory.key, memory.digest, seq)
        run(connection, "INSERT OR IGNORE INTO keys VALUES(?, ?, ?, ?, ?)", values)
    run(
        connection,
        """INSERT INTO sources VALUES(?, ?, 1, ?)
           ON CONFLICT(memory, source) DO UPDATE SET times = min(times + 1, ?), last_us = excluded.last_us""",
        (seq, memory.source, now, COUNT_LIMIT),
    )
    existing = None if created else record_of(run(connection, f"{SELECT_RECORD} WHERE m.seq = ?", (seq,))[0])
    _note(connection, now, "add" if existing is None else "add-again", id_ if existing is None else existing.id)
    return Added(memory, id_, now, existing, degraded)


@enforces("INV-006")
def update(connection: apsw.Connection, id_: str, text: str, indexed: str, vector: Vector | None) -> Record:
    """Give a memory another text; its vector and all that is derived change in the same transaction.

    `vector` and `indexed` were made from `text`, so whichever of two updates commits last leaves text and vector of its
    own. The text before stays readable for `as_of`. Raises `NotFound`, `TextConflict` when another memory has the text, or
    `InvalidInput` after two billion updates.
    """
    row = find(connection, id_)
    seq, old_text, revision = row[0], row[2], row[12]
    if old_text == text:
        return record_of(row)
    user_id, project_id, session_id, at_us, valid_from_us = run(
        connection, "SELECT user_id, project_id, session_id, at_us, valid_from_us FROM memories WHERE seq = ?", (seq,)
    )[0]
    digest = text_digest(text)
    other = seq_of_digest(connection, user_id, project_id, digest)
    if other is not None and other != seq:
        (other_id,) = run(connection, "SELECT id FROM memories WHERE seq = ?", (other,))[0]
        raise TextConflict(f"Memory {other_id} has this text already.", id=id_, other=other_id)
    if revision >= COUNT_LIMIT:
        raise InvalidInput(
            f"Memory {id_} was updated {revision:,} times and takes no other text.",
            hint="Forget it and add the text as a memory of its own.",
        )
    now = now_us()
    # Never before the revision it follows: neither a clock set back nor a time in the future may end it before it began.
    valid_us = min(max(now, valid_from_us + 1), MAX_US)
    run(connection, "INSERT INTO revisions VALUES(?, ?, ?, ?, ?)", (seq, revision, old_text, valid_from_us, valid_us))
    run(
        connection,
        "UPDATE memories SET text = ?, digest = ?, revision = ?, updated_us = ?, valid_from_us = ? WHERE seq = ?",
        (text, digest, revision + 1, now, valid_us, seq),
    )
    derived.purge(connection, seq)
    failpoints.hit("memories.between_purge_and_build")
    source = derived.Source(seq, indexed, user_id, project_id, session_id, at_us, vector)
    derived.build(connection, source)
    _note(connection, now, "update", id_)
    return replace(record_of(find(connection, id_)), degraded=source.degraded)


@enforces("INV-015")
def forget(connection: StoreConnection, id_: str) -> int:
    """Remove a memory, its revisions and all that is derived of it; its id stays as a tombstone.

    So do the ids under which files brought its text: such a file, imported again, must not bring it back. Names of a user,
    project or session that no other memory has go with it. Returns its number. Raises `NotFound`.
    """
    seq, *names = _scope_of(connection, id_)
    now = now_us()
    derived.purge(connection, seq)
    run(
        connection,
        """INSERT OR IGNORE INTO tombstones
           SELECT id, ? FROM aliases WHERE memory = ? AND id NOT IN (SELECT id FROM memories)""",
        (now, seq),
    )
    run(connection, "DELETE FROM memories WHERE seq = ?", (seq,))
    _drop_names(connection, names)
    run(connection, "INSERT OR REPLACE INTO tombstones VALUES(?, ?)", (id_, now))
    erase.enlist(connection, id_)
    _note(connection, now, "forget", id_)
    return seq


def _scope_of(connection: apsw.Connection, id_: str) -> tuple[int, int, int, int]:
    row = one(connection, "SELECT seq, user_id, project_id, session_id FROM memories WHERE id = ?", (id_,))
    if row is None:
        raise NotFound(f"There is no memory {id_[:80]!r}.", id=id_[:80])
    seq, user_id, project_id, session_id = row
    return seq, user_id, project_id, session_id


def _drop_names(connection: StoreConnection, names: Sequence[int]) -> None:
    """Remove those names that no memory has any more."""
    dropped = False
    for number in names:
        run(
            connection,
            """DELETE FROM names WHERE id = ?1 AND NOT EXISTS(SELECT 1 FROM memories WHERE user_id = ?1)
               AND NOT EXISTS(SELECT 1 FROM memories WHERE project_id = ?1)
               AND NOT EXISTS(SELECT 1 FROM memories WHERE session_id = ?1)""",
            (number,),
        )
        dropped = dropped or connection.changes() > 0
    if dropped:
        # Other processes remember numbers of names; another value tells them to look again.
        connection.names.clear()
        run(connection, "INSERT OR REPLACE INTO meta VALUES('names_epoch', ?)", (os.urandom(8).hex(),))


def refresh_names(connection: StoreConnection) -> None:
    """Drop the names that this connection remembers if some were removed since. At the begin of every transaction."""
    row = one(connection, "SELECT value FROM meta WHERE name = 'names_epoch'")
    epoch = None if row is None else str(row[0])
    if epoch != connection.names_epoch:
        connection.names.clear()
        connection.names_epoch = epoch


def complete_vector(connection: apsw.Connection, seq: int, text: str, indexed: str, vector: Vector) -> bool:
    """Give a pending memory its vector, unless its text has changed since it was read. True when it was given."""
    row = one(
        connection,
        """SELECT m.text, m.user_id, m.project_id, m.session_id, m.at_us FROM pending_vectors w
           JOIN memories m ON m.seq = w.memory WHERE w.memory = ?""",
        (seq,),
    )
    if row is None or row[0] != text:
        return False
    derived.purge(connection, seq)
    derived.build(connection, derived.Source(seq, indexed, row[1], row[2], row[3], row[4], vector))
    return one(connection, "SELECT 1 FROM pending_vectors WHERE memory = ?", (seq,)) is None


def _insert(
    connection: apsw.Connection, addition: Addition, id_: str, scope: tuple[int, int, int], now: int
) -> derived.Source:
    memory = addition.memory
    run(
        connection,
        """INSERT INTO memories(id, text, digest, user_id, project_id, session_id, speaker, at_us, valid_from_us,
             created_us, updated_us, metadata, source, revision) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)""",
        (
            id_,
            memory.text,
            memory.digest,
            *scope,
            memory.speaker,
            memory.at_us,
            memory.at_us,
            now,
            now,
            memory.metadata,
            memory.source,
        ),
    )
    seq = connection.last_insert_rowid()
    for tag in memory.tags:
        run(connection, "INSERT INTO tags(memory, tag) VALUES(?, ?)", (seq, tag))
    source = derived.Source(seq, addition.indexed, *scope, memory.at_us, addition.vector)
    derived.build(connection, source)
    return source


def _seq_of_key(connection: apsw.Connection, user_id: int, project_id: int, memory: NewMemory) -> int | None:
    if memory.key is None:
        return None
    row = one(
        connection,
        "SELECT memory, digest FROM keys WHERE user_id = ? AND project_id = ? AND key = ?",
        (user_id, project_id, memory.key),
    )
    if row is None:
        return None
    # The digest of the add that brought the key: a retry of it is answered even after the memory was updated.
    if row[1] != memory.digest:
        (id_,) = run(connection, "SELECT id FROM memories WHERE seq = ?", (row[0],))[0]
        raise KeyConflict(f"The key {memory.key[:80]!r} names another text, of memory {id_}.", id=id_)
    return int(row[0])


def seq_of_digest(connection: apsw.Connection, user_id: int, project_id: int, digest: bytes) -> int | None:
    row = one(
        connection,
        "SELECT seq FROM memories WHERE user_id = ? AND project_id = ? AND digest = ?",
        (user_id, project_id, digest),
    )
    return None if row is None else int(row[0])


def intern(connection: StoreConnection, memory: NewMemory) -> tuple[int, int, int]:
    """The numbers of a memory's user, project and session; new names get one."""
    return (
        _number(connection, "user", memory.user),
        _number(connection, "project", memory.project),
        _number(connection, "session", memory.session),
    )


def _number(connection: StoreConnection, kind: str, name: str) -> int:
    known = _known(connection, kind, name)
    if known is None:
        run(connection, "INSERT INTO names(kind, name) VALUES(?, ?)", (kind, name))
        known = _keep(connection, kind, name, connection.last_insert_rowid())
    return known


def _known(connection: StoreConnection, kind: str, name: str) -> int | None:
    """The number of a name, None where the store has none for it."""
    known = connection.names.get((kind, name))
    if known is None:
        row = one(connection, "SELECT id FROM names WHERE kind = ? AND name = ?", (kind, name))
        known = None if row is None else _keep(connection, kind, name, int(row[0]))
    return known


def _keep(connection: StoreConnection, kind: str, name: str, number: int) -> int:
    # It may be kept: a rollback clears what was kept, and so does `refresh_names` after a removal.
    if len(connection.names) >= _NAMES_KEPT:
        connection.names.clear()
    connection.names[kind, name] = number
    return number


def _note(connection: apsw.Connection, at_us: int, kind: str, id_: str) -> None:
    run(connection, "INSERT INTO events(at_us, kind, memory) VALUES(?, ?, ?)", (at_us, kind, id_))
    number = connection.last_insert_rowid()
    if number % _EVENTS_STEP == 0:
        run(connection, "DELETE FROM events WHERE seq <= ?", (number - _EVENTS_KEPT,))


def note_many(connection: apsw.Connection, at_us: int, kind: str, ids: Sequence[str]) -> None:
    """Note one change of each of these memories."""
    insert_many(connection, "events(at_us, kind, memory)", [(at_us, kind, id_) for id_ in ids])
    run(connection, "DELETE FROM events WHERE seq <= ?", (connection.last_insert_rowid() - _EVENTS_KEPT,))


def _moment(us: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=clamped(us))
