"""INV-009: a backup, opened alone, is sound and equals one committed state of the time in which it was made.

Attacked by writers at full rate, by SIGKILL at each step of a backup, and by taking the file away from all that lies
beside it. What a backup must hold and may hold is worked out from ledgers, what it holds from its raw storage.
"""

from __future__ import annotations

import re
import shutil
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import backup_workers, checkers, ledger, raw, workers
from properties.kit.expected import index_of, vector_of
from properties.kit.ledger import Call
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 40.0


def alone(backup: Path, place: Path) -> raw.Raw:
    """What a backup holds when nothing lies beside it: the one file, copied to a folder of its own."""
    place.mkdir()
    shutil.copyfile(backup, place / "memory.db")
    return raw.read(place)


def snapshot_problems(state: raw.Raw, made: Call, adds: Sequence[Call], final: raw.Raw) -> list[str]:
    """Why a state is none that was committed while the backup was made; empty when it is one."""
    problems = [*state.damage, *state.orphans]
    # Memories are numbered as they are committed and none is removed here, so each committed state is a beginning of the
    # last one.
    there = [(row.seq, row.id, row.text) for row in state.rows]
    beginning = [(row.seq, row.id, row.text) for row in final.rows[: len(there)]]
    problems += [
        f"holds {mine} where the store has {its}" for mine, its in zip(there, beginning, strict=True) if mine != its
    ]
    texts = set(state.texts())
    assert made.ended_ns is not None, f"the backup was {made.outcome}"
    for add in adds:
        found = [text in texts for text in add.arguments["texts"]]
        if any(found) and not all(found):
            problems.append(f"holds only a part of {add.arguments['texts']}, which were stored in one transaction")
        if add.outcome == "ok" and add.ended_ns is not None and add.ended_ns < made.began_ns and not all(found):
            problems.append(f"lacks {add.arguments['texts']}, acknowledged before the backup began")
        if any(found) and add.began_ns > made.ended_ns:
            problems.append(f"holds {add.arguments['texts']}, which were stored after the backup was done")
    return problems


def test_a_backup_beside_writers_at_full_rate_holds_one_committed_state(fresh: Callable[[], Path]) -> None:
    writers = 3
    folder = fresh()
    store, backups = folder / "store", folder / "elsewhere"
    backups.mkdir()
    ready, stop = SPAWN.Semaphore(0), SPAWN.Event()
    targets = [backups / f"{number}.db" for number in range(6)]
    with Crew() as crew:
        for number in range(writers):
            name = f"writer-{number}"
            path = folder / f"{name}.ledger"
            crew.start(backup_workers.add_in_order, store, path, name, ready, stop, LIMIT_S)
        for _ in range(writers):
            assert ready.acquire(timeout=LIMIT_S)
        maker = crew.start(backup_workers.back_up, store, folder / "backups.ledger", targets)
        maker.join(LIMIT_S)
        stop.set()
        codes = crew.wait(LIMIT_S)
    assert codes == [0] * (writers + 1), f"processes ended with {codes}"
    final = raw.read(store)
    adds = ledger.read(folder.glob("writer-*.ledger"))
    made = ledger.read([folder / "backups.ledger"])
    problems = [f"{call.process} was {call.outcome}: {call.answer}" for call in [*adds, *made] if call.outcome != "ok"]
    sizes = []
    for number, call in enumerate(made):
        state = alone(targets[number], folder / f"alone-{number}")
        sizes.append(len(state.rows))
        found = snapshot_problems(state, call, adds, final)
        if number in (0, len(made) - 1):  # the vectors of all of them again would take longer than the rest
            found += checkers.derived_agree(state, index_of, vector_of)
        if call.answer is not None and call.answer["memories"] != len(state.rows):
            found.append(f"holds {len(state.rows)} memories and its receipt says {call.answer['memories']}")
        problems += [f"backup {number} {problem}" for problem in found]
    assert not problems, checkers.report(problems, f"{writers} writers, {len(made)} backups")
    assert len(set(sizes)) > 1, f"nobody wrote between the backups, so they tested nothing: {sizes}"


def test_a_backup_is_one_private_file_that_needs_none_beside_it(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, target = folder / "store", folder / "copy.db"
    with Crew() as crew:
        steps = [{"action": "add", "text": f"memory {number}"} for number in range(3)]
        crew.start(workers.perform, store, folder / "adds.ledger", steps)
        assert crew.wait(LIMIT_S) == [0]
        before = {path.name for path in folder.iterdir()}
        crew.start(backup_workers.back_up, store, folder / "adds.ledger", [target])
        assert crew.wait(LIMIT_S) == [0, 0]
    assert {path.name for path in folder.iterdir()} - before == {"copy.db"}, "something was left beside the backup"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600, "others can read the backup"
    header = target.read_bytes()[:20]
    assert header[18:20] == b"\x01\x01", "the header asks for a WAL beside the file"
    assert sorted(alone(target, folder / "alone").texts()) == [f"memory {number}" for number in range(3)]


SITES = ["backup.snapshot", "backup.step", "backup.copied", "backup.before_publish", "backup.published"]


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some megabytes, so that a backup takes several steps. Nobody has it open."""
    folder = tmp_path_factory.mktemp("seed")
    with Crew() as crew:
        crew.start(backup_workers.seed, folder / "store", 40, folder / "seed")
        assert crew.wait(LIMIT_S) == [0]
    return folder / "store"


@given(killed_at=st.sampled_from(SITES), nth=st.integers(1, 3))
@example(killed_at="backup.step", nth=2)
def test_a_kill_at_any_point_leaves_a_whole_backup_or_nothing_under_its_name(
    fresh: Callable[[], Path], seed: Path, killed_at: str, nth: int
) -> None:
    folder = fresh()
    store, target = folder / "store", folder / "copies" / "copy.db"
    shutil.copytree(seed, store)
    target.parent.mkdir()
    nth = nth if killed_at == "backup.step" else 1
    points = Points(f"{killed_at}=kill@{nth}", folder / "points")
    plan = f"killed at {killed_at}@{nth}"
    with Crew() as crew:
        arguments = (store, folder / "cut.ledger", [target])
        crew.start(backup_workers.back_up, *arguments, variables=points.variables())
        assert crew.wait(LIMIT_S) == [-signal.SIGKILL], plan
        points.assert_fired()
        whole = len(raw.read(store).rows)
        if target.exists():
            state = alone(target, folder / "cut")
            problems = [*state.damage, *state.orphans]
            problems += [f"holds {len(state.rows)} of {whole} memories"] * (len(state.rows) != whole)
            assert not problems, checkers.report(problems, plan)
        else:
            assert killed_at != "backup.published", f"the backup was published and is not there: {plan}"
        # What the killed one left is in nobody's way, and the next one clears it up.
        crew.start(backup_workers.back_up, store, folder / "next.ledger", [target.with_name("next.db")])
        assert crew.wait(LIMIT_S)[-1] == 0, plan
    (call,) = ledger.read([folder / "next.ledger"])
    assert call.outcome == "ok", f"the next backup was {call.outcome}: {call.answer}"
    assert len(alone(target.with_name("next.db"), folder / "next").rows) == whole, plan
    left = [path.name for path in target.parent.iterdir() if not re.fullmatch(r"(copy|next)\.db", path.name)]
    assert not left, f"left in the folder of the backups: {left} ({plan})"
