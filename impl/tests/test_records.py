"""What goes in: every limit at its boundary and one beyond, and every kind of input that must leave no trace."""

from __future__ import annotations

import json
import unicodedata
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdtrue import records
from holdtrue.errors import InvalidInput, TextBlank, TextTooLong
from holdtrue.records import (
    Filters,
    NewMemory,
    check_count,
    check_id,
    check_metadata,
    check_name,
    check_tags,
    check_text,
    new_id,
    text_digest,
    valid_unicode,
)

WRONG_TYPES = [None, 3, 1.5, True, b"bytes", ["list"], {"a": 1}, object()]


# -- text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["a", "é", "部", "😀", "\ud800"])
def test_text_may_have_fifty_thousand_code_points_and_not_one_more(letter: str) -> None:
    assert len(check_text(letter * 50_000)) == 50_000
    with pytest.raises(TextTooLong, match="50,001"):
        check_text(letter * 50_001)


@pytest.mark.parametrize("value", WRONG_TYPES)
def test_text_of_another_type_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidInput, match="text must be a string"):
        check_text(value)


@pytest.mark.parametrize("text", ["", " ", "\n\t \r", "\u00a0\u2003\u3000", "\u200b", "\u2060\ufeff\u200d", "\x01\x1f"])
def test_text_without_a_visible_character_is_blank(text: str) -> None:
    with pytest.raises(TextBlank):
        check_text(text)


@pytest.mark.parametrize("text", ["a", "\u200ba", ".", "  x  ", "😀", "部"])
def test_text_with_a_visible_character_is_kept_as_it_is(text: str) -> None:
    assert check_text(text) == text


@pytest.mark.parametrize("text", ["\0", "a\0b", "\0" * 60_000])
def test_text_with_a_nul_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        check_text(text)


@pytest.mark.parametrize(
    ("given_text", "stored"),
    [
        ("x \ud83d y", "x \ufffd y"),
        ("\ude00", "\ufffd"),
        ("\ud83d\ude00", "\ufffd\ufffd"),
        ("whole 😀 stays", "whole 😀 stays"),
    ],
)
def test_a_lone_surrogate_becomes_the_replacement_character(given_text: str, stored: str) -> None:
    assert check_text(given_text) == stored
    assert valid_unicode(given_text) == stored


@settings(max_examples=100)
@given(st.text(st.characters(exclude_categories=()), max_size=200))
def test_any_text_is_refused_with_one_of_our_errors_or_made_fit_for_utf8(text: str) -> None:
    try:
        good = check_text(text)
    except InvalidInput as error:
        assert error.hint  # noqa: PT017 - both outcomes are allowed
        return
    assert good.encode().decode() == good
    assert len(good) == len(text)
    assert check_text(good) == good
    assert text_digest(good) == text_digest(unicodedata.normalize("NFD", good))


# -- names and tags ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["user", "project", "session", "speaker", "source", "key"])
def test_each_name_may_have_1024_characters_and_not_one_more(name: str) -> None:
    assert getattr(NewMemory.checked("text", **{name: "n" * 1_024}), name) == "n" * 1_024
    with pytest.raises(InvalidInput, match=f"{name} has 1,025"):
        NewMemory.checked("text", **{name: "n" * 1_025})


@pytest.mark.parametrize("name", ["user", "project", "session", "speaker", "source", "key"])
@pytest.mark.parametrize("value", [3, b"bytes", ["a"], "a\0b"])
def test_a_name_of_another_type_or_with_a_nul_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=name):
        NewMemory.checked("text", **{name: value})


def test_a_name_is_one_in_both_normal_forms_and_without_surrogates() -> None:
    both = {check_name(unicodedata.normalize(form, "Zoë"), name="user") for form in ("NFC", "NFD")}
    assert both == {"Zoë"}
    assert check_name("a\ud800", name="user") == "a\ufffd"
    assert check_name("", name="user") == ""


@pytest.mark.parametrize("key", ["", " ", "\t"])
def test_a_blank_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="key is blank"):
        NewMemory.checked("text", key=key)


def test_tags_are_distinct_sorted_and_normal() -> None:
    assert check_tags(["b", "a", "b", unicodedata.normalize("NFD", "é"), "é"]) == ("a", "b", "é")
    assert check_tags(()) == ()


def test_tags_at_their_limits_pass_and_one_beyond_is_refused() -> None:
    assert len(check_tags([f"tag-{number}" for number in range(64)])) == 64
    assert check_tags(["t" * 200]) == ("t" * 200,)
    with pytest.raises(InvalidInput, match="65 tags"):
        check_tags([f"tag-{number}" for number in range(65)])
    with pytest.raises(InvalidInput, match="201"):
        check_tags(["t" * 201])


