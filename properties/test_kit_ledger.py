"""The ledger tried on what a kill leaves behind, and on histories that cannot be."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from properties.kit import ledger
from properties.kit.ledger import Ledger


def line(event: str, number: int, pid: int = 1, **more: Any) -> str:
    written = {"event": event, "number": number, "pid": pid, "ns": number, **more}
    if event == "ask":
        written |= {"action": "add", "arguments": {"text": f"text {number}"}}
    else:
        written |= {"answer": {"id": f"id-{number}"}}
    return json.dumps(written)


def test_a_call_is_ok_refused_or_unknown_and_keeps_its_arguments_and_answer(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "p.ledger")
    first = book.ask("add", text="harbour", tags=["a"])
    book.ok(first, id="id-1", created=True)
    second = book.ask("forget", id="id-9")
    book.refused(second, "NOT_FOUND", "There is no memory 'id-9'.")
    book.ask("add", text="mill \ud800 部")
    ok, refused, unknown = ledger.read([tmp_path / "p.ledger"])
    assert (ok.outcome, refused.outcome, unknown.outcome) == ("ok", "refused", "unknown")
    assert (ok.action, ok.arguments, ok.answer) == (
        "add",
        {"text": "harbour", "tags": ["a"]},
        {"id": "id-1", "created": True},
    )
    assert refused.answer == {"code": "NOT_FOUND", "message": "There is no memory 'id-9'."}
    assert (unknown.arguments, unknown.answer, unknown.ended_ns) == ({"text": "mill \ud800 部"}, None, None)
    assert ok.ended_ns is not None
    assert ok.began_ns <= ok.ended_ns <= refused.began_ns
    assert ok.process == f"p/{os.getpid()}"


@pytest.mark.parametrize("cut", range(1, 40, 4))
def test_a_reply_whose_line_was_cut_is_no_reply(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "p.ledger"
    whole = "\n".join([line("ask", 1), line("ok", 1), line("ask", 2), line("ok", 2)])
    path.write_text(whole[:-cut])
    first, second = ledger.read([path])
    assert (first.outcome, second.outcome) == ("ok", "unknown")


def test_a_question_whose_line_was_cut_was_never_asked(tmp_path: Path) -> None:
    path = tmp_path / "p.ledger"
    path.write_text(line("ask", 1) + "\n" + line("ok", 1) + "\n" + line("ask", 2)[:30])
    (only,) = ledger.read([path])
    assert only.outcome == "ok"


def test_a_reply_to_a_call_that_was_never_made_is_no_history(tmp_path: Path) -> None:
    path = tmp_path / "p.ledger"
    for text in (
        line("ok", 1),
        line("ask", 1) + "\n" + line("ok", 2),
        line("ask", 1, pid=1) + "\n" + line("ok", 1, pid=2),
    ):
        path.write_text(text)
        with pytest.raises(AssertionError, match="never made"):
            ledger.read([path])


def test_processes_that_share_a_file_or_a_number_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.ledger").write_text("\n".join([line("ask", 1, 1), line("ask", 1, 2), line("ok", 1, 2)]))
    (tmp_path / "b.ledger").write_text(line("ask", 1, 1) + "\n" + line("refused", 1, 1))
    calls = ledger.read(tmp_path.glob("*.ledger"))
    assert {call.process: call.outcome for call in calls} == {"a/1": "unknown", "a/2": "ok", "b/1": "refused"}


def test_an_empty_ledger_holds_no_call(tmp_path: Path) -> None:
    (tmp_path / "p.ledger").touch()
    assert ledger.read([tmp_path / "p.ledger"]) == []
    assert ledger.read([]) == []


def test_lines_written_by_several_ledgers_of_one_file_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "p.ledger"
    books = [Ledger(path) for _ in range(4)]
    long = "x" * 20_000

    def write(book: Ledger) -> None:
        for _ in range(20):
            book._write({"event": "note", "number": 0, "text": long})

    threads = [threading.Thread(target=write, args=(book,)) for book in books]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    lines = path.read_text().splitlines()
    assert len(lines) == 80
    assert all(json.loads(text)["text"] == long for text in lines)
