"""Without a model, or with another one: nothing is lost, everything that was done without is said, and it heals."""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from holdtrue import Memory
from holdtrue.errors import ModelUnavailable
from holdtrue.models import default_embedder
from holdtrue.models.slot import ModelSlot
from holdtrue.store.vectors import Vector
from impl.tests.stubembedder import Stub, use
from properties.kit import checkers, raw
from properties.kit.expected import index_of, vector_of


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def load(self: Memory) -> Any:
        raise ModelUnavailable("The model is broken.")

    monkeypatch.setattr(Memory, "_load_embedder", load)
    return monkeypatch


def test_without_a_model_a_memory_is_stored_found_by_its_words_and_everything_says_so(
    store: Path, broken: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        added = memory.add("the harbour is east of town")
        assert "broken" in " ".join(added.degraded)
        assert memory.add_many(["the mill is north"])[0].degraded
        hits = memory.search("harbour")
        assert [hit.text for hit in hits] == ["the harbour is east of town"]
        assert "broken" in " ".join(hits.degraded)
        assert memory.search("port beside the city") == []
        changed = memory.update(added.id, "the harbour is west of town")
        assert changed.degraded
        assert [hit.text for hit in memory.search("west")] == ["the harbour is west of town"]
        status = memory.status()
        assert (status["memories"], status["vectors"], status["pending_vectors"]) == (2, 0, 2)
        assert "broken" in " ".join(status["degraded"])
        assert "2 memories wait for a vector" in " ".join(status["degraded"])
        assert memory.verify() == []
    state = raw.read(store)
    assert checkers.derived_agree(state, index_of, vector_of) == []
    assert all(row.pending and row.vector is None for row in state.rows)


def test_pending_vectors_are_made_once_a_model_is_there(store: Path, broken: pytest.MonkeyPatch) -> None:
    with Memory(store) as memory:
        memory.add_many([f"fact number {number}" for number in range(70)])
        memory.add("🙂")  # no direction: nothing will ever be made for it
        forgotten = memory.add("forgotten before its vector was made")
        memory.forget(forgotten.id)
        assert memory.embed_pending() == 0
    broken.undo()
    with Memory(store) as memory:
        memory.embed_pending()
        assert memory.embed_pending() == 0
        status = memory.status()
        assert (status["memories"], status["vectors"], status["pending_vectors"]) == (71, 70, 0)
        assert status["degraded"] == []
        assert memory.search("fact number 7").degraded == ()
        assert memory.verify() == []
    assert checkers.derived_agree(raw.read(store), index_of, vector_of) == []


def test_a_memory_that_waits_for_a_vector_loses_its_entry_with_its_text(
    store: Path, broken: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        first, second = memory.add_many(["the harbour is east", "the mill is north"])
    broken.undo()
    with Memory(store) as memory:
        memory.update(first.id, "the harbour is west")
        memory.forget(second.id)
        assert memory.status()["pending_vectors"] == 0
        assert memory.verify() == []
    assert checkers.derived_agree(raw.read(store), index_of, vector_of) == []


def test_a_vector_made_for_a_text_that_has_changed_since_is_thrown_away(
    store: Path, broken: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        added = memory.add("the harbour is east")
        (seq,) = [row.seq for row in raw.read(store).rows]
        vector = Vector(default_embedder().identity.key, vector_of("the harbour is east"))
        memory.update(added.id, "the harbour is west")
        assert not memory._store.complete_vector(seq, "the harbour is east", vector, memory._deadline())
    assert checkers.derived_agree(raw.read(store), index_of, vector_of) == []


def test_a_model_that_fails_on_a_text_stores_its_words(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Stub(failing=True))
    with Memory(store) as memory:
        added = memory.add("the harbour is east")
        assert "out of memory" in " ".join(added.degraded)
        assert [hit.text for hit in memory.search("harbour")] == ["the harbour is east"]
        assert memory.status()["pending_vectors"] == 1


def test_a_model_that_became_ready_just_as_a_caller_gave_up_is_not_called_loading_for_ever() -> None:
    gate = threading.Event()

    def load() -> Any:
        assert gate.wait(10)
        return Stub()

    slot = ModelSlot(load, lambda: None)
    ended = slot._begin()
    original = ended.wait

    def give_up_in_the_instant_before_the_end(timeout: float | None = None) -> bool:
        gate.set()
        assert original(10)
        return False

    ended.wait = give_up_in_the_instant_before_the_end  # type: ignore[method-assign]
    slot.embedder(wait_s=0.01)
    assert slot.embedder(wait_s=0.01) is not None
    assert slot.problem == ""


# -- another model -------------------------------------------------------------------------------------------------


def test_vectors_of_another_model_are_not_mixed_in_and_everything_says_so(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        memory.add("the harbour is east of town")
        recorded = memory.status()["embedder"]
    use(monkeypatch, Stub("another"))
    with Memory(store) as memory:
        memory.add("the mill is north of town")
        assert memory.update(memory.add("the gate").id, "the gate is west of town").text == "the gate is west of town"
        hits = memory.search("town", explain=True)
        assert len(hits) == 3
        assert all(hit.why["semantic"] == 0.0 for hit in hits)
        assert "another model" in " ".join(hits.degraded)
        status = memory.status()
        assert (status["vectors"], status["pending_vectors"], status["embedder"]) == (1, 2, recorded)
        said = " ".join(status["degraded"])
        assert recorded in said
        assert "another@1/256" in said
        assert memory.embed_pending() == 0
        assert memory.verify() == []
    monkeypatch.undo()
    with Memory(store) as memory:
        assert memory.embed_pending() == 2
        assert memory.status()["degraded"] == []


# -- vectors that are none -----------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("bad", [[NAN] * 256, [INF] + [0.0] * 255, [0.0] * 256, [1e-30] * 256, [5.0] * 256])
def test_a_vector_that_is_not_finite_or_not_of_unit_length_is_never_stored_nor_searched_with(
    store: Path, monkeypatch: pytest.MonkeyPatch, bad: list[float]
) -> None:
    use(monkeypatch, Stub(rows={"the bad one": bad, "bad question": bad}))
    with Memory(store) as memory:
        memory.add_many(["the bad one", "a good one", "another good one"])
        assert memory.status()["vectors"] == 2
        for query in ("good question", "bad question"):
            hits = memory.search(query)
            assert all(0.0 <= hit.score <= 1.0 for hit in hits)
        assert "the bad one" in [hit.text for hit in memory.search("bad one")]
        assert memory.verify() == []
    vectors = [row.vector for row in raw.read(store).rows if row.vector is not None]
    assert all(abs(sum(x * x for x in struct.unpack("<256f", vector)) - 1) < 0.01 for vector in vectors)


@pytest.mark.parametrize("blob", [None, b"", b"\0" * 1024, b"\0" * 1023, struct.pack("<256f", *[1.0] * 256)])
def test_a_blob_that_is_no_unit_vector_of_256_values_is_not_usable(blob: bytes | None) -> None:
    assert not Vector("stub@1/256", blob).usable


def test_a_text_without_a_direction_is_stored_without_a_vector_and_waits_for_none(memory: Memory, store: Path) -> None:
    memory.add_many(["...", "!!! ???", "🙂"])
    assert memory.status()["pending_vectors"] == 0
    assert memory.status()["degraded"] == []
    assert [row.vector for row in raw.read(store).rows] == [vector_of(text) for text in ("...", "!!! ???", "🙂")]
