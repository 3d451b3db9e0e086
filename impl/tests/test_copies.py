"""Files that may hold what is forgotten: which ones a forget and an import name, by what paths, and what a kill left."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdtrue import Memory, failpoints
from holdtrue.cli import run
from holdtrue.errors import InvalidInput
from holdtrue.files import make_private_folder
from holdtrue.store import draft, erase
from holdtrue.store.copies import path_of, recorded_as
from impl.tests.serverprocess import environment, holdtrue
from properties.kit import raw

TOKEN = "0123456789abcdef"
NOT_UTF8 = os.fsdecode(b"bad\xff")
# What is killed, and where.
KILLED = {"backup": ("k.db", "backup.copied"), "export": ("k.jsonl", "export.before_publish")}


def killed(store: Path, kind: str, folder: Path) -> tuple[Path, Path]:
    """Let a backup or an export to the folder be killed half way: the path that it was for, the draft that it left."""
    name, point = KILLED[kind]
    done = holdtrue(
        kind, str(folder / name), "--store", str(store), env=environment(HOLDTRUE_FAILPOINTS=f"{point}=kill@1")
    )
    assert done.returncode == -9, done
    (left,) = folder.glob(".holdtrue-*.partial")
    assert b"harbour" in left.read_bytes()
    assert left.with_suffix(".lock").exists()
    return folder / name, left


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "elsewhere"
    place.mkdir()
    return place


@pytest.mark.parametrize("kind", KILLED)
def test_a_forget_removes_what_a_killed_copy_left_and_names_nothing_that_is_not_there(
    memory: Memory, store: Path, folder: Path, kind: str
) -> None:
    id_ = memory.add("the harbour is east").id
    _, left = killed(store, kind, folder)
    assert memory.forget(id_).remains == ()
    assert not left.exists()


def test_a_draft_that_is_worked_on_is_named_and_left(memory: Memory, folder: Path) -> None:
    id_ = memory.add("the harbour is east").id
    with draft.drafting(memory.path, draft.RESTORE) as working:
        assert memory.forget(id_).remains == (str(working.path),)
        assert working.path.exists()


def test_a_path_that_was_never_filled_is_not_named_once_its_draft_is_gone(
    memory: Memory, store: Path, folder: Path
) -> None:
    memory.add("the harbour is east")
    _, left = killed(store, "backup", folder)
    left.unlink()
    assert memory.forget(memory.list().memories[0].id).remains == ()


def test_a_copy_that_is_being_made_is_named_with_its_draft(
    memory: Memory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_, named = memory.add("the harbour is east").id, []

    def hit(name: str) -> None:
        if name == "export.snapshot":
            drafts = [str(path) for path in folder.glob("*.partial")]
            assert len(drafts) == 1
            named.append((set(memory.forget(id_).remains), {str(folder / "k.jsonl"), *drafts}))

    monkeypatch.setattr(failpoints, "hit", hit)
    memory.export(folder / "k.jsonl")
    ((told, expected),) = named
    assert told == expected


def test_the_drafts_that_nobody_works_on_go_with_a_forget_and_what_is_no_draft_stays(
    memory: Memory, store: Path
) -> None:
    id_ = memory.add("the harbour is east").id
    make_private_folder(store / "backups")
    left = [store / f"{stem}-{TOKEN}.partial" for stem in draft.STEMS]
    left += [store / "backups" / f"{draft.BACKUP}-{TOKEN}.partial{side}" for side in ("", "-wal")]
    others = [store / "restoring-short.partial", store / "my.partial"]
    for path in (*left, *others):
        path.write_text("x")
    assert memory.forget(id_).remains == ()
    assert [path.name for path in left if path.exists()] == []
    assert all(path.exists() for path in others)


def test_a_backup_beside_the_database_is_named(memory: Memory, store: Path) -> None:
    id_ = memory.add("the harbour is east").id
    assert memory.backup(store / "foo.db").recorded
    assert memory.forget(id_).remains == (str(store / "foo.db"),)


# -- what doctor finds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KILLED)
def test_doctor_finds_what_a_killed_copy_left_beside_its_path_and_lets_it_go(
    memory: Memory, store: Path, folder: Path, kind: str
) -> None:
    memory.add("the harbour is east")
    (folder / f"mine-{TOKEN}.partial").write_text("of somebody else")

    def leftovers() -> Any:
        return next(check for check in memory.doctor().checks if check.name == "leftovers")

    assert leftovers().state == "ok"
    _, left = killed(store, kind, folder)
    assert leftovers().state == "degraded"
    assert leftovers().details["paths"] == [str(left.with_suffix(".lock")), str(left)]
    left.unlink()
    left.with_suffix(".lock").unlink()
    assert leftovers().state == "ok"


def test_doctor_finds_what_a_killed_backup_left_in_the_folder_of_the_store(memory: Memory, store: Path) -> None:
    memory.add("the harbour is east")
    make_private_folder(store / "backups")
    holdtrue("backup", "--store", str(store), env=environment(HOLDTRUE_FAILPOINTS="backup.copied=kill@1"))
    (left,) = (store / "backups").glob("*.partial")
    (check,) = [check for check in memory.doctor().checks if check.name == "leftovers"]
    assert check.details["paths"] == [str(left.with_suffix(".lock")), str(left)]


# -- what an import tells ----------------------------------------------------------------------------------------------


@pytest.fixture
def tombstones(memory: Memory, tmp_path: Path) -> Path:
    """An export of tombstones for two memories that `memory` still holds."""
    file = tmp_path / "tombstones.jsonl"
    with Memory(tmp_path / "other") as other:
        memory.add_many(["the harbour is east", "the mill is north"])
        memory.export(file)
        other.import_(file)
        file.unlink()
        for record in other.list():
            other.forget(record.id)
        other.export(file)
    connection = raw.connect(memory.path)
    connection.execute("DELETE FROM copies").fetchall()
    connection.close()
    return file


def test_an_import_that_forgets_tells_what_a_forget_tells(memory: Memory, tombstones: Path, folder: Path) -> None:
    copy = memory.backup(folder / "copy.db").path
    receipt = memory.import_(tombstones)
    assert (receipt.removed, receipt.erased, receipt.waiting_for, receipt.remains) == (2, True, (), (copy,))
    again = memory.import_(tombstones)
    assert (again.removed, again.erased, again.remains) == (0, True, ())


def test_an_import_that_forgets_beside_an_older_reader_says_what_its_bytes_wait_for(
    memory: Memory, store: Path, tombstones: Path
) -> None:
    pinned = raw.connect(store)
    pinned.execute("BEGIN").fetchall()
    pinned.execute("SELECT count(*) FROM memories").fetchall()
    try:
        receipt = memory.import_(tombstones)
    finally:
        pinned.close()
    assert (receipt.removed, receipt.erased, receipt.waiting_for) == (2, False, (erase.WAITS_FOR_READER,))
    assert receipt.as_dict()["waiting_for"] == [erase.WAITS_FOR_READER]
    memory.add("the next writer")
    assert memory.status()["erasures_waiting"] == 0


@pytest.mark.parametrize("held_up", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_names_the_copies_that_may_hold_what_an_import_forgot(
    memory: Memory,
    store: Path,
    tombstones: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
    held_up: bool,
) -> None:
    copy = memory.backup(folder / "copy.db").path
    pinned = raw.connect(store)
    if held_up:
        pinned.execute("BEGIN").fetchall()
        pinned.execute("SELECT count(*) FROM memories").fetchall()
    try:
        assert run(["import", str(tombstones), "--store", str(store), *["--json"][: int(as_json)]]) == 0
    finally:
        pinned.close()
    told = capsys.readouterr().out
    if as_json:
        answer = json.loads(told)
        assert (answer["erased"], answer["remains"]) == (not held_up, [copy])
        assert answer["waiting_for"] == ([erase.WAITS_FOR_READER] if held_up else [])
    else:
        assert f"  {copy}\n" in told
        assert ("a reader of an older state" in told) is held_up


# -- paths that are no UTF-8 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/plain/k.db", "/file:/x", f"/{NOT_UTF8}/k%.db", "/caf\u00e9/\udcc3"])
def test_every_path_can_be_recorded_and_found_again(path: str) -> None:
    recorded = recorded_as(path)
    assert recorded.encode().decode() == recorded
    assert path_of(recorded) == path


def test_a_store_whose_path_is_no_utf8_is_backed_up_exported_restored_and_its_copies_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / NOT_UTF8
    with Memory(place) as memory:
        record = memory.add("the harbour is east")
        first, second = memory.backup(keep=2), memory.backup(place / f"{NOT_UTF8}.db")
        out = memory.export(place / "k.jsonl")
        assert all(receipt.recorded for receipt in (first, second, out))
        memory.restore(first.path)
        restored = memory.restore(first.path, keep=1)
        assert restored.backup is not None
        remains = set(memory.forget(record.id).remains)
        assert {first.path, second.path, str(out.path), restored.backup} <= remains
        assert all(Path(path).exists() for path in remains)
        assert memory.backup(keep=1).removed
    shown = [first.as_dict()["path"], second.as_dict()["path"], out.as_dict()["path"], restored.as_dict()["backup"]]
    assert all("bad\\xff" in path and path.encode() for path in shown)


def test_the_commands_write_a_path_that_is_no_utf8_readably(tmp_path: Path) -> None:
    store = os.fsencode(tmp_path) + b"/bad\xff"
    added = json.loads(holdtrue(b"add", b"the harbour is east", b"--json", b"--store", store).stdout)
    for arguments in ([b"backup"], [b"export", store + b"/k\xfe.jsonl"], [b"backup", store + b"/k.db"]):
        done = holdtrue(*arguments, b"--store", store)
        assert (done.returncode, done.stderr) == (0, b"")
        assert rb"/bad\xff/" in done.stdout
    text = holdtrue(b"forget", added["id"], b"--store", store).stdout
    assert rb"/bad\xff/k\xfe.jsonl" in text
    assert text.count(rb"/bad\xff/") == 3


def test_a_path_that_no_file_can_have_is_refused(memory: Memory) -> None:
    memory.add("the harbour is east")
    with pytest.raises(InvalidInput):
        memory.backup("/tmp/\ud800.db")


def test_a_backup_to_standard_output_is_refused_and_says_what_to_use(
    memory: Memory, store: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.add("the harbour is east")
    monkeypatch.chdir(folder)
    assert run(["backup", "-", "--store", str(store), "--json"]) == 2
    problem = json.loads(capsys.readouterr().out)["error"]
    assert problem["code"] == "USAGE"
    assert "export -" in problem["message"]
    assert list(folder.iterdir()) == []
