"""Search over a real store: literal queries in many scripts, filters inside both legs, scores and reasons."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest

from holdtrue import Memory
from holdtrue.errors import InvalidInput
from holdtrue.records import Hit, Hits
from holdtrue.search.fusion import SEMANTIC_WEIGHT


def found(hits: list[Hit]) -> list[str]:
    return [hit.text for hit in hits]


def by_words(memory: Memory, query: str, **filters: Any) -> list[str]:
    return [hit.text for hit in memory.search(query, explain=True, **filters) if hit.why["lexical"] > 0]


# -- literal queries -----------------------------------------------------------------------------------------------

NOTES = {
    "ticket": "Ticket POL-358: retry webhook twice",
    "todo": "TODO: fix pagination drift",
    "parser": "the parser doesn't accept trailing commas",
    "disk": "Never scan the whole disk from root; do not use find /",
    "c++": "migrated to C++20 toolchain",
    "spec": "spec 38.101 applies",
    "deploy": "deploy OR rollback decided by oncall",
    "path": "open path/to/settings.toml first",
}


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Memory(tmp_path_factory.mktemp("notes") / "store") as memory:
        memory.add_many(list(NOTES.values()))
        # Neighbours that hold each word alone: what is asked for literally must still come first.
        memory.add_many(["rollback plan for the archive", "a deploy in spring", "find the root cause", "fix the gate"])
        yield memory


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("POL-358", "ticket"),
        ("pol-358", "ticket"),
        ("TODO: fix", "todo"),
        ("doesn't", "parser"),
        ("DO NOT USE FIND /", "disk"),
        ("C++20", "c++"),
        ("38.101", "spec"),
        ("deploy OR rollback", "deploy"),
        ("path/to/settings.toml", "path"),
        ("-webhook", "ticket"),
        ('"unclosed webhook', "ticket"),
        ("content:fix pagination", "todo"),
        ("NEAR(webhook", "ticket"),
        ("NEAR(webhook ticket, 2)", "ticket"),
        ("^ticket", "ticket"),
        ("webhook*", "ticket"),
        ("body : webhook", "ticket"),
        ("{body} : webhook", "ticket"),
        ("webhook + twice", "ticket"),
        ("webhook AND", "ticket"),
        ("NOT webhook", "ticket"),
        ("settings.toml\0", "path"),
        ("\ud83d webhook", "ticket"),
    ],
)
def test_a_literal_query_finds_the_note_that_holds_it_first(notes: Memory, query: str, first: str) -> None:
    assert found(notes.search(query))[0] == NOTES[first]


@pytest.mark.parametrize("query", ["", "   ", "*", "(", "---", '"', "AND", "'", "\u200b", "\0", "\ud800", ")(", "??"])
def test_a_query_without_a_telling_word_finds_nothing_and_does_not_fail(notes: Memory, query: str) -> None:
    assert notes.search(query) == []


@pytest.mark.parametrize("query", ["content:fix", "body:fix", "memories_fts:fix", "rowid:1", "text:fix"])
def test_the_name_of_a_column_is_a_word_and_no_filter(notes: Memory, query: str) -> None:
    plain = by_words(notes, query.replace(":", " "))
    assert sorted(by_words(notes, query)) == sorted(plain)


def test_a_prefix_star_does_not_widen_a_word(notes: Memory) -> None:
    assert by_words(notes, "web*") == []
    assert by_words(notes, "webhook*") == [NOTES["ticket"]]


@pytest.mark.parametrize("query", [None, 3, b"bytes", ["words"]])
def test_a_query_of_another_type_is_refused(notes: Memory, query: Any) -> None:
    with pytest.raises(InvalidInput, match="query must be a string"):
        notes.search(query)


@pytest.mark.parametrize(
    "arguments", [{"limit": 0}, {"limit": 201}, {"limit": True}, {"limit": None}, {"tags": "a"}, {"since": "never"}]
)
def test_a_search_with_bad_arguments_is_refused_and_the_next_works(notes: Memory, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        notes.search("webhook", **arguments)
    assert found(notes.search("webhook", limit=1)) == [NOTES["ticket"]]


# -- scripts and forms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "row"),
    [("部署", 0), ("itgc", 0), ("支付网关", 0), ("部", 0), ("予約", 1), ("カフェ", 1), ("배포", 2), ("절차", 2)],
)
def test_a_short_word_inside_a_run_without_spaces_is_found(memory: Memory, query: str, row: int) -> None:
    texts = ["昨天把支付网关重跑gen-itgc后端部署完成", "カフェの予約システムを直した", "배포 절차를 문서화했다"]
    memory.add_many(texts)
    assert by_words(memory, query) == [texts[row]]
    assert found(memory.search(query))[0] == texts[row]


@pytest.mark.parametrize("query", ["绍兴", "署部", "約予", "포배", "网支"])
def test_letters_that_do_not_stand_together_are_not_found_as_a_word(memory: Memory, query: str) -> None:
    memory.add_many(
        ["昨天把支付网关重跑gen-itgc后端部署完成", "カフェの予約システムを直した", "배포 절차를 문서화했다"]
    )
    assert by_words(memory, query) == []


def test_every_word_is_found_in_both_normal_forms_whichever_is_stored(memory: Memory) -> None:
    composed = unicodedata.normalize("NFC", "café zürich 배포 Йога")
    decomposed = unicodedata.normalize("NFD", "resumé 배포 절차 Йод")
    memory.add_many([composed, decomposed])
    holders = {
        "café": [composed],
        "zürich": [composed],
        "배포": [composed, decomposed],
        "Йога": [composed],
        "resumé": [decomposed],
        "절차": [decomposed],
        "Йод": [decomposed],
    }
    for word, texts in holders.items():
        for form in ("NFC", "NFD"):
            assert sorted(by_words(memory, unicodedata.normalize(form, word))) == sorted(texts), (word, form)


# -- filters inside the nearest-neighbour search -------------------------------------------------------------------

QUERY = "automobile motor"
WANTED = "the car engine"
NEARER = [f"automobile motor, part {number}" for number in range(300)]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """300 memories that are nearer to the query than the one that each filter lets through."""
    with Memory(tmp_path_factory.mktemp("crowd") / "store") as memory:
        memory.add_many(
            [
                {
                    "text": text,
                    "user": "theo",
                    "project": "zoo",
                    "session": "s1",
                    "tags": ["spare"],
                    "at": "2026-01-01T00:00:00Z",
                }
                for text in NEARER
            ]
        )
        scope = {
            "user": "maya",
            "project": "home",
            "session": "s2",
            "tags": ["spare", "red"],
            "at": "2026-02-01T00:00:00Z",
        }
        memory.add(WANTED, **scope)
        yield memory


def test_without_a_filter_the_nearer_ones_fill_the_answer(crowd: Memory) -> None:
    assert WANTED not in found(crowd.search(QUERY, limit=200))


@pytest.mark.parametrize(
    "filters",
    [
        {"user": "maya"},
        {"project": "home"},
        {"session": "s2"},
        {"tags": ["red"]},
        {"tags": ["red", "spare"]},
        {"since": "2026-01-31T00:00:00Z"},
        {"since": "2026-01-31T00:00:00Z", "until": "2026-02-02T00:00:00Z", "user": "maya", "tags": ["spare"]},
    ],
    ids=lambda filters: "+".join(filters),
)
def test_the_one_that_a_filter_lets_through_is_found_by_its_meaning(crowd: Memory, filters: dict[str, Any]) -> None:
    (hit,) = crowd.search(QUERY, explain=True, **filters)
    assert hit.text == WANTED
    assert hit.why["lexical"] == 0.0
    assert hit.why["semantic"] > 0.1


def test_as_of_excludes_what_came_later_inside_the_search(memory: Memory) -> None:
    memory.add(WANTED, at="2026-01-01T00:00:00Z")
    memory.add_many([{"text": text, "at": "2026-02-01T00:00:00Z"} for text in NEARER])
    (hit,) = memory.search(QUERY, as_of="2026-01-15T00:00:00Z", explain=True)
    assert (hit.text, hit.why["lexical"]) == (WANTED, 0.0)


@pytest.mark.parametrize(
    "filters",
    [{"user": "nobody"}, {"session": ""}, {"tags": ["red", "blue"]}, {"since": "2026-03-01"}, {"until": "2025-01-01"}],
    ids=lambda filters: "+".join(filters),
)
def test_a_filter_that_nothing_passes_finds_nothing_in_either_leg(crowd: Memory, filters: dict[str, Any]) -> None:
    assert crowd.search(QUERY, **filters) == []
    assert crowd.search("car engine", **filters) == []


# -- tags ----------------------------------------------------------------------------------------------------------

TAGS = ["test", "testing", "my_tag", "myXtag", "100%", "100", "a,b", "a", "[x]", "Test", 'quo"te', "it's"]


def test_a_tag_matches_itself_alone_and_several_must_all_be_there(memory: Memory) -> None:
    for number, tag in enumerate(TAGS):
        memory.add(f"pebble number {number} is marked", tags=[tag])
    memory.add("pebble with two marks", tags=["test", "a,b"])
    for number, tag in enumerate(TAGS):
        both = ["pebble with two marks"] if tag in ("test", "a,b") else []
        wanted = sorted([f"pebble number {number} is marked", *both])
        assert sorted(record.text for record in memory.list(tags=[tag])) == wanted, tag
        assert sorted(found(memory.search("pebble", tags=[tag], limit=50))) == wanted, tag
    for tags, wanted in (
        (["test", "a,b"], ["pebble with two marks"]),
        (["test", "test"], sorted(["pebble with two marks", "pebble number 0 is marked"])),
        (["test", "testing"], []),
        (["%"], []),
        (["_"], []),
        (["tes"], []),
    ):
        assert sorted(record.text for record in memory.list(tags=tags)) == wanted, tags
        assert sorted(found(memory.search("pebble", tags=tags, limit=50))) == wanted, tags


# -- answers -------------------------------------------------------------------------------------------------------


def test_scores_lie_between_zero_and_one_best_first_and_are_json(notes: Memory) -> None:
    hits = notes.search("retry the webhook of the ticket", limit=50)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert len({hit.id for hit in hits}) == len(hits)
    json.dumps([hit.as_dict() for hit in hits], allow_nan=False)


def test_the_reason_of_a_hit_is_given_when_it_is_asked_for(notes: Memory) -> None:
    (hit,) = notes.search("POL-358", limit=1, explain=True)
    assert hit.why["phrases"] == ["POL-358", "POL", "358"]
    assert hit.why["lexical"] == 1.0
    assert 0.0 <= hit.why["semantic"] <= 1.0
    assert hit.score == pytest.approx(
        (hit.why["lexical"] + SEMANTIC_WEIGHT * hit.why["semantic"]) / (1 + SEMANTIC_WEIGHT), abs=1e-5
    )
    assert "why" in hit.as_dict()
    (plain,) = notes.search("POL-358", limit=1)
    assert plain.why == {}
    assert "why" not in plain.as_dict()


def test_an_answer_says_what_it_had_to_do_without(notes: Memory) -> None:
    hits = notes.search("webhook")
    assert isinstance(hits, Hits)
    assert hits.degraded == ()


def test_a_limit_cuts_the_answer_to_the_best(notes: Memory) -> None:
    whole = notes.search("fix the webhook", limit=200)
    assert found(notes.search("fix the webhook", limit=2)) == found(whole)[:2]
    assert len(whole) <= 200


def test_in_a_large_store_a_word_of_every_memory_neither_hides_nor_outweighs_a_rare_one(memory: Memory) -> None:
    for start in range(0, 1_200, 400):
        memory.add_many([f"note {number} of the ledger" for number in range(start, start + 400)])
    rare = memory.add("the ledger has a zanzibarine clasp").id
    assert memory.search("ledger zanzibarine", limit=1)[0].id == rare
    assert memory.search("ledger zanzibarine", limit=1, user="")[0].id == rare
    assert all("ledger" in hit.text for hit in memory.search("ledger", limit=5))
    assert len(memory.search("ledger note", limit=5)) == 5
