"""F-0026: what takes long is done before the turn to write, and one call cannot ask for more than others can wait for."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from holdtrue import HoldTrueError, Memory
from holdtrue.store import segment


class Watched:
    """The pattern that cuts a text, and which threads used it."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.threads: set[str] = set()

    def sub(self, *arguments: Any) -> str:
        self.threads.add(threading.current_thread().name)
        return self.pattern.sub(*arguments)


def test_no_text_is_cut_into_words_by_the_thread_that_holds_the_write_lock(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(segment._UNSPACED_LETTER)
    monkeypatch.setattr(segment, "_UNSPACED_LETTER", watched)
    record = memory.add("昨天后端部署完成")
    memory.update(record.id, "今天前端部署完成")
    memory.add_many(["予約", "배포"])
    assert watched.threads
    assert "holdtrue-writer" not in watched.threads


def test_a_batch_of_too_many_characters_is_refused_whole(memory: Memory) -> None:
    told = "nothing"
    try:
        memory.add_many([f"{number} " + "x" * 49_000 for number in range(21)])
    except HoldTrueError as error:
        told = error.code
    assert told == "INVALID_INPUT"
    assert memory.list().total == 0
