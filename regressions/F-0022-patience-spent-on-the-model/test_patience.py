"""F-0022: how long a write waits is for other writers; what its own vector takes is no part of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from holdtrue import HoldTrueError, Memory
from impl.tests.stubembedder import Stub, use


class Slow(Stub):
    def embed(self, texts: Any) -> Any:
        if list(texts) != ["ready"]:
            time.sleep(0.4)
        return super().embed(texts)


@pytest.mark.parametrize("action", ["add", "update"])
def test_a_slow_model_does_not_make_an_idle_store_busy(
    store: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    with Memory(store) as memory:
        id_ = memory.add("before").id
    monkeypatch.setenv("HOLDTRUE_WRITE_WAIT_S", "0.2")
    use(monkeypatch, Slow())
    told = "nothing"
    with Memory(store) as memory:
        try:
            memory.add("after") if action == "add" else memory.update(id_, "after")
        except HoldTrueError as error:
            told = error.code
    assert told == "nothing"
