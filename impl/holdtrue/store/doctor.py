"""The examination of a store: a list of checks, each made as far as the damage lets it. Changes nothing.

Owns: which checks there are and what each one advises. Faults it survives: any damage of the store, since every check
stands alone: one that cannot be made says so, and the others go on; writers that go on meanwhile, since all checks of rows
look at one committed state. What a check cannot tell is "unknown", never "ok".
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import apsw

from holdtrue import filesystem
from holdtrue.clock import now_us
from holdtrue.errors import (
    ExtensionUnavailable,
    HoldTrueError,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreTooNew,
    StoreUnusable,
)
from holdtrue.records import shown_path
from holdtrue.store import checkpoint, damage, derived, draft, frozen, restore, schema, vectors
from holdtrue.store.connection import DATABASE_NAME, StoreConnection, open_connection, store_error
from holdtrue.store.copies import recorded, recorded_as
from holdtrue.store.draft import Advance
from holdtrue.store.erase import BACKUPS, KEPT_ASIDE
from holdtrue.store.statements import one, run

State = Literal["ok", "degraded", "damaged", "unknown"]
OK: Final = "ok"
DEGRADED: Final = "degraded"
DAMAGED: Final = "damaged"
UNKNOWN: Final = "unknown"

_SHOWN = 5
_LOW_SPACE_BYTES = 64 * 1024 * 1024
# Temporary names of our own: drafts and their locks, files on their way into place, copies that were never finished.
_DRAFT = re.compile(draft.pattern(*draft.STEMS))
_LEFTOVER = re.compile(
    rf"{_DRAFT.pattern}|\..+\.[0-9]+-[0-9a-f]{{16}}\.tmp|[0-9]{{8}}T[0-9]{{6}}Z-[0-9a-f]{{8}}\.partial"
)
_NEED_NO_TABLE = frozenset({"sqlite-vec", "schema", "integrity", "log"})
_SIDE_FILES = ("", "-wal", "-shm", "-journal")
_REBUILD = "`holdtrue doctor --rebuild"
SET_ASIDE = "`holdtrue doctor --set-aside` keeps the file and brings over what can still be read; or restore a backup."


@dataclass(frozen=True)
class Check:
    """One check: what it found, as a sentence, and what to do about it where something is to be done."""

    name: str
    state: State
    says: str
    advice: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "says": self.says, "advice": self.advice, **self.details}


@dataclass(frozen=True)
class Diagnosis:
    """Every check that was made, and the whole: damaged if anything is, degraded if anything is or cannot be told."""

    checks: tuple[Check, ...]

    @property
    def state(self) -> State:
        states = {check.state for check in self.checks}
        if DAMAGED in states:
            return DAMAGED
        return DEGRADED if states - {OK} else OK

    def as_dict(self) -> dict[str, Any]:
        return {"state": self.state, "checks": [check.as_dict() for check in self.checks]}


Answer = Check | tuple[State, str] | tuple[State, str, str]


class Examination:
    """One look at a store, in one read transaction of a connection of its own: FTS5 keeps what a connection has read of an
    index, and takes it for damage when somebody has written since.
    """

    def __init__(self, folder: Path, wal_limit_bytes: int) -> None:
        self.folder = folder
        much_bytes, full_bytes = 2 * checkpoint.CHECKPOINT_BYTES, checkpoint.full_bytes(wal_limit_bytes)
        self._much_bytes = (
            much_bytes if full_bytes is None else min(much_bytes, full_bytes)
        )  # the log is long from here on
        self._connection: StoreConnection | None = None
        self._closed_because = "it could not be opened"

    def run(self, advance: Advance) -> list[Check]:
        """Make every check, in order. `advance` is told how many are done and how many there are.

        Raises `StoreTooNew`, or `StoreUnusable` for another program's database: what is no store of ours is not examined.
        """
        checks: list[tuple[str, Callable[[], list[Check]]]] = [
            *((name, self._alone(name, look)) for name, look in self._of_files()),
            ("opening", self._opening),
            *((name, self._within(name, look)) for name, look in self._of_rows()),
            *((name, self._alone(name, look)) for name, look in self._of_other_files()),
        ]
        made: list[Check] = []
        try:
            for number, (_, check) in enumerate(checks):
                advance(number, len(checks))
                made += check()
            advance(len(checks), len(checks))
        finally:
            if self._connection is not None:
                self._connection.close()
        if any(check.name == "integrity" and check.state == DAMAGED for check in made):
            # Nothing can be rebuilt in a file that is damaged itself, and what takes its place is derived anew.
            made = [replace(check, advice="") if check.advice.startswith(_REBUILD) else check for check in made]
        return made

    def _of_files(self) -> list[tuple[str, Callable[[], Answer]]]:
        return [
            ("permissions", self._permissions),
            ("file system", self._file_system),
            ("space", self._space),
            ("SQLite", _sqlite),
        ]

    def _of_rows(self) -> list[tuple[str, Callable[[StoreConnection], Answer]]]:
        return [
            ("sqlite-vec", _sqlite_vec),
            ("schema", _schema),
            ("integrity", _integrity),
            ("references", _references),
            *((f"derived: {entry.short}", _derived(entry)) for entry in derived.REGISTRY),
            ("vectors awaited", _pending),
            ("log", self._log),
            ("erasures", _erasures),
            ("forgotten", _forgotten),
            ("names", _names),
        ]

    def _of_other_files(self) -> list[tuple[str, Callable[[], Answer]]]:
        return [("backups", self._backups), ("leftovers", self._leftovers), ("kept aside", self._kept_aside)]

    # -- how a check is made -------------------------------------------------------------------------------------------

    def _alone(self, name: str, look: Callable[[], Answer]) -> Callable[[], list[Check]]:
        def check() -> list[Check]:
            try:
                return [_named(name, look())]
            except (OSError, HoldTrueError) as error:
                return [Check(name, UNKNOWN, f"This could not be looked at: {error}.")]

        return check

    def _within(self, name: str, look: Callable[[StoreConnection], Answer]) -> Callable[[], list[Check]]:
        def check() -> list[Check]:
            connection = self._connection
            if connection is None:
                return [Check(name, UNKNOWN, f"This could not be looked at: {self._closed_because}.")]
            try:
                if name not in _NEED_NO_TABLE and schema.version_of(connection) == 0:
                    return [Check(name, UNKNOWN, "This could not be looked at: the store is not set up yet.")]
                try:
                    answer = _named(name, look(connection))
                finally:
                    connection.check_unchanged()  # read without locks, it counts only if nobody wrote meanwhile
                return [answer]
            except (apsw.CorruptError, apsw.NotADBError, UnicodeError) as error:
                return [Check(name, DAMAGED, f"What this looks at cannot be read: {error}.", SET_ASIDE)]
            except (apsw.Error, OSError, HoldTrueError) as error:
                told = store_error(error, self.folder)
                return [Check(name, UNKNOWN, f"This could not be looked at: {told.message}", told.hint)]

        return check

    def _opening(self) -> list[Check]:
        try:
            connection = open_connection(self.folder, write=False)
            self._connection = connection
            run(connection, "BEGIN")
        except StoreCorrupt as error:
            self._closed_because = "the file is damaged"
            return [Check("opening", DAMAGED, error.message, SET_ASIDE)]
        except (StoreTooNew, StoreUnusable):
            raise
        except (StoreError, apsw.Error) as error:
            self._closed_because = "the store could not be opened"
            told = store_error(error, self.folder)
            return [Check("opening", UNKNOWN, told.message, told.hint)]
        if connection.frozen is not None or not frozen.writable(connection.path):
            says = "The store opens for reading only: this user cannot write there, so nothing new is remembered."
            return [Check("opening", DEGRADED, says, StoreReadOnly.default_hint)]
        return [Check("opening", OK, "The store opens.")]

    # -- files ---------------------------------------------------------------------------------------------------------

    def _permissions(self) -> Answer:
        paths = [self.folder, self.folder / BACKUPS, self.folder / KEPT_ASIDE, *_files(self.folder, "turn.*")]
        paths += [Path(f"{self.folder / DATABASE_NAME}{side}") for side in _SIDE_FILES]
        paths += [*_files(self.folder / BACKUPS, "*"), *_files(self.folder / KEPT_ASIDE, "**/*")]
        open_to_others = []
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                if stat.S_IMODE(path.stat().st_mode) & 0o077:
                    open_to_others.append(str(path))
        if not open_to_others:
            return OK, "Only this user can read the folder and its files."
        behind = stat.S_IMODE(self.folder.stat().st_mode) & 0o077 == 0
        if behind:
            return OK, f"{_counted(len(open_to_others), 'file')} would let others in; the folder does not."
        return Check(
            "",
            DEGRADED,
            f"Other users may read {_some(open_to_others)}.",
            f"Run `chmod -R go= '{self.folder}'`.",
            {"paths": open_to_others[:100]},
        )

    def _file_system(self) -> Answer:
        kind = filesystem.kind(self.folder)
        if filesystem.is_network(kind):
            return (
                DEGRADED,
                f"The folder lies on {kind}, which other machines may see.",
                "Put the store on a local disk.",
            )
        if kind == filesystem.UNKNOWN:
            return OK, "The kind of file system cannot be told here; keep the store on a local disk."
        return OK, f"The folder lies on {kind}, a local file system."

    def _space(self) -> Answer:
        free = filesystem.free_bytes(self.folder)
        if free is None:
            return OK, "The room on this disk cannot be told here."
        wanted = max(_LOW_SPACE_BYTES, 2 * _size(self.folder / DATABASE_NAME))
        if free < wanted:
            return DEGRADED, f"{_bytes(free)} are free.", f"Make room: at least {_bytes(wanted)} let a backup be made."
        return OK, f"{_bytes(free)} are free."

    def _log(self, connection: StoreConnection) -> Answer:
        size = connection.wal_bytes()
        readers = _readers_of(Path(f"{connection.path}-shm"))
        details = {"bytes": size, "readers": readers}
        held = f" Processes that read an older state now: {', '.join(map(str, readers))}." if readers else ""
        if size >= self._much_bytes and readers:
            advice = "End those processes if they have hung; writers wait when the log is full."
            return Check("", DEGRADED, f"The log has {_bytes(size)} and a reader may pin it.{held}", advice, details)
        return Check("", OK, f"The log has {_bytes(size)}.{held}", "", details)

    def _backups(self) -> Answer:
        found = sorted(_files(self.folder / BACKUPS, "*.db"), key=lambda path: path.stat().st_mtime)
        listed = [{"path": str(path), "bytes": _size(path), "age_days": _age_days(path)} for path in found]
        if not found:
            return Check(
                "", OK, "There is no backup in the store's folder.", "`holdtrue backup` makes one.", {"files": []}
            )
        says = f"{_counted(len(found), 'backup')}, the newest {_age(found[-1])} old, the oldest {_age(found[0])}."
        useless = [problem for path in found if (problem := self._problem_of(path))]
        if useless:
            says = f"{says} {_some(useless)}"
            return Check(
                "", DEGRADED, says, "Remove what cannot be restored; `holdtrue backup` makes one.", {"files": listed}
            )
        recorded = self._unverified()
        doubtful = [shown_path(str(path)) for path in found if recorded_as(str(path)) in recorded]
        if doubtful:
            says = f"{says} Not verified, for the state before a restore was damaged: {_some(doubtful)}."
            return Check(
                "",
                OK,
                says,
                "Restore another one; remove it when nothing of it is missed.",
                {"files": listed, "unverified": doubtful},
            )
        return Check("", OK, says, "", {"files": listed})

    def _problem_of(self, backup: Path) -> str:
        """Why a backup cannot be restored, as far as its first page and its length tell: reading it whole takes long."""
        try:
            restore.check_given(self.folder, backup)
        except HoldTrueError as error:
            return error.message
        return ""

    def _unverified(self) -> set[str]:
        """The backups that the store has recorded as such; none where it cannot be read."""
        if self._connection is None:
            return set()
        try:
            rows = run(self._connection, "SELECT path FROM copies WHERE kind = ?", (restore.UNVERIFIED,))
        except apsw.Error:
            return set()
        return {str(path) for (path,) in rows}

    def _leftovers(self) -> Answer:
        own = (self.folder, self.folder / BACKUPS, self.folder / KEPT_ASIDE)
        left = [path for place in own for path in _listed(place) if _LEFTOVER.fullmatch(path.name)]
        elsewhere = self._copied_to()
        for place in sorted(set(elsewhere or ()) - set(own)):
            left += [path for path in _listed(place) if _DRAFT.fullmatch(path.name)]
        if not left and elsewhere is None:
            says = (
                "The store's folder holds nothing of runs that were killed. Where else it was copied to cannot be read."
            )
            return UNKNOWN, says
        if not left:
            return OK, "Nothing is left of runs that were killed."
        names = [shown_path(str(path)) for path in left]
        says = f"{_counted(len(left), 'temporary file')} of a run that is under way or was killed: {_some(names)}."
        advice = "If no backup, export, restore, import or doctor is running, remove them: nothing needs them."
        return Check("", DEGRADED, says, advice, {"paths": names})

    def _copied_to(self) -> list[Path] | None:
        """The folders that backups and exports went to; None where their records cannot be read."""
        if self._connection is None:
            return None
        try:
            return [Path(copy.path).parent for copy in recorded(self._connection)]
        except (apsw.Error, UnicodeError):
            return None

    def _kept_aside(self) -> Answer:
        found = [path for path in _listed(self.folder / KEPT_ASIDE) if not _LEFTOVER.fullmatch(path.name)]
        if not found:
            return OK, "Nothing was kept aside."
        listed = [
            {"path": str(path), "bytes": sum(map(_size, _files(path, "*"))), "age_days": _age_days(path)}
            for path in found
        ]
        says = f"The bytes of {_counted(len(found), 'damaged store')} are kept aside, the oldest {_age(found[0])} old."
        advice = "They may hold what is forgotten since. Remove a folder when nothing of it is missed."
        return Check("", OK, says, advice, {"folders": listed})


def examine(folder: Path, wal_limit_bytes: int, advance: Advance) -> list[Check]:
    """Every check of a store that is there, or whose log is. Raises nothing that damage could cause; `StoreTooNew` or
    `StoreUnusable` for a database that is no store of ours.
    """
    return Examination(folder, wal_limit_bytes).run(advance)


# -- what is asked of the rows -----------------------------------------------------------------------------------------


def _sqlite() -> Answer:
    version = apsw.sqlite_lib_version()
    if checkpoint.wal_reset_defect():
        return (
            DEGRADED,
            f"SQLite {version} can lose commits when the log is reset; the store works round it.",
            "Upgrade it: `pip install --upgrade apsw`.",
        )
    return OK, f"SQLite {version}, without the WAL-reset defect."


def _sqlite_vec(connection: StoreConnection) -> Answer:
    if vectors.off(connection):
        return DEGRADED, f"Vectors are off: {vectors.off(connection)}", ExtensionUnavailable.default_hint
    return OK, f"sqlite-vec {run(connection, 'SELECT vec_version()')[0][0]} is loaded."


def _schema(connection: StoreConnection) -> Answer:
    version = schema.version_of(connection)
    if version < schema.VERSION:
        return (
            DEGRADED,
            f"The schema has version {version}; this program brings it to {schema.VERSION} at the next use.",
            "Run `holdtrue status`.",
        )
    return OK, f"The schema has version {version}."


def _integrity(connection: StoreConnection) -> Answer:
    found = damage.of_connection(connection)
    if found:
        return Check("", DAMAGED, f"SQLite finds the file damaged: {_some(found)}.", SET_ASIDE, {"findings": found})
    return OK, "SQLite finds every page and index sound."


def _references(connection: StoreConnection) -> Answer:
    tables = sorted({str(row[0]) for row in run(connection, "PRAGMA foreign_key_check")})
    if tables:
        return DAMAGED, f"Rows of {', '.join(tables)} belong to memories that are gone.", SET_ASIDE
    return OK, "Every row belongs to a memory that is there."


def _derived(entry: derived.Derived) -> Callable[[StoreConnection], Answer]:
    def look(connection: StoreConnection) -> Answer:
        if schema.version_of(connection) < schema.VERSION:
            return UNKNOWN, "This could not be looked at: the schema is an older one."
        if entry.needs_model and vectors.off(connection):
            return UNKNOWN, f"This could not be looked at: {vectors.off(connection)}"
        advice = f"{_REBUILD} {entry.short}` makes it anew."
        broken = derived.unreadable(connection, entry)
        if broken:
            return DAMAGED, f"The {entry.name} cannot be read: {broken}", advice
        disagreements = list(entry.verify(connection))
        if disagreements:
            count = _counted(len(disagreements), "time")
            says = f"The {entry.name} and the texts disagree {count}: {_some(disagreements)}."
            return Check("", DAMAGED, says, advice, {"findings": disagreements[:100]})
        return OK, f"The {entry.name} and the texts agree."

    return look


def _pending(connection: StoreConnection) -> Answer:
    count = _count(connection, "pending_vectors")
    if count:
        says = f"{_memories(count)} wait for a vector and are found by words alone."
        return Check("", DEGRADED, says, f"{_REBUILD} vectors` makes them.", {"count": count})
    return OK, "No memory waits for a vector."


def _erasures(connection: StoreConnection) -> Answer:
    row = one(connection, "SELECT count(*), min(since_us) FROM erasures")
    assert row is not None
    if row[0]:
        age = _duration((now_us() - row[1]) / 1e6)
        return (
            DEGRADED,
            f"Bytes of {_memories(row[0])} that were forgotten are still to be erased, since {age}.",
            "The next write does it, unless a reader of an older state pins the log.",
        )
    return OK, "Nothing forgotten waits to be erased."


def _forgotten(connection: StoreConnection) -> Answer:
    there = [id_ for (id_,) in run(connection, "SELECT id FROM memories WHERE id IN (SELECT id FROM tombstones)")]
    if there:
        says = f"{_memories(len(there))} that were forgotten are there: {_some(there)}."
        return Check("", DAMAGED, says, "Forget them again: `holdtrue forget ID`.", {"ids": there[:100]})
    return OK, f"None of {_count(connection, 'tombstones')} forgotten memories is there."


def _names(connection: StoreConnection) -> Answer:
    rows = run(
        connection,
        """SELECT count(*) FROM names WHERE id NOT IN (SELECT user_id FROM memories)
           AND id NOT IN (SELECT project_id FROM memories) AND id NOT IN (SELECT session_id FROM memories)""",
    )
    (count,) = rows[0]
    total = _count(connection, "names")
    if count:
        return OK, f"{count} of {total} names of users, projects and sessions belong to no memory any more."
    return OK, f"Each of {total} names of users, projects and sessions has a memory."


# -- words -------------------------------------------------------------------------------------------------------------


def _named(name: str, answer: Answer) -> Check:
    if isinstance(answer, Check):
        return Check(name, answer.state, answer.says, answer.advice, answer.details)
    return Check(name, *answer)


def _count(connection: apsw.Connection, table: str) -> int:
    return int(run(connection, f"SELECT count(*) FROM {table}")[0][0])


def _some(items: list[str]) -> str:
    rest = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return "; ".join(" ".join(item.split())[:200] for item in items[:_SHOWN]) + rest


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _memories(count: int) -> str:
    return "1 memory" if count == 1 else f"{count:,} memories"


def _bytes(count: int) -> str:
    return f"{count:,} bytes" if count < 10_000 else f"{count / 2**20:,.1f} MiB"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _listed(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except OSError:
        return []


def _files(place: Path, pattern: str) -> list[Path]:
    try:
        return [path for path in sorted(place.glob(pattern)) if path.is_file()]
    except OSError:
        return []


def _age_days(path: Path) -> float:
    return round(max(0.0, dt.datetime.now(dt.UTC).timestamp() - path.stat().st_mtime) / 86_400, 2)


def _age(path: Path) -> str:
    return _duration(_age_days(path) * 86_400)


def _duration(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return _counted(int(seconds // length), unit)
    return "less than a minute"


def _readers_of(shared_memory: Path) -> list[int]:
    """The processes that hold a snapshot of the WAL now, as Linux tells it; none where it tells nothing.

    A snapshot is a shared lock on one of the read marks, bytes 123 to 127 of the WAL's index; this process' own marks are
    left out. https://www.sqlite.org/walformat.html, section 2.3
    """
    try:
        found = shared_memory.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    return sorted(set(_holders(lines, found.st_ino)) - {os.getpid()})


def _holders(lines: list[str], inode: int) -> Iterator[int]:
    for line in lines:
        parts = line.split()
        if len(parts) == 8 and parts[1] == "POSIX" and parts[3] == "READ" and parts[5].endswith(f":{inode}"):
            first, last = parts[6], parts[7]
            if first.isdigit() and last.isdigit() and int(last) >= 123 and int(first) <= 127:
                yield int(parts[4])
