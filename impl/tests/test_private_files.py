"""Files and folders under a hostile umask, and in a place where somebody has laid something already."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdtrue.files import RecordLock, make_private_folder, open_private_file, sync_folder


@pytest.fixture(params=[0o000, 0o022, 0o177, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_the_owner_has_exactly_the_owners_rights_whatever_the_umask_takes(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    os.close(open_private_file(tmp_path / "a" / "b" / "file"))
    RecordLock(tmp_path / "a" / "b" / "lock").close()
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)
    assert (mode(tmp_path / "a" / "b" / "file"), mode(tmp_path / "a" / "b" / "lock")) == (0o600, 0o600)


def test_a_lock_file_that_others_may_use_is_closed_to_them_and_keeps_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("kept")
    (tmp_path / "lock").chmod(0o666)
    RecordLock(tmp_path / "lock").close()
    assert mode(tmp_path / "lock") == 0o600
    assert (tmp_path / "lock").read_text() == "kept"


def test_a_private_file_is_new_or_not_made_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in ("file", "link"):
        with pytest.raises(FileExistsError):
            open_private_file(tmp_path / taken)
    assert (tmp_path / "file").read_text() == "kept"
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(FileNotFoundError):
        open_private_file(tmp_path / "none" / "file")


def test_a_descriptor_of_a_private_file_reads_writes_and_is_not_inherited(tmp_path: Path) -> None:
    descriptor = open_private_file(tmp_path / "file")
    try:
        assert os.write(descriptor, b"text") == 4
        assert os.pread(descriptor, 10, 0) == b"text"
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_a_folder_can_be_synced_and_what_is_none_is_told(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        sync_folder(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "none")
