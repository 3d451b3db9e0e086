"""Crews and failpoints tried out: nothing outlives its example, no wait is without end, and a point that was asked for
and never fired is a failure."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from holdtrue import Memory
from properties.kit import raw
from properties.kit.expected import index_of, vector_of
from properties.kit.points import Points
from properties.kit.processes import Crew, environment

# Targets are functions of the standard library: a spawned child can import them, and they do nothing else.


def gone(pid: int) -> bool:
    """Whether a process has ended; one that only waits to be reaped has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def within(seconds: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def written(path: Path) -> int:
    assert within(20, lambda: path.exists() and path.read_text().endswith("\n")), f"{path} was never written"
    return int(path.read_text())


def test_leaving_a_crew_ends_its_processes_and_what_they_have_started(tmp_path: Path) -> None:
    with Crew() as crew:
        waiting = crew.start(os.system, f"sleep 300 & echo $! > {tmp_path}/waited-for; wait")
        left = crew.start(os.system, f"sleep 300 & echo $! > {tmp_path}/left-behind")
        grandchildren = [written(tmp_path / name) for name in ("waited-for", "left-behind")]
        # Not join(): what a process has started keeps its sentinel open.
        assert within(20, lambda: left.exitcode == 0)
        assert not any(gone(pid) for pid in [waiting.pid, *grandchildren])
    assert within(10, lambda: all(gone(pid) for pid in [waiting.pid, *grandchildren]))


def test_an_error_inside_a_crew_ends_its_processes_too() -> None:
    with pytest.raises(RuntimeError, match="of the test"), Crew() as crew:
        sleeper = crew.start(time.sleep, 300)
        raise RuntimeError("of the test")
    assert within(5, lambda: gone(sleeper.pid)), "a process that had only just been started lives on"


def test_a_wait_is_bounded_and_tells_who_still_runs_and_how_the_others_ended() -> None:
    with Crew() as crew:
        crew.start(os._exit, 7)
        crew.start(os.abort)
        crew.start(time.sleep, 300)
        killed = crew.start(time.sleep, 300)
        os.kill(killed.pid, signal.SIGKILL)
        assert within(20, lambda: [m.exitcode for m in crew.members[:2]] == [7, -signal.SIGABRT])
        began_s = time.monotonic()
        assert crew.wait(0.3) == [7, -signal.SIGABRT, None, -signal.SIGKILL]
        assert time.monotonic() - began_s < 5.0


def test_variables_reach_the_process_and_are_undone_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_KEPT", "before")
    monkeypatch.delenv("KIT_NEW", raising=False)
    with Crew() as crew:
        variables = {"KIT_NEW": "1", "KIT_KEPT": "2"}
        crew.start(os.system, f'echo "$KIT_NEW$KIT_KEPT" > {tmp_path}/seen', variables=variables)
        assert (os.environ.get("KIT_NEW"), os.environ["KIT_KEPT"]) == (None, "before")
        assert crew.wait(20) == [0]
    assert (tmp_path / "seen").read_text() == "12\n"
    with pytest.raises(RuntimeError), environment({"KIT_NEW": "1"}):
        raise RuntimeError
    assert "KIT_NEW" not in os.environ


def test_a_point_that_never_fired_fails_the_test_that_asked_for_it(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    points = Points("writer.after_commit=kill@3; reader.snapshot=delay(0.1)", journal)
    assert points.requested() == {"writer.after_commit", "reader.snapshot"}
    with pytest.raises(AssertionError, match="never fired"):
        points.assert_fired()  # no process ever wrote a journal
    journal.write_text('{"point": "writer.after_commit", "event": "fired"}\n')
    with pytest.raises(AssertionError, match=r"reader\.snapshot"):
        points.assert_fired()
    with journal.open("a") as file:
        file.write('{"point": "reader.snapshot", "event": "reached"}\n')
    with pytest.raises(AssertionError, match=r"reader\.snapshot"):
        points.assert_fired()  # reached is not fired
    with journal.open("a") as file:
        file.write('{"point": "reader.snapshot", "event": "fired"}\n')
    points.assert_fired()
    assert points.noted("reached") == {"reader.snapshot"}
    Points("", tmp_path / "none").assert_fired()


TEXTS = ["plain words", "昨天把支付网关重跑gen-itgc后端部署完成", "カフェの予約", "cafe\u0301 배포", "🙂", "a\tb"]


def test_what_should_be_derived_is_computed_apart_from_the_product_and_agrees_with_it(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.add_many(TEXTS)
    rows = raw.read(tmp_path / "store").rows
    assert [row.text for row in rows] == TEXTS
    assert [row.indexed for row in rows] == [index_of(text) for text in TEXTS]
    assert [row.vector for row in rows] == [vector_of(text) for text in TEXTS]
    assert vector_of("🙂") is None
    assert index_of("x 部署") == "x  部  署 "


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("INSERT INTO memories_fts(rowid, body) VALUES(99, 'ghost')", "memories_fts holds memory 99"),
        ("INSERT INTO pending_vectors VALUES(99, 0, 'x')", "pending_vectors holds memory 99"),
        ("INSERT INTO revisions VALUES(99, 1, 'x', 0, 1)", "revisions holds 1 rows"),
        ("DELETE FROM memories", "memories_vec holds memory 1"),
    ],
)
def test_raw_storage_tells_what_is_left_of_memories_that_are_gone(tmp_path: Path, statement: str, said: str) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.add("the harbour is east")
    assert raw.read(tmp_path / "store").orphans == ()
    connection = raw.connect(tmp_path / "store")
    connection.execute(statement).fetchall()
    connection.close()
    assert any(said in orphan for orphan in raw.read(tmp_path / "store").orphans)


def test_raw_storage_tells_damage_of_the_full_text_index(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.add("the harbour is east")
    assert raw.read(tmp_path / "store").damage == ()
    connection = raw.connect(tmp_path / "store")
    connection.execute("UPDATE memories_fts_content SET c0 = 'other words'").fetchall()
    connection.close()
    assert raw.read(tmp_path / "store").damage
