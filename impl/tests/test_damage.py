"""Damaged stores: opening one changes nothing; setting one aside keeps its bytes and brings over what can be read."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdtrue import Memory, failpoints
from holdtrue.cli import run as command
from holdtrue.clock import Deadline
from holdtrue.errors import HoldTrueError, StoreBusy, StoreCorrupt, StoreMissing, StoreSound, StoreTooNew, StoreUnusable
from holdtrue.store import damage, salvage, schema
from holdtrue.store.turnstile import Turnstile
from properties.kit import damage_workers, raw

MEMORIES = 150
PAGE = 4096


def fill(store: Path, count: int = MEMORIES) -> dict[str, str]:
    """A store with memories of all kinds, nothing of it left in a WAL; texts by id."""
    with Memory(store) as memory:
        records = memory.add_many(
            [
                {
                    "text": f"fact {number} of the harbour {'and so on ' * 10}",
                    "user": f"user {number % 3}",
                    "tags": ["all", f"tag {number % 5}"],
                    "key": f"key {number}",
                    "metadata": {"n": number},
                }
                for number in range(count)
            ]
        )
        memory.update(records[3].id, "a changed text")
        memory.forget(records[5].id)
        memory.embed_pending()
        return {record.id: memory.get(record.id).text for record in records if record.id != records[5].id}


def digests(folder: Path) -> dict[str, str]:
    """The files of the database by their bytes; locks and the shared memory hold no memories."""
    names = ("memory.db", "memory.db-wal", "memory.db-journal")
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in names
        if (folder / name).exists() and (folder / name).stat().st_size
    }


def cut(at: int) -> Callable[[Path], None]:
    def damage_it(store: Path) -> None:
        os.truncate(store / "memory.db", at)

    return damage_it


def noisy(page: int) -> Callable[[Path], None]:
    return lambda store: damage_workers.noise(store / "memory.db", (page - 1) * PAGE, PAGE)


def random_file(store: Path) -> None:
    (store / "memory.db").write_bytes(os.urandom(9000))


def newer(store: Path) -> None:
    connection = raw.connect(store)
    connection.pragma("user_version", schema.VERSION + 1)
    connection.close()


def another_program(store: Path) -> None:
    (store / "memory.db").unlink()
    connection = apsw.Connection(str(store / "memory.db"))
    connection.pragma("application_id", 4711)
    connection.execute("CREATE TABLE notes(text)").fetchall()
    connection.close()


def lose(store: Path, how: Callable[[Path], None]) -> None:
    """Let a process die with its WAL full, then take the database away."""
    program = "from pathlib import Path\nfrom properties.kit import damage_workers\n"
    program += f"damage_workers.leave_hot(Path({str(store)!r}), ['in the log ' + str(n) for n in range(9)])"
    paths = os.pathsep.join([str(Path(damage.__file__).parents[2]), str(Path(raw.__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=60, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == -9
    how(store / "memory.db")


UNOPENED: dict[str, tuple[Callable[[Path], None], type[HoldTrueError]]] = {
    "header": (damage_workers.damage_header, StoreCorrupt),
    "text": (damage_workers.replace_by_text, StoreCorrupt),
    "noise": (random_file, StoreCorrupt),
    "cut-in-a-page": (cut(PAGE * 20 + 100), StoreCorrupt),
    "cut-between-pages": (cut(PAGE * 20), StoreCorrupt),
    "newer": (newer, StoreTooNew),
    "another-program": (another_program, StoreUnusable),
}


@pytest.mark.parametrize("kind", sorted(UNOPENED))
def test_what_cannot_be_opened_is_refused_by_every_call_and_left_to_the_byte(
    store: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(store)
    hurt, error = UNOPENED[kind]
    hurt(store)
    before = digests(store)
    with Memory(store) as memory:
        calls: list[Callable[[], object]] = [
            lambda: memory.add("new"),
            lambda: memory.search("harbour"),
            memory.list,
            memory.status,
            memory.verify,
            lambda: memory.forget("01890000-0000-7000-8000-000000000000"),
            lambda: memory.update("01890000-0000-7000-8000-000000000000", "x"),
        ]
        for call in calls:
            with pytest.raises(error) as refusal:
                call()
            assert refusal.value.exit_code == 3
            assert refusal.value.hint
    for arguments in (["add", "new"], ["search", "harbour"], ["list"], ["status"]):
        assert command([*arguments, "--store", str(store), "--json"]) == 3
        assert json.loads(capfd.readouterr().out)["error"]["code"] == error.code
    assert digests(store) == before


def test_a_damaged_page_refuses_what_hits_it_and_changes_nothing(store: Path) -> None:
    texts = fill(store)
    damage_workers.damage_leaf(store)
    before = digests(store)
    readable = refused = 0
    with Memory(store) as memory:
        for id_ in texts:
            try:
                assert memory.get(id_).text == texts[id_]
                readable += 1
            except StoreCorrupt:
                refused += 1
        with pytest.raises(StoreCorrupt):
            memory.list(limit=500)
    assert readable > MEMORIES // 2
    assert refused > 0
    assert digests(store) == before
    for id_ in list(texts)[:: len(texts) // 12]:
        with Memory(store) as memory:
            try:
                memory.get(id_)
            except StoreCorrupt:
                with pytest.raises(StoreCorrupt):
                    memory.update(id_, "another text")
    assert {row[0] for row in damaged_rows(store)} <= set(texts)


def damaged_rows(store: Path) -> list[tuple[str]]:
    """The ids of the first memories, which lie before the damage."""
    connection = raw.connect(store)
    try:
        return [(str(id_),) for (id_,) in connection.execute("SELECT id FROM memories WHERE seq < 10").fetchall()]
    finally:
        connection.close()


@pytest.mark.parametrize("gone", ["empty", "missing"])
def test_a_log_without_its_database_is_refused_before_sqlite_deletes_it(store: Path, gone: str) -> None:
    lose(store, Path.unlink if gone == "missing" else lambda path: os.truncate(path, 0))
    before = digests(store)
    assert "memory.db-wal" in before
    with Memory(store) as memory:
        assert memory.exists()
        for call in (memory.open, memory.list, lambda: memory.add("new"), lambda: memory.search("log")):
            with pytest.raises(StoreCorrupt, match="beside a log"):
                call()
    assert command(["list", "--store", str(store)]) == 3
    assert digests(store) == before


def test_an_empty_log_and_no_log_beside_an_empty_database_are_a_new_store(store: Path) -> None:
    store.mkdir()
    (store / "memory.db").touch()
    (store / "memory.db-wal").touch()
    with Memory(store) as memory:
        assert memory.add("first").created


@pytest.mark.parametrize("part", ["-wal", "-shm"])
def test_a_log_of_garbage_and_a_damaged_shared_memory_are_ignored(store: Path, part: str) -> None:
    texts = fill(store)
    (store / f"memory.db{part}").write_bytes(os.urandom(40_000))
    with Memory(store) as memory:
        assert memory.list().total == len(texts)
        assert memory.verify() == []
        assert memory.add("new").created


def test_a_hundred_openings_that_fail_leave_no_more_files_than_one(store: Path) -> None:
    fill(store)
    damage_workers.damage_header(store)

    def fail() -> None:
        with Memory(store) as memory, pytest.raises(StoreCorrupt):
            memory.add("new")
        with Memory(store) as memory, pytest.raises(StoreCorrupt):
            memory.list()

    fail()
    files = sorted(path.name for path in store.rglob("*"))
    for _ in range(50):
        fail()
    assert sorted(path.name for path in store.rglob("*")) == files


# -- setting aside -----------------------------------------------------------------------------------------------------


def test_a_sound_store_is_not_set_aside(store: Path) -> None:
    fill(store)
    before = digests(store)
    with Memory(store) as memory, pytest.raises(StoreSound):
        memory.set_aside()
    assert digests(store) == before
    assert not (store / "kept-aside").exists()


def test_a_store_that_is_not_there_is_not_set_aside(store: Path) -> None:
    with Memory(store) as memory, pytest.raises(StoreMissing):
        memory.set_aside()
    assert not store.exists()


@pytest.mark.parametrize("kind", ["newer", "another-program"])
def test_a_file_that_is_not_ours_to_judge_is_not_set_aside(store: Path, kind: str) -> None:
    fill(store)
    hurt, error = UNOPENED[kind]
    hurt(store)
    before = digests(store)
    with Memory(store) as memory, pytest.raises(error):
        memory.set_aside()
    assert digests(store) == before
    assert not (store / "kept-aside").exists()


def parts_of(store: Path) -> dict[str, Any]:
    """Everything about the memories that must come over, by id."""
    with Memory(store) as memory:
        return {record.id: record.as_dict() for record in memory.list(limit=500)}


DAMAGE: dict[str, tuple[Callable[[Path], None], float]] = {
    # how, and how large a part of the memories must come over
    "header": (damage_workers.damage_header, 1.0),
    "first-page": (noisy(1), 1.0),
    "root-of-memories": (noisy(5), 1.0),
    "a-leaf": (damage_workers.damage_leaf, 0.8),
    "cut-off": (lambda store: os.truncate(store / "memory.db", (store / "memory.db").stat().st_size * 7 // 10), 0.4),
    "not-a-database": (damage_workers.replace_by_text, 0.0),
}


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_what_can_still_be_read_of_a_damaged_store_comes_over_and_its_bytes_are_kept(store: Path, kind: str) -> None:
    fill(store)
    before = parts_of(store)
    hurt, part = DAMAGE[kind]
    hurt(store)
    bytes_before = digests(store)
    with Memory(store) as memory:
        done = memory.set_aside()
        assert digests(Path(done.kept)) == bytes_before
        memory.embed_pending()
        assert memory.verify() == []
        after = {record.id: record.as_dict() for record in memory.list(limit=500)}
        assert memory.add("life goes on").created
    assert len(after) == done.salvaged.memories
    assert part * len(before) <= len(after) <= len(before)
    for id_, record in after.items():
        same = before[id_] | ({"tags": record["tags"], "sources": record["sources"]} if kind == "first-page" else {})
        assert record == same
    if kind in ("header", "root-of-memories"):
        assert done.salvaged.complete
        assert raw.read(store).damage == ()
    elif kind == "a-leaf":
        assert done.salvaged.lost == len(before) - len(after)
        assert set(done.salvaged.lost_ids) == set(before) - set(after)


def test_revisions_keys_and_tombstones_come_over(store: Path) -> None:
    texts = fill(store)
    changed = next(id_ for id_, text in texts.items() if text == "a changed text")
    tables = ("revisions", "keys", "tombstones", "tags", "sources", "events")
    connection = raw.connect(store)
    before = {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables}
    connection.close()
    damage_workers.damage_header(store)
    with Memory(store) as memory:
        done = memory.set_aside()
        assert (done.salvaged.revisions, done.salvaged.tombstones) == (1, 1)
        assert memory.get(changed).revision == 2
        again = memory.add(f"fact 9 of the harbour {'and so on ' * 10}", user="user 0", key="key 9")
        assert not again.created
    connection = raw.connect(store)
    after = {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables}
    connection.close()
    for table in ("revisions", "keys", "tombstones", "tags"):
        assert after[table] == before[table]


@pytest.mark.parametrize("gone", ["empty", "missing"])
def test_a_log_whose_database_is_gone_is_kept_and_its_memories_come_over(store: Path, gone: str) -> None:
    lose(store, Path.unlink if gone == "missing" else lambda path: os.truncate(path, 0))
    before = digests(store)
    with Memory(store) as memory:
        done = memory.set_aside()
        assert digests(Path(done.kept)) == before
        assert sorted(record.text for record in memory.list()) == [f"in the log {number}" for number in range(9)]


def test_a_log_without_its_database_is_not_set_aside_while_a_program_has_it_open(store: Path) -> None:
    lose(store, lambda path: None)
    held = apsw.Connection(str(store / "memory.db"))
    held.execute("BEGIN").fetchall()
    held.execute("SELECT count(*) FROM memories").fetchall()
    os.truncate(store / "memory.db", 0)
    before = digests(store)
    program = "import sys\nfrom holdtrue.cli import run\nsys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--set-aside", "--json", "--store", str(store)],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(damage.__file__).parents[2])},
    )
    assert json.loads(done.stdout)["error"]["code"] == "STORE_BUSY"
    assert digests(store) == before
    held.close(True)


def test_what_is_kept_is_private_and_says_why(store: Path) -> None:
    fill(store)
    damage_workers.damage_header(store)
    old = os.umask(0)
    try:
        with Memory(store) as memory:
            done = memory.set_aside()
    finally:
        os.umask(old)
    kept = Path(done.kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}
    manifest = json.loads((kept / "manifest.json").read_text())
    assert manifest["format"] == damage.FORMAT
    assert manifest["findings"] == list(done.findings)
    assert manifest["files"][""]["sha256"] == digests(kept)["memory.db"]


def test_other_handles_of_the_process_keep_a_store_from_being_set_aside(store: Path) -> None:
    fill(store)
    damage_workers.damage_leaf(store)
    before = digests(store)
    with Memory(store) as other, Memory(store) as memory:
        other.list(limit=1)
        with pytest.raises(StoreBusy, match="open elsewhere"):
            memory.set_aside()
        assert digests(store) == before
        other.close()
        assert memory.set_aside().salvaged.memories > 0


def test_setting_aside_waits_its_turn_and_no_longer_than_its_patience(store: Path) -> None:
    fill(store)
    damage_workers.damage_header(store)
    before = digests(store)
    program = "import sys, time\nfrom pathlib import Path\nfrom holdtrue.store.turnstile import Turnstile\n"
    program += "turnstile = Turnstile(Path(sys.argv[1]))\nturnstile.enter()\nprint('in', flush=True)\ntime.sleep(30)"
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(store)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(damage.__file__).parents[2])},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"in\n"
        with pytest.raises(StoreBusy, match=r"0.3 s"):
            damage.set_aside(store, Deadline.after(0.3), lambda done, total: None)
    finally:
        holder.kill()
        holder.wait()
    # The thread that waited finds that its caller has left: it changes nothing.
    for thread in threading.enumerate():
        if thread.name == "holdtrue-set-aside":
            thread.join(10)
    assert digests(store) == before
    assert not (store / "kept-aside").exists()
    Turnstile(store).close()


def test_the_descriptors_that_read_the_live_files_leave_this_process_its_locks(store: Path) -> None:
    fill(store)
    writer = raw.connect(store)
    writer.execute("BEGIN IMMEDIATE").fetchall()
    damage._seal(store / "memory.db")
    program = "import apsw, sys\nconnection = apsw.Connection(sys.argv[1])\n"
    program += "try:\n    connection.execute('BEGIN IMMEDIATE').fetchall()\nexcept apsw.BusyError:\n    print('busy')"
    done = subprocess.run(
        [sys.executable, "-c", program, str(store / "memory.db")], capture_output=True, timeout=60, check=False
    )
    assert done.stdout == b"busy\n"
    writer.close(True)


def test_a_writer_outside_the_turns_makes_the_copy_begin_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    damage_workers.damage_leaf(store)
    times = 0

    def write(point: str) -> None:
        nonlocal times
        if point == "damage.salvaged" and times == 0:
            times += 1
            connection = raw.connect(store)
            connection.execute("INSERT INTO tombstones VALUES('written meanwhile', 1)").fetchall()
            connection.close()

    monkeypatch.setattr(failpoints, "hit", write)
    with Memory(store) as memory:
        done = memory.set_aside()
    assert times == 1
    assert len(list((store / "kept-aside").iterdir())) == 1
    assert done.salvaged.tombstones == 2


def test_a_damaged_text_is_not_believed(store: Path) -> None:
    fill(store)
    content = (store / "memory.db").read_bytes()
    assert b"fact 9 of the harbour" in content
    (store / "memory.db").write_bytes(content.replace(b"fact 9 of the harbour", b"fact 9 of the harb@ur"))
    damage_workers.damage_header(store)
    with Memory(store) as memory:
        done = memory.set_aside()
        assert not [record for record in memory.list(limit=500) if "harb@ur" in record.text]
    assert done.salvaged.lost == 1


def test_every_base_table_comes_over_or_is_left_out_on_purpose() -> None:
    assert set(salvage.KEYS) | salvage.LEFT_OUT == schema.BASE_TABLES
