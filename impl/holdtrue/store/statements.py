"""Running one SQL statement to its end.

APSW's `execute` is lazy: it stops at the first row, and what stands behind it never runs. So every statement of the
store goes through here and is exhausted, and a lint refuses `execute` elsewhere and more than one statement at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw


def run(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Run one statement to its end and return its rows."""
    return connection.execute(statement, values).fetchall()


def one(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
    """The first row of one statement, or None. The statement is run to its end."""
    rows = run(connection, statement, values)
    return rows[0] if rows else None
