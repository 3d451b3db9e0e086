"""INV-006: after an update is acknowledged, and at rest, the stored vector is the embedding of the stored text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from properties.kit import checkers, ledger, raw, workers
from properties.kit.expected import index_of, vector_of
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 40.0
SUBJECTS = ["the harbour is east of town", "invoices are due in thirty days", "the parser rejects trailing commas"]


@given(updates=st.integers(3, 8), pause=st.sampled_from(["0.0", "0.01"]))
def test_processes_that_update_the_same_memories_leave_vectors_of_the_texts_that_won(
    fresh: Callable[[], Path], updates: int, pause: str
) -> None:
    folder = fresh()
    store = folder / "store"
    # A pause between vector and turn is where an older update could overtake a newer one.
    points = Points(f"memory.embedded=delay({pause})", folder / "points")
    with Crew() as crew:
        setup = [{"action": "add", "text": text} for text in SUBJECTS]
        crew.start(workers.perform, store, folder / "setup.ledger", setup)
        assert crew.wait(LIMIT_S) == [0]
        ids = [call.answer["id"] for call in ledger.read([folder / "setup.ledger"]) if call.answer]
        for process in range(2):
            steps = [
                {"action": "update", "id": id_, "text": f"{SUBJECTS[(target + number) % 3]} says {process} {number}"}
                for number in range(updates)
                for target, id_ in enumerate(ids)
            ]
            path = folder / f"updater-{process}.ledger"
            crew.start(workers.perform, store, path, steps, 2, variables=points.variables())
        codes = crew.wait(LIMIT_S)
    assert codes == [0, 0, 0], f"processes ended with {codes}"
    points.assert_fired()
    calls = ledger.read(folder.glob("updater-*.ledger"))
    problems = [f"an update was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
    state = raw.read(store)
    problems += checkers.derived_agree(state, index_of, vector_of)
    problems += [f"memory {row.seq} has no vector" for row in state.rows if row.vector is None]
    asked = {call.arguments["text"] for call in calls}
    problems += [f"{text!r} is nobody's update" for text in state.texts() if text not in asked]
    assert not problems, checkers.report(problems, f"{updates} updates, pause {pause}")


def test_an_update_that_waited_for_the_lock_or_gave_up_leaves_text_and_vector_together(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    store = folder / "store"
    held, release = SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        crew.start(workers.perform, store, folder / "setup.ledger", [{"action": "add", "text": SUBJECTS[0]}])
        assert crew.wait(LIMIT_S) == [0]
        (added,) = ledger.read([folder / "setup.ledger"])
        assert added.answer is not None, "the memory could not be stored"
        crew.start(workers.hold_writer, store, held, release, 20.0)
        assert held.wait(LIMIT_S)
        for name, text, patience in (("gives-up", SUBJECTS[1], "0.3"), ("waits", SUBJECTS[2], "20")):
            steps = [{"action": "update", "id": added.answer["id"], "text": text}]
            path = folder / f"{name}.ledger"
            crew.start(workers.perform, store, path, steps, variables={"HOLDTRUE_WRITE_WAIT_S": patience})
        crew.members[2].join(LIMIT_S)
        release.set()
        assert crew.wait(LIMIT_S) == [0, 0, 0, 0]
    (gave_up,) = ledger.read([folder / "gives-up.ledger"])
    (waited,) = ledger.read([folder / "waits.ledger"])
    assert gave_up.outcome == "refused", f"the impatient update was {gave_up.outcome}"
    assert waited.outcome == "ok", f"the patient update was {waited.outcome}: {waited.answer}"
    state = raw.read(store)
    assert state.texts() == [SUBJECTS[2]]
    problems = checkers.derived_agree(state, index_of, vector_of)
    assert not problems, checkers.report(problems, "one update gave up, one waited")
