"""Backups and restores: where a backup may go, what it leaves, what a restore takes and what it carries over."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import apsw
import pytest

from holdtrue import Memory, failpoints
from holdtrue.cli import run
from holdtrue.errors import (
    HoldTrueError,
    InvalidInput,
    NotFound,
    SourceUnreadable,
    StoreCorrupt,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
    StoreUnusable,
    TargetExists,
    TargetRefused,
)
from holdtrue.store import draft, schema
from holdtrue.store.writer import Writer
from impl.tests.serverprocess import ServerProcess, holdtrue
from properties.kit import raw

FILLER = {"filler": "\u5e93" * 9_900}  # some 30 kB a memory, so that a backup takes several steps


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Under a umask that would let everyone in, so that a mode which is right is right by itself."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def copy(tmp_path: Path, memory: Memory) -> Path:
    """A backup of a store of three memories, which `memory` has open."""
    memory.add_many(["the harbour is east", "the mill is north", {"text": "the gate is west", "user": "maya"}])
    return Path(memory.backup(tmp_path / "copy.db").path)


def texts(memory: Memory) -> list[str]:
    return sorted(record.text for record in memory.list(limit=500))


def held(backup: str | Path, tmp_path: Path) -> list[str]:
    """The texts in a backup that is read alone, in a folder of its own, by nothing of the product."""
    place = tmp_path / f"alone-{len(list(tmp_path.iterdir()))}"
    place.mkdir()
    shutil.copyfile(backup, place / "memory.db")
    state = raw.read(place)
    assert (state.damage, state.orphans) == ((), ())
    return sorted(state.texts())


def recorded(store: Path) -> dict[str, int]:
    connection = raw.connect(store)
    try:
        return dict(connection.execute("SELECT path, holds FROM copies WHERE kind LIKE '%backup%'").fetchall())
    finally:
        connection.close()


def at_point(monkeypatch: pytest.MonkeyPatch, point: str, action: Callable[[], object]) -> None:
    """Do something at the first hit of a failpoint of this process."""
    hit, done = failpoints.hit, []

    def do(name: str) -> None:
        hit(name)
        if name == point and not done:
            done.append(name)
            action()

    monkeypatch.setattr(failpoints, "hit", do)


def fail_with(error: BaseException) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


# -- backup --------------------------------------------------------------------------------------------------------


def test_a_backup_is_one_private_file_and_its_receipt_tells_what_it_holds(
    memory: Memory, copy: Path, tmp_path: Path
) -> None:
    receipt = memory.backup(tmp_path / "second.db")
    assert (receipt.path, receipt.memories, receipt.verified, receipt.recorded) == (
        str(tmp_path / "second.db"),
        3,
        True,
        True,
    )
    assert receipt.bytes == (tmp_path / "second.db").stat().st_size
    assert json.loads(json.dumps(receipt.as_dict()))["removed"] == []
    assert held(copy, tmp_path) == texts(memory)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    beside = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert beside == {"copy.db", "second.db"}


def test_without_a_path_backups_go_to_a_private_folder_of_which_the_newest_stay(
    memory: Memory, store: Path, tmp_path: Path
) -> None:
    memory.add("the harbour is east")
    receipts = [memory.backup(keep=3) for _ in range(5)]
    place = store / "backups"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    kept = sorted(str(path) for path in place.iterdir())
    assert kept == [receipt.path for receipt in receipts[2:]]
    assert all(re.fullmatch(r"memory-\d{8}T\d{12}Z\.db", Path(path).name) for path in kept)
    assert [receipt.removed for receipt in receipts] == [(), (), (), (receipts[0].path,), (receipts[1].path,)]
    assert sorted(recorded(store)) == kept
    assert held(kept[0], tmp_path) == ["the harbour is east"]


def test_making_room_removes_nothing_that_it_did_not_make_and_never_the_newest(memory: Memory, store: Path) -> None:
    memory.add("the harbour is east")
    place = store / "backups"
    place.mkdir(mode=0o700)
    # One that a clock which was set back dates later than the backup that is made now.
    later = place / "memory-29990101T000000000000Z.db"
    foreign = [place / "memory-2024.db", place / "mine.db", place / "memory-20200101T000000000000Z.db.txt"]
    for path in (later, *foreign):
        path.write_text("x")
    receipt = memory.backup(keep=1)
    assert receipt.removed == (str(later),)
    assert sorted(place.iterdir()) == sorted([Path(receipt.path), *foreign])


def test_a_file_that_is_there_is_refused_and_stays_as_it_is_unless_it_is_to_be_replaced(
    memory: Memory, copy: Path, tmp_path: Path
) -> None:
    before = copy.read_bytes()
    memory.add("a fourth")
    with pytest.raises(TargetExists) as refused:
        memory.backup(copy)
    assert refused.value.details == {"path": str(copy)}
    assert copy.read_bytes() == before
    memory.backup(copy, replace=True)
    assert held(copy, tmp_path) == texts(memory)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_file_that_appears_while_the_backup_is_made_is_not_overwritten(
    memory: Memory, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "late.db"
    at_point(monkeypatch, "backup.before_publish", lambda: late.write_text("mine"))
    with pytest.raises(TargetExists):
        memory.backup(late)
    assert late.read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["memory.db", "memory.db-wal", "memory.db-shm", "turn.outer", "turn.inner", "Memory.DB"]
)
def test_a_file_of_the_store_itself_is_never_a_target(memory: Memory, store: Path, name: str) -> None:
    memory.add("the harbour is east")
    before = {path.name: path.stat().st_ino for path in store.iterdir()}
    with pytest.raises(TargetRefused):
        memory.backup(store / name, replace=True)
    assert {path.name: path.stat().st_ino for path in store.iterdir()} == before
    assert texts(memory) == ["the harbour is east"]


def test_a_link_to_the_database_is_no_target_either(memory: Memory, store: Path, tmp_path: Path) -> None:
    memory.add("the harbour is east")
    (tmp_path / "link.db").symlink_to(store / "memory.db")
    with pytest.raises(TargetRefused):
        memory.backup(tmp_path / "link.db", replace=True)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("missing/copy.db", TargetRefused),
        (".", TargetRefused),
        ("", InvalidInput),
        (b"copy", InvalidInput),
        (7, InvalidInput),
    ],
)
def test_a_target_that_cannot_be_a_file_is_refused_and_nothing_is_made(
    memory: Memory, tmp_path: Path, target: Any, error: type[HoldTrueError]
) -> None:
    memory.add("the harbour is east")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error):
        memory.backup(tmp_path / target if isinstance(target, str) and target else target)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_no_ordinary_file_is_never_replaced_and_a_link_stays_one(
    memory: Memory, copy: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TargetRefused, match="ordinary"):
        memory.backup(tmp_path / "pipe", replace=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "link.db").symlink_to(copy)
    memory.add("a fourth")
    assert memory.backup(tmp_path / "link.db", replace=True).path == str(copy)
    assert (tmp_path / "link.db").is_symlink()
    assert held(copy, tmp_path) == texts(memory)


def test_a_database_with_a_log_beside_it_is_no_target_because_sqlite_would_mix_the_two(
    memory: Memory, tmp_path: Path
) -> None:
    memory.add("the harbour is east")
    with Memory(tmp_path / "other") as other:
        other.add("in use")
        with pytest.raises(TargetRefused, match="lies beside"):
            memory.backup(tmp_path / "other" / "memory.db", replace=True)
        assert texts(other) == ["in use"]


def test_a_store_that_is_not_there_is_not_backed_up_and_not_made(store: Path) -> None:
    with Memory(store) as memory, pytest.raises(StoreMissing):
        memory.backup()
    assert not store.exists()


def test_a_full_disk_leaves_no_backup_no_draft_and_no_record(
    memory: Memory, copy: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    for point in ("backup.step", "backup.before_publish"):
        with monkeypatch.context() as patched:
            at_point(patched, point, fail_with(OSError(errno.ENOSPC, "No space left on device")))
            with pytest.raises(StoreFull) as refused:
                memory.backup(tmp_path / "second.db")
        assert "another disk" in refused.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert list(recorded(store)) == [str(copy)]


def test_a_damaged_store_gives_no_backup_that_looks_sound(
    memory: Memory, copy: Path, store: Path, tmp_path: Path
) -> None:
    connection = raw.connect(store)
    connection.execute("UPDATE memories_fts SET body = 'other words' WHERE rowid = 1").fetchall()
    connection.close()
    with pytest.raises(StoreCorrupt, match="full-text index"):
        memory.backup(copy, replace=True)
    assert held(copy, tmp_path) == texts(memory)
    assert list(recorded(store)) == [str(copy)]
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_is_forgotten_while_a_backup_is_made_finds_the_backup_in_the_records(
    memory: Memory, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("the harbour is east")
    target, before = tmp_path / "copy.db", {}
    at_point(monkeypatch, "backup.snapshot", lambda: before.update(recorded(store)))
    memory.backup(target)
    # It is there before the state is chosen, and until it is done it may hold whatever is stored.
    assert before[str(target)] == 2**62
    assert recorded(store)[str(target)] == 1


def test_a_backup_is_named_whatever_date_a_memory_in_it_has(memory: Memory, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    memory.add("the harbour is east")
    memory.export(lines)
    later = (
        lines.read_text()
        .replace("the harbour is east", "the quay is west")
        .replace('"created_at": "20', '"created_at": "21')
    )
    lines.write_text("".join(line.replace('"id": "01', '"id": "02') + "\n" for line in later.splitlines()))
    assert memory.import_(lines).added == 1
    path = memory.backup().path
    (ahead,) = [record.id for record in memory.list() if record.text == "the quay is west"]
    assert path in memory.forget(ahead).remains


def test_two_backups_to_one_path_leave_it_recorded(memory: Memory, tmp_path: Path, store: Path) -> None:
    memory.add("the harbour is east")
    target, losers = tmp_path / "copy.db", []

    def overtake() -> None:
        if not losers:
            losers.append("the first one is overtaken")
            memory.backup(target)

    with pytest.MonkeyPatch.context() as patch:
        at_point(patch, "backup.before_publish", overtake)
        with pytest.raises(HoldTrueError) as refusal:
            memory.backup(target)
    assert refusal.value.code == "TARGET_EXISTS"
    assert recorded(store) == {str(target): 1}


def test_forget_names_the_backups_that_may_hold_what_is_forgotten(memory: Memory, copy: Path) -> None:
    (record,) = [record for record in memory.list() if record.text == "the mill is north"]
    inside = memory.backup().path
    later = memory.add("stored after both backups")
    assert set(memory.forget(record.id).remains) == {str(copy), inside}
    assert memory.forget(later.id).remains == ()


def test_a_backup_that_replaces_another_and_fails_keeps_the_record_of_the_other(
    memory: Memory, copy: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recorded(store)
    at_point(monkeypatch, "backup.copied", fail_with(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(HoldTrueError):
        memory.backup(copy, replace=True)
    assert recorded(store) == before


def test_a_store_that_cannot_be_written_is_backed_up_and_the_receipt_says_what_that_means(
    memory: Memory, copy: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "submit", lambda *_arguments: fail_with(StoreReadOnly("nobody may write"))())
    receipt = memory.backup(tmp_path / "second.db")
    assert not receipt.recorded
    assert held(receipt.path, tmp_path) == texts(memory)
    assert list(recorded(store)) == [str(copy)]


def test_writes_between_the_steps_are_not_in_the_backup_and_do_not_make_it_begin_again(
    memory: Memory, tmp_path: Path
) -> None:
    memory.add_many([{"text": f"memory {number}", "metadata": FILLER} for number in range(40)])
    before, told = texts(memory), []

    def progress(done: int, total: int | None) -> None:
        told.append((done, total))
        memory.add(f"written after step {len(told)}")

    memory.backup(tmp_path / "copy.db", progress=progress)
    assert held(tmp_path / "copy.db", tmp_path) == before
    assert len(told) > 1
    assert told == sorted(told)
    assert {total for _, total in told} == {told[-1][0]}


def test_what_a_killed_backup_left_is_removed_and_what_another_one_works_on_is_not(
    memory: Memory, copy: Path, tmp_path: Path
) -> None:
    dead = [tmp_path / f".holdtrue-backup-{'a' * 16}{ending}" for ending in (".lock", ".partial", ".partial-journal")]
    foreign = [tmp_path / ".holdtrue-backup-short.partial", tmp_path / f"holdtrue-backup-{'a' * 16}.partial"]
    for path in (*dead, *foreign):
        path.write_text("x")
    with draft.drafting(tmp_path, ".holdtrue-backup") as living:
        memory.backup(tmp_path / "second.db")
        assert living.path.exists()
        assert not any(path.exists() for path in dead)
        assert all(path.exists() for path in foreign)
    assert sorted(path.name for path in tmp_path.glob(".*")) == [foreign[0].name]


def test_a_folder_without_hard_links_takes_a_backup_and_keeps_what_is_there(
    memory: Memory, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda *_arguments, **_options: fail_with(OSError(errno.EPERM, "not permitted"))())
    late = tmp_path / "late.db"
    with monkeypatch.context() as patched:
        at_point(patched, "backup.before_publish", lambda: late.write_text("mine"))
        with pytest.raises(TargetExists):
            memory.backup(late)
    assert late.read_text() == "mine"
    assert held(memory.backup(tmp_path / "second.db").path, tmp_path) == texts(memory)


def test_a_backup_of_many_threads_at_once_gives_each_a_file_of_its_own(memory: Memory, tmp_path: Path) -> None:
    memory.add("the harbour is east")
    receipts: list[str] = []
    threads = [threading.Thread(target=lambda: receipts.append(memory.backup().path)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(receipts)) == 6
    assert all(held(path, tmp_path) == ["the harbour is east"] for path in receipts)


# -- restore -------------------------------------------------------------------------------------------------------


def test_a_restore_brings_back_the_state_of_the_backup_and_keeps_the_one_before(
    memory: Memory, copy: Path, store: Path, tmp_path: Path
) -> None:
    then, now = texts(memory), memory.add("stored later")
    receipt = memory.restore(copy)
    assert texts(memory) == then
    assert (receipt.memories, receipt.kept_forgotten, receipt.backup_findings, receipt.erased) == (3, 0, (), True)
    assert receipt.backup is not None
    assert held(receipt.backup, tmp_path) == sorted([*then, now.text])
    assert memory.verify() == []
    assert {path.name for path in store.iterdir()} - {"backups"} <= {
        *("memory.db", "memory.db-wal", "memory.db-shm", "turn.outer", "turn.inner")
    }
    # A restore can be undone.
    memory.restore(receipt.backup, backup=False)
    assert texts(memory) == sorted([*then, now.text])
    assert json.loads(json.dumps(receipt.as_dict()))["backup"] == receipt.backup


def test_every_handle_and_thread_goes_on_with_the_restored_state(memory: Memory, copy: Path, store: Path) -> None:
    with Memory(store) as other:
        other.add("by another handle", user="omar", session="s-1")
        memory.restore(copy)
        assert texts(other) == texts(memory)
        # The number of this user's name meant another name, or none, in the state before.
        record = other.add("after the restore", user="omar", session="s-2")
        assert other.get(record.id).user == "omar"
        assert [hit.id for hit in other.search("after the restore", user="omar")] == [record.id]
        assert other.verify() == []


def test_a_restore_makes_a_store_that_does_not_exist(copy: Path, tmp_path: Path) -> None:
    with Memory(tmp_path / "new" / "place") as fresh:
        receipt = fresh.restore(copy)
        assert receipt.backup is None
        assert len(texts(fresh)) == 3
        assert fresh.verify() == []
        assert stat.S_IMODE(fresh.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((fresh.path / "memory.db").stat().st_mode) == 0o600


def test_what_was_forgotten_since_stays_forgotten_and_so_do_the_records_of_other_copies(
    memory: Memory, copy: Path, store: Path, tmp_path: Path
) -> None:
    (record,) = [record for record in memory.list() if record.text == "the mill is north"]
    memory.update(record.id, "the mill was moved to the south")
    memory.forget(record.id)
    other = memory.backup(tmp_path / "other.db").path
    receipt = memory.restore(copy)
    assert receipt.kept_forgotten == 1
    with pytest.raises(NotFound):
        memory.get(record.id)
    assert len(texts(memory)) == 2
    for path in store.rglob("*"):
        assert not path.is_file() or b"the mill" not in path.read_bytes(), path
    assert {str(copy), other, receipt.backup} <= set(recorded(store))
    # And it stays so for a restore after this one.
    assert memory.restore(copy).kept_forgotten == 1


def test_a_restore_leaves_the_backup_as_it_was_and_nothing_beside_it(
    memory: Memory, copy: Path, tmp_path: Path
) -> None:
    copy.chmod(0o400)
    before = (copy.read_bytes(), copy.stat().st_mtime_ns, sorted(path.name for path in tmp_path.iterdir()))
    memory.restore(copy)
    assert (copy.read_bytes(), copy.stat().st_mtime_ns, sorted(path.name for path in tmp_path.iterdir())) == before


def test_a_copy_with_its_log_beside_it_is_restored_with_what_the_log_holds(
    memory: Memory, copy: Path, store: Path, tmp_path: Path
) -> None:
    memory.add("this is in the log only")
    for name in ("memory.db", "memory.db-wal"):
        shutil.copyfile(store / name, tmp_path / f"by-hand{name.removeprefix('memory')}")
    (tmp_path / "fresh").mkdir()
    names = ("by-hand.db", "by-hand.db-wal")
    before = [(tmp_path / name).read_bytes() for name in names]
    assert b"this is in the log only" in before[1]
    with Memory(tmp_path / "fresh") as fresh:
        fresh.restore(tmp_path / "by-hand.db")
        assert texts(fresh) == texts(memory)
    assert [(tmp_path / name).read_bytes() for name in names] == before
    assert sorted(path.name for path in tmp_path.glob("by-hand*")) == sorted(names)


def test_the_database_of_a_store_in_use_can_be_restored_from(memory: Memory, copy: Path, tmp_path: Path) -> None:
    with Memory(tmp_path / "other") as other:
        other.add("from the other one")
        memory.restore(other.path / "memory.db")
        assert texts(memory) == ["from the other one"]
        other.add("it goes on")
        assert other.verify() == []


def test_a_backup_of_an_older_version_is_brought_up_to_date(memory: Memory, copy: Path, tmp_path: Path) -> None:
    old = tmp_path / "old" / "memory.db"
    old.parent.mkdir()
    old.touch()
    connection = raw.connect(old.parent)
    for statement in schema.MIGRATIONS[0]:
        connection.execute(statement).fetchall()
    connection.pragma("user_version", 1)
    connection.pragma("application_id", schema.APPLICATION_ID)
    connection.execute("INSERT INTO names(kind, name) VALUES('user', ''), ('project', ''), ('session', '')").fetchall()
    connection.execute(
        """INSERT INTO memories(id, text, digest, user_id, project_id, session_id, speaker, at_us, valid_from_us,
             created_us, updated_us, metadata, source, revision)
           VALUES('01890000-0000-7000-8000-000000000000', 'from version one', zeroblob(32), 1, 2, 3, '', 1, 1, 1, 1,
             '{}', '', 1)"""
    ).fetchall()
    connection.execute("INSERT INTO memories_fts(rowid, body) VALUES(1, 'from version one')").fetchall()
    connection.execute("INSERT INTO pending_vectors VALUES(1, 1, 'no model')").fetchall()
    connection.close()
    memory.restore(old)
    assert texts(memory) == ["from version one"]
    assert memory.status()["schema_version"] == schema.VERSION
    memory.embed_pending()
    assert memory.verify() == []


def _plant(path: Path, *, tables: bool, application: int | None = None, version: int | None = None) -> None:
    connection = sqlite3.connect(path)
    if tables:
        connection.execute("CREATE TABLE t(x)")
    if application is not None:
        connection.execute(f"PRAGMA application_id = {application}")
    if version is not None:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("plant", "error"),
    [
        (lambda path: None, SourceUnreadable),
        (lambda path: path.mkdir(), SourceUnreadable),
        (lambda path: path.write_bytes(b""), StoreUnusable),
        (lambda path: path.write_bytes(b"not a database at all " * 400), StoreCorrupt),
        (lambda path: _plant(path, tables=True), StoreUnusable),
        (lambda path: _plant(path, tables=True, application=1), StoreUnusable),
        (lambda path: _plant(path, tables=True, application=schema.APPLICATION_ID, version=99), StoreTooNew),
    ],
    ids=["missing", "folder", "empty", "noise", "unknown-tables", "another-program", "newer"],
)
def test_what_is_no_backup_is_refused_and_the_store_is_as_it_was(
    memory: Memory, copy: Path, tmp_path: Path, plant: Callable[[Path], object], error: type[HoldTrueError]
) -> None:
    given = tmp_path / "given.db"
    plant(given)
    before = texts(memory)
    with pytest.raises(error) as refused:
        memory.restore(given)
    assert refused.value.hint
    assert "backup" in refused.value.message
    assert texts(memory) == before
    with Memory(tmp_path / "never") as never, pytest.raises(error):
        never.restore(given)
    assert not (tmp_path / "never").exists()


def test_a_damaged_backup_is_refused_before_anything_is_changed(
    memory: Memory, copy: Path, store: Path, tmp_path: Path
) -> None:
    before = texts(memory)
    whole = copy.read_bytes()
    cut = tmp_path / "cut.db"
    cut.write_bytes(whole[: len(whole) // 2])
    page = next(page for page in range(2, len(whole) // 4096) if b"the harbour is east" in whole[page * 4096 :][:4096])
    holed = tmp_path / "holed.db"
    holed.write_bytes(whole[: page * 4096] + b"\xff" * 4096 + whole[(page + 1) * 4096 :])
    for given in (cut, holed):
        with pytest.raises(StoreCorrupt, match="The backup"):
            memory.restore(given)
    assert texts(memory) == before
    assert not (store / "backups").exists()
    assert [path.name for path in store.iterdir() if "restoring" in path.name] == []


def test_the_store_itself_is_no_backup_of_it(memory: Memory, copy: Path, store: Path) -> None:
    with pytest.raises(StoreUnusable, match="file of the store itself"):
        memory.restore(store / "memory.db")


def test_another_page_size_is_refused_with_what_to_do(memory: Memory, copy: Path, tmp_path: Path) -> None:
    connection = apsw.Connection(str(copy))
    connection.pragma("page_size", 8192)
    connection.execute("VACUUM").fetchall()
    connection.close()
    before = texts(memory)
    with pytest.raises(StoreUnusable, match="8192"):
        memory.restore(copy)
    assert texts(memory) == before


def test_a_store_with_a_damaged_page_is_restored_and_the_receipt_tells_of_it(
    memory: Memory, copy: Path, store: Path
) -> None:
    memory.close()
    data = (store / "memory.db").read_bytes()
    page = next(page for page in range(2, len(data) // 4096) if b"the harbour is east" in data[page * 4096 :][:4096])
    (store / "memory.db").write_bytes(data[: page * 4096] + b"\xff" * 4096 + data[(page + 1) * 4096 :])
    with Memory(store) as damaged:
        receipt = damaged.restore(copy)
        assert receipt.backup is not None
        assert receipt.backup_findings
        assert len(texts(damaged)) == 3
        assert damaged.verify() == []


def test_a_restore_does_not_remove_the_backup_that_it_was_made_from(memory: Memory) -> None:
    memory.add("the harbour is east")
    oldest, newer = memory.backup().path, memory.backup().path
    memory.restore(oldest, keep=1)
    assert Path(oldest).exists()
    assert not Path(newer).exists()


def test_memories_that_waited_for_a_vector_in_the_backup_get_one_after_the_restore(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdtrue.memory.Memory._vectors", lambda _memory, given: [None] * len(given))
    with Memory(store) as memory:
        memory.add("the harbour is east")
        memory.backup(tmp_path / "copy.db")
    monkeypatch.undo()
    with Memory(tmp_path / "other") as other:
        other.search("the model is there")
        other.restore(tmp_path / "copy.db")
    with Memory(tmp_path / "other") as again:
        assert again.status()["pending_vectors"] == 0
        assert again.verify() == []


# -- the command line and servers ----------------------------------------------------------------------------------


def test_the_commands_back_up_and_restore(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*arguments: str, code: int = 0) -> Any:
        assert run([*arguments, "--store", str(store), "--json"]) == code
        return json.loads(capsys.readouterr().out)

    def told(*arguments: str) -> str:
        assert run([*arguments, "--store", str(store)]) == 0
        return capsys.readouterr().out

    assert call("backup", code=3)["error"]["code"] == "STORE_MISSING"
    call("add", "the harbour is east")
    made = call("backup", str(tmp_path / "copy.db"))
    assert made["memories"] == 1
    assert call("backup", str(tmp_path / "copy.db"), code=1)["error"]["code"] == "TARGET_EXISTS"
    assert call("backup", str(tmp_path / "copy.db"), "--force")["verified"] is True
    assert call("backup", str(tmp_path / "no" / "copy.db"), code=2)["error"]["code"] == "TARGET_REFUSED"
    assert Path(call("backup", "--keep", "1")["path"]).parent == store / "backups"
    call("add", "the mill is north")
    assert call("restore", made["path"], code=2)["error"]["code"] == "USAGE"
    assert call("list")["total"] == 2
    restored = call("restore", made["path"], "--yes")
    assert (restored["memories"], restored["backup"] is None) == (1, False)
    assert call("restore", made["path"], "--yes", "--no-backup")["backup"] is None
    assert [memory["text"] for memory in call("list")["memories"]] == ["the harbour is east"]
    text = told("restore", made["path"], "--yes")
    assert text.startswith("Restored")
    assert "The store holds 1 memory." in text
    assert "is kept in" in text
    assert told("backup").startswith("Backed up and checked")
    assert "\n1 memory, " in told("backup")


def test_a_restore_tells_which_older_backups_went_to_make_room(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Memory(store) as memory:
        memory.add("the harbour is east")
        made = memory.backup(tmp_path / "copy.db").path
        oldest, *_ = [memory.backup().path for _ in range(10)]
    assert run(["restore", made, "--yes", "--store", str(store)]) == 0
    assert f"Removed the older {oldest}" in capsys.readouterr().out


def cut_short(store: Path) -> None:
    os.truncate(store / "memory.db", (store / "memory.db").stat().st_size // 2 // 4096 * 4096)


def lose_the_database(store: Path) -> None:
    """An empty database beside a log that holds memories."""
    data = (store / "memory.db").read_bytes()
    (store / "memory.db-wal").write_bytes(data[:40_000])
    os.truncate(store / "memory.db", 0)


def write_over_the_header(store: Path) -> None:
    with (store / "memory.db").open("r+b") as file:
        file.write(bytes(100))


@pytest.mark.parametrize("hurt", [cut_short, write_over_the_header, lose_the_database])
@pytest.mark.parametrize("save", [True, False])
def test_a_store_that_does_not_open_is_restored_and_its_bytes_are_kept(
    store: Path, tmp_path: Path, hurt: Callable[[Path], None], save: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with Memory(store) as memory:
        memory.add_many(["the harbour is east", "the mill is north"])
        made = memory.backup(tmp_path / "copy.db").path
        memory.add("stored later")
    hurt(store)
    before = {path.name: path.read_bytes() for path in store.glob("memory.db*") if path.stat().st_size}
    arguments = ["restore", made, "--yes", "--json", "--store", str(store)]
    assert run(arguments if save else [*arguments, "--no-backup"]) in (0, 4)
    receipt = json.loads(capsys.readouterr().out)
    kept = Path(receipt["set_aside"]["kept"])
    assert kept.parent == store / "kept-aside"
    assert receipt["set_aside"]["findings"]
    assert {name: (kept / name).read_bytes() for name in before if not name.endswith("-shm")} == {
        name: data for name, data in before.items() if not name.endswith("-shm")
    }
    with Memory(store) as memory:
        assert texts(memory) == ["the harbour is east", "the mill is north"]
        assert memory.verify() == []
        assert memory.doctor().state == "ok"
    if hurt is write_over_the_header and save:
        assert held(receipt["backup"], tmp_path) == ["stored later", "the harbour is east", "the mill is north"]
    if not save:
        assert receipt["backup"] is None


def test_a_damaged_store_is_left_to_the_byte_when_the_backup_is_damaged_too(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Memory(store) as memory:
        memory.add("the harbour is east")
        made = Path(memory.backup(tmp_path / "copy.db").path)
    write_over_the_header(store)
    os.truncate(made, 8192)
    before = (store / "memory.db").read_bytes()
    assert run(["restore", str(made), "--yes", "--json", "--store", str(store)]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "STORE_CORRUPT"
    assert error["message"].startswith(f"The backup file {made} ")
    assert (store / "memory.db").read_bytes() == before
    assert not (store / "kept-aside").exists()


def test_a_backup_that_is_not_there_is_told_before_anybody_is_asked(
    memory: Memory, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.add("the harbour is east")
    monkeypatch.setattr("holdtrue.cli.output.is_terminal", lambda stream: stream is sys.stdin)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    for name in ("none.db", "."):
        assert run(["restore", str(tmp_path / name), "--store", str(store), "--json"]) == 2
        out, err = capsys.readouterr()
        assert json.loads(out)["error"]["code"] == "SOURCE_UNREADABLE"
        assert "Replace" not in err
    assert sys.stdin.read() == "y\n"


def test_the_backup_of_a_damaged_state_is_told_by_doctor_as_not_verified(
    memory: Memory, copy: Path, store: Path
) -> None:
    memory.close()
    data = (store / "memory.db").read_bytes()
    page = next(page for page in range(2, len(data) // 4096) if b"the harbour is east" in data[page * 4096 :][:4096])
    (store / "memory.db").write_bytes(data[: page * 4096] + b"\xff" * 4096 + data[(page + 1) * 4096 :])
    with Memory(store) as damaged:
        receipt = damaged.restore(copy)
        sound = damaged.restore(copy).backup
    with Memory(store) as opened:
        check = {check.name: check for check in opened.doctor().checks}["backups"]
    assert sound is not None
    assert (check.state, check.details["unverified"]) == ("ok", [receipt.backup])
    assert receipt.backup is not None
    assert receipt.backup in check.says
    assert check.advice


def test_a_restore_asks_on_a_terminal_and_no_changes_nothing(
    memory: Memory, copy: Path, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.add("stored later")
    monkeypatch.setattr("holdtrue.cli.output.is_terminal", lambda stream: stream is sys.stdin)
    answers = {"n\n": (1, 4), "y\n": (0, 3)}
    for answer, (code, count) in answers.items():
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        assert run(["restore", str(copy), "--store", str(store)]) == code
        assert "Replace the store" in capsys.readouterr().err
        assert len(texts(memory)) == count


def test_four_servers_go_on_with_the_restored_state(store: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(ServerProcess(store)) for _ in range(4)]
        for server in servers:
            server.initialize()
        kept = [
            server.call("memory_store", text=f"server {n} knew this before")["id"] for n, server in enumerate(servers)
        ]
        copy = tmp_path / "copy.db"
        assert holdtrue("backup", str(copy), "--store", str(store)).returncode == 0
        for number, server in enumerate(servers):
            server.call("memory_store", text=f"server {number} knew this later", user=f"user {number}")
        servers[0].call("memory_forget", id=kept[2])
        assert holdtrue("restore", str(copy), "--yes", "--store", str(store)).returncode == 0
        wanted = {f"server {number} knew this before" for number in (0, 1, 3)}
        for server in servers:
            assert {memory["text"] for memory in server.call("memory_list")["memories"]} == wanted
        for number, server in enumerate(servers):
            stored = server.call("memory_store", text=f"server {number} learned this since", user=f"user {number}")
            hits = server.call("memory_search", query=f"what has server {number} learned since")["hits"]
            assert stored["id"] in {hit["id"] for hit in hits}
            assert kept[2] not in {hit["id"] for hit in hits}
            wanted.add(f"server {number} learned this since")
        for server in servers:
            answer = server.call("memory_list")
            assert {memory["text"] for memory in answer["memories"]} == wanted
    with Memory(store) as memory:
        assert memory.verify() == []
        assert {record.user for record in memory.list() if record.text.endswith("since")} == {
            f"user {number}" for number in range(4)
        }


def test_a_close_ends_a_restore_that_is_under_way_and_nothing_of_it_stands(
    run_python: Callable[..., CompletedProcess[str]], store: Path, tmp_path: Path
) -> None:
    program = """
