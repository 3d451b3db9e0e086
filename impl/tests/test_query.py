"""A query as words: any text is literal, nothing in it is syntax, and what is indexed meets what is asked."""

from __future__ import annotations

import unicodedata

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdtrue.errors import InvalidInput
from holdtrue.records import QUERY_LIMIT, valid_unicode
from holdtrue.search.fusion import fuse
from holdtrue.search.query import STOP_WORDS, parse, words_of
from holdtrue.store.segment import index_text

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=120)
SCRIPTS = st.text("ab部署カフェが배포ไทย é\u0301\u3099- _\"'", max_size=60)


@settings(max_examples=80)
@given(st.one_of(ANY_TEXT, SCRIPTS))
@example('\ud83d\0 "NEAR(')
def test_any_text_is_a_query_of_words_and_never_raises(text: str) -> None:
    query = parse(text)
    query.text.encode()
    assert "\0" not in query.text
    assert len(query.phrases) <= 64
    assert len(set(query.phrases)) == len(query.phrases)
    for phrase in query.phrases:
        assert phrase.strip()
        assert any(character.isalnum() for character in phrase)
    assert query.telling == any(phrase.lower() not in STOP_WORDS for phrase in query.phrases)


@pytest.mark.parametrize("value", [None, 3, b"bytes", ["words"], True])
def test_a_query_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="query must be a string"):
        parse(value)


@pytest.mark.parametrize("text", ["", "   ", "\u200b", "*", "(", "---", '"', "'", "\0", "_", "^^", "()[]{}", "\ud800"])
def test_a_query_without_a_word_asks_for_nothing(text: str) -> None:
    query = parse(text)
    assert (query.phrases, query.telling) == ((), False)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("POL-358", ("POL-358", "POL", "358")),
        ("doesn't", ("doesn't", "doesn")),
        ("NEAR(webhook", ("NEAR(webhook", "NEAR", "webhook")),
        ("where is the harbour", ("harbour",)),
        ("who are you", ("who", "are", "you")),
        ("AND", ("AND",)),
        ("支付网关", ("支付", "付网", "网关")),
        ("部", ("部",)),
        ("gen-itgc后端", ("gen", "itgc", "后端")),
        ("twice twice TWICE", ("twice", "TWICE")),
    ],
)
def test_a_query_is_cut_into_these_phrases(text: str, phrases: tuple[str, ...]) -> None:
    assert parse(text).phrases == phrases


def test_both_normal_forms_are_one_query() -> None:
    for text in ("café zürich", "배포 절차", "Йога", "カフェが"):
        assert parse(unicodedata.normalize("NFD", text)) == parse(unicodedata.normalize("NFC", text))


def test_a_long_query_is_cut_and_not_refused() -> None:
    assert len(parse("w" * 10_000).text) == QUERY_LIMIT
    assert len(parse(" ".join(f"w{number}" for number in range(300))).phrases) == 64


@settings(max_examples=80)
@given(st.one_of(ANY_TEXT, SCRIPTS))
def test_the_index_text_is_valid_and_cutting_it_again_changes_nothing(text: str) -> None:
    once = index_text(text)
    once.encode()
    assert "\0" not in once
    assert unicodedata.is_normalized("NFC", once)
    assert index_text(once).split() == once.split()
    normal = unicodedata.normalize("NFC", valid_unicode(text)).replace("\0", " ")
    assert "".join(once.split()) == "".join(normal.split())


@settings(max_examples=80)
@given(ANY_TEXT)
def test_the_index_text_is_the_same_for_both_normal_forms(text: str) -> None:
    forms = {index_text(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert len(forms) == 1


def test_an_index_text_stands_each_letter_of_an_unspaced_script_alone() -> None:
    assert index_text("gen后端ok").split() == ["gen", "后", "端", "ok"]
    assert index_text(unicodedata.normalize("NFD", "배포")).split() == ["배", "포"]
    assert index_text("plain words") == "plain words"
    assert words_of("POL-358: Retry, twice!") == "pol 358 retry twice"


@settings(max_examples=80)
@given(SCRIPTS.filter(lambda text: parse(text).phrases), st.sampled_from(["", "x ", "部", '( "']))
def test_a_text_is_matched_by_every_phrase_of_itself_inside_fts5(text: str, before: str) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE t USING fts5(b, tokenize='porter unicode61 remove_diacritics 2')"
    ).fetchall()
    connection.execute("INSERT INTO t VALUES(?)", (index_text(f"{before} {text}"),)).fetchall()
    for phrase in parse(text).phrases:
        quoted = '"' + index_text(phrase).replace('"', '""') + '"'
        assert connection.execute("SELECT 1 FROM t WHERE t MATCH ?", (quoted,)).fetchall() == [(1,)], phrase


# -- fusion --------------------------------------------------------------------------------------------------------

weights = st.dictionaries(st.integers(1, 30), st.floats(0, 50), max_size=12)
cosines = st.dictionaries(st.integers(1, 30), st.floats(-1, 1), max_size=12)


@settings(max_examples=80)
@given(weights, cosines, st.floats(0, 0.95))
def test_scores_lie_between_zero_and_one_best_first_and_each_memory_stands_once(
    lexical: dict[int, float], semantic: dict[int, float], unrelated: float
) -> None:
    fused = fuse(lexical, semantic, unrelated=unrelated)
    seqs = [one.seq for one in fused]
    assert len(set(seqs)) == len(seqs)
    assert lexical.keys() <= set(seqs) <= lexical.keys() | semantic.keys()
    assert [one.score for one in fused] == sorted((one.score for one in fused), reverse=True)
    for one in fused:
        assert 0.0 <= one.lexical <= 1.0
        assert 0.0 <= one.semantic <= 1.0
        assert 0.0 <= one.score <= 1.0


def test_ties_go_to_the_newer_and_likeness_decides_between_equal_words() -> None:
    assert [one.seq for one in fuse({1: 5.0, 2: 5.0}, {}, unrelated=0.0)] == [2, 1]
    assert [one.seq for one in fuse({1: 5.0, 2: 5.0}, {1: 0.6, 2: 0.5}, unrelated=0.0)] == [1, 2]
    assert [one.seq for one in fuse({1: 5.0, 2: 1.0}, {1: 0.5, 2: 0.5}, unrelated=0.0)] == [1, 2]


def test_what_has_no_word_and_is_no_nearer_than_unrelated_texts_are_is_no_answer() -> None:
    assert fuse({}, {1: 0.5, 2: -1.0}, unrelated=0.5) == []
    assert {one.seq for one in fuse({2: 1.0}, {1: 0.9, 2: 0.1}, unrelated=0.5)} == {1, 2}
