"""INV-016: what may hold memory text is the owner's alone from its creation, whatever the umask and whoever comes first.

Attacked with every entry point as the first to come, under drawn umasks, in folders that are there or not. The modes are
watched from another process for as long as it lives; it is held up right after each creation, so that a mode put right
later is seen. Judged by what the file system says.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, trust_workers
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 60.0
# Long enough for a watcher on a busy machine, and at places where a mode would be wrong before it is put right.
PAUSES = "files.folder_made=delay(0.04);files.file_made=delay(0.04);models.load=raise"

STORE = ("memory.db", "memory.db-wal", "memory.db-shm", "turn.outer", "turn.inner")
MADE = {
    "export": ("export.jsonl",),
    "backup": ("backup.db", "backups"),
    "restore": ("backup.db", "other"),
    "set-aside": ("kept-aside",),
    "config": ("config.json", "settings"),
}


@dataclass(frozen=True)
class Plan:
    """`there`: what is there before: nothing, the folder as 0755, or in it side files that everybody may use."""

    umask: int
    entry: str
    there: str


plans = st.builds(
    Plan,
    umask=st.sampled_from([0o000, 0o002, 0o022, 0o027, 0o077, 0o177, 0o277, 0o777]),
    entry=st.sampled_from(sorted(trust_workers.ENTRIES)),
    there=st.sampled_from(["nothing", "folder", "side files"]),
)


@dataclass
class Seen:
    """What was seen of each path: its kind, and its modes in the order in which they were seen."""

    modes: dict[str, list[int]] = field(default_factory=dict)

    def look(self, folder: Path) -> None:
        for path, status in walk(folder):
            mode = stat.S_IMODE(status.st_mode) & 0o777 | (stat.S_IFDIR if stat.S_ISDIR(status.st_mode) else 0)
            modes = self.modes.setdefault(str(path.relative_to(folder)), [])
            if not modes or modes[-1] != mode:
                modes.append(mode)


def walk(folder: Path) -> Iterator[tuple[Path, Any]]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for path in entries:
        try:
            status = path.lstat()
        except OSError:
            continue
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from walk(path)


@given(plan=plans)
@example(plan=Plan(umask=0o000, entry="command", there="nothing"))
@example(plan=Plan(umask=0o777, entry="library", there="nothing"))
@example(plan=Plan(umask=0o022, entry="reader", there="side files"))
def test_nothing_that_holds_memories_is_ever_open_to_others(fresh: Callable[[], Path], plan: Plan) -> None:
    folder = fresh()
    place = folder / "place"
    place.mkdir(mode=0o755)
    store = place / "home" / "deeper" / "store"
    if plan.there != "nothing":
        store.mkdir(parents=True)
        for made in (store, store.parent, store.parent.parent):
            made.chmod(0o755)
    if plan.there == "side files":
        for name in ("turn.outer", "turn.inner"):
            (store / name).touch()
            (store / name).chmod(0o666)
    points = Points(PAUSES, folder / "points")
    variables = {
        **points.variables(),
        "HOLDTRUE_CONFIG": str(place / "settings" / "config.json"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    before, seen = Seen(), Seen()
    before.look(place)
    held, looked = SPAWN.Event(), SPAWN.Event()
    come = (plan.umask, plan.entry, store, folder / "told", held, looked)
    with Crew() as crew:
        process = crew.start(trust_workers.come_first, *come, variables=variables)
        until = time.monotonic() + LIMIT_S
        while process.is_alive() and time.monotonic() < until:
            is_held = held.is_set()
            seen.look(place)
            if is_held:
                looked.set()
        assert crew.wait(1.0) == [0]
    seen.look(place)
    told = (folder / "told").read_bytes().decode()
    problems = open_to_others(before.modes, seen.modes, {str(path.relative_to(place)) for path, _ in walk(place)})
    # A watcher that saw nothing would find nothing.
    names = {Path(path).name for path in seen.modes}
    problems += [f"{name} was never seen" for name in (*STORE, *MADE.get(plan.entry, ())) if name not in names]
    if "files.file_made" not in points.noted("fired"):
        problems.append("no file was made where the watcher looks")
    assert not problems, checkers.report(problems, f"{plan}; it told {told[:300]}")


def open_to_others(before: Mapping[str, list[int]], seen: Mapping[str, list[int]], at_the_end: set[str]) -> list[str]:
    """What was made and was not the owner's alone at any time, and what the owner cannot use at the end."""
    problems = []
    for path, modes in sorted(seen.items()):
        is_folder = bool(modes[0] & stat.S_IFDIR)
        wanted = 0o700 if is_folder else 0o600
        shown = " then ".join(f"{mode & 0o777:04o}" for mode in modes)
        if path in before:
            if is_folder and modes != before[path]:
                problems.append(f"{path} was there and became {shown}")
        elif any(mode & 0o777 & ~wanted for mode in modes):
            problems.append(f"{path} was {shown}")
        elif path in at_the_end and modes[-1] & 0o777 != wanted:
            problems.append(f"{path} is {shown} at the end")
    return problems


def test_a_mode_that_is_too_wide_for_a_moment_or_too_narrow_at_the_end_is_noticed() -> None:
    folder, there = stat.S_IFDIR, {"s", "s/f"}
    before = {"s": [folder | 0o755]}
    assert open_to_others(before, {"s": [folder | 0o755], "s/f": [0o600], "s/wal": [0o000]}, there) == []
    assert open_to_others({}, {"s": [folder | 0o000, folder | 0o700], "s/f": [0o000, 0o600]}, there) == []
    for seen in (
        {"s/f": [0o644]},
        {"s/f": [0o644, 0o600]},
        {"s/f": [0o600, 0o640, 0o600]},
        {"s/f": [0o700]},
        {"s/f": [0o000]},
        {"s/wal": [0o604]},
        {"t": [folder | 0o755, folder | 0o700]},
        {"s": [folder | 0o700]},
    ):
        assert open_to_others(before, seen, there), seen
