"""The facade: what each call answers, what it refuses, and what it leaves behind when it refuses."""

from __future__ import annotations

import datetime as dt
import json
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdtrue import Memory
from holdtrue.errors import (
    HoldTrueError,
    InvalidInput,
    KeyConflict,
    NotFound,
    StoreClosed,
    TextBlank,
    TextConflict,
    TextTooLong,
)

UNKNOWN = "01890000-0000-7000-8000-000000000000"


def texts(memory: Memory, **filters: Any) -> list[str]:
    return [record.text for record in memory.list(**filters)]


# -- add -----------------------------------------------------------------------------------------------------------


def test_an_add_returns_the_memory_as_it_is_stored(memory: Memory) -> None:
    added = memory.add(
        "Deploys go out on Tuesdays",
        user="maya",
        project="billing",
        session="s-1",
        speaker="assistant",
        at="2026-03-04T12:00:00+01:00",
        tags=["ops", "deploy"],
        metadata={"ticket": "POL-1", "deep": {"list": [1, None]}},
        source="chat",
    )
    assert added.created
    assert (added.user, added.project, added.session, added.speaker) == ("maya", "billing", "s-1", "assistant")
    assert added.at == dt.datetime(2026, 3, 4, 11, tzinfo=dt.UTC)
    assert added.tags == ("deploy", "ops")
    assert added.metadata == {"ticket": "POL-1", "deep": {"list": [1, None]}}
    assert (added.source, added.revision, added.sources, added.degraded) == ("chat", 1, 1, ())
    got = memory.get(added.id)
    assert got.as_dict() == added.as_dict()
    assert not got.created
    json.dumps(got.as_dict(), allow_nan=False).encode()


def test_an_add_without_a_time_is_of_now(memory: Memory) -> None:
    before = dt.datetime.now(dt.UTC)
    added = memory.add("now")
    assert before <= added.at <= dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"text": ""}, TextBlank),
        ({"text": "\u200b\u2060"}, TextBlank),
        ({"text": "x" * 50_001}, TextTooLong),
        ({"text": None}, InvalidInput),
        ({"text": "a\0b"}, InvalidInput),
        ({"text": "t", "tags": "ops"}, InvalidInput),
        ({"text": "t", "tags": ["x"] * 3 + [3]}, InvalidInput),
        ({"text": "t", "metadata": {"x": float("nan")}}, InvalidInput),
        ({"text": "t", "metadata": ["x"]}, InvalidInput),
        ({"text": "t", "at": "yesterday"}, InvalidInput),
        ({"text": "t", "at": float("nan")}, InvalidInput),
        ({"text": "t", "user": None}, InvalidInput),
        ({"text": "t", "key": " "}, InvalidInput),
        ({"text": "t", "source": 3}, InvalidInput),
    ],
)
def test_a_refused_add_changes_nothing_and_the_next_call_works(
    memory: Memory, arguments: dict[str, Any], error: type[HoldTrueError]
) -> None:
    memory.add("was here before")
    before = memory.status()
    with pytest.raises(error) as refusal:
        memory.add(**arguments)
    assert refusal.value.as_dict()["code"] == error.code
    assert memory.status() == before
    assert memory.add("comes after").created


def test_a_lone_surrogate_is_stored_as_the_replacement_character_and_every_answer_is_valid_utf8(memory: Memory) -> None:
    added = memory.add("x \ud83d y", user="u\udfff", tags=["t\ud800"], metadata={"k\ud800": "v\ud800"}, source="\ud800")
    assert added.text == "x \ufffd y"
    for answer in (memory.get(added.id), memory.search("x \ud83d y")[0], memory.list()):
        json.dumps(answer.as_dict(), ensure_ascii=False).encode()


def test_the_same_text_is_one_memory_that_counts_its_sources(memory: Memory) -> None:
    first = memory.add("say it once", source="a", tags=["kept"], at="2026-01-01T00:00:00Z")
    again = memory.add("say it once", source="b", tags=["other"], at="2026-02-02T00:00:00Z")
    third = memory.add("say it once", source="b")
    assert (again.id, again.created, again.sources) == (first.id, False, 2)
    assert third.sources == 3
    assert memory.get(first.id).tags == ("kept",)
    assert memory.get(first.id).at == first.at
    assert memory.list().total == 1


def test_the_same_text_of_another_user_or_project_is_another_memory(memory: Memory) -> None:
    scopes = [{}, {"user": "maya"}, {"project": "billing"}, {"user": "maya", "project": "billing"}]
    assert len({memory.add("one text", **scope).id for scope in scopes}) == 4
    assert not memory.add("one text", session="another session").created


