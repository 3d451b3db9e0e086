"""A store that this user cannot write, on a read-only mount or in somebody else's folder: read as it is, or refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdtrue import Memory
from holdtrue.errors import HoldTrueError, StoreChanged, StoreError
from holdtrue.store import frozen, schema
from properties.kit import places, workers
from properties.kit.places import Place, carried_out
from properties.kit.processes import Crew

PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "read-only-mount": places.read_only_mount,
    "folder-of-another-user": places.foreign_folder,
}
ID = "01890000-0000-7000-8000-000000000000"
TEXTS = ["the harbour is east", "the mill is north"]


@pytest.fixture(params=PLACES.values(), ids=PLACES.keys())
def place(request: pytest.FixtureRequest) -> Callable[[Path], AbstractContextManager[Place]]:
    made: Callable[[Path], AbstractContextManager[Place]] = request.param
    return made


def filled(store: Path, *, killed: bool = False) -> Path:
    """A store with two memories, closed or left behind by a process that was killed with all of it in the WAL."""
    if not killed:
        with Memory(store) as memory:
            for text in TEXTS:
                memory.add(text)
        return store
    with Crew() as crew:
        rules = {"HOLDTRUE_FAILPOINTS": "writer.after_commit=kill@2"}
        steps = [{"action": "add", "text": text} for text in TEXTS]
        crew.start(workers.perform, store, store.parent / "filled.ledger", steps, variables=rules)
        assert crew.wait(30) == [-9]
    return store


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


READS: list[dict[str, Any]] = [
    {"action": "status"},
    {"action": "list"},
    {"action": "search", "query": "port beside the sea"},
    {"action": "search", "query": "mill"},
    {"action": "verify"},
]
WRITES: list[dict[str, Any]] = [
    {"action": "add", "text": "one more"},
    {"action": "add_many", "items": ["one", "two"]},
    {"action": "update", "id": ID, "text": "another"},
    {"action": "forget", "id": ID},
]


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "left-behind-by-a-kill"])
def test_it_is_read_in_full_and_no_write_leaves_a_trace(
    store: Path, place: Callable[[Path], AbstractContextManager[Place]], killed: bool
) -> None:
    filled(store, killed=killed)
    before = contents(store)
    with place(store) as there:
        calls = carried_out(there, store.parent / "ledger", [*READS, *WRITES, {"action": "list"}])
        after = contents(there.folder)
    status, listed, meaning, words, damage, *refused, again = calls
    answers = [call.answer or {} for call in (status, listed, meaning, words, damage, again)]
    assert [call.outcome for call in (status, listed, meaning, words, damage, again)] == ["ok"] * 6, calls
    assert answers[0]["read_only"] is True
    assert "read-only" in " ".join(answers[0]["degraded"])
    assert [record["text"] for record in answers[1]["memories"]] == TEXTS[::-1]
    assert [hit["text"] for hit in answers[2]["hits"]] == TEXTS[:1]
    assert [hit["text"] for hit in answers[3]["hits"]] == TEXTS[1:]
    assert answers[4] == {"value": []}
    assert answers[5] == answers[1]
    assert [(call.answer or {}).get("code") for call in refused] == ["STORE_READ_ONLY"] * len(WRITES)
    took_s = [((call.ended_ns or 0) - call.began_ns) / 1e9 for call in refused]
    assert max(took_s) < 5.0, f"refusals took {took_s} s"
    assert after == before


def test_newest_changes_that_cannot_be_read_are_told_and_not_left_out(
    store: Path, place: Callable[[Path], AbstractContextManager[Place]]
) -> None:
    filled(store, killed=True)
    (store / "memory.db-shm").unlink()  # as in a folder that was copied without it
    before = contents(store)
    with place(store) as there:
        calls = carried_out(there, store.parent / "ledger", [*READS, {"action": "get", "id": ID}])
        assert contents(there.folder) == before
    assert [(call.answer or {}).get("code") for call in calls] == ["STORE_READ_ONLY"] * len(calls)
    assert all("WAL" in call.answer["message"] and "Copy" in call.answer["message"] for call in calls if call.answer)


def test_a_store_of_an_older_version_says_that_it_cannot_be_brought_up_to_date_there(
    store: Path, place: Callable[[Path], AbstractContextManager[Place]]
) -> None:
    filled(store)
    connection = apsw.Connection(str(store / "memory.db"))
    connection.pragma("user_version", 1)
    connection.close()
    with place(store) as there:
        calls = carried_out(there, store.parent / "ledger", [{"action": "list"}, {"action": "status"}])
    for call in calls:
        assert call.answer is not None
        assert call.answer["code"] == "STORE_READ_ONLY"
        assert "version 1" in call.answer["message"]
        assert "Copy" in call.answer["message"]


def test_a_read_only_place_without_a_store_is_told_as_such(
    store: Path, place: Callable[[Path], AbstractContextManager[Place]]
) -> None:
    store.mkdir()
    with place(store) as there:
        steps = [{"action": "list"}, {"action": "add", "text": "a text"}, {"action": "status"}, {"action": "exists"}]
        calls = carried_out(there, store.parent / "ledger", steps)
        assert contents(there.folder) == {}
    assert [(call.answer or {}).get("code") for call in calls[:2]] == ["STORE_READ_ONLY"] * 2
    assert [(call.answer or {}).get(name) for call, name in zip(calls[2:], ("exists", "value"), strict=True)] == [
        False
    ] * 2


def test_a_folder_that_became_read_only_is_read_and_written_again_when_it_is_not(
    store: Path, place: Callable[[Path], AbstractContextManager[Place]]
) -> None:
    filled(store)
    with place(store) as there:
        assert carried_out(there, store.parent / "ledger", [{"action": "list"}])[0].outcome == "ok"
        copied = there.folder
        (store.parent / "copy").mkdir()
        for path in copied.iterdir():
            (store.parent / "copy" / path.name).write_bytes(path.read_bytes())
    with Memory(store.parent / "copy") as memory:
        assert memory.add("one more").created
        assert memory.list().total == 3
        assert memory.status()["read_only"] is False


# -- the check itself ----------------------------------------------------------------------------------------------------


def without_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on connections of this process cannot use the shared index, as on a read-only mount."""
    of_file = schema.version_of

    def version_of(connection: apsw.Connection) -> int:
        if getattr(connection, "frozen", None) is None:
            raise apsw.CantOpenError("unable to open database file")
        return of_file(connection)

    monkeypatch.setattr(schema, "version_of", version_of)


