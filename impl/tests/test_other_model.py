"""Vectors of another model, or none that could be used: nothing is mixed, nothing breaks, everything is said."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdtrue import Memory
from holdtrue.models import EmbedderIdentity, Embeddings
from holdtrue.records import Hits
from impl.tests.stubembedder import Stub, use
from properties.kit import raw

DEFAULT = "static-minilm-256"


class Wide:
    """An embedder of another dimension."""

    identity = EmbedderIdentity("wide", "1", 384)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        rows = np.zeros((len(texts), 384), dtype=np.float32)
        rows[:, 0] = 1.0
        return Embeddings(rows, np.ones(len(texts), dtype=np.bool_))


def as_json(answer: Any) -> str:
    """The answer as the doors write it; NaN and Infinity are no JSON."""
    if isinstance(answer, Hits):
        answer = {"hits": [hit.as_dict() for hit in answer], "degraded": list(answer.degraded)}
    text = json.dumps(answer, allow_nan=False)
    assert '"score": null' not in text
    return text


def direction(degrees: float) -> list[float]:
    """A unit vector in the plane of the first two axes."""
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))] + [0.0] * 254


def test_a_model_of_another_dimension_is_noticed_and_words_go_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(store) as memory:
        first = memory.add("the harbour is east of town")
    use(monkeypatch, Wide())
    with Memory(store) as memory:
        added = memory.add("the mill is north of town")
        assert "384" in " ".join(added.degraded)
        assert "256" in " ".join(added.degraded)
        hits = memory.search("town", explain=True)
        assert {hit.text for hit in hits} == {"the harbour is east of town", "the mill is north of town"}
        assert all(hit.why["semantic"] == 0.0 for hit in hits)
        assert "384" in " ".join(hits.degraded)
        said = " ".join(memory.status()["degraded"])
        assert DEFAULT in said
        assert "/256" in said
        assert "wide@1/384" in said
        # The old vector is that of the old text, so it goes; the memory stays, found by its words.
        assert memory.update(first.id, "the harbour is west of town").degraded
        assert [hit.id for hit in memory.search("west")] == [first.id]
        assert memory.search("east") == []
        status = memory.status()
        assert (status["memories"], status["vectors"], status["pending_vectors"]) == (2, 0, 2)
        assert memory.embed_pending() == 0
        assert memory.verify() == []
        as_json(hits)
        as_json(status)
    monkeypatch.undo()
    with Memory(store) as memory:
        assert memory.embed_pending() == 2
        assert memory.status()["degraded"] == []
        assert memory.search("port beside the city", limit=1)[0].id == first.id


def test_a_store_that_a_model_of_another_dimension_made_is_completed_by_one_that_fits(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Wide())
    with Memory(store) as memory:
        memory.add_many(["the harbour is east of town", "the mill is north of town"])
        status = memory.status()
        assert (status["vectors"], status["pending_vectors"], status["embedder"]) == (0, 2, None)
        said = " ".join(status["degraded"])
        assert "384" in said
        assert "256" in said
        assert len(memory.search("town")) == 2
    monkeypatch.undo()
    with Memory(store) as memory:
        assert memory.embed_pending() == 2
        assert DEFAULT in memory.status()["embedder"]
        assert memory.search("port beside the city", limit=1)[0].text == "the harbour is east of town"


def test_another_model_of_the_same_dimension_never_puts_its_vectors_beside_the_others(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Stub("first", rows={"a": direction(0)}))
    with Memory(store) as memory:
        memory.add("a")
    use(monkeypatch, Stub("second", rows={"b": direction(10)}))
    with Memory(store) as memory:
        assert memory.add("b").degraded
        assert memory.search("a", explain=True)[0].why["semantic"] == 0.0
        said = " ".join(memory.status()["degraded"])
        assert "first@1/256" in said
        assert "second@1/256" in said
    assert {row.text: row.vector is not None for row in raw.read(store).rows} == {"a": True, "b": False}


NAN, INF = math.nan, math.inf
BAD = {"nan": [NAN] * 256, "zeros": [0.0] * 256, "inf": [INF] + [0.0] * 255}
NORMAL = {"one": direction(0), "two": direction(30), "three": direction(60), "four": direction(80)}


def test_normal_memories_keep_the_order_of_their_distance_beside_texts_that_got_no_vector(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Stub(rows=BAD | NORMAL | {"what is nearest": direction(0)}))
    with Memory(store) as memory:
        memory.add_many([*BAD, *NORMAL])
        hits = memory.search("what is nearest", explain=True)
        assert [hit.text for hit in hits][:4] == ["one", "two", "three", "four"]
        means = [hit.why["semantic"] for hit in hits][:4]
        assert means == pytest.approx([1.0, math.cos(math.pi / 6), 0.5, math.cos(math.radians(80))], abs=1e-5)
        as_json(hits)
        for bad in BAD:
            assert [hit.text for hit in memory.search(bad)] == [bad]
            as_json(memory.search(bad))
        as_json(memory.status())


def test_vectors_that_are_none_and_stand_in_the_table_already_hide_nobody_and_break_no_answer(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Stub(rows=NORMAL | {"what is nearest": direction(0)}))
    with Memory(store) as memory:
        memory.add_many([*NORMAL, "bad 0", "bad 1", "bad 2"])
    connection = raw.connect(store)
    seqs = connection.execute("SELECT seq FROM memories WHERE text LIKE 'bad %'").fetchall()
    for (seq,), values in zip(seqs, BAD.values(), strict=True):
        blob = struct.pack("<256f", *values)
        connection.execute("UPDATE memories_vec SET embedding = ? WHERE rowid = ?", (blob, seq)).fetchall()
    connection.close()
    with Memory(store) as memory:
        hits = memory.search("what is nearest", explain=True)
        assert [hit.text for hit in hits if hit.text in NORMAL] == ["one", "two", "three", "four"]
        assert all(0.0 <= hit.score <= 1.0 for hit in hits)
        as_json(hits)
        named = memory.search("bad nearest", explain=True)
        assert {"bad 0", "bad 1", "bad 2"} <= {hit.text for hit in named}
        as_json(named)
        assert len(memory.verify()) == 3
