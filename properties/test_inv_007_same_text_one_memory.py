"""INV-007: the same NFC text of one user and project is one memory, however many processes add it at once, in whatever
normal form; a key names one text of one user and project, and a retry with it is answered with the same memory."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, ledger, raw, workers
from properties.kit.points import Points
from properties.kit.processes import Crew

LIMIT_S = 40.0
TEXTS = ["café zürich", "배포 절차", "Йога в пять", "resumé of the plan", "plain words"]
FORMS = ("NFC", "NFD")
additions = st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(FORMS), st.booleans()), min_size=6, max_size=12)


@given(plans=st.lists(additions, min_size=2, max_size=3))
@example(plans=[[(text, form, keyed) for text in TEXTS for keyed in (False, True)] for form in FORMS])
def test_overlapping_adds_of_several_processes_store_each_text_once(
    fresh: Callable[[], Path], plans: list[list[tuple[str, str, bool]]]
) -> None:
    folder = fresh()
    store = folder / "store"
    # Between the look and the insert is where a second process would slip in.
    points = Points("memories.between_check_and_insert=delay(0.002)", folder / "points")
    with Crew() as crew:
        for number, plan in enumerate(plans):
            steps: list[workers.Step] = [
                {
                    "action": "add",
                    "text": unicodedata.normalize(form, text),
                    "source": f"process-{number}",
                    **({"key": text} if keyed else {}),
                }
                for text, form, keyed in plan
            ]
            path = folder / f"adder-{number}.ledger"
            crew.start(workers.perform, store, path, steps, 2, variables=points.variables())
        codes = crew.wait(LIMIT_S)
    assert codes == [0] * len(plans), f"processes ended with {codes}"
    points.assert_fired()
    problems = checkers.one_memory_a_text(ledger.read(folder.glob("*.ledger")), raw.read(store))
    assert not problems, checkers.report(problems, repr(plans))


def test_a_key_answers_retries_refuses_another_text_and_is_free_after_a_forget(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store = folder / "store"

    def step(name: str, *steps: workers.Step) -> list[ledger.Call]:
        path = folder / f"{name}.ledger"
        with Crew() as crew:
            crew.start(workers.perform, store, path, steps)
            assert crew.wait(LIMIT_S) == [0]
        return ledger.read([path])

    add = {"action": "add", "text": "rotate the logs weekly", "key": "ops-1"}
    first, other, retry, elsewhere = step(
        "keys", add, {**add, "text": "rotate the logs daily"}, add, {**add, "user": "maya", "text": "another scope"}
    )
    assert first.answer is not None, "the first add was not answered"
    assert other.answer is not None, "the second add was not answered"
    assert (other.outcome, other.answer["code"]) == ("refused", "KEY_CONFLICT")
    assert retry.answer is not None, "the retry was not answered"
    assert (retry.answer["id"], retry.answer["created"]) == (first.answer["id"], False)
    assert elsewhere.outcome == "ok", f"a key of another user was {elsewhere.outcome}: {elsewhere.answer}"
    assert sorted(raw.read(store).texts()) == ["another scope", "rotate the logs weekly"]
    _, freed = step("freed", {"action": "forget", "id": first.answer["id"]}, {**add, "text": "rotate the logs never"})
    assert freed.outcome == "ok", f"the key of a forgotten memory was {freed.outcome}: {freed.answer}"
