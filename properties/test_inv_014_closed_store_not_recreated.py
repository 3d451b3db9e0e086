"""INV-014: close returns within its bound whatever the writer is doing, and from then on nothing of this process writes
the store or makes one of its files again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from properties.kit import backup_workers, life_workers, raw, workers
from properties.kit.points import Points
from properties.kit.processes import Crew

LIMIT_S = 60.0
BLOCKED_S = 3.4
CLOSE_S = 2.3  # the promise is 2 s; the rest is for a busy machine
POINTS = ["writer.before_open", "turnstile.entered", "writer.before_commit", "writer.after_commit"]


@pytest.mark.parametrize("unlink", [True, False], ids=["files-removed", "files-kept"])
def test_a_closed_store_is_neither_written_nor_made_again(fresh: Callable[[], Path], unlink: bool) -> None:
    folder = fresh()
    results = {point: folder / f"{point}.json" for point in POINTS}
    points = {
        # The first add has gone through wherever the point comes again; the store is there, and warm.
        point: Points(
            f"{point}=delay({BLOCKED_S})@{1 if point == 'writer.before_open' else 2}",
            folder / f"{point}.points",
        )
        for point in POINTS
    }
    with Crew() as crew:
        for point in POINTS:
            store = folder / point
            store.mkdir(mode=0o700)
            if point == "writer.before_open":
                crew.start(workers.perform, store, folder / "first.ledger", [{"action": "add", "text": "there"}])
                assert crew.wait(LIMIT_S) == [0]
        for point in POINTS:
            crew.start(
                life_workers.close_while_blocked,
                folder / point,
                results[point],
                unlink,
                BLOCKED_S,
                variables={**points[point].variables(), "HOLDTRUE_MODEL_WAIT_S": "0"},
            )
        assert crew.wait(LIMIT_S) == [0] * (len(POINTS) + 1)
    for point in POINTS:
        points[point].assert_fired()
        told = json.loads(results[point].read_text())
        assert told["closed_s"] <= CLOSE_S, f"close took {told['closed_s']:.1f} s while the writer stood at {point}"
        assert told["after"] == told["before"], f"the store was written after the close: the writer stood at {point}"
        if unlink:
            assert not [name for name in told["after"] if name.startswith("memory.db")], (
                f"files came back after the close: the writer stood at {point}"
            )


def test_a_close_ends_a_restore_and_leaves_the_old_state(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, result, done = folder / "store", folder / "result.json", folder / "backup"
    point = Points(f"restore.step=delay({BLOCKED_S})@2", folder / "points")
    with Crew() as crew:
        crew.start(backup_workers.seed, store, 40, done)
        assert crew.wait(LIMIT_S) == [0]
        crew.start(
            life_workers.close_while_restoring,
            store,
            done.with_suffix(".db"),
            result,
            BLOCKED_S,
            variables=point.variables(),
        )
        assert crew.wait(LIMIT_S) == [0, 0]
    point.assert_fired()
    told = json.loads(result.read_text())
    assert told["refusals"] == ["STORE_CLOSED"]
    assert told["closed_s"] <= CLOSE_S, f"close took {told['closed_s']:.1f} s while a restore was at work"
    changed = [
        name
        for name, bytes_ in told["after"].items()
        if name.startswith("memory.db") and told["before"].get(name) != bytes_
    ]
    assert not changed, f"the restore went on after the close: {changed}"
    state = raw.read(store)
    assert not state.damage
    assert sorted(state.texts()) == [backup_workers.second_text(number) for number in range(40)]


def test_a_second_close_does_nothing_and_every_call_after_it_is_refused_by_name(fresh: Callable[[], Path]) -> None:
    from holdtrue import HoldTrueError, Memory

    folder = fresh()
    memory = Memory(folder)
    id_ = memory.add("was here").id
    memory.close()
    memory.close()
    calls: list[Callable[[], object]] = [
        lambda: memory.add("too late"), lambda: memory.search("here"), lambda: memory.get(id_), memory.list,
        lambda: memory.update(id_, "too late"), lambda: memory.forget(id_), memory.verify, memory.status,
        lambda: memory.export(folder.parent / "late.jsonl"), lambda: memory.backup(folder.parent / "late.db"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(HoldTrueError) as refusal:
            call()
        assert refusal.value.code == "STORE_CLOSED"
    assert not (folder.parent / "late.jsonl").exists()
    assert not (folder.parent / "late.db").exists()
