"""INV-025: a restore replaces the whole state at one instant for everyone, and brings back nothing that was forgotten.

The store and its backup hold the same memories with other texts: generation "first" in the backup, "second" in the store.
Attacked with readers and writers of other processes that stay open throughout, and by SIGKILL at each step.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import backup_workers, checkers, ledger, raw, workers
from properties.kit.expected import index_of, vector_of
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 40.0
COUNT = 40
CANARY = "the xylophone of Quillfeather is under the seventh stair"
FIRST = {backup_workers.first_text(number) for number in range(COUNT)}
SECOND = {backup_workers.second_text(number) for number in range(COUNT)}


@dataclass(frozen=True)
class Seed:
    """A closed store of the second generation, its backup of the first, and the id that was forgotten in between.

    In `foreign`, a backup of another store, the first generation belongs to strangers: wherever a process goes on with the
    numbers of names that it knew before the restore, it takes one of them for somebody else.
    """

    store: Path
    backup: Path
    canary: str
    foreign: Path

    def copy_to(self, folder: Path) -> Path:
        return Path(shutil.copytree(self.store, folder / "store"))


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Seed:
    folder = tmp_path_factory.mktemp("seed")
    done = folder / "seed"
    with Crew() as crew:
        crew.start(backup_workers.seed, folder / "store", COUNT, done, CANARY)
        crew.start(backup_workers.seed_strangers, folder / "other", COUNT, folder / "foreign.db")
        assert crew.wait(LIMIT_S) == [0, 0]
    backup, store = done.with_suffix(".db"), folder / "store"
    # The trap is set: the backup holds what the store has forgotten.
    assert CANARY.encode() in backup.read_bytes(), "the backup does not hold the text that was to be forgotten"
    vector = vector_of(CANARY)
    assert vector is not None
    assert vector[:128] in backup.read_bytes() or vector[128:256] in backup.read_bytes(), "nor its vector"
    assert CANARY.encode() not in bytes_of(store), "the store holds the text although it was forgotten"
    return Seed(store, backup, done.read_text(), folder / "foreign.db")


def bytes_of(store: Path) -> bytes:
    """Every byte of the database and what lies beside it, but not of its backups."""
    return b"".join(path.read_bytes() for path in sorted(store.iterdir()) if path.is_file())


def generations(texts: list[str]) -> str:
    """Which state a read has shown: "first", "second", or what is wrong with it."""
    told = {text for text in texts if text.startswith("generation ")}
    if told == FIRST:
        return "first"
    return "second" if told == SECOND else f"neither: {sorted(told)[:4]}, {len(told)} memories"


def seen(paths: list[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_text().splitlines():
            yield json.loads(line)


def users_of(store: Path) -> dict[str, str]:
    """The user of each memory, by its text."""
    connection = raw.connect(store)
    try:
        rows = connection.execute("SELECT m.text, n.name FROM memories m JOIN names n ON n.id = m.user_id").fetchall()
        return dict(rows)
    finally:
        connection.close()


def test_every_reader_sees_the_old_state_or_the_new_one_and_writers_go_on(
    fresh: Callable[[], Path], seed: Seed
) -> None:
    folder = fresh()
    store = seed.copy_to(folder)
    ready, stop = SPAWN.Semaphore(0), SPAWN.Event()
    watched = [folder / f"reader-{number}.seen" for number in range(2)]
    with Crew() as crew:
        for path in watched:
            crew.start(backup_workers.watch, store, path, ready, stop, LIMIT_S)
        for name in ("maya", "omar"):  # of whom the backup knows nothing
            crew.start(backup_workers.add_in_order, store, folder / f"{name}.ledger", name, ready, stop, LIMIT_S)
        for _ in range(4):
            assert ready.acquire(timeout=LIMIT_S)
        # Drawn out, so that everybody looks in the middle of it as well.
        slow = Points("restore.step=delay(0.05)", folder / "points").variables()
        arguments = (store, folder / "restore.ledger", seed.foreign, True)
        restorer = crew.start(backup_workers.restore, *arguments, variables=slow)
        restorer.join(LIMIT_S)
        crew.start(
            workers.perform, store, folder / "after.ledger", [{"action": "add", "text": "after all", "user": "li"}]
        )
        crew.members[-1].join(LIMIT_S)
        stop.set()
        codes = crew.wait(LIMIT_S)
    assert codes == [0] * 6, f"processes ended with {codes}"
    (restored,) = ledger.read([folder / "restore.ledger"])
    assert restored.outcome == "ok", f"the restore was {restored.outcome}: {restored.answer}"
    assert restored.answer is not None
    assert restored.ended_ns is not None

    problems = []
    for look in seen(watched):
        shown = look.get("error") or generations(look["texts"])
        before, after = look["ended_ns"] < restored.began_ns, look["began_ns"] > restored.ended_ns
        wanted = {"second"} if before else {"first"} if after else {"first", "second"}
        if shown not in wanted:
            problems.append(
                f"a {look['action']} {'after' if after else 'before' if before else 'during'} it saw {shown}"
            )
    state, users = raw.read(store), users_of(store)
    problems += checkers.derived_agree(state, index_of, vector_of)
    texts = set(state.texts())
    for call in ledger.read([folder / "maya.ledger", folder / "omar.ledger"]):
        user = call.arguments["texts"][0].split()[0]
        there = [text in texts for text in call.arguments["texts"]]
        if call.outcome != "ok":
            problems.append(f"an add was {call.outcome}: {call.answer}")
        elif any(there) != all(there):
            problems.append(f"only a part of {call.arguments['texts']} is there")
        elif call.began_ns > restored.ended_ns and not all(there):
            problems.append(f"{call.arguments['texts']}, acknowledged after the restore, are not there")
        elif call.ended_ns is not None and call.ended_ns < restored.began_ns and any(there):
            problems.append(f"{call.arguments['texts']}, stored before the restore, are there after it")
        problems += [
            f"{text!r} belongs to {users[text]}" for text in call.arguments["texts"] if users.get(text, user) != user
        ]
    problems += ["an add after the restore is not there"] * ("after all" not in texts)
    kept = raw_backup(restored.answer["backup"], folder)
    problems += ["the state before is not in the backup that was made of it"] * (generations(kept.texts()) != "second")
    problems += [*kept.damage, *kept.orphans]
    assert not problems, checkers.report(problems, "two readers, two writers, one restore")


def raw_backup(path: str, folder: Path) -> raw.Raw:
    place = folder / "kept"
    place.mkdir()
    shutil.copyfile(path, place / "memory.db")
    return raw.read(place)


def test_what_was_forgotten_since_the_backup_comes_back_neither_as_rows_nor_as_bytes(
    fresh: Callable[[], Path], seed: Seed
) -> None:
    folder = fresh()
    store = seed.copy_to(folder)
    with Crew() as crew:
        crew.start(backup_workers.restore, store, folder / "restore.ledger", seed.backup, True)
        assert crew.wait(LIMIT_S) == [0]
        (restored,) = ledger.read([folder / "restore.ledger"])
        assert restored.outcome == "ok", f"the restore was {restored.outcome}: {restored.answer}"
        assert restored.answer is not None
        problems = left_of_canary(store)
        assert not problems, checkers.report(problems, "right after the restore")
        # It stays so: another process reads, finds nothing and may store the text anew.
        steps = [
            {"action": "get", "id": seed.canary},
            {"action": "search", "query": "xylophone Quillfeather"},
            {"action": "add", "text": "the mill is north"},
        ]
        crew.start(workers.perform, store, folder / "after.ledger", steps)
        assert crew.wait(LIMIT_S) == [0, 0]
    got, searched, added = ledger.read([folder / "after.ledger"])
    assert got.outcome == "refused", "a forgotten memory can be read again"
    assert searched.answer is not None
    assert seed.canary not in {hit["id"] for hit in searched.answer["hits"]}, "a forgotten memory is found again"
    assert added.outcome == "ok"
    assert restored.answer["kept_forgotten"] == 1
    problems = left_of_canary(store) + checkers.derived_agree(raw.read(store), index_of, vector_of)
    assert not problems, checkers.report(problems, "after the next write")


def left_of_canary(store: Path) -> list[str]:
    """Everything in the store's folder that still tells of the forgotten memory."""
    vector = vector_of(CANARY)
    assert vector is not None
    traces = {"text": [CANARY.encode()], "word": [b"Quillfeather"], "index": [b"quillfeath"]}
    # Pages cut a vector anywhere, so any part of it counts.
    traces["vector"] = [vector[start : start + 128] for start in range(0, len(vector), 128)]
    found = []
    for path in store.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for name, parts in traces.items():
            if any(part in data for part in parts):
                found.append(f"its {name} stands in {path.name}")
    return found