def test_the_text_is_returned_as_it_was_first_stored(memory: Memory) -> None:
    decomposed = unicodedata.normalize("NFD", "café 배포")
    first = memory.add(decomposed)
    again = memory.add(unicodedata.normalize("NFC", decomposed))
    assert (again.id, again.created) == (first.id, False)
    assert memory.get(first.id).text == decomposed


# -- keys ----------------------------------------------------------------------------------------------------------


def test_a_key_names_one_text_of_one_user_and_project(memory: Memory) -> None:
    first = memory.add("rotate weekly", key="ops-1")
    retry = memory.add("rotate weekly", key="ops-1")
    assert (retry.id, retry.created) == (first.id, False)
    with pytest.raises(KeyConflict) as conflict:
        memory.add("rotate daily", key="ops-1")
    assert conflict.value.details["id"] == first.id
    assert memory.add("rotate daily", key="ops-1", user="maya").created
    assert memory.add("rotate daily", key="ops-1", project="billing").created
    assert texts(memory, user="", project="") == ["rotate weekly"]


def test_a_retry_with_a_key_is_answered_after_an_update_and_the_key_is_free_after_a_forget(memory: Memory) -> None:
    first = memory.add("rotate weekly", key="ops-1")
    memory.update(first.id, "rotate monthly")
    retry = memory.add("rotate weekly", key="ops-1")
    assert (retry.id, retry.text, retry.created) == (first.id, "rotate monthly", False)
    memory.forget(first.id)
    assert memory.add("rotate never", key="ops-1").created


def test_a_text_that_is_there_may_be_given_a_key_later(memory: Memory) -> None:
    first = memory.add("rotate weekly")
    assert memory.add("rotate weekly", key="ops-1").id == first.id
    with pytest.raises(KeyConflict):
        memory.add("another text", key="ops-1")


# -- add_many ------------------------------------------------------------------------------------------------------


def test_add_many_answers_in_order_and_each_item_may_be_a_text_or_a_mapping(memory: Memory) -> None:
    added = memory.add_many(["one", {"text": "two", "user": "maya", "tags": ["t"]}, "one"])
    assert [(record.text, record.user, record.created) for record in added] == [
        ("one", "", True),
        ("two", "maya", True),
        ("one", "", False),
    ]
    assert added[0].id == added[2].id
    assert memory.add_many([]) == []


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"text": "x", "colour": "red"}, "unknown fields: colour"),
        ({"user": "maya"}, "no text"),
        ({"text": ""}, "blank"),
        ({"text": "x" * 50_001}, "50,001"),
        ({"text": "x", "at": "never"}, "ISO 8601"),
        (7, "Item 1 is a int"),
        (None, "Item 1 is a NoneType"),
    ],
)
def test_a_bad_item_is_named_by_its_number_and_none_is_stored(memory: Memory, item: Any, said: str) -> None:
    memory.open()
    with pytest.raises(InvalidInput, match="Item 1") as refusal:
        memory.add_many(["good before", item, "good after"])
    assert said in str(refusal.value)
    assert refusal.value.details["item"] == 1
    assert texts(memory) == []


def test_a_conflict_in_the_middle_leaves_nothing_of_the_batch(memory: Memory) -> None:
    memory.add("rotate weekly", key="ops-1")
    before = memory.status()
    with pytest.raises(KeyConflict):
        memory.add_many(
            ["first", {"text": "rotate daily", "key": "ops-1", "user": ""}, {"text": "last", "user": "new"}]
        )
    assert memory.status() == before
    assert memory.list(user="new").total == 0
    assert memory.verify() == []


def test_the_names_that_a_refused_write_brought_along_serve_the_next_one(memory: Memory) -> None:
    memory.add("rotate weekly", key="ops-1")
    with pytest.raises(KeyConflict):
        memory.add_many([{"text": "first", "session": "new"}, {"text": "rotate daily", "key": "ops-1"}])
    with pytest.raises(KeyConflict):
        memory.add("rotate daily", key="ops-1", session="newer")
    memory.add("between", session="another one", user="someone")
    for session in ("new", "newer"):
        memory.add(f"in session {session}", session=session)
        assert texts(memory, session=session) == [f"in session {session}"]
        assert [hit.text for hit in memory.search("session", session=session)] == [f"in session {session}"]
    assert texts(memory, session="another one") == ["between"]
    assert memory.list().total == 4


@pytest.mark.parametrize("items", ["one text", b"bytes", {"text": "one"}])
def test_a_batch_that_is_no_list_is_refused(memory: Memory, items: Any) -> None:
    with pytest.raises(InvalidInput, match="items must be a list"):
        memory.add_many(items)


