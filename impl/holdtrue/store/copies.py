"""The record of the files that were made of a store: backups, exports, the states before a restore.

Owns: the table `copies`, from which a forget tells which files may hold what it forgets. A row holds how far the
memories were numbered when the file was made, so that neither a clock that was wrong nor an imported date decides what it
may hold. Faults it survives: a kill at any point (the row is there before the state is chosen, and then counts as made
after everything), two runs with one target (neither takes the other's row away), a path that is no UTF-8.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import apsw

from holdtrue.clock import now_us
from holdtrue.errors import HoldTrueError, StoreError
from holdtrue.store.connection import StoreConnection
from holdtrue.store.statements import one, run

Note = Callable[[Callable[[StoreConnection], Any]], Any]  # runs an operation in a write transaction of the store

_MAKING = "making"  # begins the kind of a file that is not finished yet; what follows tells runs apart
_EVERYTHING = 2**62
_URI = "file:"


@dataclass(frozen=True)
class Copy:
    """A recorded file. `holds` is the highest number that a memory in it can have."""

    path: str
    kind: str
    holds: int

    @property
    def making(self) -> bool:
        return self.kind.startswith(_MAKING)


def recorded(connection: apsw.Connection) -> list[Copy]:
    rows = run(connection, "SELECT path, kind, holds FROM copies ORDER BY at_us, path")
    return [Copy(path_of(str(path)), str(kind), int(holds)) for path, kind, holds in rows]


def note(connection: apsw.Connection, path: str, kind: str) -> None:
    """Record a file that holds no more than there is now."""
    (highest,) = run(connection, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'memories'")[0]
    _write(connection, recorded_as(path), kind, int(highest))


def drop(connection: apsw.Connection, paths: Sequence[str]) -> None:
    """Drop the records of files that are gone."""
    for path in paths:
        run(connection, "DELETE FROM copies WHERE path = ?", (recorded_as(path),))


def _write(connection: apsw.Connection, name: str, kind: str, holds: int) -> None:
    run(connection, "INSERT OR REPLACE INTO copies VALUES(?, ?, ?, ?)", (name, kind, now_us(), holds))


class CopyRecord:
    """The row of one file that is being made. A store that cannot be written is copied all the same."""

    def __init__(self, run_noted: Note, path: str, kind: str) -> None:
        self._run = run_noted
        self._path = path
        self._kind = kind
        self._mine = f"{_MAKING} {kind} {os.urandom(8).hex()}"
        self._noted = False

    def begin(self) -> None:
        """Before the state is chosen: what is stored in between is in the file, and the record must say so."""
        try:
            self._run(lambda connection: _write(connection, recorded_as(self._path), self._mine, _EVERYTHING))
        except StoreError:
            return  # read-only, full, damaged or held by another program: all the more is a copy wanted
        self._noted = True

    def end(self, removed: Sequence[str] = ()) -> bool:
        """The file is there; those in `removed` are gone. True when the record stands."""
        if not self._noted:
            return False
        with contextlib.suppress(HoldTrueError):  # unfinished it is found as well
            self._run(lambda connection: self._finish(connection, removed))
        return True

    def withdraw(self) -> None:
        """The file was not made, or something failed after it had its name."""
        if self._noted:
            with contextlib.suppress(HoldTrueError):  # a record without a file names nothing
                self._run(self._give_up)

    def _finish(self, connection: StoreConnection, removed: Sequence[str]) -> None:
        note(connection, self._path, self._kind)
        drop(connection, removed)

    def _give_up(self, connection: StoreConnection) -> None:
        row = one(connection, "SELECT kind FROM copies WHERE path = ?", (recorded_as(self._path),))
        if row is None or row[0] != self._mine:
            return  # another run with this target has recorded it since
        if os.path.lexists(self._path):
            note(connection, self._path, self._kind)
        else:
            drop(connection, [self._path])


def recorded_as(path: str) -> str:
    """The form in which the table holds an absolute path: as it is, or as a `file:` URI (RFC 8089).

    SQLite and JSON take UTF-8 alone, and a path may hold other bytes.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return _URI + quote(os.fsencode(path))
    return path


def path_of(name: str) -> str:
    """The path that `recorded_as` was given."""
    if not name.startswith(_URI):
        return name
    return os.fsdecode(unquote_to_bytes(name.removeprefix(_URI)))
