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
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from holdtrue import failpoints
from holdtrue.clock import Deadline
from holdtrue.errors import ExtensionUnavailable, StoreBusy, StoreClosed, StoreMissing, StoreSound
from holdtrue.files import exists, make_private_folder
from holdtrue.filesystem import refuse_network
from holdtrue.records import Forgotten, Record
from holdtrue.store import (
    backup,
    copies,
    damage,
    derived,
    doctor,
    erase,
    exporting,
    memories,
    placement,
    restore,
    vectors,
)
from holdtrue.store.backup import BackupReceipt
from holdtrue.store.checkpoint import WAL_LIMIT_BYTES
from holdtrue.store.connection import DATABASE_NAME, StoreConnection, lost_database, refuse_after_fork
from holdtrue.store.damage import SetAside
from holdtrue.store.doctor import Check
from holdtrue.store.draft import Advance
from holdtrue.store.exporting import Exported
from holdtrue.store.memories import Addition
from holdtrue.store.placement import Batch, Placed
from holdtrue.store.reader import Readers
from holdtrue.store.restore import RestoreReceipt
from holdtrue.store.segment import index_text
from holdtrue.store.statements import run
from holdtrue.store.vectors import Vector
from holdtrue.store.view import View
from holdtrue.store.writer import Writer

T = TypeVar("T")


class _Engine:
    """What the handles of one folder share in one process."""

    def __init__(self, folder: Path, wal_limit_bytes: int, predecessor: Writer | None) -> None:
        self.folder = folder
        self.writer = Writer(folder, wal_limit_bytes, predecessor)
        self.readers = Readers(folder)
        self.handles = 0


class _Engines:
    """Every engine of this process. Rebuilt, not inherited, by a forked child."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_folder: dict[str, _Engine] = {}
        self._barred: set[str] = set()
        self._ending: dict[str, Writer] = {}  # the last writer of a folder: closed, and perhaps not ended yet

    @contextmanager
    def barred(self, folder: Path) -> Iterator[None]:
        """Keep every handle of this process off a folder. Raises `StoreBusy` where one has it open."""
        key = os.path.realpath(folder)
        with self.lock:
            ending = self._ending.get(key)
            if key in self.by_folder or key in self._barred or (ending is not None and ending.running):
                raise StoreBusy(
                    f"This process has the store at {folder} open elsewhere.", hint="Close its other handles first."
                )
            self._barred.add(key)
        try:
            yield
        finally:
            with self.lock:
                self._barred.discard(key)

    def take(self, folder: Path, wal_limit_bytes: int) -> _Engine:
        key = os.path.realpath(folder)
        with self.lock:
            if key in self._barred:
                raise StoreBusy(f"This process is setting the store at {folder} aside.", hint="Try again.")
            engine = self.by_folder.get(key)
            if engine is None:
                engine = _Engine(folder, wal_limit_bytes, self._ending.pop(key, None))
                self.by_folder[key] = engine
            engine.handles += 1
            return engine

    def give_back(self, engine: _Engine) -> bool:
        """True when this was the last handle and the engine is to be closed."""
        with self.lock:
            engine.handles -= 1
            if engine.handles:
                return False
            for key in [key for key, other in self.by_folder.items() if other is engine]:
                del self.by_folder[key]
                self._ending = {other: writer for other, writer in self._ending.items() if writer.running}
                self._ending[key] = engine.writer
            return True


_engines = _Engines()


def _start_afresh_after_fork() -> None:
    """In a forked child: leave the parent's engines alone; `StoreConnection` keeps their connections from closing."""
    global _engines
    _engines = _Engines()


os.register_at_fork(after_in_child=_start_afresh_after_fork)


