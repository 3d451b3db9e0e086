"""INV-004: whatever is derived of a memory agrees with its text at every commit, and nothing derived outlives it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, ledger, raw, workers
from properties.kit.expected import index_of, vector_of
from properties.kit.points import Points
from properties.kit.processes import Crew

LIMIT_S = 40.0
WORDS = ["harbour", "部署完成", "naïve", unicodedata.normalize("NFD", "café"), "C++20", "배포", "--", "予約システム"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
changes = st.lists(
    st.tuples(st.sampled_from(["update", "forget", "add"]), st.integers(0, 5), texts), min_size=4, max_size=10
)


def first_texts() -> list[str]:
    return [f"memory {number} says harbour 部署 café" for number in range(6)]


def steps_of(plan: list[tuple[str, int, str]], ids: list[str], process: str) -> list[workers.Step]:
    steps: list[workers.Step] = []
    for number, (action, target, text) in enumerate(plan):
        named = f"{text} ({process} {number})"
        if action == "add":
            steps.append({"action": "add", "text": named, "tags": ["t"], "key": f"{process}-{number}"})
        elif action == "update":
            steps.append({"action": "update", "id": ids[target], "text": named})
        else:
            steps.append({"action": "forget", "id": ids[target]})
    return steps


@given(
    plans=st.tuples(changes, changes),
    point=st.sampled_from(["derived.before_build", "derived.before_purge", "memories.between_purge_and_build", ""]),
    nth=st.integers(1, 3),
)
@example(
    plans=([("update", 0, "harbour"), ("forget", 1, "x"), ("add", 0, "café")], [("update", 0, "C++20")] * 2),
    point="memories.between_purge_and_build",
    nth=1,
)
@example(plans=([("forget", 0, "x"), ("update", 1, "部署")], [("forget", 2, "x")]), point="", nth=1)
def test_index_and_vectors_agree_with_the_texts_after_concurrent_changes_and_a_kill(
    fresh: Callable[[], Path],
    plans: tuple[list[tuple[str, int, str]], list[tuple[str, int, str]]],
    point: str,
    nth: int,
) -> None:
    folder = fresh()
    store = folder / "store"
    points = Points(f"{point}=kill@{nth}" if point else "", folder / "points")
    with Crew() as crew:
        setup = [{"action": "add", "text": text} for text in first_texts()]
        crew.start(workers.perform, store, folder / "setup.ledger", setup)
        assert crew.wait(LIMIT_S) == [0]
        ids = [call.answer["id"] for call in ledger.read([folder / "setup.ledger"]) if call.answer]
        # An update at the end reaches every point, however the plan was drawn.
        cut = [*plans[0], ("update", 5, "the last word")]
        steps = steps_of(cut, ids, "cut")
        crew.start(
            workers.perform, store, folder / "cut.ledger", steps, variables=points.variables() if point else None
        )
        crew.start(workers.perform, store, folder / "other.ledger", steps_of(plans[1], ids, "other"))
        codes = crew.wait(LIMIT_S)
    assert None not in codes, f"a process hangs: {codes}"
    problems = checkers.derived_agree(raw.read(store), index_of, vector_of)
    assert not problems, checkers.report(problems, f"plans={plans!r}, {point}@{nth}")
    unplanned = {
        call.answer["code"]
        for call in ledger.read([folder / "cut.ledger", folder / "other.ledger"])
        if call.outcome == "refused" and call.answer
    } - {"NOT_FOUND"}
    assert not unplanned, f"changes were refused with {sorted(unplanned)}: plans={plans!r}"


def test_after_each_step_of_update_forget_and_store_again_only_the_text_that_is_there_is_found(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    store = folder / "store"

    def step(name: str, *steps: workers.Step) -> list[ledger.Call]:
        path = folder / f"{name}.ledger"
        with Crew() as crew:
            crew.start(workers.perform, store, path, steps)
            assert crew.wait(LIMIT_S) == [0]
        problems = checkers.derived_agree(raw.read(store), index_of, vector_of)
        assert not problems, checkers.report(problems, name)
        return ledger.read([path])

    old, new = {"action": "search", "query": "Acme"}, {"action": "search", "query": "Beta"}
    (added,) = step("add", {"action": "add", "text": "Maya works at Acme"})
    assert added.answer is not None, "the memory could not be stored"
    id_ = added.answer["id"]
    calls = step("update", {"action": "update", "id": id_, "text": "Maya works at Beta Corp"}, old, new)
    assert not _by_words(calls[1]), "the old wording is still found after an update"
    assert _by_words(calls[2]) == [id_], "the new wording is not found after an update"
    calls = step("forget", {"action": "forget", "id": id_}, old, new, {"action": "forget", "id": id_})
    assert [call.answer["hits"] for call in calls[1:3] if call.answer] == [[], []], "a forgotten memory is found"
    assert calls[3].answer is not None, "the second forget was not answered"
    assert calls[3].answer["code"] == "NOT_FOUND", "a memory was forgotten twice"
    calls = step("again", {"action": "add", "text": "Maya works at Acme"}, old)
    assert calls[0].answer is not None, "the text could not be stored again"
    assert calls[0].answer["created"], "the text that was forgotten is not stored again"
    assert _by_words(calls[1]) == [calls[0].answer["id"]], "the text stored again is not found"


def _by_words(call: ledger.Call) -> list[str]:
    assert call.answer is not None, f"the search was {call.outcome}"
    return [hit["id"] for hit in call.answer["hits"] if hit["lexical"] > 0]
