"""Export and import: what a file holds, what is refused, and how what is in a file meets what is in the store."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdtrue import HoldTrueError, Memory, cli, failpoints
from holdtrue.errors import (
    ExportTooNew,
    InvalidInput,
    SourceUnreadable,
    StoreBusy,
    StoreMissing,
    StoreReadOnly,
    TargetExists,
    TargetRefused,
)
from holdtrue.models import EmbedderIdentity
from holdtrue.records import TEXT_LIMIT
from holdtrue.store import importing, jsonlines, portable
from holdtrue.store.sqlite import SQLiteStore
from impl.tests.conftest import ROOT
from impl.tests.stubembedder import Stub, use
from properties.kit import raw, tables

MOMENT = "2026-03-04T09:00:00.000001Z"
ID = "01900000-0000-7000-8000-{:012x}"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "other") as memory:
        yield memory


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memories.jsonl"


def memory_of(number: int, text: str, **fields: Any) -> dict[str, Any]:
    """A memory as an export holds it."""
    return {
        "id": ID.format(number),
        "text": text,
        **dict.fromkeys(("at", "valid_from", "created_at", "updated_at"), MOMENT),
        "revision": 1,
        "sources": [{"source": "", "times": 1, "last": MOMENT}],
        **fields,
    }


def export_of(*records: dict[str, Any], tombstones: int = 0) -> bytes:
    """An export with these records, whole."""
    header: dict[str, Any] = {"holdtrue": "export", "version": 1}
    end = {"end": {"memories": len(records) - tombstones, "tombstones": tombstones}}
    return b"".join(json.dumps(line).encode() + b"\n" for line in (header, *records, end))


def counts(receipt: importing.Imported) -> dict[str, int]:
    return {
        name: value
        for name, value in vars(receipt).items()
        if isinstance(value, int) and value and name not in ("complete", "erased")
    }


# -- what a file holds -------------------------------------------------------------------------------------------------


def filled(memory: Memory) -> tuple[str, str]:
    """A memory with everything, and one that is forgotten: their ids."""
    kept = memory.add(
        "the harbour is east",
        user="maya",
        project="db",
        session="s1",
        speaker="Zoë",
        source="wiki",
        key="k-1",
        at="2026-03-04T10:00:00.000001+01:00",
        tags=["b", "日本"],
        metadata={"ticket": "POL-1", "n": [1.5, None]},
    )
    memory.add("the harbour is east", user="maya", project="db", source="chat", key="k-2")
    memory.update(kept.id, "the harbour is west")
    memory.update(kept.id, "the harbour is gone")
    gone = memory.add("soon forgotten")
    memory.forget(gone.id)
    return kept.id, gone.id


def test_an_export_holds_everything_of_a_memory_and_only_the_id_of_what_was_forgotten(
    memory: Memory, file: Path
) -> None:
    kept, gone = filled(memory)
    receipt = memory.export(file)
    assert (receipt.path, receipt.memories, receipt.tombstones) == (str(file), 1, 1)
    assert receipt.bytes == file.stat().st_size
    header, tombstone, line, end = [json.loads(text) for text in file.read_bytes().splitlines()]
    assert header == {
        "holdtrue": "export",
        "version": 1,
        "created_at": header["created_at"],
        "schema": header["schema"],
    }
    assert set(tombstone["tombstone"]) == {"id", "forgotten_at"}
    assert tombstone["tombstone"]["id"] == gone
    assert end == {"end": {"memories": 1, "tombstones": 1}}
    inner = line["memory"]
    assert (inner["id"], inner["text"], inner["revision"]) == (kept, "the harbour is gone", 3)
    assert [inner[name] for name in ("user", "project", "session", "speaker")] == ["maya", "db", "s1", "Zoë"]
    assert (inner["at"], inner["tags"], inner["source"]) == ("2026-03-04T09:00:00.000001Z", ["b", "日本"], "wiki")
    assert inner["metadata"] == {"n": [1.5, None], "ticket": "POL-1"}
    assert [(one["source"], one["times"]) for one in inner["sources"]] == [("chat", 1), ("wiki", 1)]
    assert [one["key"] for one in inner["keys"]] == ["k-1", "k-2"]
    assert [one["text"] for one in inner["revisions"]] == ["the harbour is east", "the harbour is west"]
    assert inner["revisions"][0]["until"] == inner["revisions"][1]["from"]
    assert inner["revisions"][1]["until"] == inner["valid_from"]
    assert b"soon forgotten" not in file.read_bytes()


def test_an_import_into_a_new_store_is_the_same_store_and_a_second_one_changes_nothing(
    memory: Memory, other: Memory, store: Path, file: Path, tmp_path: Path
) -> None:
    filled(memory)
    memory.add("--")
    memory.export(file)
    first = other.import_(file)
    assert counts(first) == {"added": 2}
    assert tables.differences(tables.read(store), tables.read(tmp_path / "other")) == []
    events = other.status()["events"]
    assert counts(other.import_(file)) == {"known": 2}
    assert other.status()["events"] == events
    assert tables.differences(tables.read(store), tables.read(tmp_path / "other")) == []
    assert other.verify() == []
    assert other.search("harbour gone")[0].text == "the harbour is gone"


def test_the_same_state_gives_the_same_bytes_but_for_the_header(memory: Memory, file: Path, tmp_path: Path) -> None:
    filled(memory)
    memory.export(file)
    memory.export(tmp_path / "again.jsonl")
    assert file.read_bytes().split(b"\n", 1)[1] == (tmp_path / "again.jsonl").read_bytes().split(b"\n", 1)[1]


def test_a_history_that_is_longer_than_a_line_is_continued_on_further_lines(
    memory: Memory, other: Memory, store: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "LINE_CHARACTERS", 700)
    id_ = memory.add("revision 0", key="k-0").id
    for number in range(1, 12):
        memory.update(id_, f"revision {number} {'x' * 100}")
        memory.add(f"revision {number} {'x' * 100}", source=f"chat {number}", key=f"k-{number}")
    memory.add("another one")
    memory.export(file)
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert lines[1]["memory"]["more"] == sum("more" in line for line in lines) > 3
    assert counts(other.import_(file)) == {"added": 2}
    assert tables.differences(tables.read(store), tables.read(tmp_path / "other")) == []
    # Without one of them the memory is not whole: it is told, and the others are taken.
    torn = file.read_bytes().splitlines(keepends=True)
    del torn[3]
    file.write_bytes(b"".join(torn))
    with Memory(tmp_path / "third") as third:
        receipt = third.import_(file)
        assert counts(receipt) == {"added": 1, "bad_count": 1}
        assert receipt.bad[0].line == 2


def test_a_text_that_masking_made_longer_than_a_text_may_be_comes_back(
    memory: Memory, other: Memory, store: Path, file: Path, tmp_path: Path
) -> None:
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    text = " ".join([secret] * 2_300)
    text += "." * (TEXT_LIMIT - len(text))
    memory.add(text, metadata={f"n{number}": f"{secret}" for number in range(300)})
    assert len(memory.list().memories[0].text) > TEXT_LIMIT
    memory.export(file)
    assert counts(other.import_(file)) == {"added": 1}
    assert tables.differences(tables.read(store), tables.read(tmp_path / "other")) == []
    file.write_bytes(export_of({"memory": memory_of(1, "x" * (TEXT_LIMIT + 1))}))
    assert counts(other.import_(file)) == {"bad_count": 1}


def test_a_secret_in_a_file_is_masked_like_one_that_is_added(other: Memory, tmp_path: Path, file: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    revision = {"revision": 1, "text": f"old {secret}", "from": MOMENT, "until": MOMENT}
    record = memory_of(1, f"token {secret}", revision=2, revisions=[revision], metadata={"t": secret}, user=secret)
    file.write_bytes(export_of({"memory": record}) + json.dumps({"text": f"plain {secret}"}).encode())
    other.import_(file)
    other.close()
    for path in (tmp_path / "other").iterdir():
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_vectors_are_written_when_they_are_asked_for_and_none_is_made_again(
    memory: Memory, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("the automobile motor is cold")
    memory.add("\U0001f6a2")
    memory.export(file, vectors=True)
    header, first, *_ = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert header["embedder"] == memory.status()["embedder"]
    assert "vector" in first["memory"]
    stub = Stub(failing=True)
    name, revision = header["embedder"].removesuffix("/256").split("@")
    stub.identity = EmbedderIdentity(name, revision, 256)
    use(monkeypatch, stub)
    with Memory(tmp_path / "third") as third:
        receipt = third.import_(file)
    state = raw.read(tmp_path / "third")
    assert [row.vector is not None for row in state.rows] == [True, False]
    assert state.rows[0].vector == raw.read(memory.path).rows[0].vector
    assert (receipt.added, receipt.put_off) == (2, 1)


def test_vectors_of_another_embedder_or_of_no_length_are_not_taken(
    memory: Memory, other: Memory, file: Path, tmp_path: Path
) -> None:
    memory.add("the automobile motor is cold")
    memory.add("penguins live in the south")
    memory.export(file, vectors=True)
    lines = file.read_bytes().splitlines(keepends=True)
    bent = json.loads(lines[1])
    bent["memory"]["vector"] = portable.vector_text(bytes(1024))
    file.write_bytes(b"".join([lines[0], json.dumps(bent).encode() + b"\n", *lines[2:]]))
    other.import_(file)
    wanted = [row.vector for row in raw.read(memory.path).rows]
    assert [row.vector for row in raw.read(tmp_path / "other").rows] == wanted
    file.write_bytes(file.read_bytes().replace(b"static-minilm", b"another-model"))
    with Memory(tmp_path / "third") as third:
        assert third.import_(file).put_off == 0
    assert [row.vector for row in raw.read(tmp_path / "third").rows] == wanted


# -- the file that is written ------------------------------------------------------------------------------------------


def test_an_export_is_private_and_replaces_a_file_only_when_told(memory: Memory, file: Path) -> None:
    memory.add("the harbour is east")
    before = os.umask(0)
    try:
        memory.export(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    memory.add("the mill is north")
    held = file.read_bytes()
    with pytest.raises(TargetExists):
        memory.export(file)
    assert file.read_bytes() == held
    assert memory.export(file, replace=True).memories == 2
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "name", ["memory.db", "memory.db-wal", "memory.db-shm", "turn.outer", "turn.inner", "MEMORY.DB"]
)
def test_no_file_of_a_store_is_ever_the_target_of_an_export_or_the_source_of_an_import(
    memory: Memory, other: Memory, store: Path, name: str
) -> None:
    memory.add("the harbour is east")
    other.add("the mill is north")
    for folder in (store, other.path):
        with pytest.raises(TargetRefused):
            memory.export(folder / name, replace=True)
        with pytest.raises(SourceUnreadable):
            memory.import_(folder / name)
    assert memory.list().total == 1
    assert other.list().total == 1


def test_a_target_that_cannot_be_a_file_is_refused(memory: Memory, tmp_path: Path) -> None:
    memory.add("the harbour is east")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "pipe", tmp_path / "folder", tmp_path / "missing" / "file", Path("/dev/null")):
        with pytest.raises(TargetRefused):
            memory.export(target, replace=True)
    with pytest.raises(InvalidInput):
        memory.export("")
    with pytest.raises(InvalidInput):
        memory.export(7)  # type: ignore[arg-type]


def test_a_store_that_is_not_there_is_not_made_by_an_export(tmp_path: Path, file: Path) -> None:
    with Memory(tmp_path / "nothing") as nothing, pytest.raises(StoreMissing):
        nothing.export(file)
    assert list(tmp_path.iterdir()) == []


def copies(store: Path) -> list[tuple[str, str]]:
    connection = raw.connect(store)
    rows = connection.execute("SELECT path, kind FROM copies ORDER BY path").fetchall()
    connection.close()
    return rows


def test_an_export_is_recorded_as_a_copy_and_a_failed_one_leaves_neither_file_nor_record(
    memory: Memory, store: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("the harbour is east")

    def fail(point: str) -> None:
        if point == "export.page":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(failpoints, "hit", fail)
    with pytest.raises(HoldTrueError) as caught:
        memory.export(file)
    monkeypatch.undo()
    assert caught.value.code == "STORE_FULL"
    assert sorted(path.name for path in file.parent.iterdir()) == ["store"]
    assert copies(store) == []
    assert memory.export(file).recorded
    assert copies(store) == [(str(file), "export")]
    with pytest.raises(TargetExists):
        memory.export(file)
    assert copies(store) == [(str(file), "export")]


def test_a_store_that_nobody_may_write_is_exported_all_the_same(
    memory: Memory, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("the harbour is east")

    def refuse(*_arguments: object) -> None:
        raise StoreReadOnly("It cannot be written.")

    monkeypatch.setattr(SQLiteStore, "_write", refuse)
    receipt = memory.export(file)
    assert (receipt.memories, receipt.recorded) == (1, False)


def test_a_slow_reader_of_a_stream_holds_no_state_of_the_store(memory: Memory) -> None:
    memory.add("the harbour is east")
    kept = memory.add("the mill is north")

    class Slow(io.BytesIO):
        erased: bool | None = None

        def write(self, data: Any) -> int:
            if self.erased is None:
                # A state that the export still read from would pin these bytes in the WAL.
                self.erased = memory.forget(kept.id).erased
            return super().write(data)

    out = Slow()
    receipt = memory.export(out)
    assert out.erased
    assert (receipt.path, receipt.memories, receipt.bytes) == (None, 2, len(out.getvalue()))
    assert out.getvalue().endswith(b'{"end": {"memories": 2, "tombstones": 0}}\n')


# -- how a file meets a store ------------------------------------------------------------------------------------------


def test_what_was_forgotten_here_stays_forgotten_and_what_the_file_says_was_forgotten_is_forgotten(
    memory: Memory, file: Path, store: Path
) -> None:
    here, there = memory.add("forgotten here"), memory.add("forgotten there", project="alone in it")
    memory.export(file)
    memory.forget(here.id)
    tombstone = {"tombstone": {"id": there.id, "forgotten_at": MOMENT}}
    unknown = {"tombstone": {"id": ID.format(9), "forgotten_at": MOMENT}}
    lines = file.read_bytes().splitlines()
    records = [json.loads(line) for line in lines[1:-1]]
    file.write_bytes(export_of(tombstone, unknown, *records, tombstones=2))
    assert counts(memory.import_(file)) == {"removed": 1, "forgotten": 2}
    assert memory.list().total == 0
    connection = raw.connect(store)
    stones = dict(connection.execute("SELECT id, forgotten_us FROM tombstones").fetchall())
    names = connection.execute("SELECT name FROM names WHERE kind = 'project'").fetchall()
    connection.close()
    assert set(stones) == {here.id, there.id, ID.format(9)}
    assert stones[there.id] == stones[ID.format(9)] == portable._time(MOMENT)
    assert names == []
    assert counts(memory.import_(file)) == {"forgotten": 2}
    assert memory.status()["erasures_waiting"] == 0


def test_a_text_that_was_forgotten_and_added_again_survives_the_tombstone_of_its_first_id(
    memory: Memory, other: Memory, file: Path
) -> None:
    first = memory.add("the harbour is east")
    memory.export(file)
    other.import_(file)
    memory.forget(first.id)
    again = memory.add("the harbour is east")
    memory.export(file, replace=True)
    assert counts(other.import_(file)) == {"removed": 1, "added": 1}
    assert [record.id for record in other.list()] == [again.id]


def test_a_memory_goes_on_where_the_one_here_ends_and_never_back(
    memory: Memory, other: Memory, file: Path, tmp_path: Path
) -> None:
    id_ = memory.add("revision one").id
    memory.export(file)
    old = tmp_path / "old.jsonl"
    file.rename(old)
    other.import_(old)
    memory.update(id_, "revision two")
    memory.update(id_, "revision three")
    memory.export(file)
    assert counts(other.import_(file)) == {"updated": 1}
    assert tables.differences(tables.read(memory.path), tables.read(other.path)) == []
    assert other.verify() == []
    assert other.search("three")[0].id == id_
    assert counts(other.import_(old)) == {"known": 1}
    assert other.get(id_).text == "revision three"


def test_a_memory_that_went_another_way_here_is_kept_and_told_with_its_line(
    memory: Memory, other: Memory, file: Path
) -> None:
    id_ = memory.add("revision one").id
    memory.export(file)
    other.import_(file)
    memory.update(id_, "two of there")
    other.update(id_, "two of here")
    memory.export(file, replace=True)
    receipt = other.import_(file)
    assert counts(receipt) == {"conflict_count": 1}
    assert (receipt.conflicts[0].line, id_ in receipt.conflicts[0].reason) == (2, True)
    assert other.get(id_).text == "two of here"
    # And where another memory has the newer text already.
    file.write_bytes(file.read_bytes().replace(b"two of there", b"two of where"))
    other.forget(id_)
    fresh = memory_of(5, "one", revision=1)
    new = memory_of(5, "taken", revision=2, revisions=[{"revision": 1, "text": "one", "from": MOMENT, "until": MOMENT}])
    file.write_bytes(export_of({"memory": fresh}))
    other.import_(file)
    other.add("taken")
    file.write_bytes(export_of({"memory": new}))
    assert counts(other.import_(file)) == {"conflict_count": 1}
    assert other.get(ID.format(5)).text == "one"


def test_the_same_text_under_another_id_is_merged_and_its_sources_are_counted_once(memory: Memory, file: Path) -> None:
    here = memory.add("the harbour is east", source="chat")
    sources = [{"source": "chat", "times": 3, "last": MOMENT}, {"source": "wiki", "times": 2, "last": MOMENT}]
    keys = [{"key": "k-1", "digest": "ab" * 32}]
    record = {"memory": memory_of(1, "the harbour is east", sources=sources, keys=keys)}
    file.write_bytes(export_of(record))
    for _ in range(2):
        assert counts(memory.import_(file)) == {"merged": 1}
        (state,) = tables.read(memory.path).memories
        assert (state["id"], [one[:2] for one in state["sources"]]) == (here.id, [("chat", 3), ("wiki", 2)])
        assert [key for key, *_ in state["keys"]] == ["k-1"]
    assert memory.get(here.id).sources == 5


def test_a_merged_text_that_is_forgotten_does_not_come_back_with_the_same_file(
    memory: Memory, store: Path, other: Memory, file: Path, tmp_path: Path
) -> None:
    file.write_bytes(export_of(*({"memory": memory_of(number, "told on both machines")} for number in (1, 2))))
    here = memory.add("told on both machines").id
    backup = memory.backup().path
    assert counts(memory.import_(file)) == {"merged": 2}
    memory.forget(here)
    assert {id_ for id_, _ in tables.read(store).tombstones} == {here, ID.format(1), ID.format(2)}
    assert counts(memory.import_(file)) == {"forgotten": 2}
    # Neither after a restore of a state before, nor in a store that takes this one's export.
    memory.restore(backup)
    assert counts(memory.import_(file)) == {"forgotten": 2}
    memory.export(tmp_path / "after.jsonl")
    other.import_(tmp_path / "after.jsonl")
    assert counts(other.import_(file)) == {"forgotten": 2}
    assert (memory.list().total, other.list().total) == (0, 0)
    # A text alone has no id: whoever tells it again is believed.
    memory.add("told on both machines")
    assert memory.verify() == []


def test_a_merged_memory_that_has_a_life_of_its_own_since_outlives_the_one_it_was_merged_into(
    memory: Memory, file: Path
) -> None:
    file.write_bytes(export_of({"memory": memory_of(1, "the gate is west")}))
    here = memory.add("the gate is west").id
    memory.import_(file)
    memory.update(here, "the gate is shut")
    assert counts(memory.import_(file)) == {"added": 1}
    memory.forget(here)
    assert memory.get(ID.format(1)).text == "the gate is west"
    assert counts(memory.import_(file)) == {"known": 1}


def test_a_key_that_names_another_text_here_keeps_it_and_is_told(memory: Memory, file: Path) -> None:
    here = memory.add("the harbour is east", key="k-1")
    keys = [{"key": "k-1", "digest": "ab" * 32}, {"key": "k-2", "digest": "ab" * 32}]
    file.write_bytes(
        export_of({"memory": memory_of(1, "the mill is north", keys=keys)})
        + b'{"text": "third", "key": "k-1"}\n{"text": "fourth", "key": "k-3"}\n'
    )
    receipt = memory.import_(file)
    assert counts(receipt) == {"added": 2, "conflict_count": 2}
    assert [told.line for told in receipt.conflicts] == [2, 4]
    by_text = {state["text"]: [key for key, *_ in state["keys"]] for state in tables.read(memory.path).memories}
    assert by_text == {"the harbour is east": ["k-1"], "the mill is north": ["k-2"], "fourth": ["k-3"]}
    assert memory.add("the harbour is east", key="k-1").id == here.id


def test_records_that_meet_each_other_in_one_file_follow_the_same_rules(memory: Memory, file: Path) -> None:
    one = memory_of(1, "the harbour is east", keys=[{"key": "k", "digest": "ab" * 32}])
    file.write_bytes(
        export_of(
            {"memory": one},
            {"memory": one},
            {"memory": memory_of(2, "the harbour is east")},
            {"memory": memory_of(1, "another text")},
            {"memory": memory_of(3, "with the key", keys=[{"key": "k", "digest": "cd" * 32}])},
            {"tombstone": {"id": ID.format(3), "forgotten_at": MOMENT}},
            {"memory": memory_of(3, "with the key")},
            tombstones=1,
        )
    )
    receipt = memory.import_(file)
    assert counts(receipt) == {"added": 2, "known": 1, "merged": 1, "conflict_count": 2, "removed": 1, "forgotten": 1}
    assert [told.line for told in receipt.conflicts] == [5, 6]
    assert [record.text for record in memory.list()] == ["the harbour is east"]
    assert memory.verify() == []


# -- what is wrong with a file -----------------------------------------------------------------------------------------

GOOD = json.dumps({"memory": memory_of(1, "a good one")}).encode()


@pytest.mark.parametrize(
    ("data", "added", "bad", "complete"),
    [
        (b"", 0, [], True),
        (b"\n\n  \n", 0, [], True),
        (b"\xef\xbb\xbf" + GOOD, 1, [], True),
        (GOOD + b"\r\n" + b'{"text": "second"}\r\n', 2, [], True),
        (GOOD + b'{"text": "glued"}  {"text": "thrice"}\n', 3, [], True),
        (b'{"text": "glued"}{"text": bro\n' + GOOD, 2, [1], True),
        (GOOD + b'\n{"text": "torn', 1, [2], False),
        (GOOD + b'\n{"text":', 1, [2], False),
        (GOOD + b'\n{"text": "caf\xc3', 1, [2], False),
        (b'{"text": "torn\n' + GOOD, 1, [1], True),
        (b"not json\n[1]\n7\nnull\n" + GOOD, 1, [1, 2, 3, 4], True),
        (b'{"text": "raw \xff bytes"}\n' + GOOD, 1, [1], True),
        (b'{"text": "a\\u0000b"}\n{"text": " "}\n' + GOOD, 1, [1, 2], True),
        (b'{"text": 7}\n{"text": "x", "tags": "y"}\n{"text": "x", "hue": "red"}\n{"name": "x"}\n', 0, [1, 2, 3, 4], True),
        (b'{"text": "x", "metadata": {"n": NaN}}\n{"text": "y", "at": "noon"}\n', 0, [1, 2], True),
        (b'{"text": ' + b"[" * 100_000 + b"\n" + GOOD, 1, [1], True),
        (b'{"text": ' + b"1" * 10_000 + b"}\n" + GOOD, 1, [1], True),
        (b'{"more": {"id": "' + ID.format(1).encode() + b'"}}\n' + GOOD, 1, [1], True),
        (b'{"end": {"memories": 0, "tombstones": 0}}\n' + GOOD, 1, [1], True),
        (b'{"holdtrue": "something"}\n' + GOOD, 1, [1], True),
        (export_of({"memory": memory_of(1, "x")}).rsplit(b"\n", 2)[0], 1, [], False),
        (export_of({"memory": memory_of(1, "x")}).replace(b'"memories": 1', b'"memories": 3'), 1, [3], False),
        (export_of({"memory": memory_of(1, "x")}) + export_of({"memory": memory_of(2, "y")}), 2, [], True),
    ],
)  # fmt: skip
def test_what_is_broken_is_told_with_its_line_and_everything_else_is_imported(
    memory: Memory, file: Path, data: bytes, added: int, bad: list[int], complete: bool
) -> None:
    file.write_bytes(data)
    receipt = memory.import_(file)
    assert (receipt.added, [told.line for told in receipt.bad], receipt.complete) == (added, bad, complete), receipt
    assert receipt.bad_count == len(bad)
    assert all(told.reason and "\n" not in told.reason for told in receipt.bad)
    assert file.read_bytes() == data
    if added:
        assert memory.verify() == []


BENT: list[dict[str, Any]] = [
    {"id": "no-uuid"}, {"id": 7}, {"id": None}, {"text": ""}, {"text": None}, {"at": None}, {"at": "noon"}, {"at": 7},
    {"at": "2026-03-04T10:00:00"}, {"valid_from": []}, {"created_at": {}}, {"updated_at": "0000-01-01T00:00:00Z"},
    {"revision": 0}, {"revision": True}, {"revision": "1"}, {"revision": 2**70}, {"tags": "x"}, {"tags": [7]},
    {"tags": [" "]}, {"tags": ["t"] * 65}, {"metadata": []}, {"metadata": {"a": float("inf")}}, {"user": 7},
    {"user": "a\0b"}, {"user": "x" * 1_025}, {"sources": {}}, {"sources": [7]},
    {"sources": [{"source": "", "times": 0, "last": MOMENT}]},
    {"sources": [{"source": "", "times": 1, "last": MOMENT}] * 2}, {"sources": [{"source": ""}]},
    {"keys": [{"key": "k", "digest": "short"}]}, {"keys": [{"key": " ", "digest": "ab" * 32}]},
    {"keys": [{"key": "k", "digest": "ab" * 32}] * 2}, {"revisions": [{"revision": 1}]},
    {"revisions": [{"revision": 1, "text": "x", "from": MOMENT, "until": MOMENT}]},
    {"more": -1}, {"more": 1},
]  # fmt: skip


def test_a_memory_with_a_field_that_is_no_good_is_told_and_its_neighbours_are_imported(
    memory: Memory, file: Path
) -> None:
    records = []
    for number, change in enumerate(BENT):
        bent = {**memory_of(2 * number, f"bent {number}"), **change}
        records.append({"memory": {name: value for name, value in bent.items() if value is not None}})
        records.append({"memory": memory_of(2 * number + 1, f"good {number}")})
    file.write_bytes(export_of(*records))
    receipt = memory.import_(file)
    wanted = [2 + 2 * number for number in range(len(BENT))]
    assert [told.line for told in receipt.bad] == wanted, receipt.bad
    assert {record.text for record in memory.list()} == {f"good {number}" for number in range(len(BENT))}


BEFORE, AFTER = "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"


def old(**fields: Any) -> dict[str, Any]:
    return {"revisions": [{"revision": 1, "text": "before", "from": MOMENT, "until": MOMENT, **fields}], "revision": 2}


@pytest.mark.parametrize(
    "fields",
    [
        *({name: when} for name in ("at", "valid_from", "created_at", "updated_at") for when in (BEFORE, AFTER)),
        {"valid_from": "9999-12-31T23:59:59.999999Z"},
        {"sources": [{"source": "", "times": 1, "last": AFTER}]},
        {"sources": [{"source": "", "times": 2**31 + 1, "last": MOMENT}]},
        {"revision": 2**31 + 1},
        *(old(**{name: when}) for name in ("from", "until") for when in (BEFORE, AFTER)),
    ],
)
def test_a_time_or_a_count_that_no_store_can_hold_is_told_and_everything_else_is_read_on(
    memory: Memory, file: Path, tmp_path: Path, fields: dict[str, Any]
) -> None:
    file.write_bytes(export_of({"memory": memory_of(1, "poison", **fields)}, {"memory": memory_of(2, "sound")}))
    receipt = memory.import_(file)
    assert (receipt.added, [bad.line for bad in receipt.bad]) == (1, [2])
    assert [record.text for record in memory.list()] == ["sound"]
    assert memory.export(tmp_path / "out.jsonl").memories == 1


def test_a_tombstone_with_a_time_that_no_date_can_hold_is_told(memory: Memory, file: Path) -> None:
    file.write_bytes(export_of({"tombstone": {"id": ID.format(1), "forgotten_at": AFTER}}, tombstones=1))
    assert [bad.line for bad in memory.import_(file).bad] == [2]


def test_what_lies_at_the_limits_can_be_changed_and_carried_on(memory: Memory, other: Memory, file: Path) -> None:
    most = [{"source": str(number), "times": 2**31, "last": "9999-12-30T00:00:00Z"} for number in range(1_100)]
    file.write_bytes(
        export_of(
            {"memory": memory_of(1, "at the end", valid_from="9999-12-30T00:00:00Z", sources=most)},
            {"memory": memory_of(2, "updated most", revision=2**31)},
        )
    )
    assert counts(memory.import_(file)) == {"added": 2}
    assert memory.get(ID.format(1)).sources == 1_100 * 2**31
    assert memory.add("at the end", source="7").sources == 1_100 * 2**31
    memory.update(ID.format(1), "after the end")
    with pytest.raises(InvalidInput, match="takes no other text"):
        memory.update(ID.format(2), "once more")
    memory.export(file, replace=True)
    assert counts(other.import_(file)) == {"added": 2}
    assert other.get(ID.format(1)).text == "after the end"
    assert memory.verify() == other.verify() == []


def test_a_store_that_holds_times_and_counts_beyond_the_limits_is_read_and_exported(
    memory: Memory, store: Path, other: Memory, file: Path
) -> None:
    low, high = memory.add("of long ago").id, memory.add("of far ahead").id
    connection = raw.connect(store)
    for id_, us in ((low, -(1 << 60)), (high, 1 << 60)):
        connection.execute(
            "UPDATE memories SET valid_from_us = ?1, created_us = ?1, updated_us = ?1 WHERE id = ?2", (us, id_)
        )
    connection.execute("INSERT INTO revisions SELECT seq, 1, 'before', valid_from_us, valid_from_us FROM memories")
    connection.execute("UPDATE memories SET revision = 2")
    connection.execute(
        "INSERT INTO sources SELECT seq, value, 1 << 53, created_us FROM memories, json_each(?)",
        (json.dumps([str(number) for number in range(1_100)]),),
    )
    connection.close()
    assert {record.as_dict()["updated_at"][:4] for record in memory.list()} == {"0001", "9999"}
    assert memory.get(high).sources == 2**53
    assert memory.export(file).memories == 2
    assert counts(other.import_(file)) == {"added": 2}
    assert other.verify() == []
    assert memory.update(high, "of far ahead, told again").revision == 3
    assert memory.forget(low).forgotten


def test_a_lone_surrogate_becomes_a_replacement_character_and_a_pair_of_escapes_one_letter(
    memory: Memory, file: Path
) -> None:
    file.write_bytes(
        b'{"text": "half \\ud83d cut"}\n{"text": "whole \\ud83d\\ude00"}\n{"text": "raw \xed\xa0\xbd half"}\n'
    )
    assert counts(memory.import_(file)) == {"added": 3}
    assert {record.text for record in memory.list()} == {"half \ufffd cut", "whole \U0001f600", "raw \ufffd half"}


def test_a_line_without_end_is_told_without_being_held_in_memory(
    memory: Memory, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonlines, "LINE_LIMIT_BYTES", 1_000)
    longest = b'{"text": "' + b"x" * (1_000 - 13) + b'"}'
    assert len(longest) == 999
    file.write_bytes(b'{"text": "' + b"y" * 5_000 + b'"}\n' + longest + b"\n" + GOOD + b"\n" + b"z" * 1_001)
    receipt = memory.import_(file)
    assert ([told.line for told in receipt.bad], receipt.added) == ([1, 4], 2)


def test_of_many_bad_lines_the_first_hundred_are_shown_and_all_are_counted(memory: Memory, file: Path) -> None:
    file.write_bytes(b"x\n" * 250)
    receipt = memory.import_(file)
    assert (receipt.bad_count, len(receipt.bad)) == (250, 100)


@pytest.mark.parametrize("version", [2, "1", 0, None, True, 1.5])
def test_an_export_of_an_unknown_version_is_refused_whole_and_leaves_no_trace(
    tmp_path: Path, file: Path, version: object
) -> None:
    header = json.dumps({"holdtrue": "export", "version": version}).encode()
    file.write_bytes(b"\n" + header + b"\n" + GOOD + b"\n")
    with Memory(tmp_path / "new") as new, pytest.raises(ExportTooNew):
        new.import_(file)
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_not_there_or_cannot_be_read_is_refused(memory: Memory, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path, Path("/proc/self/mem")):
        with pytest.raises(SourceUnreadable):
            memory.import_(path)
    with pytest.raises(InvalidInput):
        memory.import_("")


def test_an_import_that_is_stopped_says_that_what_came_before_stays_and_goes_on_the_next_time(
    memory: Memory, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = memory.add("a text that the file forgets").id
    forgotten = {"tombstone": {"id": id_, "forgotten_at": "2026-01-02T00:00:00Z"}}
    lines = [forgotten, *({"text": f"memory {number}"} for number in range(2_199))]
    file.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    backup = memory.backup().path  # holds what is to be forgotten
    place = SQLiteStore.place
    calls = []

    def refuse_the_third(self: SQLiteStore, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise StoreBusy("Waited 30 s.")
        return place(self, *arguments)

    monkeypatch.setattr(SQLiteStore, "place", refuse_the_third)
    with pytest.raises(StoreBusy) as caught:
        memory.import_(file)
    assert "stays: run the import again" in caught.value.hint
    assert "Nothing was stored" not in caught.value.hint
    done = caught.value.as_dict()["imported"]
    assert (done["added"], done["removed"], done["complete"]) == (1_999, 1, False)
    assert done["remains"] == [backup]
    assert memory.list().total == 1_999
    assert counts(memory.import_(file)) == {"added": 200, "known": 1_999}


def test_without_a_model_memories_are_imported_by_their_words_and_it_is_said(
    store: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Memory) -> Any:
        raise RuntimeError("no model here")

    monkeypatch.setattr(Memory, "_load_embedder", broken)
    file.write_bytes(b'{"text": "the harbour is east"}\n')
    with Memory(store) as memory:
        receipt = memory.import_(file)
        assert (receipt.added, receipt.put_off) == (1, 1)
        assert "no model here" in receipt.degraded[0]
        assert memory.status()["pending_vectors"] == 1


# -- the memory file of the MCP reference server -----------------------------------------------------------------------


def test_a_torn_memory_file_gives_up_its_good_records_and_says_which_line_is_not_one(
    memory: Memory, file: Path
) -> None:
    # GH modelcontextprotocol/servers 1819, 2577: two objects on one line, a torn last one, then every call fails.
    data = (
        b'{"type":"entity","name":"mailer","entityType":"worker","observations":["sends at night","retries twice"]}\n'
        b'{"type":"relation","from":"mailer","to":"outbox","relationType":"reads"}'
        b'{"type":"entity","name":"outbox","entityType":"table","observations":["append only"]}\n'
        b'{"type":"entity","name":"archive","entityType":"table","observations":["kept for ten ye'
    )
    file.write_bytes(data)
    texts = {
        "mailer (worker): sends at night",
        "mailer (worker): retries twice",
        "mailer reads outbox",
        "outbox (table): append only",
    }
    receipt = memory.import_(file)
    assert counts(receipt) == {"added": 4, "bad_count": 1}
    assert (receipt.bad[0].line, receipt.complete) == (3, False)
    assert {record.text for record in memory.list()} == texts
    assert counts(memory.import_(file)) == {"known": 4, "bad_count": 1}
    changed = memory.search("mailer sends at night")[0]
    memory.update(changed.id, "mailer (worker): sends at noon")
    assert counts(memory.import_(file)) == {"known": 4, "bad_count": 1}
    assert memory.list().total == 4
    assert memory.search("mailer reads outbox")[0].record.metadata == {
        "from": "mailer",
        "to": "outbox",
        "relationType": "reads",
    }
    assert file.read_bytes() == data


def test_of_an_entity_each_good_observation_is_imported_and_a_bad_one_is_told(memory: Memory, file: Path) -> None:
    file.write_bytes(
        b'{"type":"entity","name":"mailer","entityType":"","observations":["good",7,"a\\u0000b"]}\n'
        b'{"type":"entity","name":"bare","entityType":"worker","observations":[]}\n'
        b'{"type":"entity","name":"x"}\n{"type":"relation","from":"x"}\n{"type":"entity","name":"x","entityType":"y","observations":"z"}\n'
    )
    receipt = memory.import_(file)
    assert (receipt.added, [told.line for told in receipt.bad]) == (2, [1, 1, 3, 4, 5])
    assert {record.text for record in memory.list()} == {"mailer: good", "bare (worker)"}


def test_lines_of_texts_take_the_fields_of_an_add_and_are_stored_once(memory: Memory, file: Path) -> None:
    line = {"text": "the harbour is east", "user": "maya", "at": "2026-03-04T10:00:00Z", "tags": ["b", "a"], "key": "k",
            "metadata": {"n": 1}, "source": "wiki", "project": "p", "session": "s", "speaker": "Zoë"}  # fmt: skip
    file.write_bytes(json.dumps(line).encode() + b'\n{"text": "the mill is north"}')
    assert counts(memory.import_(file)) == {"added": 2}
    before = tables.read(memory.path)
    assert counts(memory.import_(file)) == {"known": 2}
    assert tables.differences(before, tables.read(memory.path)) == []
    (record,) = memory.list(user="maya")
    assert (record.at.isoformat(), record.tags, record.source) == ("2026-03-04T10:00:00+00:00", ("a", "b"), "wiki")
    assert memory.add(**{**line, "source": None}).created is False


# -- the commands ------------------------------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, store: Path) -> Run:
    monkeypatch.setenv("HOLDTRUE_HOME", str(store))

    def run_one(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        assert b"Traceback" not in out + err
        return code, out.decode(), err.decode()

    return run_one


def test_the_commands_carry_a_store_to_a_file_and_back(run: Run, file: Path, tmp_path: Path) -> None:
    run("add", "the harbour is east")
    code, out, err = run("export", file)
    assert (code, err) == (0, "")
    assert "1 memory" in out
    assert run("export", file)[0] == 1
    code, out, _ = run("export", file, "--force", "--vectors", "--json")
    assert code == 0
    assert set(json.loads(out)) == {"path", "memories", "tombstones", "bytes", "seconds", "recorded"}
    code, out, err = run("import", file, "--store", tmp_path / "other")
    assert (code, err) == (0, "")
    assert "1 memory" in out
    code, out, _ = run("import", file, "--store", tmp_path / "other", "--json")
    assert code == 0
    receipt = json.loads(out)
    assert (receipt["added"], receipt["known"], receipt["bad"], receipt["complete"]) == (0, 1, [], True)


def test_a_file_with_a_bad_record_ends_an_import_with_1_and_its_line_on_stderr(run: Run, file: Path) -> None:
    file.write_bytes(b'{"text": "good"}\n{"text": "x\n{"text": "y", "\x1b[2J": 1}\n{"text": "torn')
    code, out, err = run("import", file)
    assert (code, "1 memory" in out) == (1, True)
    assert "line 2: not imported: " in err
    assert "line 3: not imported: " in err
    assert "line 4: not imported: " in err
    assert "the file is cut" in err
    assert "\x1b" not in err
    code, out, err = run("import", file, "--json")
    assert (code, err) == (1, "")
    assert [told["line"] for told in json.loads(out)["bad"]] == [2, 3, 4]


def test_standard_output_and_input_carry_an_export_from_one_process_to_another(
    tmp_path: Path, memory: Memory, store: Path
) -> None:
    filled(memory)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "impl"), str(ROOT)])}
    command = [sys.executable, "-m", "holdtrue"]
    with subprocess.Popen(
        [*command, "export", "-", "--store", str(store)], stdout=subprocess.PIPE, env=environment
    ) as exporter:
        done = subprocess.run(
            [*command, "import", "-", "--store", str(tmp_path / "other"), "--json"],
            stdin=exporter.stdout, capture_output=True, env=environment, timeout=60, check=True,
        )  # fmt: skip
    assert exporter.returncode == 0
    assert json.loads(done.stdout)["added"] == 1
    assert tables.differences(tables.read(store), tables.read(tmp_path / "other")) == []


def test_an_export_to_standard_output_and_json_exclude_each_other(run: Run) -> None:
    run("add", "the harbour is east")
    assert run("export", "-", "--json")[0] == 2
