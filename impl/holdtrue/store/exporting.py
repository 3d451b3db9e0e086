"""Exports: one committed state of a store in its portable form, made while others read and write.

Owns: drafts named `.holdtrue-export-...` in the folder of a target, the rows of `copies` for exports. Everything is read in
one read transaction, a page of memories at a time, and written to a local file, so the transaction ends however slow the
reader of a pipe is. Faults it survives: writers at full rate; a kill at any point (the final name is given in one step to
a file that is whole and synced; what a kill leaves under a temporary name goes with the next export to that folder); a
full disk; a name that is taken; a store that nobody may write.

What an export holds a later `forget` must be able to name. So its path is recorded before its state is chosen, and the
record stays in the future until the file is there: whatever is forgotten meanwhile, the record is seen.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.errors import (
    ExtensionUnavailable,
    HoldTrueError,
    StoreFull,
    TargetExists,
    TargetRefused,
)
from holdtrue.records import COUNT_LIMIT, shown_path
from holdtrue.store import schema
from holdtrue.store.connection import StoreConnection
from holdtrue.store.copies import CopyRecord, Note
from holdtrue.store.draft import EXPORT, Advance, drafting
from holdtrue.store.portable import header, iso, line, memory_lines
from holdtrue.store.statements import one, run
from holdtrue.store.vectors import off, readable, recorded_embedder

PAGE = 250
_COPY_BYTES = 1024 * 1024

Snapshot = Callable[[], AbstractContextManager[StoreConnection]]


@dataclass(frozen=True)
class Exported:
    """What an export wrote. `path` is absolute, None for a stream; `recorded` is False where the store could not be
    written, or there is no path: then a later forget cannot name what holds the memory still.
    """

    path: str | None
    memories: int
    tombstones: int
    bytes: int
    seconds: float
    recorded: bool

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": None if self.path is None else shown_path(self.path)}


def export_to_file(
    target: Path,
    snapshot: Snapshot,
    note: Note,
    *,
    own: Callable[[Path], bool],
    replace: bool = False,
    vectors: bool = False,
    progress: Advance | None = None,
) -> Exported:
    """Write the present state to a file of its own, with mode 0600. `own` tells the files of a store.

    Raises `TargetRefused`, `TargetExists` or a `StoreError`; then nothing is under the name that was not there before.
    """
    began_s = time.monotonic()
    _check_target(target, own, replace=replace)
    record = CopyRecord(note, str(target), "export")
    try:
        with drafting(target.parent, EXPORT) as draft:
            record.begin()
            with draft.path.open("wb") as out:
                memories, tombstones = _write_snapshot(snapshot, out, vectors=vectors, progress=progress)
                size = out.tell()
            failpoints.hit("export.before_publish")
            draft.publish(target, replace=replace)
    except BaseException as error:
        record.withdraw()
        if isinstance(error, OSError):
            raise _problem(error, target) from error
        raise
    return Exported(str(target), memories, tombstones, size, _since(began_s), record.end())


def export_to_stream(
    out: BinaryIO, snapshot: Snapshot, *, vectors: bool = False, progress: Advance | None = None
) -> Exported:
    """Write the present state to a stream. It is read to its end first, into a file without a name."""
    began_s = time.monotonic()
    try:
        with tempfile.TemporaryFile() as spool:
            memories, tombstones = _write_snapshot(snapshot, spool, vectors=vectors, progress=progress)
            size = spool.tell()
            spool.seek(0)
            failpoints.hit("export.spooled")
            _copy(spool, out)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _problem(error, Path(tempfile.gettempdir()) / "export") from error
    return Exported(None, memories, tombstones, size, _since(began_s), recorded=False)


def _copy(spool: BinaryIO, out: BinaryIO) -> None:
    """Raises `BrokenPipeError` where the reader has left, `TargetRefused` where the stream takes no more."""
    try:
        shutil.copyfileobj(spool, out, _COPY_BYTES)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TargetRefused(f"The stream takes no more: {error.strerror}.", hint="What it has is cut.") from error


@enforces("INV-024")
def _write_snapshot(snapshot: Snapshot, out: BinaryIO, *, vectors: bool, progress: Advance | None) -> tuple[int, int]:
    """Write one committed state, whole: header, tombstones, memories, end. Returns how many of both."""
    with snapshot() as connection:
        (total,) = run(connection, "SELECT count(*) FROM memories")[0]
        failpoints.hit("export.snapshot")
        embedder = (_readable_vectors(connection) or "") if vectors else ""
        out.write(header(schema.version_of(connection), embedder))
        memories = tombstones = 0
        for page in _tombstones(connection):
            out.write(b"".join(page))
            tombstones += len(page)
        for page in _memories(connection, vectors=bool(embedder)):
            failpoints.hit("export.page")
            out.write(b"".join(page))
            memories += len(page)
            if progress is not None:
                progress(memories, total)
        out.write(line({"end": {"memories": memories, "tombstones": tombstones}}))
        out.flush()
    return memories, tombstones


def _readable_vectors(connection: StoreConnection) -> str | None:
    """The key of the vectors that this connection can read. Raises `ExtensionUnavailable`."""
    if off(connection):
        raise ExtensionUnavailable(off(connection))
    return recorded_embedder(connection) if readable(connection) else None


def _tombstones(connection: StoreConnection) -> Iterator[list[bytes]]:
    last = ""
    while True:
        rows = run(connection, "SELECT id, forgotten_us FROM tombstones WHERE id > ? ORDER BY id LIMIT ?", (last, PAGE))
        if not rows:
            return
        yield [line({"tombstone": {"id": id_, "forgotten_at": iso(moment)}}) for id_, moment in rows]
        last = rows[-1][0]


_MEMORIES = """SELECT m.seq, m.id, m.text, u.name, p.name, s.name, m.speaker, m.at_us, m.valid_from_us, m.created_us,
      m.updated_us, m.metadata, m.source, m.revision
    FROM memories m JOIN names u ON u.id = m.user_id JOIN names p ON p.id = m.project_id
    JOIN names s ON s.id = m.session_id WHERE m.seq > ? ORDER BY m.seq LIMIT ?"""


def _memories(connection: StoreConnection, *, vectors: bool) -> Iterator[list[bytes]]:
    last = 0
    while True:
        rows = run(connection, _MEMORIES, (last, PAGE))
        if not rows:
            return
        span = (rows[0][0], rows[-1][0])
        tags = _below(
            connection, "SELECT memory, tag FROM tags WHERE memory BETWEEN ? AND ? ORDER BY memory, tag", span
        )
        sources = _below(
            connection,
            "SELECT memory, source, times, last_us FROM sources WHERE memory BETWEEN ? AND ? ORDER BY memory, source",
            span,
        )
        keys = _below(
            connection,
            "SELECT memory, key, digest FROM keys WHERE memory BETWEEN ? AND ? ORDER BY memory, key",
            span,
        )
        blobs = _vectors(connection, [row[0] for row in rows]) if vectors else {}
        page = []
        for row in rows:
            seq, texts, times = row[0], row[1:7], row[7:11]
            page.append(
                memory_lines(
                    texts,
                    times,
                    tags=[tag for (tag,) in tags.get(seq, ())],
                    metadata=row[11],
                    source=row[12],
                    revision=row[13],
                    sources=[(name, min(n, COUNT_LIMIT), us) for name, n, us in sources.get(seq, ())],
                    keys=keys.get(seq, ()),
                    revisions=_revisions(connection, seq) if row[13] > 1 else (),
                    vector=blobs.get(seq),
                )
            )
        yield page
        last = span[1]


def _below(connection: StoreConnection, statement: str, span: tuple[int, int]) -> dict[int, list[tuple[Any, ...]]]:
    """The rows that belong to the memories of a span, by memory."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for seq, *rest in run(connection, statement, span):
        found.setdefault(seq, []).append(tuple(rest))
    return found