@pytest.mark.parametrize(
    "value", ["ops", "", b"ops", 3, None, {"a"}, {"a": 1}, iter(["a"]), ["a", 3], [None], [" "], [""]]
)
def test_what_is_no_list_of_tags_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        check_tags(value)


# -- metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"ticket": "POL-1", "n": 3, "x": 1.5, "flag": True, "none": None, "list": [1, {"deep": ["er"]}]},
        {"é部😀": "é部😀"},
        {"quote": '"\\', "newline": "\n"},
    ],
)
def test_metadata_comes_back_as_it_went_in(value: dict[str, Any]) -> None:
    assert json.loads(check_metadata(value)) == value


def test_metadata_that_spells_out_an_escape_is_text_like_any_other() -> None:
    value = {"regex": r"\u0000", "path": "C:\\u0000\\x"}
    assert json.loads(check_metadata(value)) == value


def test_metadata_is_one_text_whatever_the_order_of_its_names() -> None:
    assert check_metadata({"b": 1, "a": 2}) == check_metadata({"a": 2, "b": 1})
    assert check_metadata(None) == "{}"


@pytest.mark.parametrize(
    "value",
    [
        *("text", 3, True, [], [("a", 1)], b"{}"),
        *({"a": float("nan")}, {"a": float("inf")}, {"a": [1, -float("inf")]}, {"a": {1, 2}}, {"a": b"x"}),
        *({"a": object()}, {1: "a", "b": 2}, {("a",): 1}, {"a": "\0"}, {"\0": 1}, {"a": ["\0"]}),
    ],
)
def test_metadata_that_is_no_json_object_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="metadata"):
        check_metadata(value)


def test_metadata_may_have_ten_thousand_characters_as_json_and_not_one_more() -> None:
    frame = len('{"a": ""}')
    assert len(check_metadata({"a": "é" * (10_000 - frame)})) == 10_000
    with pytest.raises(InvalidInput, match="10,001"):
        check_metadata({"a": "é" * (10_001 - frame)})


def test_metadata_that_holds_itself_or_is_nested_without_end_is_refused() -> None:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    deep: list[Any] = []
    for _ in range(4_000):
        deep = [deep]
    for value in (ring, {"deep": deep}):
        with pytest.raises(InvalidInput, match="metadata"):
            check_metadata(value)


def test_metadata_with_a_lone_surrogate_is_stored_as_valid_utf8() -> None:
    assert json.loads(check_metadata({"a\ud800": "b\udfff"})) == {"a\ufffd": "b\ufffd"}


# -- counts, ids, filters ------------------------------------------------------------------------------------------


def test_a_count_may_lie_at_either_bound_and_not_one_beyond() -> None:
    assert [check_count(value, name="limit", low=1, high=200) for value in (1, 200)] == [1, 200]
    for value in (0, 201, -1, 10**30):
        with pytest.raises(InvalidInput, match="between 1 and 200"):
            check_count(value, name="limit", low=1, high=200)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, [1]])
def test_a_count_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="whole number"):
        check_count(value, name="limit", low=0, high=200)


@pytest.mark.parametrize("value", [None, 3, b"id", "", "a\0b", "i" * 1_025])
def test_what_can_be_no_id_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="id"):
        check_id(value)


def test_a_range_may_be_empty_but_not_end_before_it_begins() -> None:
    moment = "2026-03-04T12:00:00Z"
    assert Filters.checked(since=moment, until=moment).since_us is not None
    with pytest.raises(InvalidInput, match="until lies before since"):
        Filters.checked(since=moment, until="2026-03-04T11:59:59.999999Z")


def test_no_filter_means_any_and_an_empty_one_the_default_scope() -> None:
    assert Filters.checked() == Filters()
    assert Filters.checked(user="", tags=[]).user == ""
    with pytest.raises(InvalidInput):
        Filters.checked(tags="ops")


# -- ids -----------------------------------------------------------------------------------------------------------


def test_an_id_is_a_uuid_of_version_seven() -> None:
    for _ in range(200):
        id_ = new_id()
        parsed = uuid.UUID(id_)
        assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, id_)


def test_ids_made_later_sort_later_to_the_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 1_772_625_600_000_000_000
    made = []
    for step_ns in (0, 1_000, 1_000, 999_000, 1_000, 10**9, 86_400 * 10**9):
        now_ns += step_ns
        monkeypatch.setattr(records.time, "time_ns", lambda now_ns=now_ns: now_ns)
        made.append(new_id())
        assert uuid.UUID(made[-1]).int >> 80 == now_ns // 1_000_000
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_of_one_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records.time, "time_ns", lambda: 1_772_625_600_000_000_000)
    assert len({new_id() for _ in range(1_000)}) == 1_000
