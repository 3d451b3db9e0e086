"""INV-018: opening a store, of whatever version, loses no row of it and no log beside it, also when it is cut short.

Attacked with stores as earlier releases wrote them, opened by several processes at once and killed at each statement of the
migration; and with a log whose database is gone, which SQLite itself would delete.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdtrue import Memory
from holdtrue.store import schema
from properties.kit import checkers, damage_workers, expected, ledger, old_schemas, raw, workers
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 60.0


@dataclass(frozen=True)
class Plan:
    """`openers` processes come to a store of the corpus at the same moment; each does its action first."""

    store: str
    openers: tuple[str, ...]


plans = st.builds(
    Plan,
    store=st.sampled_from(sorted(old_schemas.CORPUS)),
    openers=st.lists(st.sampled_from(["add", "search", "list", "status"]), min_size=1, max_size=3).map(tuple),
)
STEPS: dict[str, workers.Step] = {
    "add": {"action": "add", "text": "added by a newer release"},
    "search": {"action": "search", "query": "harbour"},
    "list": {"action": "list"},
    "status": {"action": "status"},
}


def judged(before: dict[str, list[tuple[object, ...]]], store: Path) -> list[str]:
    """What is wrong with a store after it was opened: rows that are gone or changed, derived data, the version."""
    state = raw.read(store)
    problems = old_schemas.missing(before, old_schemas.contents(store))
    problems += checkers.derived_agree(state, expected.index_of, expected.vector_of)
    if state.user_version != schema.VERSION:
        problems.append(f"the schema has version {state.user_version}")
    return problems


@settings(max_examples=max(1, settings().max_examples // 3))  # each example is up to three processes
@given(plan=plans)
@example(plan=Plan("version-1-hot-log", ("search", "add", "status")))
def test_every_row_of_an_older_store_is_there_after_anyone_has_opened_it(fresh: Callable[[], Path], plan: Plan) -> None:
    folder = fresh()
    store = folder / "store"
    old_schemas.CORPUS[plan.store](store)
    before = old_schemas.contents(store)
    with Crew() as crew:
        for number, action in enumerate(plan.openers):
            crew.start(workers.perform, store, folder / f"{number}.ledger", [STEPS[action]])
        assert crew.wait(LIMIT_S) == [0] * len(plan.openers)
        calls = ledger.read(folder.glob("*.ledger"))
        problems = [f"{call.action} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
        problems += judged(before, store)
        first = old_schemas.contents(store)
    with Memory(store) as memory:
        memory.open()
    problems += [
        f"the second open changed it: {loss}" for loss in old_schemas.missing(first, old_schemas.contents(store))
    ]
    assert not problems, checkers.report(problems, repr(plan))


@pytest.mark.parametrize("name", ["version-1", "version-1-hot-log", "empty-file"])
def test_a_kill_at_each_statement_of_the_migration_loses_no_row_and_the_next_open_finishes(
    fresh: Callable[[], Path], name: str
) -> None:
    folder = fresh()
    model = folder / "model"
    old_schemas.CORPUS[name](model)
    before = old_schemas.contents(model)
    problems: list[str] = []
    with Crew() as crew:
        step = 4 if name == "empty-file" else 1  # from nothing there are many statements that only make something
        crew.start(damage_workers.open_with_kill_at_each, model, "schema.statement", step, folder / "killed")
        assert crew.wait(LIMIT_S) == [0]
        ended = json.loads((folder / "killed").read_text())
        fired = [nth for nth, code in ended if code == -9]
        assert len(fired) >= 5, f"only {len(fired)} kills fired: {ended}"
        stores = [(nth, damage_workers.killed_at(model, nth)) for nth in fired]
        for nth, store in stores:
            problems += [
                f"killed at {nth}: {loss}" for loss in old_schemas.missing(before, old_schemas.contents(store))
            ]
        crew.start(damage_workers.do_at_each_kill, [(store, "") for _, store in stores], "open", folder / "next")
        assert crew.wait(LIMIT_S) == [0, 0]
    after = json.loads((folder / "next").read_text())
    problems += [
        f"after a kill at {nth} the next open ended with {code}" for nth, code in zip(fired, after, strict=True) if code
    ]
    for nth, store in stores:
        problems += [f"killed at {nth}: {problem}" for problem in judged(before, store)]
    assert not problems, checkers.report(problems, f"kills at each statement that upgrades {name}")


@pytest.mark.parametrize("left", ["empty", "missing"])
def test_a_log_whose_database_is_gone_is_refused_by_everyone_and_left_to_the_byte(
    fresh: Callable[[], Path], left: str
) -> None:
    folder = fresh()
    store = folder / "store"
    with Crew() as crew:
        crew.start(damage_workers.leave_hot, store, [f"memory {number}" for number in range(5)])
        assert crew.wait(LIMIT_S) == [-9]
        log = store / "memory.db-wal"
        before = log.read_bytes()
        assert len(before) > 4096, "the process left no log, so there is nothing to lose"
        (store / "memory.db").unlink()
        if left == "empty":
            (store / "memory.db").touch(mode=0o600)
        steps = list(STEPS.values())
        crew.start(workers.perform, store, folder / "one.ledger", steps)
        crew.start(workers.perform, store, folder / "two.ledger", steps[::-1])
        assert crew.wait(LIMIT_S) == [-9, 0, 0]
    calls = ledger.read(folder.glob("*.ledger"))
    problems = [] if log.exists() and log.read_bytes() == before else ["the log with the memories is gone or changed"]
    problems += [
        f"{call.action} was {call.outcome}: {call.answer}"
        for call in calls
        if call.outcome != "refused" or call.answer is None or call.answer["code"] != "STORE_CORRUPT"
    ]
    assert not problems, checkers.report(problems, f"the database is {left}, then two processes do {list(STEPS)}")


def test_those_who_open_a_store_for_the_first_time_are_never_taken_for_a_loss(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    stores = [folder / f"store-{number}" for number in range(4)]
    barrier = SPAWN.Barrier(3)
    # The makers leave the file empty for a moment; whoever looks then gives them time to go on before it looks again.
    making = Points("connection.before_wal=delay(0.03)", folder / "making")
    looking = Points("connection.log_looked_at=delay(0.2)", folder / "looking")
    with Crew() as crew:
        for number, (text, points) in enumerate([("first", making), ("second", making), ("", looking)]):
            arguments = (stores, folder / f"{number}.ledger", barrier, text)
            crew.start(damage_workers.open_together, *arguments, variables=points.variables())
        assert crew.wait(LIMIT_S) == [0] * 3
    making.assert_fired()
    looking.assert_fired()
    calls = ledger.read(folder.glob("*.ledger"))
    assert len(calls) == 12
    problems = [f"{call.process} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
    for store in stores:
        asked = [call for call in calls if call.arguments["folder"] == store.name]
        problems += checkers.adds_survive(asked, raw.read(store))
    assert not problems, checkers.report(problems, "two make and one looks at each of 4 folders")
