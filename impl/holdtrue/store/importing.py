"""Imports: a file of records on its way into a store.

Owns: the reading of a file from its first line to its last, the batches it is cut into, the receipt. Faults it survives:
whatever `jsonlines` survives, each with its line number while every good record is imported; a record of a known kind with
a bad field; a file that was cut, which is said; a kill (the batches that were placed stay, and running the import again
finishes it). The file is only read. One batch is read and given its vectors while the one before it is placed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from holdtrue.enforces import enforces
from holdtrue.errors import HoldTrueError, InvalidInput, SourceUnreadable
from holdtrue.masking import mask_values
from holdtrue.records import shown_path
from holdtrue.store import jsonlines
from holdtrue.store.draft import Advance
from holdtrue.store.jsonlines import Unreadable
from holdtrue.store.placement import COUNTS, Arrival, Placed
from holdtrue.store.portable import End, Header, More, Portable, Tombstone, parts
from holdtrue.store.vectors import Vector

BATCH_RECORDS = 1_000  # one batch is one transaction, and everybody else's writes wait for it
BATCH_CHARACTERS = 500_000
SHOWN = 100

_UNTOLD = "what of it is left could not be told: `holdtrue status` tells it"

_POLL_S = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class Told:
    """Something to be told about a line of the file."""

    line: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return {"line": self.line, "reason": self.reason}


@dataclass(frozen=True)
class Imported:
    """What an import did.

    `added` memories are new here, `updated` ones went on where they ended here, `known` ones were here as they are or
    newer, `merged` ones gave their sources to the memory that had their text already, `forgotten` ones were left out
    because they were forgotten here, `removed` ones were here and the file says they were forgotten. Of these `erased`,
    `waiting_for` and `remains` tell what `Forgotten` tells of one; without any, `erased` is True. `conflicts` and `bad`
    show the first 100 of `conflict_count` and `bad_count`. `complete` is False for a file that was cut. `put_off` memories
    wait for a vector, and `degraded` says why.
    """

    added: int = 0
    updated: int = 0
    known: int = 0
    merged: int = 0
    forgotten: int = 0
    removed: int = 0
    put_off: int = 0
    conflict_count: int = 0
    conflicts: tuple[Told, ...] = ()
    bad_count: int = 0
    bad: tuple[Told, ...] = ()
    complete: bool = True
    degraded: tuple[str, ...] = ()
    erased: bool = True
    waiting_for: tuple[str, ...] = ()
    remains: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        answer = dict(vars(self))
        for name in ("conflicts", "bad"):
            answer[name] = [told.as_dict() for told in answer[name]]
        remains = [shown_path(path) for path in self.remains]
        return {**answer, "degraded": list(self.degraded), "waiting_for": list(self.waiting_for), "remains": remains}


@dataclass(slots=True)
class Batch:
    """Some records in the order of the file. `bytes_read` is where it ends, about; `embedder` made the file's vectors."""

    items: list[Arrival | Tombstone] = field(default_factory=list)
    embedder: str = ""
    bytes_read: int = 0


@dataclass
class _Notes:
    """What was told of lines: the first ones, and how many there were."""

    count: int = 0
    first: list[Told] = field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(Told(line, reason))


