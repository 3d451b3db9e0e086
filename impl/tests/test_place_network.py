"""The kind of file system under a path, and a store that lies on one that other machines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdtrue import Memory, filesystem
from holdtrue.errors import StoreOnNetwork

TABLE = rb"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 files:/home rw,vers=4.2
31 30 0:41 / /home/maya/local rw - xfs /dev/sdb rw
32 22 0:42 / /mnt/with\040blank rw,relatime - cifs //server/share rw
33 22 0:43 / /srv rw - ext4 /dev/sdc rw
34 33 0:44 / /srv rw - fuse.sshfs maya@host:/srv rw,user_id=0
35 22 0:45 / /shared rw - virtiofs share rw
36 22 0:46 / /sandbox rw - 9p none rw,trans=fd,rfdno=4,wfdno=4,aname=/
37 22 0:47 / /mnt/c rw - 9p C:\134 rw,aname=drvfs,trans=fd,rfd=8,wfd=8
a line that means nothing
38 22 0:48 / /short rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    table = tmp_path / "mountinfo"
    table.write_bytes(TABLE)
    monkeypatch.setattr(filesystem, "_MOUNTS", table)
    filesystem._kind.cache_clear()
    monkeypatch.setattr(filesystem.os.path, "realpath", lambda path: str(path))
    return table


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/", "ext4", False),
        ("/var/lib", "ext4", False),
        ("/home", "nfs4", True),
        ("/home/maya/notes", "nfs4", True),
        ("/home/maya/local/store", "xfs", False),
        ("/homestead", "ext4", False),
        ("/mnt/with blank/store", "cifs", True),
        ("/srv/store", "fuse.sshfs", True),
        ("/shared", "virtiofs", True),
        ("/sandbox/store", "own-disk", False),
        ("/mnt/c/store", "9p", True),
        ("/short", "ext4", False),
    ],
)
def test_a_path_is_of_the_kind_of_the_longest_mount_above_it(mounts: Path, path: str, kind: str, network: bool) -> None:
    assert filesystem.kind(Path(path)) == kind
    assert filesystem.is_network(kind) is network


def test_a_share_that_is_the_root_of_the_whole_machine_is_its_own_disk(mounts: Path) -> None:
    mounts.write_bytes(b"22 1 0:2 / / rw - virtiofs kataShared rw\n23 22 0:3 / /data rw - virtiofs other rw\n")
    assert filesystem.kind(Path("/var/store")) == "own-disk"
    assert filesystem.kind(Path("/data/store")) == "virtiofs"


@pytest.mark.parametrize("content", [None, b"", b"\0\xff\n", b"no table at all\n"])
def test_a_table_that_cannot_be_understood_is_unknown_and_refuses_nothing(mounts: Path, content: bytes | None) -> None:
    if content is None:
        mounts.unlink()
    else:
        mounts.write_bytes(content)
    assert filesystem.kind(Path("/home")) == "unknown"
    assert not filesystem.is_network("unknown")


def test_the_table_is_read_once_for_a_folder(mounts: Path) -> None:
    assert filesystem.kind(Path("/home")) == "nfs4"
    mounts.unlink()
    assert filesystem.kind(Path("/home")) == "nfs4"
    assert filesystem.kind(Path("/srv")) == "unknown"


def test_the_machine_that_runs_this_knows_its_own_temporary_folder(tmp_path: Path) -> None:
    filesystem._kind.cache_clear()
    assert not filesystem.is_network(filesystem.kind(tmp_path))


# -- a store there ---------------------------------------------------------------------------------------------------


def on(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(filesystem, "kind", lambda path: kind)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_a_store_on_a_network_is_refused_with_the_reason_before_anything_is_made(
    store: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    on(monkeypatch, kind)
    with Memory(store) as memory:
        for call in (
            memory.open,
            memory.list,
            lambda: memory.add("a text"),
            lambda: memory.search("a text"),
            lambda: memory.forget("01890000-0000-7000-8000-000000000000"),
            memory.verify,
        ):
            with pytest.raises(StoreOnNetwork) as refusal:
                call()
            assert kind in refusal.value.message
            assert "HOLDTRUE_ALLOW_NETWORK_STORE" in refusal.value.hint
            assert (refusal.value.code, refusal.value.exit_code) == ("STORE_ON_NETWORK", 3)
    assert not store.exists()


def test_a_store_that_was_made_before_is_refused_and_left_to_the_byte(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(store) as memory:
        memory.add("a text")
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    on(monkeypatch, "nfs")
    with Memory(store) as memory, pytest.raises(StoreOnNetwork):
        memory.list()
    assert {path.name: path.read_bytes() for path in store.iterdir()} == before


def test_who_allows_it_gets_his_store_and_a_status_that_says_degraded(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "nfs4")
    monkeypatch.setenv("HOLDTRUE_ALLOW_NETWORK_STORE", "true")
    with Memory(store) as memory:
        assert memory.add("the harbour is east").created
        assert memory.search("harbour")
        assert "nfs4" in " ".join(memory.status()["degraded"])


def test_a_local_disk_is_nothing_to_speak_of(memory: Memory) -> None:
    memory.add("the harbour is east")
    assert memory.status()["degraded"] == []
