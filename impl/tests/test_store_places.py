"""Where a store may lie, and what stands there instead: refused with a stable code, and left exactly as it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import apsw
import pytest

from holdtrue import Memory
from holdtrue.errors import HoldTrueError, StoreCorrupt, StoreTooNew, StoreUnusable
from holdtrue.store import schema
from properties.kit import raw

# An error in a connection's own clean-up is printed where nobody looks; here it is a failure.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("add", ("a text",)),
    ("search", ("a text",)),
    ("list", ()),
    ("open", ()),
    ("forget", ("01890000-0000-7000-8000-000000000000",)),
]


def digests(folder: Path) -> dict[str, str]:
    """Every file of the folder but the locks that a writer lays beside the database."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith("turn.")
    }


def refused(folder: Path, error: type[HoldTrueError]) -> list[HoldTrueError]:
    """Every call on this folder is refused with this error; a process that tries again is told the same."""
    refusals = []
    with Memory(folder) as memory:
        for name, arguments in [*CALLS, CALLS[0]]:
            with pytest.raises(error) as refusal:
                getattr(memory, name)(*arguments)
            assert refusal.value.code == error.code
            assert refusal.value.hint
            refusals.append(refusal.value)
    return refusals


@pytest.mark.parametrize("below", ["", "sub", "sub/sub"])
def test_a_file_in_the_place_of_the_folder_is_refused_and_left_alone(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("kept")
    refused(tmp_path / "file" / below, StoreUnusable)
    assert (tmp_path / "file").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "content",
    [b"My notes, not a database.\n" * 400, b"short", b"\0" * 4096, os.urandom(8192)],
    ids=["text", "short-text", "zeros", "noise"],
)
def test_a_file_that_is_no_database_is_called_damaged_and_left_to_the_byte(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memory.db").write_bytes(content)
    refused(tmp_path, StoreCorrupt)
    assert (tmp_path / "memory.db").read_bytes() == content


def test_a_store_of_a_newer_version_is_refused_and_left_to_the_byte(store: Path) -> None:
    with Memory(store) as memory:
        memory.add("from the future")
    connection = raw.connect(store)
    connection.pragma("user_version", schema.VERSION + 1)
    connection.close()
    before = digests(store)
    refusals = refused(store, StoreTooNew)
    assert all(str(schema.VERSION + 1) in str(error) for error in refusals)
    assert digests(store) == before


def test_a_store_with_a_damaged_page_is_never_answered_with_a_bare_error(store: Path) -> None:
    with Memory(store) as memory:
        memory.add_many([f"fact number {number}" for number in range(200)])
    content = bytearray((store / "memory.db").read_bytes())
    content[4096 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4096)
    (store / "memory.db").write_bytes(content)
    with Memory(store) as memory:
        calls: list[Callable[[], object]] = [memory.list, lambda: memory.search("fact"), lambda: memory.add("one more")]
        for call in calls:
            with pytest.raises(HoldTrueError) as refusal:
                call()
            assert refusal.value.code == "STORE_CORRUPT"


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "memory.db").touch()
    with Memory(tmp_path) as memory:
        assert memory.search("nothing yet") == []
        assert memory.add("first").created


def test_a_folder_with_other_files_may_hold_a_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("kept")
    with Memory(tmp_path) as memory:
        memory.add("first")
    assert (tmp_path / "notes.txt").read_text() == "kept"


@pytest.mark.parametrize(
    "name", ["a?b=c&mode=ro", "a#b", "a%20b", "50%", "naïve 部署", "it's", 'quo"te', "-rf", ";", "a\nb"]
)
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    with Memory(tmp_path / name) as memory:
        memory.add("first")
    assert (tmp_path / name / "memory.db").stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with Memory(tmp_path / name) as memory:
        assert memory.list().total == 1


def test_two_ways_to_one_folder_are_one_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    with (
        Memory(tmp_path / "real") as real,
        Memory(tmp_path / "link") as link,
        Memory(f"{tmp_path}/real/../real/") as up,
    ):
        id_ = real.add("through the door").id
        assert link.add("through the door").id == id_
        assert up.get(id_).text == "through the door"
        link.close()
        assert real.add("the other one is closed").created


def test_a_directory_in_the_place_of_the_database_is_one_of_our_errors(tmp_path: Path) -> None:
    (tmp_path / "memory.db").mkdir()
    with Memory(tmp_path) as memory:
        for name, arguments in CALLS:
            with pytest.raises(HoldTrueError) as refusal:
                getattr(memory, name)(*arguments)
            assert refusal.value.exit_code == 3
    assert (tmp_path / "memory.db").is_dir()


def test_a_directory_in_the_place_of_a_lock_is_one_of_our_errors(tmp_path: Path) -> None:
    (tmp_path / "turn.inner").mkdir()
    with Memory(tmp_path) as memory, pytest.raises(HoldTrueError) as refusal:
        memory.add("a text")
    assert refusal.value.exit_code == 3
    assert refusal.value.hint


def test_a_store_that_was_removed_is_made_anew(store: Path) -> None:
    memory = Memory(store)
    memory.add("before")
    memory.close()
    for path in store.iterdir():
        path.unlink()
    store.rmdir()
    with Memory(store) as again:
        assert again.list().total == 0
        assert again.add("after").created


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_the_schema_is_made_once_and_the_store_is_in_wal_mode(store: Path, mode: str) -> None:
    store.mkdir()
    connection = apsw.Connection(str(store / "memory.db"))
    connection.pragma("journal_mode", mode)
    connection.close()
    with Memory(store) as memory:
        memory.add("first")
        connection = raw.connect(store)
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("user_version") == schema.VERSION
        assert connection.pragma("application_id") == schema.APPLICATION_ID
        connection.close()


def test_a_thousand_opens_that_fail_leave_no_descriptor_and_no_file_behind(
    tmp_path: Path, run_python: Callable[..., CompletedProcess[str]]
) -> None:
    (tmp_path / "memory.db").write_bytes(b"My notes, not a database.\n" * 400)
    program = """
import gc, os, sys
from holdtrue import HoldTrueError, Memory

ID = "01890000-0000-7000-8000-000000000000"  # forgetting goes the way of all writes, and needs no model

def refused(call):
    try:
        call()
    except HoldTrueError as error:
        return error.code

def descriptors():
    gc.collect()
    return len(os.listdir("/dev/fd"))

with Memory(sys.argv[1]) as memory:
    codes = {refused(memory.list), refused(lambda: memory.forget(ID))}
before = descriptors()
for number in range(500):
    with Memory(sys.argv[1]) as memory:
        codes |= {refused(memory.list), refused(lambda: memory.forget(ID))}
print(sorted(codes), descriptors() - before)
"""
    done = run_python(program, tmp_path)
    assert done.stdout == "['STORE_CORRUPT'] 0\n", done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert names <= {"memory.db", "turn.outer", "turn.inner"}
