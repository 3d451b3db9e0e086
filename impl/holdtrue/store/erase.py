"""Erasure: what is left of a forgotten memory after its rows are gone.

Deleting rows with secure_delete zeroes them in the database's newest pages; the WAL still holds older ones until it is
truncated, and a reader of an older state keeps it from being so. What could not be finished at once stands in the
`erasures` outbox, and the next writer that finds it there finishes it.
"""

from __future__ import annotations

import apsw

from holdtrue.clock import now_us
from holdtrue.store.statements import one, run


def enlist(connection: apsw.Connection, id_: str) -> None:
    """Note that bytes of this memory may be left, in the transaction that removes its rows."""
    run(connection, "INSERT OR REPLACE INTO erasures VALUES(?, ?)", (id_, now_us()))


def due(connection: apsw.Connection) -> bool:
    return one(connection, "SELECT 1 FROM erasures LIMIT 1") is not None


def finish(connection: apsw.Connection) -> bool:
    """Move the WAL into the database and truncate it; True when no byte of the forgotten is left in either.

    Must run outside a transaction, by the thread whose turn it is. Does not wait: a busy handler that would is the
    caller's to silence.
    """
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.BusyError, apsw.LockedError):
        return False
    run(connection, "DELETE FROM erasures")
    return True
