"""The checkers tried on histories whose verdict is known: good ones they must accept, bad ones of every kind they must
reject. A check that cannot fail would make every property hold."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

import pytest

from properties.kit import checkers
from properties.kit.ledger import Call, Outcome
from properties.kit.raw import Raw, Row

VECTORS = {"harbour": b"v-harbour", "mill": b"v-mill", "gate": b"v-gate", "café": b"v-cafe"}


def index_of(text: str) -> str:
    return f"i-{text}"


def vector_of(text: str) -> bytes | None:
    return VECTORS.get(unicodedata.normalize("NFC", text))


def row(seq: int, text: str, **changed: Any) -> Row:
    good = Row(seq, f"id-{seq}", text, index_of(text), vector_of(text), pending=False)
    return replace(good, **changed)


def raw_of(*rows: Row, **changed: Any) -> Raw:
    return replace(Raw(rows, (), (), user_version=1), **changed)


def add(text: str, outcome: Outcome = "ok", id_: str = "id-1", created: bool = True, **arguments: Any) -> Call:
    answers: dict[str, dict[str, Any] | None] = {
        "ok": {"id": id_, "created": created},
        "refused": {"code": "STORE_BUSY", "message": "Waited 30 s"},
        "unknown": None,
    }
    ended = None if outcome == "unknown" else 2
    return Call("p/1", 1, "add", {"text": text, **arguments}, outcome, 1, ended, answers[outcome])


SEARCH = Call("p/1", 9, "search", {"query": "harbour"}, "ok", 1, 2, {"hits": []})

# -- adds_survive --------------------------------------------------------------------------------------------------

GOOD_ADDS = {
    "nothing happened": ([], raw_of()),
    "every acknowledged add is there": (
        [add("harbour"), add("mill", id_="id-2")],
        raw_of(row(1, "harbour"), row(2, "mill")),
    ),
    "a refused add is not there": ([add("harbour", "refused")], raw_of()),
    "an unanswered add was stored": ([add("harbour", "unknown")], raw_of(row(1, "harbour"))),
    "an unanswered add was not stored": ([add("harbour", "unknown")], raw_of()),
    "a refused add was tried again with success": (
        [add("harbour", "refused"), add("harbour")],
        raw_of(row(1, "harbour")),
    ),
    "a refused add had been unanswered before": (
        [add("harbour", "unknown"), add("harbour", "refused")],
        raw_of(row(1, "harbour")),
    ),
    "other calls stand between": ([SEARCH, add("harbour"), SEARCH], raw_of(row(1, "harbour"))),
}


@pytest.mark.parametrize("name", GOOD_ADDS)
def test_adds_that_survived_are_accepted(name: str) -> None:
    assert checkers.adds_survive(*GOOD_ADDS[name]) == []


BAD_ADDS = {
    "an acknowledged add is lost": ([add("harbour")], raw_of(), "acknowledged 'harbour' is there 0 times"),
    "an acknowledged add is there twice": (
        [add("harbour")],
        raw_of(row(1, "harbour"), row(2, "harbour")),
        "acknowledged 'harbour' is there 2 times",
    ),
    "an add was acknowledged with another id": (
        [add("harbour", id_="id-7")],
        raw_of(row(1, "harbour")),
        "was acknowledged as id-7 and is stored as id-1",
    ),
    "a refused add is stored": ([add("harbour", "refused")], raw_of(row(1, "harbour")), "refused 'harbour' is there"),
    "an unanswered add is there twice": (
        [add("harbour", "unknown")],
        raw_of(row(1, "harbour"), row(2, "harbour")),
        "unanswered 'harbour' is there 2 times",
    ),
    "a text that nobody added is there": ([], raw_of(row(1, "harbour")), "nobody asked for it"),
    "half a text is there": ([add("harbour", "unknown")], raw_of(row(1, "har")), "'har' is there and nobody"),
    "the database is damaged": ([], raw_of(damage=("row 3 missing from index",)), "row 3 missing from index"),
    "one of many is lost": (
        [add("harbour"), add("mill", id_="id-2"), add("gate", "unknown")],
        raw_of(row(1, "harbour")),
        "acknowledged 'mill' is there 0 times",
    ),
}


@pytest.mark.parametrize("name", BAD_ADDS)
def test_adds_that_did_not_survive_are_rejected_with_what_is_wrong(name: str) -> None:
    calls, state, said = BAD_ADDS[name]
    (problem,) = checkers.adds_survive(calls, state)
    assert said in problem


# -- derived_agree -------------------------------------------------------------------------------------------------

GOOD_DERIVED = {
    "an empty store": raw_of(),
    "words and vectors are those of the texts": raw_of(row(1, "harbour"), row(2, "mill")),
    "a vector is awaited": raw_of(row(1, "harbour", vector=None, pending=True)),
    "a text without a direction has no vector and awaits none": raw_of(row(1, "..."), row(2, "harbour")),
}


@pytest.mark.parametrize("name", GOOD_DERIVED)
def test_derived_data_that_agrees_is_accepted(name: str) -> None:
    assert checkers.derived_agree(GOOD_DERIVED[name], index_of, vector_of) == []


BAD_DERIVED = {
    "an orphan": (raw_of(orphans=("memories_vec holds memory 3, which is gone",)), "memory 3, which is gone"),
    "damage": (raw_of(damage=("FTS5 integrity-check: malformed",)), "malformed"),
    "the words of another text": (raw_of(row(1, "harbour", indexed="i-mill")), "is indexed as 'i-mill'"),
    "no words": (raw_of(row(1, "harbour", indexed=None)), "is indexed as None"),
    "the vector of another text": (raw_of(row(1, "harbour", vector=b"v-mill")), "has the vector of another text"),
    "a vector where there is none to have": (raw_of(row(1, "...", vector=b"v-mill")), "the vector of another text"),
    "no vector and none awaited": (raw_of(row(1, "harbour", vector=None)), "has no vector and awaits none"),
    "a vector that is there and awaited": (raw_of(row(1, "harbour", pending=True)), "has a vector and awaits one"),
    "one of many": (raw_of(row(1, "mill"), row(2, "gate", vector=None), row(3, "harbour")), "memory 2 'gate'"),
}


@pytest.mark.parametrize("name", BAD_DERIVED)
def test_derived_data_that_disagrees_is_rejected_with_what_is_wrong(name: str) -> None:
    state, said = BAD_DERIVED[name]
    (problem,) = checkers.derived_agree(state, index_of, vector_of)
    assert said in problem


# -- one_memory_a_text ---------------------------------------------------------------------------------------------

NFD = unicodedata.normalize("NFD", "café")
GOOD_TEXTS = {
    "nothing happened": ([], raw_of()),
    "one created it and the others were told the same": (
        [add("harbour"), add("harbour", created=False), add("harbour", created=False)],
        raw_of(row(1, "harbour")),
    ),
    "both normal forms are one": ([add("café"), add(NFD, created=False)], raw_of(row(1, "café"))),
    "the other form came first": ([add(NFD), add("café", created=False)], raw_of(row(1, NFD))),
}


@pytest.mark.parametrize("name", GOOD_TEXTS)
def test_texts_that_are_one_memory_each_are_accepted(name: str) -> None:
    assert checkers.one_memory_a_text(*GOOD_TEXTS[name]) == []


BAD_TEXTS = {
    "two rows": ([add("harbour")], raw_of(row(1, "harbour"), row(2, "harbour")), ["is stored 2 times"]),
    "two rows in two forms": ([add("café")], raw_of(row(1, "café"), row(2, NFD)), ["is stored 2 times"]),
    "two ids were told": (
        [add("harbour"), add("harbour", id_="id-2", created=False)],
        raw_of(row(1, "harbour")),
        ["was answered with 2 different ids"],
    ),
    "two created it": ([add("harbour"), add("harbour")], raw_of(row(1, "harbour")), ["2 adds of 'harbour'"]),
    "nobody created it": ([add("harbour", created=False)], raw_of(row(1, "harbour")), ["0 adds of 'harbour'"]),
    "it is not there": ([add("harbour")], raw_of(), ["was acknowledged and is not there"]),
    "an add was refused": ([add("harbour", "refused")], raw_of(), ["add of 'harbour' was refused"]),
    "an add was not answered": ([add("harbour", "unknown")], raw_of(row(1, "harbour")), ["was unknown"]),
    "damage": ([], raw_of(damage=("malformed",)), ["malformed"]),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_texts_that_are_not_one_memory_each_are_rejected_with_what_is_wrong(name: str) -> None:
    calls, state, said = BAD_TEXTS[name]
    problems = checkers.one_memory_a_text(calls, state)
    assert len(problems) == len(said), problems
    assert all(words in problem for words, problem in zip(said, problems, strict=True))


# -- report --------------------------------------------------------------------------------------------------------


def test_a_report_shows_the_first_problems_counts_the_rest_and_tells_the_plan() -> None:
    short = checkers.report(["one thing"], "seed 7")
    assert "one thing" in short
    assert "seed 7" in short
    assert "more" not in short
    long = checkers.report((f"problem {number}" for number in range(13)), "seed 7")
    assert "problem 9" in long
    assert "problem 10" not in long
    assert "3 more" in long
