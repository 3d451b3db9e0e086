"""sqlite-vec cannot be loaded: words go on alone, it is said everywhere, and whoever has it again catches up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdtrue import Memory
from holdtrue.errors import ExtensionUnavailable
from holdtrue.store import connection as connections
from holdtrue.store import derived, vectors
from holdtrue.store.connection import open_connection
from properties.kit import checkers, place_workers, raw
from properties.kit.expected import index_of, vector_of
from properties.kit.places import Place, carried_out

REASON = "sqlite-vec is not installed."


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """sqlite-vec is not there; `undo` brings it back for connections that are opened from then on."""

    def find() -> str:
        raise ExtensionUnavailable(REASON)

    monkeypatch.setattr(connections, "_vector_extension", find)
    return monkeypatch


def vectors_in(store: Path) -> dict[str, bool]:
    return {row.text: row.vector is not None for row in raw.read(store).rows}


def sound(memory: Memory, store: Path) -> None:
    assert memory.verify() == []
    assert checkers.derived_agree(raw.read(store), index_of, vector_of) == []


def test_a_store_is_made_and_used_without_it_and_everything_says_why(store: Path, missing: pytest.MonkeyPatch) -> None:
    with Memory(store) as memory:
        added = memory.add("the harbour is east of town")
        assert REASON.rstrip(".") in " ".join(added.degraded)
        many = memory.add_many(["the mill is north", "🙂"])
        # For a text without direction nothing is put off.
        assert [bool(record.degraded) for record in many] == [True, False]
        hits = memory.search("harbour")
        assert [hit.text for hit in hits] == ["the harbour is east of town"]
        assert "goes by words" in " ".join(hits.degraded)
        assert REASON.rstrip(".") in " ".join(hits.degraded)
        status = memory.status()
        assert REASON in " ".join(status["degraded"])
        assert (status["memories"], status["vectors"], status["pending_vectors"], status["embedder"]) == (3, 0, 2, None)
        assert memory.embed_pending() == 0
        assert memory.update(added.id, "the harbour is west of town").degraded
        assert memory.forget(many[0].id).forgotten
        assert [record.text for record in memory.list()] == ["🙂", "the harbour is west of town"]
        sound(memory, store)
    connection = apsw.Connection(str(store / "memory.db"))
    reasons = connection.execute("SELECT reason FROM pending_vectors").fetchall()
    assert reasons == [(REASON.rstrip("."),)]
    assert not connection.execute("SELECT 1 FROM sqlite_schema WHERE name LIKE 'memories_vec%'").fetchall()
    connection.close()


def test_the_next_process_that_has_it_makes_the_table_and_every_vector(
    store: Path, missing: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        memory.add_many([f"fact number {number}" for number in range(70)])
    missing.undo()
    with Memory(store) as memory:
        hits = memory.search("which fact is it", explain=True)  # reading alone makes no table
        assert all(hit.why["semantic"] == 0.0 for hit in hits)
        assert memory.verify() == []
        assert memory.embed_pending() == 70
        assert memory.status()["degraded"] == []
        assert memory.search("fact number 7")[0].text == "fact number 7"
        sound(memory, store)
    assert all(vectors_in(store).values())


def test_in_a_store_with_vectors_reads_and_writes_go_on_without_it(
    store: Path, missing: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing.undo()
    with Memory(store) as memory:
        changed, gone, kept = memory.add_many(["the harbour is east", "the mill is north", "the gate is west"])
    without = Place(store)
    calls = carried_out(
        without,
        store.parent / "ledger",
        [
            {"action": "get", "id": changed.id},
            {"action": "update", "id": changed.id, "text": "a bakery beside the school"},
            {"action": "forget", "id": gone.id},
            {"action": "add", "text": "a new one"},
            {"action": "status"},
            {"action": "verify"},
        ],
        place_workers.perform_without_vectors,
    )
    assert [call.outcome for call in calls] == ["ok"] * 6, calls
    answers = [call.answer or {} for call in calls]
    assert answers[1]["degraded"]
    assert (answers[2]["forgotten"], answers[2]["erased"]) == (True, False)
    assert (answers[4]["vectors"], answers[4]["pending_vectors"]) == (1, 2)
    assert answers[5] == {"value": []}
    # Somebody who has sqlite-vec only reads: what was changed or forgotten is found by no old vector.
    assert vectors_in(store) == {"a bakery beside the school": False, "the gate is west": True, "a new one": False}
    with Memory(store) as memory:
        for question in ("the harbour is east", "the mill is north"):
            hits = memory.search(question, explain=True)
            assert {hit.text: hit.why["semantic"] for hit in hits}.get("a bakery beside the school", 0.0) == 0.0
            assert gone.id not in [hit.id for hit in hits]
        assert memory.search("the gate is west", limit=1)[0].id == kept.id
        assert memory.status()["vectors"] == 1
        # The next write removes what is left of them.
        memory.add("whatever it is")
        memory.embed_pending()
        sound(memory, store)
    connection = open_connection(store, write=False)
    assert not vectors.stale(connection)
    rows = connection.execute("SELECT rowid FROM memories_vec_rowids").fetchall()
    assert len(rows) == memory_count(connection) == 4
    connection.close()


def memory_count(connection: apsw.Connection) -> int:
    ((count,),) = connection.execute("SELECT count(*) FROM memories").fetchall()
    return int(count)


def test_many_stale_rows_cost_a_search_no_hit_and_are_removed_bit_by_bit(store: Path) -> None:
    with Memory(store) as memory:
        memory.add_many([f"fact number {number} of the harbour" for number in range(300)])
    connection = open_connection(store, write=True, keep_waiting=lambda: False)
    ids = connection.execute("SELECT id, seq FROM memories ORDER BY seq LIMIT 200").fetchall()
    connection.close()
    calls = carried_out(
        Place(store),
        store.parent / "ledger",
        [{"action": "forget", "id": id_} for id_, _ in ids],
        place_workers.perform_without_vectors,
    )
    assert {call.outcome for call in calls} == {"ok"}
    with Memory(store) as memory:
        hits = memory.search("quay", limit=100, explain=True)
        assert len(hits) == len({hit.id for hit in hits} - {id_ for id_, _ in ids})
        near = memory.search("fact number 1 of the harbour", limit=100)
        assert len(near) == 100
        assert memory.verify() == []
    connection = open_connection(store, write=True, keep_waiting=lambda: False)
    rounds = 0
    while not vectors.settle(connection):
        rounds += 1
        assert rounds < 10
    assert rounds == 3  # 200 rows, 64 at a time
    assert derived.verify(connection) == []
    connection.close()


@pytest.mark.parametrize(
    "problem",
    [apsw.ExtensionLoadingError("vec0.so: wrong ELF class: ELFCLASS32"), AttributeError("enable_load_extension")],
    ids=["another-architecture", "a-build-without-extensions"],
)
def test_whatever_keeps_it_from_loading_is_said_and_stops_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def fail(self: Any, *_: Any) -> None:
        raise problem

    monkeypatch.setattr(connections.StoreConnection, "load_extension", fail, raising=False)
    with Memory(store) as memory:
        assert memory.add("the harbour is east").created
        assert [hit.text for hit in memory.search("harbour")] == ["the harbour is east"]
        assert str(problem) in " ".join(memory.status()["degraded"])


def test_the_command_line_answers_by_words_and_says_that_it_is_degraded(
    store: Path, missing: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from click.testing import CliRunner

    from holdtrue.cli.commands import holdtrue

    with Memory(store) as memory:
        memory.add("the harbour is east")
    result = CliRunner().invoke(holdtrue, ["search", "harbour", "--json", "--store", str(store)], standalone_mode=False)
    assert result.exception is None
    assert result.return_value == 4
    document = json.loads(result.stdout)
    assert [hit["text"] for hit in document["hits"]] == ["the harbour is east"]
    assert REASON.rstrip(".") in " ".join(document["degraded"])
