"""`holdtrue doctor`: a check for each thing that can be wrong, made as far as the damage lets it; and rebuilding."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdtrue import Memory
from holdtrue.cli import run as command
from holdtrue.errors import InvalidInput, StoreMissing
from holdtrue.store import checkpoint, derived, doctor, draft, schema
from holdtrue.store.doctor import Check
from impl.tests.stubembedder import Stub, use
from properties.kit import checkers, damage_workers, expected, places, raw


@pytest.fixture(autouse=True)
def no_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDTRUE_CONFIG", str(tmp_path / "config.json"))


def fill(store: Path, count: int = 40) -> None:
    with Memory(store) as memory:
        memory.add_many([f"fact {number} of the harbour" for number in range(count)])
        memory.embed_pending()


def plant(*statements: str) -> Callable[[Path], None]:
    def change(store: Path) -> None:
        connection = raw.connect(store)
        connection.execute("PRAGMA foreign_keys = OFF").fetchall()
        for statement in statements:
            connection.execute(statement).fetchall()
        connection.close()

    return change


def checks(store: Path) -> dict[str, Check]:
    with Memory(store) as memory:
        return {check.name: check for check in memory.doctor().checks}


def digests(store: Path) -> dict[str, bytes]:
    """The files by their bytes, without the shared memory and what is empty: SQLite lays both beside what it reads."""
    files = {path.name: path.read_bytes() for path in store.iterdir() if path.is_file()}
    return {name: content for name, content in files.items() if content and not name.endswith("-shm")}


def test_a_sound_store_passes_every_check_and_is_left_as_it_is(store: Path) -> None:
    fill(store)
    before = digests(store)
    with Memory(store) as memory:
        diagnosis = memory.doctor()
    assert [check for check in diagnosis.checks if check.state != "ok"] == []
    assert diagnosis.state == "ok"
    names = [check.name for check in diagnosis.checks]
    assert len(names) == len(set(names))
    assert {"permissions", "file system", "SQLite", "sqlite-vec", "schema", "integrity", "log", "model"} <= set(names)
    assert {f"derived: {entry.short}" for entry in derived.REGISTRY} <= set(names)
    assert digests(store) == before


def test_there_is_nothing_to_examine_where_there_is_no_store(store: Path) -> None:
    with Memory(store) as memory, pytest.raises(StoreMissing):
        memory.doctor()
    assert not store.exists()


MISORDERED = (
    "PRAGMA writable_schema = ON",
    """UPDATE sqlite_schema SET sql = 'CREATE INDEX memories_by_time ON memories(at_us, seq)'
       WHERE name = 'memories_by_time'""",
)

# what is planted, which check must find it, in which state
PLANTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "others may read": (lambda store: store.chmod(0o755), "permissions", "degraded"),
    "words of another text": (plant("UPDATE memories_fts SET body = 'x' WHERE rowid = 3"), "derived: words", "damaged"),
    "words are gone": (plant("DELETE FROM memories_fts_data WHERE id > 10"), "derived: words", "damaged"),
    "index without config": (plant("DROP TABLE memories_fts_config"), "derived: words", "damaged"),
    "vector of another user": (
        plant("UPDATE memories_vec SET user_id = 9 WHERE rowid = 3"),
        "derived: vectors",
        "damaged",
    ),
    "vectors are gone": (plant("DROP TABLE memories_vec"), "derived: vectors", "damaged"),
    "chunks are gone": (plant("DROP TABLE memories_vec_chunks"), "derived: vectors", "damaged"),
    "awaited and there": (plant("INSERT INTO pending_vectors VALUES(3, 0, 'x')"), "derived: pending", "damaged"),
    "awaited": (plant("INSERT OR REPLACE INTO pending_vectors VALUES(3, 0, 'x')"), "vectors awaited", "degraded"),
    "row of nobody": (plant("INSERT INTO tags VALUES(999, 'x')"), "references", "damaged"),
    "forgotten and there": (plant("INSERT INTO tombstones SELECT id, 0 FROM memories LIMIT 1"), "forgotten", "damaged"),
    "to be erased": (plant("INSERT INTO erasures VALUES('x', 0)"), "erasures", "degraded"),
    "another model": (plant("UPDATE meta SET value = 'other' WHERE name = 'embedder'"), "model", "degraded"),
    "an index in another order": (plant(*MISORDERED), "integrity", "damaged"),
    "a damaged page": (damage_workers.damage_leaf, "integrity", "damaged"),
    "a damaged header": (damage_workers.damage_header, "opening", "damaged"),
    "a draft of a killed backup": (
        lambda store: (store / f"{draft.BACKUP}-0123456789abcdef.partial").touch(),
        "leftovers",
        "degraded",
    ),
    "a copy that was never finished": (
        lambda store: (store / "kept-aside" / "20260101T000000Z-0123abcd.partial").mkdir(parents=True),
        "leftovers",
        "degraded",
    ),
}


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_each_thing_that_is_wrong_is_found_with_what_to_do_and_nothing_is_changed(store: Path, name: str) -> None:
    fill(store)
    hurt, check, state = PLANTS[name]
    hurt(store)
    before = digests(store)
    found = checks(store)
    assert found[check].state == state, found[check]
    assert found[check].says
    assert found[check].advice
    assert digests(store) == before


def test_an_unreadable_store_is_examined_as_far_as_it_goes(store: Path) -> None:
    fill(store)
    damage_workers.damage_header(store)
    found = checks(store)
    assert {name for name, check in found.items() if check.state == "damaged"} == {"opening"}
    assert found["permissions"].state == found["backups"].state == found["settings"].state == "ok"
    for name in ("integrity", "derived: words", "forgotten", "names"):
        assert found[name].state == "unknown"
        assert "damaged" in found[name].says


def test_an_older_schema_is_told_and_not_brought_up_to_date(store: Path) -> None:
    from properties.kit import old_schemas

    old_schemas.version_1(store)
    found = checks(store)
    assert found["schema"].state == "degraded"
    assert found["derived: words"].state == "unknown"
    connection = raw.connect(store)
    assert connection.pragma("user_version") == 1
    connection.close()


def test_an_empty_file_is_told_in_words_and_not_in_errors_of_the_database(store: Path) -> None:
    fill(store)
    (store / "memory.db").write_bytes(b"")
    with Memory(store) as memory:
        found = memory.doctor()
    assert found.state == "degraded"
    assert not [check for check in found.checks if "Error" in check.says or "no such table" in check.says]


def test_readers_that_hold_a_snapshot_are_named_with_the_size_of_the_log(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    with Memory(store) as memory:
        memory.add("one more, so that there is a log")
        found = {check.name: check for check in memory.doctor().checks}["log"]
        assert found.details["bytes"] > 0
        assert found.state == "ok"
        monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES", 1)
        monkeypatch.setattr(doctor, "_readers_of", lambda path: [4711])
        found = {check.name: check for check in memory.doctor().checks}["log"]
    assert found.state == "degraded"
    assert "4711" in found.says


def test_a_reader_is_told_once_the_log_is_as_long_as_the_store_allows(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_readers_of", lambda path: [4711])
    with Memory(store) as memory:
        memory.add("a log of a few pages")
        size = (store / "memory.db-wal").stat().st_size
        states = {
            limit: {check.name: check for check in doctor.examine(store, limit, lambda *_: None)}["log"].state
            for limit in (2 * size, 2 * size + 4_096, 0)
        }
    assert list(states.values()) == ["degraded", "ok", "ok"]  # from half a small limit on, writers wait


def test_the_locks_of_readers_are_told_from_others() -> None:
    lines = [
        "1: POSIX  ADVISORY  READ 100 fe:00:77 124 124",
        "2: POSIX  ADVISORY  READ 101 fe:00:77 128 128",
        "3: POSIX  ADVISORY  WRITE 102 fe:00:77 120 120",
        "4: POSIX  ADVISORY  READ 103 fe:00:78 124 124",
        "5: FLOCK  ADVISORY  WRITE 104 fe:00:77 0 EOF",
    ]
    assert list(doctor._holders(lines, 77)) == [100]


def test_backups_are_listed_with_their_age(store: Path) -> None:
    fill(store)
    with Memory(store) as memory:
        memory.backup()
    (file,) = checks(store)["backups"].details["files"]
    assert file["bytes"] > 0
    assert file["age_days"] < 1


def test_a_backup_that_cannot_be_restored_is_told(store: Path) -> None:
    fill(store)
    with Memory(store) as memory:
        whole, cut = Path(memory.backup().path), Path(memory.backup().path)
    cut.write_bytes(cut.read_bytes()[:9000])
    check = checks(store)["backups"]
    assert check.state == "degraded"
    assert str(cut) in check.says
    assert str(whole) not in check.says
    assert check.advice


def test_a_store_that_nobody_may_write_is_degraded_as_status_says(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 3)
    with places.read_only_mount(store) as place:
        if place.user is not None:  # nothing can be mounted here
            monkeypatch.setattr("holdtrue.store.frozen.writable", lambda database: False)
        with Memory(place.folder) as memory:
            diagnosis, status = memory.doctor(), memory.status()
    opening = {check.name: check for check in diagnosis.checks}["opening"]
    assert (diagnosis.state, opening.state) == ("degraded", "degraded")
    assert "for reading only" in opening.says
    assert "writable" in opening.advice
    assert status["degraded"]


def of_another_program(store: Path) -> None:
    store.mkdir()
    connection = apsw.Connection(str(store / "memory.db"))
    connection.execute("CREATE TABLE notes(x)").fetchall()
    connection.close()


def of_a_newer_version(store: Path) -> None:
    fill(store, 1)
    plant("PRAGMA user_version = 99")(store)


@pytest.mark.parametrize(
    ("make", "code"), [(of_another_program, "STORE_UNUSABLE"), (of_a_newer_version, "STORE_TOO_NEW")]
)
def test_what_is_no_store_of_this_program_is_refused_as_by_every_other_command(
    store: Path, make: Callable[[Path], None], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make(store)
    before = digests(store)
    told = []
    for name in ("status", "doctor"):
        assert command([name, "--json", "--store", str(store)]) == 3
        told.append(json.loads(capfd.readouterr().out)["error"])
    assert told[0]["code"] == code
    assert told[0] == told[1]
    assert digests(store) == before


def test_nothing_that_would_be_refused_is_advised_where_the_file_itself_is_damaged(store: Path) -> None:
    fill(store, 200)
    plant("UPDATE memories_fts SET body = 'x' WHERE rowid = 3")(store)
    damage_workers.damage_leaf(store)
    found = checks(store)
    assert found["integrity"].state == found["derived: words"].state == "damaged"
    assert "--set-aside" in found["integrity"].advice
    assert [check for check in found.values() if "--rebuild" in check.advice] == []


def test_a_setting_that_is_not_understood_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    monkeypatch.setenv("HOLDTRUE_WRITE_WAIT_S", "soon")
    assert checks(store)["settings"].state == "degraded"
    assert "soon" in checks(store)["settings"].says


# -- rebuilding --------------------------------------------------------------------------------------------------------

BROKEN = [name for name, (_, check, _) in PLANTS.items() if check.startswith("derived:")]


def agreeing(store: Path) -> list[str]:
    return checkers.derived_agree(raw.read(store), expected.index_of, expected.vector_of)


@pytest.mark.parametrize("name", sorted([*BROKEN, "awaited"]))
def test_a_rebuild_makes_derived_data_agree_whatever_was_left_of_it(store: Path, name: str) -> None:
    fill(store)
    hurt, check, _ = PLANTS[name]
    hurt(store)
    with Memory(store) as memory:
        memory.rebuild([check.removeprefix("derived: ") if check in map("derived: {}".format, KNOWN) else "vectors"])
        assert memory.verify() == []
    assert agreeing(store) == []


KNOWN = [entry.short for entry in derived.REGISTRY]
STRUCTURES = [
    ("DROP TABLE memories_fts",),
    ("DROP TABLE memories_fts_data", "DROP TABLE memories_fts_idx", "DROP TABLE memories_fts_config"),
    ("DROP TABLE memories_fts_content",),
    ("UPDATE memories_fts_config SET v = 99",),
    ("DROP TABLE memories_vec_rowids",),
    ("DROP TABLE memories_vec_vector_chunks00",),
    ("UPDATE memories_vec_vector_chunks00 SET vectors = x'00'",),
    ("DROP TABLE pending_vectors",),
    ("DROP TABLE memories_fts", "DROP TABLE memories_vec", "DROP TABLE pending_vectors"),
    ("INSERT INTO memories_fts(rowid, body) VALUES(999, 'of nobody')",),
    ("INSERT INTO pending_vectors VALUES(999, 0, 'of nobody')",),
]


@pytest.mark.parametrize("statements", STRUCTURES, ids=lambda statements: statements[0][:50])
def test_a_structure_that_is_dropped_or_damaged_is_made_anew(store: Path, statements: tuple[str, ...]) -> None:
    fill(store)
    plant(*statements)(store)
    assert command(["doctor", "--store", str(store)]) == 3
    assert command(["doctor", "--rebuild", "--store", str(store)]) == 0
    assert agreeing(store) == []
    with Memory(store) as memory:
        assert memory.add("after the rebuild").created
        assert len(memory.search("harbour", limit=5)) == 5


def test_a_rebuild_without_a_model_keeps_every_sound_vector(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    plant("DELETE FROM memories_vec WHERE rowid = 5", "UPDATE memories_vec SET user_id = 99 WHERE rowid = 6")(store)
    before = raw.read(store)
    monkeypatch.setenv("HOLDTRUE_TIER", "unheard-of")
    with Memory(store) as memory:
        memory.rebuild(["all"])
        assert memory.verify() == []
    after = raw.read(store)
    for was, row in zip(before.rows, after.rows, strict=True):
        if row.seq in (5, 6):
            assert (row.vector, row.pending) == (None, True)
        else:
            assert (row.vector, row.pending) == (was.vector, False)


def test_a_rebuild_with_another_model_keeps_the_vectors_that_are_there(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    before = raw.read(store)
    use(monkeypatch, Stub())
    with Memory(store) as memory:
        memory.rebuild(["vectors"])
    assert [row.vector for row in raw.read(store).rows] == [row.vector for row in before.rows]


def test_every_memory_has_its_words_at_each_instant_of_a_rebuild(store: Path) -> None:
    fill(store, 300)
    problems: list[str] = []
    seen = 0
    ended = threading.Event()

    def look() -> None:
        nonlocal seen
        with Memory(store) as reader:
            while not ended.is_set():
                hits = len(reader.search("harbour", limit=200))
                seen += 1
                if hits != 200:
                    problems.append(f"{hits} hits")

    thread = threading.Thread(target=look)
    thread.start()
    with Memory(store) as memory:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            memory.rebuild(["words"])
        memory.add("written between two batches")
    ended.set()
    thread.join(20)
    assert seen > 3
    assert problems == []
    assert agreeing(store) == []


def test_a_kill_in_a_rebuild_leaves_every_memory_its_words(
    store: Path, run_python: Callable[..., Any], tmp_path: Path
) -> None:
    fill(store, 200)
    before = raw.read(store)
    program = f"from holdtrue import Memory\nMemory({str(store)!r}).rebuild(['all'])"
    for rule in ("derived.rebuild=kill@100", "derived.rebuild=kill@190"):
        journal = tmp_path / f"journal-{rule[-3:]}"
        done = run_python(program, HOLDTRUE_FAILPOINTS=rule, HOLDTRUE_FAILPOINT_JOURNAL=str(journal))
        assert done.returncode == -9, done
        assert [(row.text, row.indexed, row.vector) for row in raw.read(store).rows] == [
            (row.text, row.indexed, row.vector) for row in before.rows
        ]
    plant("DROP TABLE memories_fts", "DROP TABLE memories_vec")(store)
    done = run_python(program, HOLDTRUE_FAILPOINTS="doctor.before_commit=kill", HOLDTRUE_FAILPOINT_JOURNAL=str(journal))
    assert done.returncode == -9, done
    with Memory(store) as memory:
        memory.rebuild(["all"])
    assert agreeing(store) == []


def test_a_memory_that_changes_while_it_is_rebuilt_keeps_what_its_writer_derived(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 5)
    with Memory(store) as memory, Memory(store) as writer:
        (record,) = memory.list(limit=1)
        embed = memory._vectors

        def change_meanwhile(texts: list[str]) -> Any:
            made = embed(texts)
            writer.update(record.id, "changed while the vectors were made")
            monkeypatch.undo()
            return made

        monkeypatch.setattr(memory, "_vectors", change_meanwhile)
        rebuilt = memory.rebuild(["all"])
        assert rebuilt.memories == 4
    assert agreeing(store) == []


def test_a_name_that_no_structure_has_is_refused_before_anything_is_done(store: Path) -> None:
    fill(store, 3)
    before = digests(store)
    with Memory(store) as memory, pytest.raises(InvalidInput, match="no derived data called 'wrods'"):
        memory.rebuild(["wrods"])
    assert digests(store) == before


def test_names_that_belong_together_are_rebuilt_together() -> None:
    assert [entry.short for entry in derived.chosen(["words"])] == ["words"]
    assert [entry.short for entry in derived.chosen(["pending"])] == ["vectors", "pending"]
    assert [entry.short for entry in derived.chosen(["all"])] == KNOWN


def test_the_statements_that_make_a_structure_are_those_of_the_schema() -> None:
    connection = apsw.Connection(":memory:")
    for entry in derived.REGISTRY:
        if entry.needs_model and entry.short == "vectors":
            continue  # vec0 is not loaded here
        for table in entry.tables:
            for statement in derived._recipe(table):
                connection.execute(statement).fetchall()
            assert connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
    assert derived._recipe("memories_vec") == [schema.VECTOR_TABLE]


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_tells_the_whole_by_its_exit_code_and_every_check_in_json(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(store, 3)
    assert command(["doctor", "--json", "--store", str(store)]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["state"] == "ok"
    assert {"name", "state", "says", "advice"} <= set(told["checks"][0])
    plant("INSERT INTO erasures VALUES('x', 0)")(store)
    assert command(["doctor", "--json", "--store", str(store)]) == 4
    assert json.loads(capfd.readouterr().out)["state"] == "degraded"
    damage_workers.damage_header(store)
    assert command(["doctor", "--json", "--store", str(store)]) == 3
    assert json.loads(capfd.readouterr().out)["state"] == "damaged"
    assert command(["doctor", "--store", str(store)]) == 3
    assert "--set-aside" in capfd.readouterr().out


def test_the_command_sets_a_damaged_store_aside_and_refuses_a_sound_one(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(store)
    assert command(["doctor", "--set-aside", "--json", "--store", str(store)]) == 1
    assert json.loads(capfd.readouterr().out)["error"]["code"] == "STORE_SOUND"
    damage_workers.damage_header(store)
    assert command(["doctor", "--set-aside", "--json", "--store", str(store)]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["set_aside"]["salvaged"]["memories"] == 40
    assert Path(told["set_aside"]["kept"]).is_dir()
    assert told["state"] == "ok"
    damage_workers.damage_leaf(store)
    assert command(["doctor", "--set-aside", "--store", str(store)]) == 4
    out = capfd.readouterr().out
    assert "Set aside" in out
    assert "could not be read" in out
    assert command(["doctor", "--set-aside", "--rebuild", "--store", str(store)]) == 2


def test_the_command_takes_the_name_of_a_structure_or_none(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fill(store, 3)
    for arguments, wanted in (
        (["--rebuild"], KNOWN),
        (["--rebuild", "words"], ["words"]),
        (["--rebuild", "all"], KNOWN),
    ):
        assert command(["doctor", *arguments, "--json", "--store", str(store)]) == 0
        assert json.loads(capfd.readouterr().out)["rebuilt"]["structures"] == wanted
    assert command(["doctor", "--rebuild", "nothing", "--json", "--store", str(store)]) == 2


def test_the_command_says_plainly_that_no_vector_was_missing_or_how_many_were_made(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(store, 1)
    assert command(["doctor", "--rebuild", "vectors", "--store", str(store)]) == 0
    told = capfd.readouterr().out.splitlines()[0]
    assert told == "Rebuilt  vectors, pending of 1 memory; no memory was waiting for a vector"
    plant("DELETE FROM memories_vec", "INSERT INTO pending_vectors VALUES(1, 0, 'x')")(store)
    assert command(["doctor", "--rebuild", "vectors", "--store", str(store)]) == 0
    assert capfd.readouterr().out.splitlines()[0].endswith("; 1 of 1 awaited vector made")
    assert command(["doctor", "--rebuild", "words", "--store", str(store)]) == 0
    assert capfd.readouterr().out.splitlines()[0] == "Rebuilt  words of 1 memory"


def test_the_list_of_what_could_not_be_read_ends_where_it_ends(capfd: pytest.CaptureFixture[str]) -> None:
    from holdtrue.cli.output import Printer
    from holdtrue.cli.upkeep import _tell_set_aside
    from holdtrue.store.damage import SetAside
    from holdtrue.store.salvage import Salvaged

    for count, wanted in ((1, "1 memory could not be read: id0\n"), (6, "id3, id4 ...\n")):
        lost = tuple(f"id{number}" for number in range(count))
        brought = Salvaged(memories=1, tombstones=1, lost=count, lost_ids=lost)
        _tell_set_aside(Printer(as_json=False), SetAside(("x",), "/kept", brought))
        out = capfd.readouterr().out
        assert wanted in out
        assert "Brought over 1 memory and 1 id of a forgotten one." in out


def test_the_command_examines_no_store_where_there_is_none(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command(["doctor", "--json", "--store", str(store)]) == 3
    assert json.loads(capfd.readouterr().out)["error"]["code"] == "STORE_MISSING"
    assert not store.exists()


def test_an_examination_beside_a_writer_takes_nothing_for_damage(store: Path) -> None:
    fill(store)
    ended = threading.Event()

    def write() -> None:
        with Memory(store) as writer:
            number = 0
            while not ended.is_set():
                writer.add(f"written meanwhile {number}")
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(5):
            wrong = [check for check in checks(store).values() if check.state == "damaged"]
            assert wrong == []
    finally:
        ended.set()
        thread.join(20)