class Reading:
    """One pass over a file of records."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bad = _Notes()
        self.complete = True
        self.embedder = ""
        self._open: Portable | None = None  # a memory that waits for its further lines
        self._open_line = 0
        self._in_export = False
        self._expected = 0  # records since the header that were read or refused

    def batches(self) -> Iterator[Batch]:
        """The good records, as batches. What is bad is noted. Raises `ExportTooNew`, `SourceUnreadable`."""
        batch, characters, done = Batch(), 0, 0
        for line, part, done in self._parts():
            if isinstance(part, Tombstone):
                batch.items.append(part)
            else:
                batch.items.append(Arrival(line, part))
                characters += len(part.memory.text) + sum(len(text) for _, text, *_ in part.revisions)
            if len(batch.items) >= BATCH_RECORDS or characters >= BATCH_CHARACTERS:
                batch.embedder, batch.bytes_read = self.embedder, done
                yield batch
                batch, characters = Batch(), 0
        if batch.items:
            batch.embedder, batch.bytes_read = self.embedder, done
            yield batch

    def _parts(self) -> Iterator[tuple[int, Portable | Tombstone, int]]:
        """Line, record, and how many bytes were read."""
        done = 0
        for line in self._lines():
            if line.data is None:
                self._refuse(line.number, f"the line is longer than {jsonlines.LINE_LIMIT_BYTES:,} bytes")
                continue
            done += len(line.data)
            for value in jsonlines.values(line.data):
                if isinstance(value, Unreadable):
                    self._refuse(line.number, value.reason)
                    self.complete = self.complete and not (value.cut and not line.ended)
                    continue
                for part in parts(value):
                    if isinstance(part, Portable) and not part.more and self._open is None:
                        self._expected += 1
                        if self._is_whole(line.number, part):
                            yield line.number, part, done
                        continue
                    for record in self._took(line.number, part):
                        yield line.number, record, done
        self._close_memory()
        if self._in_export:
            self.complete = False

    def _lines(self) -> Iterator[jsonlines.Line]:
        try:
            yield from jsonlines.lines(self._file)
        except (OSError, ValueError) as error:  # a closed file is a ValueError
            raise SourceUnreadable(f"The file cannot be read on: {error}.") from error

    def _took(self, line: int, part: object) -> Iterator[Portable | Tombstone]:
        """What a part of the file makes ready to be placed."""
        if isinstance(part, More):
            yield from self._continue(line, part)
            return
        self._close_memory()
        if isinstance(part, InvalidInput):
            self._refuse(line, part.message)
        elif isinstance(part, Header):
            self.complete = self.complete and not self._in_export
            self._in_export, self._expected, self.embedder = True, 0, part.embedder
        elif isinstance(part, End):
            self._end(line, part)
        elif isinstance(part, Tombstone):
            self._expected += 1
            yield part
        elif isinstance(part, Portable):
            self._expected += 1
            if part.more:
                self._open, self._open_line = part, line
            else:
                yield from [part] if self._is_whole(line, part) else []

    def _continue(self, line: int, more: More) -> Iterator[Portable]:
        memory = self._open
        if memory is None or memory.id != more.id:
            self._refuse(line, "the record continues a memory that does not stand before it")
            return
        memory.sources += more.sources
        memory.keys += more.keys
        memory.revisions += more.revisions
        memory.more -= 1
        if not memory.more:
            self._open = None
            yield from [memory] if self._is_whole(self._open_line, memory) else []

    def _is_whole(self, line: int, memory: Portable) -> bool:
        problem = memory.problem()
        if problem:
            self.bad.add(line, problem)
        return not problem

    def _close_memory(self) -> None:
        """Give up a memory whose further lines did not come."""
        if self._open is not None:
            self._open = None
            self.bad.add(self._open_line, "the further lines of the memory are missing")

    def _end(self, line: int, end: End) -> None:
        if not self._in_export:
            self._refuse(line, "the record ends an export that did not begin")
            return
        self._in_export = False
        missing = end.memories + end.tombstones - self._expected
        if missing > 0:
            self.complete = False
            self.bad.add(line, f"{missing:,} of the records that the file should hold are missing")

    def _refuse(self, line: int, reason: str) -> None:
        self._expected += 1
        self.bad.add(line, reason)


Embed = Callable[[Sequence[str]], Sequence[Vector | None]]
Held = Callable[[Sequence[str]], Mapping[str, int]]
Place = Callable[[Sequence[Arrival | Tombstone]], Placed]
# What the erasure of memories stored since a moment waits for, and the files that may hold them.
Left = Callable[[int], tuple[tuple[str, ...], tuple[str, ...]]]


@enforces("INV-024")
def import_all(
    file: BinaryIO,
    *,
    embed: Embed,
    held: Held,
    place: Place,
    left: Left,
    space: Callable[[], str],
    total_bytes: int | None = None,
    progress: Advance | None = None,
) -> Imported:
    """Place every good record of a file.

    `embed` makes vectors; `space` names the embedder whose vectors the store takes; `held` tells the revisions at which
    memories are here already; `place` puts a batch into the store and returns once it is durable; `left` tells what is left
    of what was forgotten here. Raises `ExportTooNew`,
    `SourceUnreadable`, or what `place` raises; what was placed before stays, and `details["imported"]` of the error is the
    receipt of it.
    """
    reading = Reading(file)
    sums = dict.fromkeys(COUNTS, 0)
    conflicts = _Notes()

    def ready() -> Iterator[Batch]:
        for batch in reading.batches():
            _give_vectors(batch, embed, held, space)
            yield batch

    oldest: int | None = None

    def receipt(complete: bool, waiting_for: tuple[str, ...], remains: tuple[str, ...]) -> Imported:
        return Imported(
            added=sums["added"],
            updated=sums["updated"],
            known=sums["known"],
            merged=sums["merged"],
            forgotten=sums["forgotten"],
            removed=sums["removed"],
            put_off=sums["put_off"],
            conflict_count=conflicts.count,
            conflicts=tuple(conflicts.first),
            bad_count=reading.bad.count,
            bad=tuple(reading.bad.first),
            complete=complete,
            erased=not waiting_for,
            waiting_for=waiting_for,
            remains=remains,
        )

    def so_far(error: HoldTrueError) -> HoldTrueError:
        """The error that ends the import, with what had been done until then."""
        waiting_for: tuple[str, ...] = ()
        remains: tuple[str, ...] = ()
        if oldest is not None:
            try:
                waiting_for, remains = left(oldest)
            except HoldTrueError:
                waiting_for = (_UNTOLD,)
        done = receipt(False, waiting_for, remains)
        error.details["imported"] = mask_values(done.as_dict())
        hint = error.hint.replace("Nothing was stored", "Nothing more was stored")
        counts = f"{done.added:,} added, {done.updated:,} updated, {done.removed:,} forgotten"
        error.hint = f"{hint} What was imported before ({counts}) stays: run the import again to finish it.".strip()
        return error

    placed_any = False
    try:
        with contextlib.closing(_ahead(ready())) as batches:
            for batch in batches:
                placed = place(batch.items)
                placed_any = True
                for name in COUNTS:
                    sums[name] += getattr(placed, name)
                if placed.oldest is not None:
                    oldest = placed.oldest if oldest is None else min(oldest, placed.oldest)
                for line, reason in placed.conflicts:
                    conflicts.add(line, reason)
                if progress is not None:
                    progress(batch.bytes_read, total_bytes)
        waiting_for, remains = left(oldest) if oldest is not None else ((), ())
    except HoldTrueError as error:
        if placed_any:
            raise so_far(error) from error.__cause__
        raise
    return receipt(reading.complete, waiting_for, remains)


def _give_vectors(batch: Batch, embed: Embed, held: Held, space: Callable[[], str]) -> None:
    """Give each memory of a batch its vector: that of the file where it is of the store's space, else a new one."""
    arrivals = [item for item in batch.items if isinstance(item, Arrival)]
    if not arrivals:
        return
    if batch.embedder and batch.embedder == space():
        for arrival in arrivals:
            vector = arrival.record.vector and Vector(batch.embedder, arrival.record.vector)
            arrival.vector = vector if vector and vector.usable else None
    here = held([arrival.record.id for arrival in arrivals])
    # What is here already needs none; should it be gone when it is placed, its vector follows like any other.
    wanting = [
        arrival
        for arrival in arrivals
        if arrival.vector is None and here.get(arrival.record.id, 0) < arrival.record.revision
    ]
    for arrival, made in zip(wanting, embed([one.record.memory.text for one in wanting]), strict=True):
        arrival.vector = made


def open_source(path: Path) -> BinaryIO:
    """Open a file to be imported. Raises `SourceUnreadable`."""
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceUnreadable(f"{path} cannot be read: {error.strerror}.") from error


def size_of(file: BinaryIO) -> int | None:
    """The size of a file in bytes; None for a pipe."""
    try:
        return os.fstat(file.fileno()).st_size or None
    except (OSError, ValueError, AttributeError):
        return None


def _ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """The items, each made by a thread of its own while the one before is dealt with."""
    made: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(maxsize=1)
    left = threading.Event()

    def hand_over(entry: tuple[T | None, BaseException | None]) -> bool:
        while not left.is_set():
            try:
                made.put(entry, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        failure: BaseException | None = None
        try:
            for item in items:
                if not hand_over((item, None)):
                    return
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the items
            failure = error
        hand_over((None, failure))

    # A daemon: a read from a terminal that nobody answers must not keep the process.
    threading.Thread(target=make, name="holdtrue-import", daemon=True).start()
    try:
        while True:
            item, failure = made.get()
            if failure is not None:
                raise failure
            if item is None:
                return
            yield item
    finally:
        left.set()