SITES = ["restore.prepared", "backup.step", "restore.before_copy", "restore.step", "restore.copied"]


@given(killed_at=st.sampled_from(SITES), nth=st.integers(1, 3))
@example(killed_at="restore.step", nth=2)
def test_a_kill_at_any_point_leaves_the_old_state_whole_or_the_new_one(
    fresh: Callable[[], Path], seed: Seed, killed_at: str, nth: int
) -> None:
    folder = fresh()
    store = seed.copy_to(folder)
    nth = nth if killed_at == "restore.step" else 1
    points = Points(f"{killed_at}=kill@{nth}", folder / "points")
    plan = f"killed at {killed_at}@{nth}"
    with Crew() as crew:
        crew.start(
            backup_workers.restore, store, folder / "cut.ledger", seed.backup, True, variables=points.variables()
        )
        assert crew.wait(LIMIT_S) == [-signal.SIGKILL], plan
        points.assert_fired()
        state = raw.read(store)
        problems = [*state.damage, *state.orphans]
        shown = generations(state.texts())
        wanted = "first" if killed_at == "restore.copied" else "second"
        problems += [f"the store shows {shown} and not {wanted}"] * (shown != wanted)
        problems += ["a forgotten memory is there"] * (CANARY in state.texts())
        assert not problems, checkers.report(problems, plan)
        # The store can be written, and the next restore does what this one did not.
        crew.start(backup_workers.restore, store, folder / "again.ledger", seed.backup, False)
        assert crew.wait(LIMIT_S)[-1] == 0, plan
    (again,) = ledger.read([folder / "again.ledger"])
    problems = [f"the next restore was {again.outcome}: {again.answer}"] * (again.outcome != "ok")
    state = raw.read(store)
    problems += checkers.derived_agree(state, index_of, vector_of)
    problems += [f"restored again it shows {generations(state.texts())}"] * (generations(state.texts()) != "first")
    left = [path.name for path in store.rglob("*") if re.search(r"restoring|partial|\.lock", path.name)]
    problems += [f"left behind: {name}" for name in left if not name.startswith(".holdtrue-backup")]
    problems += left_of_canary(store)
    assert not problems, checkers.report(problems, plan)
