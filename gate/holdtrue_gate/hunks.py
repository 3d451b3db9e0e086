"""The hunks between two versions of files, from their bytes alone; any set of them can be taken back, exactly.

No git runs here, so no setting, attribute or filter of anybody decides what a hunk is: lines end at LF and nowhere else, a
carriage return belongs to its line, and a last line without LF is another line than one with it. A file that holds a NUL
byte, a link or a submodule is one hunk as a whole; so are an added and a deleted file, a change of the mode, and the move
of a file.

Taking back every hunk gives the parent's bytes, none the head's; whatever is between is the head's text with the chosen
places as the parent had them.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

LINK_MODE = "120000"
MODULE_MODE = "160000"

# Share of common bytes from which a removed and an added file are one that moved, as in git (diffcore-rename).
RENAME_SHARE = 0.5
# Past this many comparisons only files with the very same bytes are seen as moved.
MAX_RENAME_PAIRS = 40_000
# Past this product of line counts, lines that occur very often are no anchors (difflib's autojunk): it would take minutes.
MAX_EXACT_CELLS = 60_000_000


@dataclass(frozen=True)
class Version:
    """A file as a commit has it: git's mode, and its bytes (of a link, what it points to; of a submodule, its commit)."""

    mode: str
    data: bytes

    @property
    def is_text(self) -> bool:
        """Whether it is compared line by line."""
        return self.mode not in (LINK_MODE, MODULE_MODE) and b"\0" not in self.data


Tree = Mapping[str, Version]


class HunkKind(StrEnum):
    """What a hunk takes back."""

    LINES = "lines"
    ADDED = "added-file"
    DELETED = "deleted-file"
    RENAMED = "renamed-file"
    CONTENT = "content"
    MODE = "mode"


@dataclass(frozen=True)
class Hunk:
    """One change that can be taken back by itself.

    `file` is the path at the head (of a deleted file, at the parent), `old_file` the one at the parent. Ranges are
    (first line, lines), 1-based; with no lines, `first` is the line before which the others stood.
    """

    number: int
    kind: HunkKind
    file: str
    old_file: str
    head: tuple[int, int] = (1, 0)
    parent: tuple[int, int] = (1, 0)
    new_lines: tuple[bytes, ...] = ()
    old_lines: tuple[bytes, ...] = ()

    @property
    def id(self) -> str:
        """Its name in a report: H1, H2, ..."""
        return f"H{self.number}"

    @property
    def digest(self) -> str:
        """A fingerprint of what it changes, not of where: it survives changes above it."""
        parts = (
            self.kind.encode(),
            self.file.encode("utf-8", "surrogateescape"),
            *self.old_lines,
            b"",
            *self.new_lines,
        )
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def distance(self, other: Hunk) -> int:
        """Lines between two hunks of one file."""
        first, second = sorted((self, other), key=lambda hunk: hunk.head)
        return max(0, second.head[0] - first.head[0] - first.head[1])


@dataclass(frozen=True)
class _Slot:
    """One file on both sides, with its hunks."""

    old_path: str | None
    new_path: str | None
    old: Version | None
    new: Version | None
    hunks: tuple[Hunk, ...]