def _revisions(connection: StoreConnection, seq: int) -> list[tuple[Any, ...]]:
    return run(
        connection, "SELECT revision, text, from_us, until_us FROM revisions WHERE memory = ? ORDER BY revision", (seq,)
    )


def _vectors(connection: StoreConnection, seqs: list[int]) -> dict[int, bytes]:
    stale = {seq for (seq,) in run(connection, "SELECT memory FROM stale_vectors")}
    found = {}
    for seq in seqs:
        # One at a time: vec0 takes three times as long to look a list up.
        row = one(connection, "SELECT embedding FROM memories_vec WHERE rowid = ?", (seq,))
        if row is not None and seq not in stale:
            found[seq] = bytes(row[0])
    return found


def _check_target(target: Path, own: Callable[[Path], bool], *, replace: bool) -> None:
    """Raises `TargetRefused` or `TargetExists` where no export may go."""
    if own(target):
        raise TargetRefused(f"{target} is a file of a store itself.", hint="Name another file.")
    if not target.parent.is_dir():
        raise TargetRefused(f"There is no folder {target.parent}.", hint="Make it first, or name another path.")
    if not os.path.lexists(target):
        return
    try:
        mode = target.stat().st_mode
    except OSError:
        mode = stat.S_IFREG  # a link that leads nowhere is a name that is taken
    if not stat.S_ISREG(mode):
        raise TargetRefused(
            f"{target} is no ordinary file.", hint="Name a file, or write to standard output with a single dash."
        )
    if not replace:
        raise _taken(target)


def _taken(target: Path) -> TargetExists:
    return TargetExists(f"{target} is there already.", path=str(target))


def _problem(error: OSError, target: Path) -> HoldTrueError:
    """What an error of the system means for the export."""
    if isinstance(error, FileExistsError):
        return _taken(target)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"The disk that holds {target.parent} is full.",
            hint="No export was made. Free space there, or name a path on another disk.",
        )
    return TargetRefused(
        f"{target} cannot be written: {error.strerror}.", hint="No export was made. Name another path."
    )


def _since(began_s: float) -> float:
    return round(time.monotonic() - began_s, 3)
