"""Taking a change back long after it was made: where each of its hunks lies today, found by its lines and what surrounds
them. Pure.

Three versions meet: the parent's, the fix's, and today's. A hunk applies at its place when the lines that it brought are
still there, in the run of lines that the fix and today have in common; else where the same lines stand with the same
neighbours, in its file or in another, when there is exactly one such place. Nothing is guessed: a hunk whose lines were
changed since does not apply, and is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdtrue_gate.hunks import Diff, Hunk, HunkKind, Version, lines_of, matching

# Neighbours that must be the same on each side of lines that have moved.
CONTEXT_LINES = 3
# Lines with at least one word, without which a place cannot be told from another.
_MIN_TELLING = 2


@dataclass(frozen=True)
class Place:
    """Where a hunk lies today. `how` is exact, moved, or gone; `why` says what is in the way when it is gone."""

    hunk: Hunk
    how: str
    file: str = ""
    line: int = 0
    why: str = ""

    @property
    def applies(self) -> bool:
        """Whether it can be taken back today."""
        return self.how != "gone"


def _mapped(fix: Sequence[bytes], today: Sequence[bytes], first: int, last: int) -> int | None:
    """Where `fix[first:last]` begins today (0-based), when all of it, or its neighbours if it is empty, is unchanged."""
    low, high = (first, last) if first < last else (max(first - 1, 0), min(first + 1, len(fix)))
    for a, b, size in matching(fix, today):
        if a <= low and high <= a + size:
            return first - a + b
    return None


def _telling(lines: Sequence[bytes]) -> int:
    return sum(1 for line in lines if any(chr(byte).isalnum() for byte in line))


def _found(fix: Sequence[bytes], today: Sequence[bytes], first: int, last: int) -> list[int]:
    """Where the lines `fix[first:last]` stand today with the same neighbours, as far as those are needed to tell them."""
    for context in range(CONTEXT_LINES, -1, -1):
        low, high = max(first - context, 0), min(last + context, len(fix))
        if first == last and context == 0:
            return []
        needle = list(fix[low:high])
        if _telling(needle) < _MIN_TELLING:
            continue
        size = len(needle)
        starts = [
            at
            for at in range(len(today) - size + 1)
            if today[at] == needle[0] and list(today[at : at + size]) == needle
        ]
        if starts:
            return [at + first - low for at in starts]
    return []


def _lines_hunk(hunk: Hunk, fix: bytes, today: Mapping[str, Version]) -> Place:
    lines = lines_of(fix)
    first = hunk.head[0] - 1
    last = first + hunk.head[1]
    here = today.get(hunk.file)
    if here is not None and here.is_text:
        now = lines_of(here.data)
        at = _mapped(lines, now, first, last)
        if at is not None:
            return Place(hunk, "exact" if at == first else "moved", hunk.file, at + 1)
    others = [path for path in sorted(today) if path != hunk.file]
    places: list[tuple[str, int]] = []
    for path in [hunk.file, *others] if here is not None else others:
        if today[path].is_text:
            places += [(path, at) for at in _found(lines, lines_of(today[path].data), first, last)]
        if places and path == hunk.file:
            break
    if len(places) == 1:
        return Place(hunk, "moved", places[0][0], places[0][1] + 1)
    if places:
        return Place(hunk, "gone", why=f"its lines stand in {len(places)} places today")
    missing = here is None
    return Place(hunk, "gone", why="its file is gone" if missing else "its lines were changed since")


def _whole_hunk(
    hunk: Hunk, parent: Mapping[str, Version], fix: Mapping[str, Version], today: Mapping[str, Version]
) -> Place:
    now = today.get(hunk.file)
    if hunk.kind is HunkKind.DELETED:
        if now is not None:
            return Place(hunk, "gone", why="there is such a file again")
        return Place(hunk, "exact", hunk.file, 1)
    if hunk.kind is HunkKind.RENAMED:
        return Place(hunk, "gone", why="a file that moved stays where it is")
    if now is None:
        return Place(hunk, "gone", why="its file is gone")
    then = fix[hunk.file]
    if hunk.kind is HunkKind.MODE:
        same = now.mode == then.mode
        return Place(hunk, "exact", hunk.file, 1) if same else Place(hunk, "gone", why="its mode was changed since")
    if now != then:
        return Place(hunk, "gone", why="its file was changed since")
    return Place(hunk, "exact", hunk.file, 1)


def places(
    diff: Diff, parent: Mapping[str, Version], fix: Mapping[str, Version], today: Mapping[str, Version]
) -> list[Place]:
    """Where each hunk of the change from `parent` to `fix` lies today. `today`: the product's files as they are."""
    found = []
    for hunk in diff.hunks:
        if hunk.kind is HunkKind.LINES:
            found.append(_lines_hunk(hunk, fix[hunk.file].data, today))
        else:
            found.append(_whole_hunk(hunk, parent, fix, today))
    return _apart(found)


def _apart(found: Sequence[Place]) -> list[Place]:
    """Two hunks that would take the same lines cannot both be where they seem to be."""
    kept: list[Place] = []
    for place in found:
        lines = place.hunk.kind is HunkKind.LINES and place.applies
        clash = lines and any(
            other.applies
            and other.hunk.kind is HunkKind.LINES
            and other.file == place.file
            and max(other.line, place.line) < min(other.line + other.hunk.head[1], place.line + place.hunk.head[1])
            for other in kept
        )
        kept.append(
            replace(place, how="gone", why="another part of the change has its lines today") if clash else place
        )
    return kept


def changes(
    chosen: Sequence[Place], parent: Mapping[str, Version], today: Mapping[str, Version]
) -> dict[str, Version | None]:
    """Today's files with the chosen hunks taken back, by path; None: the file goes."""
    made: dict[str, Version | None] = {}
    by_file: dict[str, list[Place]] = {}
    for place in chosen:
        hunk = place.hunk
        if hunk.kind is HunkKind.ADDED:
            made[place.file] = None
        elif hunk.kind in (HunkKind.DELETED, HunkKind.CONTENT):
            made[place.file] = parent[hunk.old_file]
        elif hunk.kind is HunkKind.MODE:
            base = made.get(place.file) or today[place.file]
            made[place.file] = replace(base, mode=parent[hunk.old_file].mode)
        else:
            by_file.setdefault(place.file, []).append(place)
    for file, places_here in by_file.items():
        base = made.get(file) or today[file]
        lines = lines_of(base.data)
        for place in sorted(places_here, key=lambda p: (p.line, p.hunk.number), reverse=True):
            lines[place.line - 1 : place.line - 1 + place.hunk.head[1]] = place.hunk.old_lines
        made[file] = replace(base, data=b"".join(lines))
    return made