def lines_of(data: bytes) -> list[bytes]:
    """The lines with their ends; only LF ends one."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


# --- lines


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _settled(lines: Sequence[bytes], first: int, last: int, low: int, high: int) -> int:
    """How far to move a block of added (or removed) lines, so that it begins with the outermost line it can, after a blank
    one.

    `lines[first:last]` may slide within [low, high) as long as the line that enters equals the one that leaves: the text
    stays the same, and the block becomes one definition instead of the end of one and the beginning of the next.
    """

    def cost(shift: int) -> tuple[int, bool, int]:
        block = [line for line in lines[first + shift : last + shift] if line.strip()]
        crowded = first + shift > 0 and bool(lines[first + shift - 1].strip())
        return (_indent(block[0]) if block else 0, crowded, -shift)

    shifts = [0]
    while first + shifts[-1] > low and lines[first + shifts[-1] - 1] == lines[last + shifts[-1] - 1]:
        shifts.append(shifts[-1] - 1)
    shift = 0
    while last + shift < high and lines[first + shift] == lines[last + shift]:
        shift += 1
        shifts.append(shift)
    return min(shifts, key=cost)


def matching(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Equal runs as (start in old, start in new, lines), in order, none touching the next on both sides."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    inner_old, inner_new = old[head : len(old) - tail], new[head : len(new) - tail]
    exact = len(inner_old) * len(inner_new) <= MAX_EXACT_CELLS
    blocks = difflib.SequenceMatcher(None, inner_old, inner_new, autojunk=not exact).get_matching_blocks()
    found = [(0, 0, head), *((a + head, b + head, size) for a, b, size in blocks)]
    found.append((len(old) - tail, len(new) - tail, tail))
    joined: list[tuple[int, int, int]] = []
    for a, b, size in found:
        if not size:
            continue
        if joined and (joined[-1][0] + joined[-1][2], joined[-1][1] + joined[-1][2]) == (a, b):
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + size)
        else:
            joined.append((a, b, size))
    return joined


def changes(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int, int, int]]:
    """The places that differ, as (old start, old end, new start, new end), 0-based and half open, in order."""
    found: list[tuple[int, int, int, int]] = []
    a = b = 0
    for start_a, start_b, size in [*matching(old, new), (len(old), len(new), 0)]:
        if (a, b) != (start_a, start_b):
            found.append((a, start_a, b, start_b))
        a, b = start_a + size, start_b + size
    settled: list[tuple[int, int, int, int]] = []
    for index, (old_first, old_last, new_first, new_last) in enumerate(found):
        # A block may slide into the equal lines around it, but must leave one between itself and the next change.
        before = settled[-1] if settled else None
        after = found[index + 1] if index + 1 < len(found) else None
        shift = 0
        if old_first == old_last:
            low = before[3] + 1 if before else 0
            high = after[2] - 1 if after else len(new)
            shift = _settled(new, new_first, new_last, low, high)
        elif new_first == new_last:
            low = before[1] + 1 if before else 0
            high = after[0] - 1 if after else len(old)
            shift = _settled(old, old_first, old_last, low, high)
        settled.append((old_first + shift, old_last + shift, new_first + shift, new_last + shift))
    return settled


# --- files


def _overlap(old: Version, new: Version) -> float:
    """Share of bytes in common lines, of the larger file."""
    if old.data == new.data:
        return 1.0
    if not (old.is_text and new.is_text):
        return 0.0
    common = Counter(lines_of(old.data)) & Counter(lines_of(new.data))
    size = sum(len(line) * count for line, count in common.items())
    return size / max(len(old.data), len(new.data), 1)


def _moves(parent: Tree, head: Tree) -> dict[str, str]:
    """Old path by new path, for files that moved; each file moves once, the most alike first."""
    gone = sorted(path for path in parent if path not in head and parent[path].mode != MODULE_MODE)
    came = sorted(path for path in head if path not in parent and head[path].mode != MODULE_MODE)
    pairs: list[tuple[float, bool, str, str]] = []
    for new in came:
        for old in gone:
            same_kind = (parent[old].mode == LINK_MODE) == (head[new].mode == LINK_MODE)
            if not same_kind or not parent[old].data:
                continue
            wide = len(gone) * len(came) > MAX_RENAME_PAIRS
            share = float(parent[old].data == head[new].data) if wide else _overlap(parent[old], head[new])
            if share >= RENAME_SHARE:
                pairs.append((-share, old.rpartition("/")[2] != new.rpartition("/")[2], old, new))
    found: dict[str, str] = {}
    used: set[str] = set()
    for _, _, old, new in sorted(pairs):
        if new not in found and old not in used:
            found[new] = old
            used.add(old)
    return found


class Diff:
    """The change of some files from `parent` to `head`, in hunks. Give it the files that differ; equal ones add nothing."""

    def __init__(self, parent: Tree, head: Tree) -> None:
        moves = _moves(parent, head)
        moved = set(moves.values())
        places: list[tuple[str | None, str | None]] = [
            (path if path in parent else moves.get(path), path) for path in head
        ]
        places += [(path, None) for path in parent if path not in head and path not in moved]
        self._slots: list[_Slot] = []
        self._count = 0
        for old_path, new_path in sorted(places, key=lambda place: place[1] or place[0] or ""):
            old = parent[old_path] if old_path is not None else None
            new = head[new_path] if new_path is not None else None
            self._slots.append(_Slot(old_path, new_path, old, new, tuple(self._hunks_of(old_path, new_path, old, new))))

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        """All of them: by file, then by place."""
        return tuple(hunk for slot in self._slots for hunk in slot.hunks)

    def _hunks_of(
        self, old_path: str | None, new_path: str | None, old: Version | None, new: Version | None
    ) -> Iterable[Hunk]:
        def made(kind: HunkKind, **more: object) -> Hunk:
            self._count += 1
            file, old_file = new_path or old_path or "", old_path or new_path or ""
            return Hunk(self._count, kind, file, old_file, **more)  # type: ignore[arg-type]

        if old is None or new is None:
            version = new or old
            assert version is not None
            lines = tuple(lines_of(version.data)) if version.is_text else ()
            if old is None:
                yield made(HunkKind.ADDED, head=(1, len(lines)), new_lines=lines)
            else:
                yield made(HunkKind.DELETED, parent=(1, len(lines)), old_lines=lines)
            return
        if old_path != new_path:
            yield made(HunkKind.RENAMED)
        if not (old.is_text and new.is_text):
            # A link that became a file changes its mode and its bytes at once, or not at all.
            if old != new:
                yield made(HunkKind.CONTENT)
            return
        if old.mode != new.mode:
            yield made(HunkKind.MODE)
        before, after = lines_of(old.data), lines_of(new.data)
        for a, b, c, d in changes(before, after):
            yield made(
                HunkKind.LINES,
                head=(c + 1, d - c),
                parent=(a + 1, b - a),
                new_lines=tuple(after[c:d]),
                old_lines=tuple(before[a:b]),
            )

    def reversed(self, numbers: Collection[int]) -> dict[str, Version | None]:
        """What differs from the head once the hunks of these numbers are taken back, by path; None: no such file."""
        found: dict[str, Version | None] = {}
        for slot in self._slots:
            chosen = [hunk for hunk in slot.hunks if hunk.number in numbers]
            if not chosen:
                continue
            kinds = {hunk.kind for hunk in chosen}
            if slot.old is None:
                found[slot.new_path or ""] = None
                continue
            if slot.new is None:
                found[slot.old_path or ""] = slot.old
                continue
            assert slot.old_path is not None
            assert slot.new_path is not None
            if HunkKind.RENAMED in kinds:
                found[slot.new_path] = None
            path = slot.old_path if HunkKind.RENAMED in kinds else slot.new_path
            if HunkKind.CONTENT in kinds:
                found[path] = slot.old
                continue
            mode = slot.old.mode if HunkKind.MODE in kinds else slot.new.mode
            found[path] = Version(mode, taken_back(slot.new.data, chosen))
        return found

    def without(self, numbers: Collection[int]) -> dict[str, Version]:
        """The files of this change, as they are at the head once the hunks of these numbers are taken back."""
        files: dict[str, Version | None] = {
            slot.new_path: slot.new for slot in self._slots if slot.new_path is not None
        }
        files |= self.reversed(numbers)
        return {path: version for path, version in files.items() if version is not None}


def taken_back(data: bytes, hunks: Iterable[Hunk]) -> bytes:
    """The head's bytes of a file with some of its line hunks as the parent had them."""
    lines = lines_of(data)
    for hunk in sorted((h for h in hunks if h.kind is HunkKind.LINES), key=lambda h: h.head, reverse=True):
        first, count = hunk.head
        lines[first - 1 : first - 1 + count] = hunk.old_lines
    return b"".join(lines)
