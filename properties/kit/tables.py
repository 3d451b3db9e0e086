"""Raw tables: everything that makes each memory what it is, read without the product, so that two stores can be compared.

Numbers of rows and names are left out: they belong to one database. The order of the memories does not. What is derived of
them is judged by `checkers.derived_agree`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from properties.kit.raw import connect

FIELDS = (
    *(
        "id",
        "text",
        "digest",
        "user",
        "project",
        "session",
        "speaker",
        "at_us",
        "valid_from_us",
        "created_us",
        "updated_us",
    ),
    *("metadata", "source", "revision", "tags", "sources", "keys", "revisions"),
)


@dataclass(frozen=True)
class Whole:
    """The memories of one committed state, oldest first, each as its `FIELDS`; the tombstones by id."""

    memories: tuple[dict[str, Any], ...]
    tombstones: tuple[tuple[str, int], ...]


def read(folder: Path) -> Whole:
    """A store that cannot be read, or lacks a table, is an `AssertionError`."""
    connection = connect(folder)
    try:
        connection.execute("BEGIN").fetchall()
        return _read(connection)
    except apsw.Error as error:
        raise AssertionError(f"raw storage at {folder} cannot be read: {type(error).__name__}: {error}") from error
    finally:
        connection.close()


def _read(connection: apsw.Connection) -> Whole:
    names = dict(connection.execute("SELECT id, name FROM names").fetchall())
    memories = []
    rows = connection.execute(
        """SELECT seq, id, text, digest, user_id, project_id, session_id, speaker, at_us, valid_from_us, created_us,
             updated_us, metadata, source, revision FROM memories ORDER BY seq"""
    ).fetchall()
    for seq, id_, text, digest, user, project, session, *rest in rows:

        def below(statement: str, seq: int = seq) -> tuple[Any, ...]:
            return tuple(connection.execute(statement, (seq,)).fetchall())

        values = (
            *(id_, text, digest, names[user], names[project], names[session], *rest),
            below("SELECT tag FROM tags WHERE memory = ? ORDER BY tag"),
            below("SELECT source, times, last_us FROM sources WHERE memory = ? ORDER BY source"),
            below(
                """SELECT key, digest, (SELECT name FROM names WHERE id = user_id), (SELECT name FROM names WHERE id =
                   project_id) FROM keys WHERE memory = ? ORDER BY key"""
            ),
            below("SELECT revision, text, from_us, until_us FROM revisions WHERE memory = ? ORDER BY revision"),
        )
        memories.append(dict(zip(FIELDS, values, strict=True)))
    tombstones = connection.execute("SELECT id, forgotten_us FROM tombstones ORDER BY id").fetchall()
    return Whole(tuple(memories), tuple(tombstones))


def differences(wanted: Whole, found: Whole) -> list[str]:
    """How one store differs from another that it should equal."""
    problems = []
    here, there = [each["id"] for each in wanted.memories], [each["id"] for each in found.memories]
    problems += [f"memory {id_} is missing" for id_ in here if id_ not in there]
    problems += [f"memory {id_} should not be there" for id_ in there if id_ not in here]
    if not problems and here != there:
        problems.append("the memories stand in another order")
    by_id = {each["id"]: each for each in found.memories}
    for memory in wanted.memories:
        other = by_id.get(memory["id"], memory)
        problems += [
            f"{name} of memory {memory['id']} is {other[name]!r:.200} and should be {memory[name]!r:.200}"
            for name in FIELDS
            if memory[name] != other[name]
        ]
    if wanted.tombstones != found.tombstones:
        problems.append(f"the tombstones are {found.tombstones!r:.300} and should be {wanted.tombstones!r:.300}")
    return problems
