"""INV-002: no read waits for a writer, for the turnstile or for a model.

There are no timings here. Someone holds the write lock, or the model's load, and lets go only after every read has been
answered: a read that waited for them would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from properties.kit import checkers, ledger, workers
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 30.0
READS = {"search", "get", "list", "status"}
HOLD_S = 20.0  # the holder's own bound; the reads must be over long before


def reads(id_: str) -> list[workers.Step]:
    return [
        {"action": "search", "query": "where is the harbour"},
        {"action": "get", "id": id_},
        {"action": "list", "limit": 5},
        {"action": "status"},
    ]


def set_up(folder: Path) -> tuple[Path, str]:
    store = folder / "store"
    with Crew() as crew:
        crew.start(workers.perform, store, folder / "setup.ledger", [{"action": "add", "text": "the harbour is east"}])
        assert crew.wait(LIMIT_S) == [0]
    (call,) = ledger.read([folder / "setup.ledger"])
    assert call.answer is not None, "the store could not be set up"
    return store, call.answer["id"]


def answered(path: Path) -> list[str]:
    """What is wrong with the reads in a ledger."""
    calls = ledger.read([path])
    problems = [f"{call.action} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
    found = [call.answer["hits"] for call in calls if call.action == "search" and call.outcome == "ok" and call.answer]
    problems += [f"search found {hits}" for hits in found if not hits]
    return problems


@pytest.mark.parametrize("waiting_add", [False, True], ids=["nobody-waits", "an-add-waits"])
def test_reads_are_answered_while_another_program_holds_the_write_lock(
    fresh: Callable[[], Path], waiting_add: bool
) -> None:
    folder = fresh()
    store, id_ = set_up(folder)
    held, release = SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        crew.start(workers.hold_writer, store, held, release, HOLD_S)
        assert held.wait(LIMIT_S)
        if waiting_add:  # its writer thread stands in the turnstile and at SQLite's lock
            add = [{"action": "add", "text": "the lighthouse is west"}]
            crew.start(workers.perform, store, folder / "add.ledger", add)
        reader = crew.start(workers.perform, store, folder / "reads.ledger", reads(id_))
        reader.join(HOLD_S / 2)
        finished_while_held = reader.exitcode == 0 and not release.is_set()
        release.set()
        codes = crew.wait(LIMIT_S)
    assert finished_while_held, "the reads were not over before the write lock was released"
    assert codes == [0] * len(codes)
    problems = answered(folder / "reads.ledger")
    assert not problems, checkers.report(problems, f"write lock held, waiting_add={waiting_add}")
    if waiting_add:
        (add_call,) = ledger.read([folder / "add.ledger"])
        assert add_call.outcome == "ok", f"the add that waited was {add_call.outcome}: {add_call.answer}"


def test_reads_are_answered_while_a_turn_in_the_same_process_is_stuck_before_its_commit(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    store, id_ = set_up(folder)
    points = Points("writer.before_commit=delay(6)@1", folder / "points")
    plan = [{"action": "add", "text": "the ferry leaves at nine"}, *reads(id_)]
    with Crew() as crew:
        # Two threads of one process: the first takes the add and sticks, the second takes every other step.
        crew.start(workers.perform, store, folder / "both.ledger", _dealt_out(plan), 2, variables=points.variables())
        assert crew.wait(LIMIT_S) == [0]
    points.assert_fired()
    calls = ledger.read([folder / "both.ledger"])
    (add,) = [call for call in calls if call.action == "add"]
    assert add.ended_ns is not None, f"the add was {add.outcome}"
    ended = {call.action: call.ended_ns for call in calls if call.action in READS}
    assert ended.keys() == READS, f"only {sorted(ended)} were asked"
    late = [action for action, moment in ended.items() if moment is None or moment >= add.ended_ns]
    assert not late, f"reads that ended only after the stuck add did: {late}"
    problems = [f"{call.action} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
    assert not problems, checkers.report(problems, "one process, one stuck add")


def _dealt_out(plan: list[workers.Step]) -> list[workers.Step]:
    """Order steps so that of two threads the first gets the first step and idle ones, the second all the others."""
    first, *others = plan
    dealt: list[workers.Step] = []
    for number, step in enumerate(others):
        dealt += [first if number == 0 else {"action": "sleep", "seconds": 0.0}, step]
    return dealt


def test_reads_are_answered_by_words_alone_while_the_model_loads(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, id_ = set_up(folder)
    points = Points(f"models.load=delay({HOLD_S})", folder / "points")
    with Crew() as crew:
        reader = crew.start(
            workers.perform,
            store,
            folder / "reads.ledger",
            reads(id_),
            variables={**points.variables(), "HOLDTRUE_MODEL_WAIT_S": "0.1"},
        )
        reader.join(HOLD_S / 2)
        assert reader.exitcode == 0, "the reads were not over before the model was there"
    points.assert_fired()
    problems = answered(folder / "reads.ledger")
    assert not problems, checkers.report(problems, "model load delayed")