def test_files_that_change_during_a_read_make_it_no_answer_and_the_next_read_looks_afresh(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    without_index(monkeypatch)
    database = store / "memory.db"
    with Memory(store) as memory:
        assert memory.list().total == 2
        with pytest.raises(StoreChanged) as refusal, memory._store.read() as view:
            assert view.counts()["memories"] == 2
            os.utime(database, ns=(1, 1))
        assert refusal.value.code == "STORE_CHANGED"
        assert refusal.value.hint
        assert memory.list().total == 2  # at rest again
        with pytest.raises(StoreChanged), memory._store.read() as view:
            os.utime(database, ns=(2, 2))
            view.get(ID)  # that it is not there is no answer either
        assert memory.list().total == 2


def test_a_database_that_changed_a_moment_ago_is_let_rest_before_it_is_trusted(tmp_path: Path) -> None:
    database = tmp_path / "memory.db"
    database.write_bytes(b"x")
    changed_s = database.stat().st_mtime
    frozen.rested_stamp(str(database))
    assert time.time() - changed_s >= 0.05
    whole = int(time.time()) * 1_000_000_000
    os.utime(database, ns=(whole, whole))
    frozen.rested_stamp(str(database))  # a file system that keeps whole seconds cannot tell two changes within one
    assert time.time() - whole / 1e9 >= 2.0


def test_a_database_that_never_rests_is_refused_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "memory.db"
    database.write_bytes(b"x")
    monkeypatch.setattr(frozen, "_REST_LIMIT_S", 0.3)
    original = frozen.stamp

    def restless(path: str) -> frozen.Stamp:
        database.write_bytes(b"x")
        return original(path)

    monkeypatch.setattr(frozen, "stamp", restless)
    began_s = time.monotonic()
    with pytest.raises(StoreChanged):
        frozen.rested_stamp(str(database))
    assert time.monotonic() - began_s < 2.0


# -- handles that fail ---------------------------------------------------------------------------------------------------


def test_a_read_connection_that_failed_is_replaced_at_the_next_use(memory: Memory) -> None:
    memory.add("the harbour is east")
    assert memory.list().total == 1
    engine = memory._store._use()  # type: ignore[attr-defined]
    engine.readers._local.connection.close()
    with pytest.raises(StoreError):
        memory.list()
    assert memory.list().total == 1
    assert memory.search("harbour")


def test_a_write_connection_that_failed_is_replaced_at_the_next_use(memory: Memory) -> None:
    memory.add("the harbour is east")
    engine = memory._store._use()  # type: ignore[attr-defined]
    engine.writer._connection.close(True)
    with pytest.raises(HoldTrueError):
        memory.add("the mill is north")
    assert memory.add("the gate is west").created
    assert [record.text for record in memory.list()] == ["the gate is west", "the harbour is east"]