import os, sys, threading, time
from holdtrue import HoldTrueError, Memory, failpoints

folder, target = sys.argv[1:]
memory = Memory(folder)
memory.add_many([f"of the backup, number {number}" for number in range(400)])
memory.backup(target)
secret = memory.add("stored since")
real_hit, under_way, told = failpoints.hit, threading.Event(), []

def hit(point):
    real_hit(point)
    if point == "restore.step":
        under_way.set()
        time.sleep(3.0)

failpoints.hit = hit

def restore():
    try:
        memory.restore(target, backup=False)
        told.append("restored")
    except HoldTrueError as error:
        told.append(error.code)

thread = threading.Thread(target=restore)
thread.start()
under_way.wait(30)
began = time.monotonic()
memory.close()
closed_s = time.monotonic() - began
with Memory(folder) as again:
    added = again.add("acknowledged by the next one").id
    again.forget(secret.id)
    thread.join(30)
    texts = [record.text for record in again.list(limit=500)]
    print(told, closed_s < 2.5, "acknowledged by the next one" in texts, "stored since" in texts, again.verify())
sys.stdout.flush()
os._exit(0)
"""
    done = run_python(program, store, tmp_path / "backup.db")
    assert done.stdout == "['STORE_CLOSED'] True True False []\n", done.stderr
