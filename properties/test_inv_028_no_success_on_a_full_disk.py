"""INV-028: a write that meets a full disk is refused and leaves nothing; with room again the next one works.

Attacked on a small disk that really fills up: processes add until it is full, from the very first statement of a new
store or in the middle of its life, and one of them is killed at a named point. What counts is what is in the files when
there is room again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from holdtrue import Memory
from holdtrue.errors import StoreFull
from properties.kit import checkers, ledger, place_workers, places, raw
from properties.kit.expected import index_of, vector_of
from properties.kit.processes import Crew

LIMIT_S = 40.0
BALLAST_KIB = 1_536  # what is removed to make room
FULL = {"STORE_FULL", "OUTCOME_UNKNOWN"}


@dataclass(frozen=True)
class Plan:
    """Two writers add texts of `letters` on a disk with `free_kib`; the first is killed at the `nth` hit of `point`."""

    free_kib: int
    letters: int
    point: str
    nth: int


plans = st.builds(
    Plan,
    free_kib=st.integers(4, 1_400),  # a new store takes about 800 KiB until its first checkpoint
    letters=st.sampled_from([20, 3_000, 40_000]),
    point=st.sampled_from(
        [
            "connection.before_wal",
            "schema.statement",
            "writer.group_done",
            "writer.before_commit",
            "writer.after_commit",
        ]
    ),
    nth=st.integers(1, 4),
)


def adds(process: str, plan: Plan) -> list[place_workers.Step]:
    count = 12 if plan.letters > 100 else 6
    return [
        {"action": "add", "text": f"{process} fact {n} {'word ' * (plan.letters // 5)}".strip()} for n in range(count)
    ]


@given(plan=plans)
@example(plan=Plan(free_kib=1_100, letters=40_000, point="writer.after_commit", nth=2))
def test_what_was_acknowledged_on_a_filling_disk_is_there_and_what_was_refused_is_not(
    fresh: Callable[[], Path], plan: Plan
) -> None:
    folder = fresh()
    with places.small_disk(folder, (plan.free_kib + BALLAST_KIB) * 1024) as place:
        ballast = place.folder.parent / "ballast"
        ballast.write_bytes(b"\0" * (BALLAST_KIB * 1024))
        with Crew() as crew:
            kill = {"HOLDTRUE_FAILPOINTS": f"{plan.point}=kill@{plan.nth}"}
            crew.start(place_workers.perform, place, folder / "victim.ledger", adds("victim", plan), variables=kill)
            crew.start(place_workers.perform, place, folder / "writer.ledger", adds("writer", plan))
            codes = crew.wait(LIMIT_S)
            assert codes[0] in (-9, 0), f"the victim ended with {codes[0]}, by no kill of ours: {plan}"
            assert codes[1] == 0, f"the writer ended with {codes[1]}: {plan}"
        full = any(call.answer and call.answer.get("code") in FULL for call in ledger.read(folder.glob("*.ledger")))
        # The next process to come, first on the disk as it is, then with room on it.
        with Memory(place.folder) as memory:
            try:
                before = memory.list(limit=100).total
            except StoreFull:
                before = 0  # there was no room to make the store
            ballast.unlink()
            memory.add("with room again")
            assert memory.list(limit=100).total >= before + 1
        state = raw.read(place.folder)
    calls = [without_an_outcome(call) for call in ledger.read(folder.glob("*.ledger"))]
    there = replace(state, rows=tuple(row for row in state.rows if row.text != "with room again"))
    problems = checkers.adds_survive(calls, there) + checkers.derived_agree(state, index_of, vector_of)
    refused = [call for call in calls if call.outcome == "refused"]
    problems += [
        f"{call.process} {call.action} was refused with {call.answer}"
        for call in refused
        if call.answer is None or call.answer["code"] not in FULL
    ]
    assert not problems, checkers.report(problems, repr(plan))
    if plan.free_kib < 800:
        assert full, f"nobody met a full disk, so this tested nothing: {plan}"


def test_a_disk_that_is_full_before_the_first_memory_is_told_and_spoils_nothing(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    with places.small_disk(folder, 2 * 1024 * 1024) as place:
        ballast = places.fill(place.folder.parent) if place.budget_bytes is None else None
        if ballast is None:
            ballast = place.folder.parent / "ballast"
            ballast.write_bytes(b"\0" * (place.budget_bytes or 0))
        steps = [{"action": "add", "text": f"refused {number}"} for number in range(3)]
        steps += [{"action": "remove", "path": str(ballast)}, {"action": "add", "text": "with room again"}]
        calls = places.carried_out(place, folder / "one.ledger", steps)
        state = raw.read(place.folder)
    assert [(call.answer or {}).get("code") for call in calls[:3]] == ["STORE_FULL"] * 3, calls
    assert calls[-1].outcome == "ok", calls[-1]
    problems = checkers.adds_survive([call for call in calls if call.action == "add"], state)
    assert not problems, checkers.report(problems, "a disk that is full from the beginning")


def without_an_outcome(call: ledger.Call) -> ledger.Call:
    """A refusal that says it does not know is judged as no reply at all."""
    unknown = call.outcome == "refused" and call.answer is not None and call.answer["code"] == "OUTCOME_UNKNOWN"
    return replace(call, outcome="unknown") if unknown else call
