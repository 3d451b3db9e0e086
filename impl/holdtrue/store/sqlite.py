"""The SQLite store: one writer and a set of readers for each folder and process.

Owns: which stores this process has open. Two handles on one folder share one writer, because POSIX record locks belong
to the process: a second set in the same process would let both through the turnstile, and closing either would drop the
other's turn. Faults it survives: a fork (the child never touches what it inherited and is refused a store that was
open), a store that appears, is migrated or is closed while others read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdtrue.clock import Deadline
from holdtrue.errors import StoreClosed, StoreMissing
from holdtrue.files import exists, make_private_folder
from holdtrue.records import Forgotten, Record
from holdtrue.store import erase, memories
from holdtrue.store.connection import DATABASE_NAME, StoreConnection, refuse_after_fork
from holdtrue.store.memories import Addition
from holdtrue.store.reader import Readers
from holdtrue.store.segment import index_text
from holdtrue.store.vectors import Vector
from holdtrue.store.view import View
from holdtrue.store.writer import Writer

T = TypeVar("T")


class _Engine:
    """What the handles of one folder share in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = Writer(folder)
        self.readers = Readers(folder)
        self.handles = 0


class _Engines:
    """Every engine of this process. Rebuilt, not inherited, by a forked child."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_folder: dict[str, _Engine] = {}

    def take(self, folder: Path) -> _Engine:
        with self.lock:
            engine = self.by_folder.setdefault(os.path.realpath(folder), _Engine(folder))
            engine.handles += 1
            return engine

    def give_back(self, engine: _Engine) -> bool:
        """True when this was the last handle and the engine is to be closed."""
        with self.lock:
            engine.handles -= 1
            if engine.handles:
                return False
            self.by_folder = {key: other for key, other in self.by_folder.items() if other is not engine}
            return True


_engines = _Engines()


def _start_afresh_after_fork() -> None:
    """In a forked child: leave the parent's engines alone; `StoreConnection` keeps their connections from closing."""
    global _engines
    _engines = _Engines()


os.register_at_fork(after_in_child=_start_afresh_after_fork)


class SQLiteStore:
    """A store in a folder. Safe to share between threads; a child forked while it is open is refused it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._engine: _Engine | None = None

    def _use(self) -> _Engine:
        if self._pid != os.getpid():
            # A lock that another thread held at the fork would never be released here.
            self._lock, self._engine, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._closed:
                raise StoreClosed("The store was closed.")
            if self._engine is None:
                refuse_after_fork(self.folder)
                self._engine = _engines.take(self.folder)
            return self._engine

    def exists(self) -> bool:
        return exists(self.folder / DATABASE_NAME)

    def open(self, deadline: Deadline) -> None:
        """Make the folder and the store if there are none, bring an older one up to date. Raises a `StoreError`."""
        try:
            with self.read():
                pass
        except StoreMissing:
            self._write(lambda _connection: None, deadline)

    @contextmanager
    def read(self) -> Iterator[View]:
        with self._use().readers.snapshot() as connection:
            yield View(connection)

    def verify(self) -> list[str]:
        """Every damage and disagreement found, on a connection of its own: FTS5 keeps what a connection has read of an
        index, and an integrity check would take that for damage once another connection has written.
        """
        self._use()
        readers = Readers(self.folder)
        try:
            with readers.snapshot() as connection:
                return View(connection).verify()
        finally:
            readers.close()

    def add(self, additions: Sequence[Addition], deadline: Deadline) -> list[Record]:
        added = self._write(lambda connection: [memories.add(connection, addition) for addition in additions], deadline)
        return [one.record() for one in added]

    def update(self, id_: str, text: str, vector: Vector | None, deadline: Deadline) -> Record:
        indexed = index_text(text)
        return self._write(lambda connection: memories.update(connection, id_, text, indexed, vector), deadline)

    def forget(self, id_: str, deadline: Deadline) -> Forgotten:
        engine = self._use()
        make_private_folder(self.folder)

        def remove(connection: StoreConnection) -> tuple[int, list[str]]:
            created_us = memories.forget(connection, id_)
            return created_us, erase.copies(connection, created_us)

        (created_us, recorded), erased = engine.writer.submit_erasure(remove, deadline)
        waiting_for = () if erased else ("a reader of an older state; the next writer after it finishes the erasure",)
        remains = erase.remains(self.folder, recorded, created_us)
        return Forgotten(id_, forgotten=True, erased=erased, waiting_for=waiting_for, remains=remains)

    def complete_vector(self, seq: int, text: str, vector: Vector, deadline: Deadline) -> bool:
        indexed = index_text(text)
        return self._write(
            lambda connection: memories.complete_vector(connection, seq, text, indexed, vector), deadline
        )

    def close(self) -> None:
        """Finish what this process has queued and let go. A second close does nothing."""
        if self._pid != os.getpid():
            self._engine = None
            self._closed = True
            return
        with self._lock:
            engine, self._engine, self._closed = self._engine, None, True
        if engine is not None and _engines.give_back(engine):
            engine.readers.close()
            engine.writer.close()

    def _write(self, operation: Callable[[StoreConnection], T], deadline: Deadline, memories_written: int = 1) -> T:
        engine = self._use()
        make_private_folder(self.folder)
        return engine.writer.submit(operation, deadline, memories_written)
