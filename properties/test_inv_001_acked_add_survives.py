"""INV-001: an acknowledged add is there exactly once afterwards, a refused one not at all, an unanswered one whole or not.

Attacked with several processes and threads on one store, SIGKILL at named points of the write path, a restart, and a
foreign process that holds the write lock until callers give up.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, ledger, raw, workers
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 40.0


@dataclass(frozen=True)
class Plan:
    """`writers` processes of two threads each add `adds` texts; the first is killed at the `nth` hit of `point`."""

    writers: int
    adds: int
    point: str
    nth: int


plans = st.builds(
    Plan,
    writers=st.integers(2, 3),
    adds=st.integers(10, 24),  # of two threads, so there are at least five groups for the four hits
    point=st.sampled_from(
        [
            "turnstile.entered",
            "memories.between_check_and_insert",
            "derived.before_build",
            "writer.before_commit",
            "writer.after_commit",
        ]
    ),
    nth=st.integers(1, 4),
)


def steps(process: str, count: int) -> list[workers.Step]:
    return [{"action": "add", "text": f"{process} remembers fact number {number}"} for number in range(count)]


@given(plan=plans)
@example(plan=Plan(writers=2, adds=12, point="writer.before_commit", nth=3))
def test_a_kill_at_any_point_of_the_write_path_loses_no_acknowledged_add(fresh: Callable[[], Path], plan: Plan) -> None:
    folder = fresh()
    store = folder / "store"
    # The delay before the kill gives a reply that comes too early the time to be written down.
    rules = f"{plan.point}=kill@{plan.nth}"
    if plan.point == "writer.before_commit":
        rules += f";writer.group_done=delay(0.05)@{plan.nth}"
    points = Points(rules, folder / "points")
    with Crew() as crew:
        crew.start(
            workers.perform,
            store,
            folder / "victim.ledger",
            steps("victim", plan.adds),
            2,
            variables=points.variables(),
        )
        for number in range(1, plan.writers):
            name = f"writer-{number}"
            crew.start(workers.perform, store, folder / f"{name}.ledger", steps(name, plan.adds), 2)
        codes = crew.wait(LIMIT_S)
        assert codes[0] == -signal.SIGKILL, f"the victim ended with {codes[0]}: {plan}"
        assert codes[1:] == [0] * (plan.writers - 1), f"writers ended with {codes[1:]}: {plan}"
        # The next process to open the store finds it sound and goes on.
        crew.start(workers.perform, store, folder / "successor.ledger", steps("successor", 2))
        assert crew.wait(LIMIT_S)[-1] == 0
    points.assert_fired()
    calls = ledger.read(folder.glob("*.ledger"))
    assert any(call.outcome == "unknown" for call in calls), "the kill cut no call off, so it tested nothing"
    problems = checkers.adds_survive(calls, raw.read(store))
    problems += [f"{call.process} was refused: {call.answer}" for call in calls if call.outcome == "refused"]
    assert not problems, checkers.report(problems, repr(plan))


def test_an_add_that_was_refused_while_another_program_held_the_lock_is_never_stored(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store = folder / "store"
    held, release, told = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        crew.start(workers.perform, store, folder / "first.ledger", steps("first", 1))
        assert crew.wait(LIMIT_S) == [0]
        crew.start(workers.hold_writer, store, held, release, LIMIT_S)
        assert held.wait(LIMIT_S)
        # It lives on after it was refused and writes again: what it gave up on must not be stored with that.
        impatient = [*steps("impatient", 2), {"action": "tell"}, {"action": "add", "text": "tried again later"}]
        patience = {"HOLDTRUE_WRITE_WAIT_S": "0.4"}
        path = folder / "impatient.ledger"
        crew.start(workers.perform_and_tell, store, path, impatient, told, release, variables=patience)
        crew.start(workers.perform, store, folder / "patient.ledger", steps("patient", 2))
        assert told.wait(LIMIT_S), "the impatient process was not refused"
        release.set()
        assert crew.wait(LIMIT_S) == [0, 0, 0, 0]
    calls = ledger.read(folder.glob("*.ledger"))
    refused = [call for call in calls if call.outcome == "refused"]
    assert [call.answer["code"] for call in refused if call.answer] == ["STORE_BUSY"] * 2
    assert all("0.4 s" in call.answer["message"] for call in refused if call.answer)
    problems = checkers.adds_survive(calls, raw.read(store))
    assert not problems, checkers.report(problems, "one holder, two impatient adds, two patient ones")