def test_a_batch_may_have_a_thousand_items_and_not_one_more(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="1,000"):
        memory.add_many(f"fact number {number}" for number in range(1_001))
    assert memory.list().total == 0
    assert len(memory.add_many(f"fact number {number}" for number in range(1_000))) == 1_000
    assert memory.list().total == 1_000


# -- update, forget, get -------------------------------------------------------------------------------------------


def test_an_update_changes_the_text_and_counts_a_revision(memory: Memory) -> None:
    first = memory.add("Maya works at Acme", tags=["people"], source="chat")
    changed = memory.update(first.id, "Maya works at Beta Corp")
    assert (changed.id, changed.text, changed.revision, changed.created) == (
        first.id,
        "Maya works at Beta Corp",
        2,
        False,
    )
    assert changed.updated_at > first.updated_at
    assert (changed.at, changed.created_at, changed.tags) == (first.at, first.created_at, first.tags)
    assert memory.get(first.id).text == "Maya works at Beta Corp"


def test_an_update_to_the_same_text_changes_nothing(memory: Memory) -> None:
    first = memory.add("as it is")
    before = memory.status()
    assert memory.update(first.id, "as it is").as_dict() == first.as_dict()
    assert memory.status() == before


def test_an_update_to_another_normal_form_keeps_one_memory(memory: Memory) -> None:
    first = memory.add("café")
    decomposed = unicodedata.normalize("NFD", "café")
    assert memory.update(first.id, decomposed).text == decomposed
    assert not memory.add("café").created
    assert memory.verify() == []


def test_an_update_to_the_text_of_another_memory_is_refused(memory: Memory) -> None:
    first, second = memory.add("one"), memory.add("two")
    elsewhere = memory.add("three", user="maya")
    with pytest.raises(TextConflict) as conflict:
        memory.update(second.id, "one")
    assert (conflict.value.details["id"], conflict.value.details["other"]) == (second.id, first.id)
    assert memory.get(second.id).text == "two"
    assert memory.update(elsewhere.id, "one").text == "one"
    assert memory.verify() == []


@pytest.mark.parametrize(
    ("text", "error"), [("", TextBlank), ("x" * 50_001, TextTooLong), (None, InvalidInput), ("a\0", InvalidInput)]
)
def test_a_refused_update_leaves_the_text_before(memory: Memory, text: Any, error: type[HoldTrueError]) -> None:
    first = memory.add("stays")
    with pytest.raises(error):
        memory.update(first.id, text)
    assert memory.get(first.id).as_dict() == first.as_dict()


def test_an_unknown_id_is_not_found_whatever_is_asked_of_it(memory: Memory) -> None:
    memory.add("someone else")
    before = memory.status()
    for id_ in (UNKNOWN, "no uuid at all", "' OR 1=1 --", "\ud800"):
        for call in (memory.get, memory.forget, lambda id_: memory.update(id_, "text")):
            with pytest.raises(NotFound):
                call(id_)
    assert memory.status() == before


@pytest.mark.parametrize("id_", [None, 3, "", "a\0b", b"id", "i" * 2_000])
def test_what_can_be_no_id_is_refused(memory: Memory, id_: Any) -> None:
    for call in (memory.get, memory.forget, lambda id_: memory.update(id_, "text")):
        with pytest.raises(InvalidInput):
            call(id_)


def test_a_forgotten_memory_is_gone_for_every_call(memory: Memory) -> None:
    first = memory.add("Maya works at Acme", key="k", tags=["people"])
    receipt = memory.forget(first.id)
    assert (receipt.id, receipt.forgotten, receipt.erased, receipt.waiting_for) == (first.id, True, True, ())
    for call in (memory.get, memory.forget, lambda id_: memory.update(id_, "again")):
        with pytest.raises(NotFound):
            call(first.id)
    assert memory.search("Acme") == []
    assert memory.search("who has which employer?") == []
    assert (memory.list().total, memory.list(tags=["people"]).total) == (0, 0)
    assert memory.status()["forgotten"] == 1


# -- list ----------------------------------------------------------------------------------------------------------


