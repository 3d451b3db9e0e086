"""A disk that is full: reads go on, writes are refused by name, and a forget works or says why."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdtrue import Memory
from holdtrue.errors import StoreFull
from holdtrue.store import frozen
from holdtrue.store.connection import store_error
from properties.kit import places, raw
from properties.kit.places import carried_out

MIB = 1024 * 1024
WORD = "word " * 9_000


def adds(count: int, name: str = "fact") -> list[dict[str, Any]]:
    return [{"action": "add", "text": f"{name} number {number} {WORD}"} for number in range(count)]


def test_reads_are_answered_on_a_full_disk_and_a_forget_works_or_says_why(tmp_path: Path) -> None:
    with places.small_disk(tmp_path, 2 * MIB) as place:
        filling = carried_out(place, tmp_path / "filling.ledger", adds(16))
        kept = [call.answer["id"] for call in filling if call.outcome == "ok" and call.answer]
        assert 0 < len(kept) < 16
        codes = {call.answer["code"] for call in filling if call.outcome == "refused" and call.answer}
        assert codes <= {"STORE_FULL", "OUTCOME_UNKNOWN"}
        assert "STORE_FULL" in codes
        steps: list[dict[str, Any]] = [
            {"action": "list", "limit": 100},
            {"action": "search", "query": "fact number 1"},
            {"action": "get", "id": kept[0]},
            {"action": "status"},
            {"action": "forget", "id": kept[0]},
            {"action": "list", "limit": 100},
        ]
        calls = carried_out(place, tmp_path / "reading.ledger", steps)
        status, forget, last = calls[3:]
        assert status.answer is not None
        assert place.budget_bytes is not None or any("nearly full" in told for told in status.answer["degraded"])
        assert [call.outcome for call in calls if call is not forget] == ["ok"] * 5, calls
        assert calls[0].answer is not None
        assert calls[0].answer["total"] >= len(kept)
        if forget.outcome == "ok":
            assert last.answer is not None
            assert kept[0] not in [record["id"] for record in last.answer["memories"]]
        else:
            assert forget.answer is not None
            assert forget.answer["code"] in ("STORE_FULL", "OUTCOME_UNKNOWN")
            assert "disk" in forget.answer["message"]


@pytest.mark.parametrize("leave_bytes", [0, 16_384])
def test_a_store_at_rest_is_read_on_a_disk_without_room_for_its_shared_index(tmp_path: Path, leave_bytes: int) -> None:
    with places.small_disk(tmp_path, 4 * MIB) as place:
        carried_out(place, tmp_path / "before.ledger", adds(3))
        if place.budget_bytes is None:
            ballast = places.fill(place.folder.parent, leave_bytes)
        else:
            ballast = place.folder.parent / "ballast"
            ballast.write_bytes(b"\0" * place.budget_bytes)
        steps: list[dict[str, Any]] = [
            {"action": "list"},
            {"action": "search", "query": "fact number 1"},
            {"action": "verify"},
            {"action": "add", "text": "no room for this"},
            {"action": "remove", "path": str(ballast)},
            {"action": "add", "text": "with room again"},
            {"action": "list"},
        ]
        listed, found, damage, refused, _, added, again = carried_out(place, tmp_path / "ledger", steps)
        assert [call.outcome for call in (listed, found, damage, added, again)] == ["ok"] * 5
        assert (listed.answer or {})["total"] == 3
        assert (found.answer or {})["hits"][0]["text"].startswith("fact number 1")
        assert (damage.answer or {}) == {"value": []}
        assert (refused.answer or {}).get("code") in ("STORE_FULL", "OUTCOME_UNKNOWN")
        assert (again.answer or {})["total"] == 4
        assert raw.read(place.folder).damage == ()


def test_a_disk_without_room_for_another_file_is_called_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not places.mount("-t", "tmpfs", "-o", "size=4m,nr_inodes=8", "tmpfs", disk):
        return  # what the tests below ask of `store_error` is all that can be tried here
    with places.mounted(disk):
        (disk / "store").mkdir()
        for number in range(20):
            try:
                (disk / f"file-{number}").touch()
            except OSError:
                break
        with Memory(disk / "store") as memory:
            with pytest.raises(StoreFull):
                memory.add("no room for this")
            for path in disk.glob("file-*"):
                path.unlink()
            assert memory.add("with room again").created


def test_small_blocks_leave_holes_in_the_shared_index_that_are_counted_before_it_is_used(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filling such a hole on a full disk is no error but SIGBUS, so the room for it is asked for first."""
    with Memory(store) as memory:
        memory.add("the harbour is east")

    class Disk:
        f_frsize, f_bavail, f_files, f_favail = 1_024, 10, 100, 100

    monkeypatch.setattr(frozen.os, "statvfs", lambda path: Disk)
    assert not frozen.has_room_for_index(str(store / "memory.db"))
    with Memory(store) as memory:
        assert memory.list().total == 1
        assert memory.search("harbour")
        with pytest.raises(StoreFull):
            memory.add("no room for this")
        Disk.f_bavail = 1_000
        assert memory.add("with room again").created
    Disk.f_frsize, Disk.f_bavail = 4_096, 0  # SQLite itself finds out where every page gets a block
    assert frozen.has_room_for_index(str(store / "memory.db"))


def test_a_disk_of_small_blocks_that_is_full_ends_no_process(tmp_path: Path) -> None:
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(8 * MIB)
    options = ["-q", "-b", "1024", "-O", "^has_journal", "-m", "0"]
    made = shutil.which("mkfs.ext4") and subprocess.run(["mkfs.ext4", *options, image], check=False).returncode == 0
    if not made or not places.mount("-o", "loop", image, disk):
        return  # no such disk to be had here; the test above counts what it would have
    program = "import sys\nfrom holdtrue import Memory, HoldTrueError\nmemory = Memory(sys.argv[1])\n"
    program += (
        "print(memory.list().total)\ntry:\n    memory.add('no room')\nexcept HoldTrueError as e:\n    print(e.code)"
    )
    with places.mounted(disk):
        with Memory(disk / "store") as memory:
            memory.add("the harbour is east")
        for leave_bytes in (10_240, 20_480):
            places.fill(disk, leave_bytes)
            done = subprocess.run(
                [sys.executable, "-c", program, str(disk / "store")], capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stdout) == (0, "1\nSTORE_FULL\n"), (leave_bytes, done)
            (disk / "ballast").unlink()


def test_an_index_that_cannot_grow_and_a_quota_are_both_called_full(tmp_path: Path) -> None:
    grown = apsw.IOError("disk I/O error")
    grown.extendedresult = apsw.SQLITE_IOERR_SHMSIZE  # type: ignore[attr-defined]
    assert store_error(grown, tmp_path).code == "STORE_FULL"
    quota = OSError(errno.EDQUOT, "Disk quota exceeded")
    assert store_error(quota, tmp_path).code == "STORE_FULL"
    other = apsw.IOError("disk I/O error")
    other.extendedresult = apsw.SQLITE_IOERR_READ  # type: ignore[attr-defined]
    assert store_error(other, tmp_path).code == "STORE_UNAVAILABLE"
