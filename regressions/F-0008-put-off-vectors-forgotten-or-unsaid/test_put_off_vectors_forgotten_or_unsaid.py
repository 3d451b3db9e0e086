"""F-0008: what had to be put off is said in the reply, made as soon as it can be, and no longer said then."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdtrue import Memory
from holdtrue.models import EmbedderIdentity, Embeddings, default_embedder
from impl.tests.stubembedder import Stub, use


def test_a_model_that_failed_once_and_works_again_is_not_called_broken_for_ever(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = Stub(failing=True)
    use(monkeypatch, stub)
    with Memory(store) as memory:
        assert memory.add("the harbour is east").degraded
        stub.failing = False
        assert memory.add("the mill is north").degraded == ()
        assert "out of memory" not in " ".join(memory.search("mill").degraded)
        assert "out of memory" not in " ".join(memory.status()["degraded"])


def test_a_memory_added_while_the_model_loads_gets_its_vector_when_it_is_there_however_long_the_write_takes(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDTRUE_MODEL_WAIT_S", "0.05")
    gate = threading.Event()

    def load(self: Memory) -> Any:
        assert gate.wait(10)
        return default_embedder()

    monkeypatch.setattr(Memory, "_load_embedder", load)
    with Memory(store) as memory:
        memory.open()
        # The vector could not be made in time; before the write is committed the model is there and looks for work.
        submit = memory._store.add

        def slow_add(additions: Any, deadline: Any) -> Any:
            gate.set()
            assert memory._model.embedder(wait_s=10) is not None
            threading.Event().wait(0.3)  # time for whoever looks for work too early to find none
            return submit(additions, deadline)

        monkeypatch.setattr(memory._store, "add", slow_add)
        assert memory.add("the harbour is east").degraded
        monkeypatch.setattr(memory._store, "add", submit)
        memory.add("the next memory of a healthy process")
        memory.search("harbour")
        for _ in range(100):
            if not memory.status()["pending_vectors"]:
                break
            threading.Event().wait(0.02)
        assert memory.status()["pending_vectors"] == 0


def test_an_add_whose_vector_was_put_off_because_of_another_model_says_so(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        memory.add("the harbour is east of town")
    use(monkeypatch, Stub("another"))
    with Memory(store) as memory:
        assert memory.add("the mill is north of town").degraded


class Wide(Stub):
    """An embedder of 384 dimensions, which the store's vectors have not."""

    def __init__(self) -> None:
        super().__init__("wide")
        self.identity = EmbedderIdentity("wide", "1", 384)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        rows = np.zeros((len(texts), 384), dtype=np.float32)
        rows[:, 0] = 1.0
        return Embeddings(rows, np.ones(len(texts), dtype=np.bool_))


def test_a_model_of_another_dimension_is_told_by_search_and_status_and_words_still_find(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Wide())
    with Memory(store) as memory:
        memory.add("the harbour is east of town")
        hits = memory.search("harbour")
        assert [hit.text for hit in hits] == ["the harbour is east of town"]
        assert hits.degraded
        assert memory.status()["degraded"]
        assert memory.verify() == []
