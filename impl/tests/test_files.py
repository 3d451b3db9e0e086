"""Private files and locks: owner-only from creation, one holder a process, let go of by the dead."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdtrue import Memory
from holdtrue.errors import StoreUnusable
from holdtrue.files import RecordLock, create_private_file, make_private_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and record locks are POSIX's")


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_a_folder_and_its_missing_parents_are_private_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b")
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b"), mode(tmp_path)) == (0o700, 0o700, 0o755)


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    make_private_folder(tmp_path / "shared")
    assert mode(tmp_path / "shared") == 0o750


@pytest.mark.usefixtures("open_umask")
def test_a_file_is_private_and_one_that_is_there_keeps_what_it_holds(tmp_path: Path) -> None:
    create_private_file(tmp_path / "new")
    (tmp_path / "old").write_text("kept")
    create_private_file(tmp_path / "old")
    assert mode(tmp_path / "new") == 0o600
    assert (tmp_path / "old").read_text() == "kept"


@pytest.mark.parametrize("below", ["file", "file/sub", "file/sub/sub", "dangling"])
def test_a_file_or_a_dangling_link_in_the_way_of_a_folder_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreUnusable) as refusal:
        make_private_folder(tmp_path / below)
    assert refusal.value.hint
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.usefixtures("open_umask")
def test_every_file_of_a_store_is_private_at_every_moment_whatever_the_umask(store: Path) -> None:
    seen: dict[str, set[int]] = {}

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        # Each open, rename and mkdir of this process is a moment at which someone else could look.
        if watching and event in ("open", "os.mkdir", "socket.connect") and store.exists():
            for path in [store, *store.iterdir()]:
                seen.setdefault(path.name, set()).add(mode(path))

    watching = True
    sys.addaudithook(watch)
    try:
        with Memory(store) as memory:
            memory.add("who may read this?")
            memory.search("who may read this?")
            for path in [store, *store.iterdir()]:
                seen.setdefault(path.name, set()).add(mode(path))
    finally:
        watching = False
    assert seen.pop("store") == {0o700}
    assert {"memory.db", "memory.db-wal", "memory.db-shm", "turn.outer", "turn.inner"} <= seen.keys()
    assert set().union(*seen.values()) == {0o600}, seen


HOLD = """
import sys, time
from pathlib import Path
from holdtrue.files import RecordLock
lock = RecordLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_has_one_holder_and_a_dead_holder_lets_go(tmp_path: Path) -> None:
    lock = RecordLock(tmp_path / "turn")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "turn")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not lock.try_acquire()
        holder.kill()
        holder.wait(10)
        assert lock.try_acquire()
        lock.release()
    finally:
        holder.kill()
        holder.communicate(timeout=10)
        lock.close()
        lock.close()  # a second close does nothing


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_does_not_hold_its_parents_lock(tmp_path: Path) -> None:
    lock = RecordLock(tmp_path / "turn")
    lock.acquire()
    child = os.fork()
    if child == 0:
        os._exit(7 if lock.try_acquire() else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lock.close()


def test_a_link_in_the_place_of_a_side_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "turn").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        RecordLock(tmp_path / "turn")
    create_private_file(tmp_path / "turn")
    assert (tmp_path / "elsewhere").read_text() == "kept"
