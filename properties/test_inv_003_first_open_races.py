"""INV-003: whoever opens a store that does not exist yet, together with anyone else, succeeds; the schema is made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdtrue.store import schema
from properties.kit import checkers, ledger, raw, workers
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 40.0


@given(openers=st.integers(4, 8), meeting=st.sampled_from(["turnstile.waiting", "connection.before_wal"]))
def test_processes_that_open_a_fresh_path_together_all_store_and_share_one_schema(
    fresh: Callable[[], Path], openers: int, meeting: str
) -> None:
    folder = fresh()
    store = folder / "store"
    barrier = SPAWN.Barrier(openers)
    # At the WAL switch the others never arrive while one has the turn: that wait must run out, and quickly.
    points = Points(f"{meeting}=rendezvous({openers},0.2)", folder / "points")
    with Crew() as crew:
        for number in range(openers):
            crew.start(
                workers.meet_and_add,
                store,
                folder / f"opener-{number}.ledger",
                barrier,
                f"opener {number} was here",
                variables=points.variables(),
            )
        codes = crew.wait(LIMIT_S)
    assert codes == [0] * openers, f"openers ended with {codes}"
    points.assert_fired()
    calls = ledger.read(folder.glob("*.ledger"))
    problems = [f"{call.process} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
    state = raw.read(store)
    problems += checkers.adds_survive(calls, state)
    assert not problems, checkers.report(problems, f"{openers} openers meeting at {meeting}")
    assert state.user_version == schema.VERSION, f"schema version {state.user_version} after {openers} first openers"


def test_an_open_waits_for_a_program_that_already_writes_the_fresh_file(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store = folder / "store"
    store.mkdir(mode=0o700)
    held = SPAWN.Event()
    with Crew() as crew:
        # SQLite answers BUSY to the WAL switch here at once, whatever the busy timeout.
        crew.start(workers.occupy_fresh_file, store, held, 1.0)
        assert held.wait(LIMIT_S)
        crew.start(workers.perform, store, folder / "opener.ledger", [{"action": "add", "text": "I waited"}])
        codes = crew.wait(LIMIT_S)
    assert codes == [0, 0]
    (call,) = ledger.read([folder / "opener.ledger"])
    assert call.outcome == "ok", f"the open was {call.outcome}: {call.answer}"
    problems = checkers.adds_survive([call], raw.read(store))
    assert not problems, checkers.report(problems, "a foreign transaction on the fresh file")


def test_a_kill_at_any_statement_of_the_first_migration_leaves_a_store_that_opens(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    sites = [("schema.before_begin", 1), ("schema.statement", 1), ("schema.statement", 17), ("schema.before_commit", 1)]
    for place, (point, nth) in enumerate(sites):
        store = folder / f"store-{place}"
        points = Points(f"{point}=kill@{nth}", folder / f"points-{place}")
        with Crew() as crew:
            add = [{"action": "add", "text": "first"}]
            crew.start(workers.perform, store, folder / f"cut-{place}.ledger", add, variables=points.variables())
            crew.wait(LIMIT_S)
            crew.start(workers.perform, store, folder / f"next-{place}.ledger", [{"action": "add", "text": "second"}])
            crew.wait(LIMIT_S)
        points.assert_fired()
        calls = ledger.read(folder.glob(f"*-{place}.ledger"))
        state = raw.read(store)
        problems = checkers.adds_survive(calls, state)
        assert not problems, checkers.report(problems, f"killed at {point}@{nth}")
        assert "second" in state.texts(), f"the store could not be used after a kill at {point}@{nth}"
