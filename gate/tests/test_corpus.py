"""The corpus of toy commits: one a rule or a trap, each with the verdicts that the gate must give."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest

from gate.tests import corpus_runner
from holdtrue_gate.verdict import Verdict

TOYS = corpus_runner.entries()
PROBLEMS = {"no-tests", "overlay-failed"}  # no-parent and history-missing need a history: test_gate_history.py
LIMIT_S = 110


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[dict[str, Any]]]]:
    """The answers to every toy that this session chose, in the making: as many at once as there are cores."""
    chosen = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_the_gate_says_what_the_corpus_expects
    ]
    workers = max(2, min(os.cpu_count() or 1, 8))
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        yield {
            name: executor.submit(corpus_runner.judge, TOYS[name])
            for name in chosen
            if not corpus_runner.missing(TOYS[name])
        }
    finally:
        executor.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", list(TOYS))
def test_the_gate_says_what_the_corpus_expects(name: str, answers: dict[str, Future[dict[str, Any]]]) -> None:
    toy = TOYS[name]
    if absent := corpus_runner.missing(toy):
        pytest.skip(f"{', '.join(absent)} is not installed")
    answer, expected = answers[name].result(LIMIT_S), toy["expected"]
    if "error" in expected:
        assert answer.get("error") == expected["error"]
        return
    assert "error" not in answer, answer
    verdicts = {id_: test["verdict"] for id_, test in answer["tests"].items()}
    told = {id_: test["reason"] for id_, test in answer["tests"].items()}
    assert verdicts == expected.get("tests", {}), (told, answer["told"])
    for key in ("kind", "result", "problems", "blocking"):
        if key in expected or key == "problems":
            assert answer[key] == expected.get(key, []), (key, answer["reason"], told)
    for id_, details in expected.get("details", {}).items():
        for key, value in details.items():
            found = answer["tests"][id_][key]
            same = found == value if isinstance(value, bool) else re.search(value, found)
            assert same, f"{id_}: {key} is {found!r}, not {value!r}"
    for note in expected.get("notes", []):
        assert any(re.search(note, line) for line in answer["notes"]), answer["notes"]


def test_the_corpus_has_every_verdict_every_problem_and_eighty_commits() -> None:
    assert len(TOYS) >= 80
    given = {verdict for toy in TOYS.values() for verdict in toy["expected"].get("tests", {}).values()}
    assert given == {str(verdict) for verdict in Verdict}
    assert {code for toy in TOYS.values() for code in toy["expected"].get("problems", [])} == PROBLEMS


def test_no_toy_of_the_corpus_is_there_for_nothing() -> None:
    for name, toy in TOYS.items():
        assert toy["about"], name
        assert {"tests", "problems", "error", "result"} & toy["expected"].keys(), name
