"""Running one SQL statement to its end.

APSW's `execute` is lazy: it stops at the first row, and what stands behind it never runs. So every statement of the
store goes through here and is exhausted, and a lint refuses `execute` elsewhere and more than one statement at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import apsw

from holdtrue.enforces import enforces

_ROWS = 250


@enforces("INV-012")
def run(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement to its end and return its rows.

    A connection of the store is refused to any thread and process but the one that opened it: SQLite is told that it need
    not guard against that.
    """
    check_owner = getattr(connection, "check_owner", None)
    if check_owner is not None:
        check_owner()
    return connection.execute(statement, values).fetchall()


def one(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
    """The first row of one statement, or None. The statement is run to its end."""
    rows = run(connection, statement, values)
    return rows[0] if rows else None


def insert_many(connection: apsw.Connection, into: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows of one width; `into` names the table, with or without its columns.

    Several go into one statement: a statement gives the interpreter's lock away and waits for it again, which a row alone
    pays for with more than its own cost as soon as another thread works.
    """
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        row = f"({','.join('?' * len(some[0]))})"
        values = tuple(itertools.chain.from_iterable(some))
        run(connection, f"INSERT INTO {into} VALUES{','.join([row] * len(some))}", values)
