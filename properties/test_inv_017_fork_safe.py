"""INV-017: a process that forks while it uses the store loses nothing, and the child can do the store no harm.

SQLite's table of locks is inherited by the child, which then takes none of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, ledger, life_workers, raw, workers
from properties.kit.processes import Crew

LIMIT_S = 60.0


@given(threads=st.integers(1, 3), forks=st.integers(1, 2), way=st.sampled_from(["exit", "close", "exec"]))
@example(threads=2, forks=2, way="close")
@example(threads=2, forks=1, way="exec")
def test_children_forked_among_writing_threads_are_refused_and_cost_nothing(
    fresh: Callable[[], Path], threads: int, forks: int, way: str
) -> None:
    folder = fresh()
    store, result = folder / "store", folder / "result"
    with Crew() as crew:
        crew.start(life_workers.fork_while_writing, store, folder / "parent.ledger", result, threads, forks, way)
        plan = [{"action": "add", "text": f"a neighbour says {number}"} for number in range(15)]
        crew.start(workers.perform, store, folder / "neighbour.ledger", plan)
        codes = crew.wait(LIMIT_S)
    assert codes == [0, 0], f"the processes ended with {codes}"
    for answers in json.loads(result.read_text()):
        assert set(answers.split()) == {"STORE_FORKED"}, f"a forked child was answered {answers}"
    calls = ledger.read(folder.glob("*.ledger"))
    state = raw.read(store)
    state = replace(state, rows=tuple(row for row in state.rows if row.text != "the store is open from here on"))
    problems = checkers.adds_survive(calls, state)
    problems += [f"{call.process} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"]
    assert not problems, checkers.report(problems, f"{threads} threads, {forks} forks, children end by {way}")