def test_a_list_is_newest_first_and_its_pages_join_without_gap_or_overlap(memory: Memory) -> None:
    memory.add_many([{"text": f"day {day}", "at": f"2026-03-{day:02}T00:00:00Z"} for day in (3, 1, 2, 5, 4)])
    memory.add_many([{"text": f"tie {number}", "at": "2026-03-06T00:00:00Z"} for number in range(3)])
    wanted = ["tie 2", "tie 1", "tie 0", "day 5", "day 4", "day 3", "day 2", "day 1"]
    assert texts(memory) == wanted
    pages = [memory.list(limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [record.text for page in pages for record in page] == wanted
    assert [(len(page), page.total) for page in pages] == [(3, 8), (3, 8), (2, 8), (0, 8)]


@pytest.mark.parametrize(
    "arguments",
    [{"limit": 0}, {"limit": 501}, {"limit": True}, {"limit": "5"}, {"offset": -1}, {"offset": 1.0}, {"tags": "x"}],
)
def test_a_list_with_bad_arguments_is_refused(memory: Memory, arguments: dict[str, Any]) -> None:
    memory.add("one")
    with pytest.raises(InvalidInput):
        memory.list(**arguments)
    assert memory.list(limit=500, offset=2**62).total == 1


def test_an_empty_scope_is_the_default_one_and_none_is_any(memory: Memory) -> None:
    memory.add_many(
        [{"text": "nobody's"}, {"text": "maya's", "user": "maya"}, {"text": "billing", "project": "billing"}]
    )
    assert sorted(texts(memory)) == ["billing", "maya's", "nobody's"]
    assert sorted(texts(memory, user="")) == ["billing", "nobody's"]
    assert texts(memory, user="", project="") == ["nobody's"]
    assert texts(memory, user="maya") == ["maya's"]
    assert texts(memory, user="someone never seen") == []
    assert texts(memory, session="") == texts(memory)


def test_a_range_of_time_holds_its_beginning_and_not_its_end(memory: Memory) -> None:
    for at in ("11:59:59.999999", "12:00:00", "12:59:59.999999", "13:00:00"):
        memory.add(f"at {at}", at=f"2026-03-04T{at}Z")
    found = {"since": "2026-03-04T12:00:00Z", "until": "2026-03-04T13:00:00Z"}
    assert sorted(texts(memory, **found)) == ["at 12:00:00", "at 12:59:59.999999"]
    assert sorted(hit.text for hit in memory.search("at", **found)) == ["at 12:00:00", "at 12:59:59.999999"]
    assert texts(memory, since="2026-03-04T12:00:00Z", until="2026-03-04T12:00:00Z") == []
    assert sorted(texts(memory, since="2026-03-04T21:59:59.999999+09:00")) == ["at 12:59:59.999999", "at 13:00:00"]


LOCAL_DAYS = """
import sys, time
time.tzset()
from holdtrue import Memory
with Memory(sys.argv[1]) as memory:
    memory.add("late in the evening", at="2026-03-04T23:30:00")
    for since, until in (("2026-03-04", "2026-03-05"), ("2026-03-05", "2026-03-06"), ("2026-03-03", "2026-03-04")):
        print(len(memory.list(since=since, until=until)), len(memory.search("evening", since=since, until=until)))
    utc = memory.list().memories[0].at.isoformat()
    print(utc, len(memory.list(since=utc)))
"""


@pytest.mark.parametrize(
    ("zone", "utc"),
    [("Asia/Tokyo", "2026-03-04T14:30:00+00:00"), ("America/Los_Angeles", "2026-03-05T07:30:00+00:00")],
)
def test_a_naive_time_means_the_same_local_day_when_stored_and_when_asked(
    run_python: Callable[..., CompletedProcess[str]], store: Path, zone: str, utc: str
) -> None:
    done = run_python(LOCAL_DAYS, store, TZ=zone)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["1 1", "0 0", "0 0", f"{utc} 1"]


# -- as of ---------------------------------------------------------------------------------------------------------


def moment() -> dt.datetime:
    """A time between what was done before and what is done after."""
    time.sleep(0.002)
    now = dt.datetime.now(dt.UTC)
    time.sleep(0.002)
    return now


def test_as_of_answers_with_the_text_of_that_time(memory: Memory) -> None:
    before = moment()
    first = memory.add("Maya works at Acme")
    at_acme = moment()
    memory.update(first.id, "Maya works at Beta Corp")
    at_beta = moment()
    memory.update(first.id, "Maya works at Gamma Ltd")
    found = {
        when: [(hit.text, hit.record.revision) for hit in memory.search("where does Maya work", as_of=when)]
        for when in (before, at_acme, at_beta, None)
    }
    assert found == {
        before: [],
        at_acme: [("Maya works at Acme", 1)],
        at_beta: [("Maya works at Beta Corp", 2)],
        None: [("Maya works at Gamma Ltd", 3)],
    }
    assert "Maya works at Gamma Ltd" not in [hit.text for hit in memory.search("Gamma", as_of=at_acme)]


def test_as_of_holds_the_beginning_of_a_revision_and_not_its_end(memory: Memory) -> None:
    first = memory.add("Maya works at Acme", at="2026-01-01T00:00:00Z")
    changed = memory.update(first.id, "Maya works at Beta Corp")
    microsecond = dt.timedelta(microseconds=1)
    found = [
        [hit.text for hit in memory.search("Maya", as_of=when)]
        for when in (first.at - microsecond, first.at, changed.updated_at - microsecond, changed.updated_at)
    ]
    assert found == [[], ["Maya works at Acme"], ["Maya works at Acme"], ["Maya works at Beta Corp"]]


def test_as_of_never_answers_with_a_forgotten_memory(memory: Memory) -> None:
    first = memory.add("Maya works at Acme")
    at_acme = moment()
    memory.update(first.id, "Maya works at Beta Corp")
    at_beta = moment()
    memory.forget(first.id)
    for when in (at_acme, at_beta, moment()):
        assert memory.search("where does Maya work", as_of=when) == []
        assert memory.search("Acme Beta", as_of=when) == []


def test_as_of_and_the_other_filters_hold_together(memory: Memory) -> None:
    added = [
        memory.add(f"{user} keeps the harbour key", user=user, tags=["keys"] if user == "maya" else [])
        for user in ("maya", "theo")
    ]
    when = moment()
    for record in added:
        memory.update(record.id, f"{record.user} lost it")
    assert [hit.text for hit in memory.search("harbour key", as_of=when, user="maya")] == ["maya keeps the harbour key"]
    assert [hit.record.user for hit in memory.search("harbour key", as_of=when, tags=["keys"])] == ["maya"]
    assert memory.search("harbour key", as_of=when, user="nobody") == []


# -- opening and closing -------------------------------------------------------------------------------------------


def test_nothing_is_made_before_the_first_use(store: Path) -> None:
    with Memory(store) as memory:
        assert not memory.exists()
        assert memory.status()["exists"] is False
        assert not store.exists()
        memory.open()
        assert memory.exists()
    assert (store / "memory.db").exists()


def test_a_search_of_a_store_that_is_not_there_finds_nothing(memory: Memory) -> None:
    assert memory.search("anything") == []
    assert memory.list().total == 0
    with pytest.raises(NotFound):
        memory.get(UNKNOWN)


def test_a_second_close_does_nothing_and_every_call_after_it_says_that_the_store_was_closed(store: Path) -> None:
    memory = Memory(store)
    id_ = memory.add("one").id
    memory.close()
    memory.close()
    calls: list[Callable[[], object]] = [
        lambda: memory.add("two"),
        lambda: memory.add_many(["two"]),
        lambda: memory.search("one"),
        lambda: memory.search(""),
        lambda: memory.get(id_),
        memory.list,
        lambda: memory.update(id_, "two"),
        lambda: memory.forget(id_),
        memory.status,
        memory.verify,
        memory.open,
    ]
    for call in calls:
        with pytest.raises(StoreClosed) as refusal:
            call()
        assert refusal.value.code == "STORE_CLOSED"
    with Memory(store) as again:
        assert texts(again) == ["one"]


def test_a_memory_closed_before_its_first_use_is_closed(store: Path) -> None:
    memory = Memory(store)
    memory.close()
    with pytest.raises(StoreClosed):
        memory.add("one")
    assert not store.exists()


def test_an_error_inside_the_context_closes_and_goes_on(store: Path) -> None:
    with pytest.raises(RuntimeError, match="of the caller"), Memory(store) as memory:
        memory.add("one")
        raise RuntimeError("of the caller")
    with pytest.raises(StoreClosed):
        memory.list()


# -- whatever is given comes back ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Memory(tmp_path_factory.mktemp("shared") / "store") as opened:
        yield opened


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80),
    names=st.dictionaries(st.sampled_from(["user", "project", "session", "speaker", "source"]), st.text(max_size=9)),
    tags=st.lists(st.text(min_size=1, max_size=9), max_size=3),
    metadata=st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9), st.none()), max_size=3),
)
def test_whatever_text_is_accepted_is_returned_to_the_letter(
    shared: Memory, text: str, names: dict[str, str], tags: list[str], metadata: dict[str, Any]
) -> None:
    try:
        added = shared.add(text, tags=tags, metadata=metadata, **names)
    except InvalidInput:
        return
    got = shared.get(added.id)
    assert unicodedata.normalize("NFC", got.text) == unicodedata.normalize("NFC", text)
    assert not added.created or (got.text == text and got.metadata == metadata)
    for name, value in names.items():
        if added.created:
            assert getattr(got, name) == unicodedata.normalize("NFC", value)
    assert got.id in {record.id for record in shared.list(limit=500, user=got.user, project=got.project)}