class SQLiteStore:
    """A store in a folder. Safe to share between threads; a child forked while it is open is refused it."""

    def __init__(self, folder: Path, *, wal_limit_bytes: int = WAL_LIMIT_BYTES, allow_network: bool = False) -> None:
        self.folder = folder
        self._allow_network = allow_network
        self._wal_limit_bytes = wal_limit_bytes
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
                if not self._allow_network:
                    refuse_network(self.folder)
                refuse_after_fork(self.folder)
                self._engine = _engines.take(self.folder, self._wal_limit_bytes)
            return self._engine

    def exists(self) -> bool:
        """Whether there is a store, or what a lost one has left: that is damage, and not an invitation to begin anew."""
        return exists(self.folder / DATABASE_NAME) or bool(lost_database(self.folder))

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
                view = View(connection)
                return view.verify() + view.strange_times()
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

        def remove(connection: StoreConnection) -> tuple[int, list[copies.Copy]]:
            return memories.forget(connection, id_), copies.recorded(connection)

        (seq, recorded), waits = engine.writer.submit_erasure(remove, deadline)
        erase.sweep(self.folder, recorded)
        remains = erase.remains(self.folder, recorded, seq)
        return Forgotten(id_, forgotten=True, erased=not waits, waiting_for=(waits,) if waits else (), remains=remains)

    def complete_vector(self, seq: int, text: str, vector: Vector, deadline: Deadline) -> bool:
        indexed = index_text(text)
        return self._write(
            lambda connection: memories.complete_vector(connection, seq, text, indexed, vector), deadline
        )

    def back_up(
        self,
        target: Path | None,
        *,
        wait_s: float,
        replace: bool = False,
        keep: int = backup.KEEP,
        progress: Advance | None = None,
    ) -> BackupReceipt:
        if not self.exists():
            raise StoreMissing(f"There is no store at {self.folder}.")
        self._use()

        def note(operation: Callable[[StoreConnection], T]) -> T:
            return self._write(operation, Deadline.after(wait_s))

        return backup.back_up(self.folder, target, note, replace=replace, keep=keep, progress=progress)

    def restore(
        self,
        given: Path,
        *,
        wait_s: float,
        save: bool = True,
        keep: int = backup.KEEP,
        progress: Advance | None = None,
    ) -> RestoreReceipt:
        self._use()
        steps = _RestoreSteps(self, wait_s)
        return restore.restore(self.folder, given, steps, save=save, keep=keep, progress=progress)

    def export(
        self,
        target: Path | BinaryIO,
        *,
        wait_s: float,
        replace: bool = False,
        vectors: bool = False,
        progress: Advance | None = None,
    ) -> Exported:
        if not self.exists():
            raise StoreMissing(f"There is no store at {self.folder}.")
        self.open(Deadline.after(wait_s))  # one of an older version is brought up to date first
        snapshot = self._use().readers.snapshot
        if not isinstance(target, Path):
            return exporting.export_to_stream(target, snapshot, vectors=vectors, progress=progress)

        def note(operation: Callable[[StoreConnection], T]) -> T:
            return self._write(operation, Deadline.after(wait_s))

        return exporting.export_to_file(
            target, snapshot, note, own=self.owns, replace=replace, vectors=vectors, progress=progress
        )

    def place(self, batch: Batch, deadline: Deadline) -> Placed:
        return self._write(lambda connection: placement.place(connection, batch), deadline, len(batch))

    def left_since(self, seq: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        with self._use().readers.snapshot() as connection:
            waits, recorded = erase.waits(connection), copies.recorded(connection)
        erase.sweep(self.folder, recorded)
        return (waits,) if waits else (), erase.remains(self.folder, recorded, seq)

    def owns(self, path: Path) -> bool:
        """Also those of the other stores that this process has open: closing any descriptor of them drops its locks."""
        with _engines.lock:
            folders = [Path(folder) for folder in _engines.by_folder]
        return any(backup.own_file(folder, path) for folder in (self.folder, *folders))

    def examine(self, advance: Advance) -> list[Check]:
        return doctor.examine(self.folder, self._wal_limit_bytes, advance)

    def set_aside(self, deadline: Deadline, advance: Advance) -> SetAside:
        """This process lets go of the folder meanwhile: record locks belong to the process, so a second turnstile in it
        would let both through.
        """
        self._use()
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None and _engines.give_back(engine):
            engine.readers.close()
            engine.writer.close(deadline)
            if engine.writer.running:
                raise StoreBusy(f"A write of this process to {self.folder} has not ended.", hint="Try again.")
        with _engines.barred(self.folder):
            return damage.set_aside(self.folder, deadline, advance)

    def broken(self, names: Sequence[str]) -> tuple[str, ...]:
        with self._reading() as connection:
            return tuple(
                entry.short
                for entry in derived.REGISTRY
                if entry.short in names and derived.unreadable(connection, entry)
            )

    def reset_derived(self, names: Sequence[str], deadline: Deadline) -> None:
        def reset(connection: StoreConnection) -> None:
            if vectors.off(connection) and any(entry.needs_model for entry in derived.chosen(names)):
                raise ExtensionUnavailable(vectors.off(connection))
            run(connection, "BEGIN IMMEDIATE")
            try:
                derived.reset(connection, names)
                failpoints.hit("doctor.before_commit")
                with connection.effect():
                    run(connection, "COMMIT")
            except BaseException:
                connection.roll_back()
                raise

        make_private_folder(self.folder)
        self._use().writer.submit_alone(reset, deadline)

    def sources_after(self, seq: int) -> list[tuple[derived.Source, str, bytes]]:
        with self._use().readers.snapshot() as connection:
            return derived.sources_after(connection, seq)

    def rebuild_derived(
        self, sources: Sequence[derived.Source], digests: Sequence[bytes], names: Sequence[str], deadline: Deadline
    ) -> int:
        return self._write(
            lambda connection: derived.rebuild(connection, sources, digests, names), deadline, len(sources)
        )

    def purge_strays(self, names: Sequence[str], deadline: Deadline) -> int:
        with self._reading() as connection:
            strays = derived.strays(connection, names)
        for first in range(0, len(strays), derived.REBUILD_ROWS):
            batch = strays[first : first + derived.REBUILD_ROWS]
            self._write(partial(derived.purge_gone, seqs=batch, entries=names), deadline, len(batch))
        return len(strays)

    @contextmanager
    def _reading(self) -> Iterator[StoreConnection]:
        """A snapshot on a connection of its own, as for `verify`."""
        self._use()
        readers = Readers(self.folder)
        try:
            with readers.snapshot() as connection:
                yield connection
        finally:
            readers.close()

    def close(self, deadline: Deadline) -> None:
        """Finish what this process has queued and let go, by the deadline. A second close does nothing."""
        if self._pid != os.getpid():
            self._engine = None
            self._closed = True
            return
        with self._lock:
            engine, self._engine, self._closed = self._engine, None, True
        if engine is not None and _engines.give_back(engine):
            engine.readers.close()
            engine.writer.close(deadline)

    def _write(self, operation: Callable[[StoreConnection], T], deadline: Deadline, memories_written: int = 1) -> T:
        engine = self._use()
        make_private_folder(self.folder)
        return engine.writer.submit(operation, deadline, memories_written)


class _RestoreSteps:
    """What a restore asks of its store; each step has the caller's whole patience, since copying takes its time."""

    def __init__(self, store: SQLiteStore, wait_s: float) -> None:
        self._store = store
        self._wait_s = wait_s

    def make(self) -> None:
        self._store.open(Deadline.after(self._wait_s))

    def set_aside(self, advance: Advance) -> SetAside | None:
        try:
            return self._store.set_aside(Deadline.after(self._wait_s), advance)
        except StoreSound:
            return None

    def alone(self, operation: Callable[[StoreConnection], T]) -> T:
        return self._store._use().writer.submit_alone(operation, Deadline.after(self._wait_s))

    def write(self, operation: Callable[[StoreConnection], Any]) -> bool:
        """True when the bytes of what was replaced are gone already."""
        return not self._store._use().writer.submit_erasure(operation, Deadline.after(self._wait_s))[1]
