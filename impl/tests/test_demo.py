"""The demonstration: it passes on this store, and its bookkeeping would notice one that loses or doubles memories."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from holdtrue.cli.demo import balance
from impl.tests.serverprocess import holdtrue

ASKED = [{"event": "ask", "key": "a", "text": "one"}, {"event": "ask", "key": "b", "text": "two"}]
TOLD = [{"event": "acknowledged", "key": "a", "id": "1"}, {"event": "acknowledged", "key": "b", "id": "2"}]
STORED = [{"id": "1", "text": "one"}, {"id": "2", "text": "two"}]


def test_books_that_agree_are_even() -> None:
    books = balance([*ASKED, *TOLD], STORED)
    assert books.even()
    assert (books.acknowledged, books.found) == (2, 2)


@pytest.mark.parametrize(
    ("entries", "stored", "fault"),
    [
        pytest.param([*ASKED, *TOLD], STORED[:1], "lost", id="an acknowledged memory is gone"),
        pytest.param([*ASKED, *TOLD], [STORED[0], {"id": "2", "text": "tw"}], "lost", id="a text is another one"),
        pytest.param([*ASKED, *TOLD], [STORED[0], {"id": "3", "text": "two"}], "lost", id="an id is another one"),
        pytest.param([*ASKED, *TOLD], [*STORED, {"id": "3", "text": "two"}], "duplicated", id="a text is there twice"),
        pytest.param([*ASKED, *TOLD], [*STORED, {"id": "3", "text": "three"}], "unasked", id="nobody asked for it"),
    ],
)
def test_books_that_disagree_name_the_fault(entries: list[dict], stored: list[dict], fault: str) -> None:
    books = balance(entries, stored)
    assert not books.even()
    assert getattr(books, fault)


def test_an_unanswered_call_that_was_never_repeated_leaves_the_books_uneven() -> None:
    assert not balance([*ASKED, TOLD[0], {"event": "unknown", "key": "b"}], STORED).even()


def test_four_servers_lose_nothing_when_one_is_killed_and_what_was_stored_is_found(tmp_path: Path) -> None:
    began_s = time.monotonic()
    done = holdtrue("demo", "--json", "--memories", "20", "--store", str(tmp_path / "store"))
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["passed"] is True
    assert report["ledger"] == {"acknowledged": 83, "found": 83, "lost": 0, "duplicated": 0, "unasked": 0}
    assert report["killed"]["restarted_pid"] != report["killed"]["pid"]
    assert [search["right"] for search in report["searches"]] == [True] * 3
    assert time.monotonic() - began_s < 40
