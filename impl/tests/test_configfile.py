"""The config file: whole at every moment, private, kept as it stands, and never waited for without end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import platformdirs
import pytest

from holdtrue import configfile, failpoints, files
from holdtrue.configfile import ConfigFile
from holdtrue.errors import ConfigBusy, ConfigError, ConfigInvalid, InvalidInput


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "config.json"


@pytest.fixture
def file(path: Path) -> ConfigFile:
    return ConfigFile(path)


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def temporaries(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir() if each.name.endswith(".tmp")]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock from another process."""
    program = "import sys; from pathlib import Path; from holdtrue.files import RecordLock\n"
    program += "lock = RecordLock(Path(sys.argv[1])); lock.acquire(); print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(files.lock_path(path))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.kill()
        holder.communicate(timeout=10)


# -- what it holds -----------------------------------------------------------------------------------------------------


def test_without_a_file_it_is_empty_and_reading_makes_none(file: ConfigFile, path: Path) -> None:
    assert file.read() == {}
    assert file.unset("tier") is False
    assert not path.parent.exists()


def test_a_key_that_is_set_is_there_for_everyone_and_one_taken_out_is_gone(file: ConfigFile, path: Path) -> None:
    for name, value in (("tier", "base"), ("n", 1.5), ("list", [1, {"a": None}]), ("text", 'ümlaut "\n\u2028 \udcff')):
        file.set(name, value)
        assert ConfigFile(path).read()[name] == value
        assert json.loads(path.read_text(encoding="utf-8"))[name] == value
    assert file.unset("n") is True
    assert file.unset("n") is False
    assert list(file.read()) == ["tier", "list", "text"]


def test_file_and_folder_are_private_whatever_the_umask(file: ConfigFile, path: Path) -> None:
    for umask in (0, 0o777):
        before = os.umask(umask)
        try:
            file.set("umask", umask)
        finally:
            os.umask(before)
        assert (mode(path.parent), mode(path), mode(files.lock_path(path))) == (0o700, 0o600, 0o600)


def test_what_it_does_not_know_stays_byte_for_byte(file: ConfigFile, path: Path) -> None:
    odd = '"big": 1%s,\n\t"float":1.50e+1, "nested" : {"b":1,\n   "a" : [ 1,2 ]}, "\\u00fc": "\\ud800"' % ("0" * 5_000)
    write(path, "{ " + odd + ', "tier":"default","huge":1e999 }')
    file.set("tier", "base")
    file.set("added", True)
    written = path.read_text(encoding="utf-8")
    for kept in ("1" + "0" * 5_000, "1.50e+1", '{"b":1,\n   "a" : [ 1,2 ]}', '"\\u00fc"', '"\\ud800"', "1e999"):
        assert kept in written
    assert list(file.read()) == ["big", "float", "nested", "ü", "tier", "huge", "added"]
    assert file.read()["tier"] == "base"


def test_a_key_that_stands_there_twice_is_set_once_and_others_stay_twice(file: ConfigFile, path: Path) -> None:
    write(path, '{"a": 1, "x": 1, "a": 2, "x": 2}')
    assert file.read() == {"a": 2, "x": 2}
    file.set("a", 3)
    assert file.read() == {"a": 3, "x": 2}
    assert path.read_text().count('"x"') == 2
    assert path.read_text().count('"a"') == 1
    file.unset("x")
    assert path.read_text() == '{\n  "a": 3\n}\n'
    file.unset("a")
    assert path.read_text() == "{}\n"


def test_a_byte_order_mark_is_no_damage(file: ConfigFile, path: Path) -> None:
    write(path, b'\xef\xbb\xbf{"a": 1}')
    file.set("b", 2)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1, "b": 2}


# -- what it refuses ---------------------------------------------------------------------------------------------------

MALFORMED = [
    (b"", "Line 1"),
    (b" \n\n", "Line 3"),
    (b"[]", "holds a list; an object in braces is expected"),
    (b"7", "holds a number; an object in braces is expected"),
    (b" true\n", "holds true or false; an object in braces is expected"),
    (b"null", "holds null; an object in braces is expected"),
    (b'"text"', "holds a string; an object in braces is expected"),
    (b"{", "Line 1"),
    (b'{"a": 1', "Line 1"),
    (b'{"a": 1,\n"b"', "Line 2"),
    (b'{"a": 1,\n\n}', "Line 3"),
    (b'{"a": 1\n"b": 2}', "Line 2"),
    (b"{'a': 1}", "Line 1"),
    (b'{"a": 1} {"b": 2}', "Line 1"),
    (b'{"a": 1}\n// mine', "Line 2"),
    (b'{"a": NaN}', "NaN is no value"),
    (b'{\n"a": [-Infinity]}', "-Infinity is no value"),
    (b'{"a": 01}', "Line 1"),
    (b'{"a": "\n"}', "Line 1"),
    (b"{1: 2}", "Line 1"),
    (b'{"a":\n"\xff"}', "Line 2"),
    (b"\xff\xfe{\x00}\x00", "Line 1"),
    (b"\x00" * 100, "Line 1"),
    (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
    (b'{"a": "' + b"x" * 1_100_000 + b'"}', "larger than 1,048,576 bytes"),
]


@pytest.mark.parametrize(("data", "told"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_file_is_told_with_its_line_and_never_overwritten(
    file: ConfigFile, path: Path, data: bytes, told: str
) -> None:
    write(path, data)
    for attempt in (file.read, lambda: file.set("a", 1), lambda: file.unset("a")):
        with pytest.raises(ConfigInvalid, match=told) as refusal:
            attempt()
        assert (refusal.value.code, refusal.value.exit_code) == ("CONFIG_INVALID", 1)
        assert len(str(refusal.value)) < 400 + len(str(path))
        assert "Correct it" in refusal.value.hint
    assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


def test_a_file_of_a_hundred_megabytes_is_refused_without_being_read(file: ConfigFile, path: Path) -> None:
    write(path, "{")
    os.truncate(path, 100_000_000)
    began = time.monotonic()
    with pytest.raises(ConfigInvalid, match="larger"):
        file.read()
    assert time.monotonic() - began < 1.0


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.parent.parent / "pipe")
    path.symlink_to(path.parent.parent / "pipe")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, make_loop, make_link_to_a_pipe], ids=range(4))
def test_what_is_no_file_is_told_at_once_and_left_as_it_is(
    file: ConfigFile, path: Path, make: Callable[[Path], None]
) -> None:
    path.parent.mkdir()
    make(path)
    began = time.monotonic()
    for attempt in (file.read, lambda: file.set("a", 1), lambda: file.unset("a")):
        with pytest.raises(ConfigError) as refusal:
            attempt()
        assert refusal.value.code == "CONFIG_UNUSABLE"
    assert time.monotonic() - began < 1.0
    assert list(path.parent.iterdir()) == [path]


def test_a_file_in_the_way_of_the_folder_and_a_folder_that_cannot_be_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for odd in (
        tmp_path / "file" / "config.json",
        tmp_path / ("n" * 300) / "config.json",
        Path("/proc/no/config.json"),
    ):
        with pytest.raises(ConfigError) as refusal:
            ConfigFile(odd).set("a", 1)
        assert refusal.value.code == "CONFIG_UNUSABLE"
        assert "--store" not in str(refusal.value)
    assert (tmp_path / "file").read_text() == "mine"


def test_no_file_can_be_named_by_the_null_device_which_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ConfigFile(Path(os.devnull)).read() == {}
    os.mkfifo(tmp_path / "null")  # root could replace the real one
    monkeypatch.setattr(os, "devnull", str(tmp_path / "null"))
    (tmp_path / "link").symlink_to(tmp_path / "null")
    for name in ("null", "link"):
        nothing = ConfigFile(tmp_path / name)
        assert nothing.read() == {}
        with pytest.raises(ConfigError, match="not a file"):
            nothing.set("a", 1)
    assert sorted((each.name, each.is_fifo()) for each in tmp_path.iterdir()) == [("link", True), ("null", True)]


def test_it_does_not_grow_beyond_what_it_would_read_again(file: ConfigFile, path: Path) -> None:
    file.set("a", 1)
    with pytest.raises(InvalidInput, match="1,048,576 bytes"):
        file.set("b", "x" * 1_100_000)
    assert file.read() == {"a": 1}
    assert temporaries(path.parent) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_what_is_no_json_is_refused_before_anything_is_touched(file: ConfigFile, path: Path, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        file.set("a", value)
    assert not path.parent.exists()


# -- where it lies -----------------------------------------------------------------------------------------------------


def test_it_lies_where_the_variable_says_else_in_the_platforms_config_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ConfigFile.of({"HOLDTRUE_CONFIG": " ~/mine.json "}).path == tmp_path / "mine.json"
    assert ConfigFile.of({"HOLDTRUE_CONFIG": "near.json"}).path == tmp_path / "near.json"
    for folder in ("", str(tmp_path / "xdg"), "relative", " "):
        monkeypatch.setenv("XDG_CONFIG_HOME", folder)
        wanted = Path(platformdirs.user_config_dir("holdtrue", appauthor=False), "config.json")
        assert ConfigFile.of({}).path == wanted
        assert ConfigFile.of({"HOLDTRUE_CONFIG": " "}).path == wanted


def test_a_user_without_a_home_is_told_and_no_folder_called_tilde_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unknown = ConfigFile.of({"HOLDTRUE_CONFIG": "~nobody-of-that-name/config.json"})
    write(tmp_path / "~nobody-of-that-name" / "config.json", '{"home": "/of/whoever/made/this/folder"}')
    assert unknown.read() == {}
    shutil.rmtree(tmp_path / "~nobody-of-that-name")
    with pytest.raises(ConfigError, match="home folder"):
        unknown.set("a", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("relative", [True, False])
def test_a_link_stays_and_its_target_changes(tmp_path: Path, path: Path, file: ConfigFile, relative: bool) -> None:
    target = tmp_path / "dotfiles" / "holdtrue.json"
    write(target, '{"a": 1}')
    path.parent.mkdir()
    path.symlink_to(Path("..", "dotfiles", "holdtrue.json") if relative else target)
    file.set("b", 2)
    assert path.is_symlink()
    assert json.loads(target.read_text()) == {"a": 1, "b": 2}
    assert list(path.parent.iterdir()) == [path]
    with locked(target), pytest.MonkeyPatch.context() as patch:
        patch.setattr(configfile, "LOCK_WAIT_S", 0.1)
        with pytest.raises(ConfigBusy):  # whoever comes by the link and whoever comes by the file take turns
            file.set("c", 3)


def test_a_link_to_nothing_gets_its_target(tmp_path: Path, path: Path, file: ConfigFile) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "dotfiles" / "holdtrue.json")
    assert file.read() == {}
    file.set("a", 1)
    assert path.is_symlink()
    assert json.loads((tmp_path / "dotfiles" / "holdtrue.json").read_text()) == {"a": 1}


def test_a_link_turned_elsewhere_during_the_wait_is_followed_to_where_it_leads_then(
    tmp_path: Path, path: Path, file: ConfigFile
) -> None:
    write(tmp_path / "one.json", '{"one": 1}')
    write(tmp_path / "two.json", '{"two": 2}')
    path.parent.mkdir()
    path.symlink_to(tmp_path / "one.json")
    with locked(tmp_path / "one.json"):
        thread = threading.Thread(target=file.set, args=("new", 3))
        thread.start()
        time.sleep(0.1)
        (path.parent / "next").symlink_to(tmp_path / "two.json")
        (path.parent / "next").replace(path)
    thread.join(10)
    assert json.loads((tmp_path / "one.json").read_text()) == {"one": 1}
    assert json.loads((tmp_path / "two.json").read_text()) == {"two": 2, "new": 3}


def test_a_file_of_another_user_stays_theirs_when_root_writes_it(file: ConfigFile, path: Path) -> None:
    if os.geteuid() != 0:
        return  # only root can give a file away, and only root could take it from its owner
    write(path, "{}")
    os.chown(path, 1234, 1235)
    file.set("a", 1)
    assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (1234, 1235, 0o600)


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_wait_for_the_lock_ends_says_how_long_it_was_and_changes_nothing(
    file: ConfigFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.set("a", 1)
    monkeypatch.setattr(configfile, "LOCK_WAIT_S", 0.2)
    with locked(path):
        began = time.monotonic()
        with pytest.raises(ConfigBusy, match=r"0\.2 s") as refusal:
            file.set("b", 2)
        assert 0.15 < time.monotonic() - began < 3.0
        assert refusal.value.as_dict()["code"] == "CONFIG_BUSY"
        assert file.read() == {"a": 1}  # a reader waits for nobody
    file.set("b", 2)
    assert file.read() == {"a": 1, "b": 2}


def test_threads_of_one_process_lose_nothing_of_each_other(path: Path) -> None:
    def change(number: int) -> None:
        for step in range(10):
            ConfigFile(path).set(f"x{number}-{step}", step)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ConfigFile(path).read()) == 60


def test_a_thread_that_waits_gives_up_too(file: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configfile, "LOCK_WAIT_S", 0.1)
    with configfile._threads, pytest.raises(ConfigBusy):
        file.set("a", 1)
    file.set("a", 1)


def test_a_child_forked_in_the_middle_of_a_change_can_change_the_file_itself(
    run_python: Callable[..., CompletedProcess[str]], path: Path
) -> None:
    program = """
import os, sys, threading, time
from pathlib import Path
from holdtrue import configfile
file = configfile.ConfigFile(Path(sys.argv[1]))
configfile._threads.acquire()
child = os.fork()
if child == 0:
    file.set("child", 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
configfile._threads.release()
file.set("parent", 2)
print(sorted(file.read()))
"""
    assert run_python(program, path).stdout.splitlines() == ["0", "['child', 'parent']"]


# -- interruptions -----------------------------------------------------------------------------------------------------

CHANGE = """
import sys
from pathlib import Path
from holdtrue.configfile import ConfigFile
ConfigFile(Path(sys.argv[1])).set("b", 2)
"""
POINTS = ["config.locked", "config.read", "files.temporary_made", "files.before_replace", "files.replaced"]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_leaves_the_old_file_or_the_new_and_the_next_writer_cleans_up(
    run_python: Callable[..., CompletedProcess[str]], file: ConfigFile, path: Path, point: str
) -> None:
    file.set("a", 1)
    assert run_python(CHANGE, path, HOLDTRUE_FAILPOINTS=f"{point}=kill").returncode == -9
    assert json.loads(path.read_text()) == ({"a": 1, "b": 2} if point == "files.replaced" else {"a": 1})
    assert len(temporaries(path.parent)) == (point in ("files.temporary_made", "files.before_replace"))
    (path.parent / ".config.json.notes.tmp").write_text("not ours")
    file.set("c", 3)
    assert temporaries(path.parent) == [".config.json.notes.tmp"]
    assert file.read()["c"] == 3


@pytest.mark.parametrize("point", ["files.temporary_made", "files.before_replace"])
@pytest.mark.parametrize("number", ["ENOSPC", "EIO", "EDQUOT"])
def test_a_disk_that_fails_is_told_and_leaves_the_old_file_and_no_other(
    file: ConfigFile, path: Path, monkeypatch: pytest.MonkeyPatch, point: str, number: str
) -> None:
    file.set("a", 1)

    def hit(name: str) -> None:
        if name == point:
            code = getattr(errno, number)
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(failpoints, "hit", hit)
    with pytest.raises(ConfigError) as refusal:
        file.set("b", 2)
    assert os.strerror(getattr(errno, number)) in refusal.value.message
    assert file.read() == {"a": 1}
    assert sorted(each.name for each in path.parent.iterdir()) == [".config.json.lock", "config.json"]


def test_a_folder_that_cannot_be_synced_is_no_success_and_says_what_may_be(
    file: ConfigFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "sync_folder", broken)
    with pytest.raises(ConfigError, match="Input/output error; the file may be the old one or the new one"):
        file.set("a", 1)
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_folder_with_a_leftovers_name_and_a_link_in_the_place_of_the_lock_harm_nothing(
    file: ConfigFile, path: Path, tmp_path: Path
) -> None:
    file.set("a", 1)
    (path.parent / f".config.json.1-{'0' * 16}.tmp").mkdir()
    file.set("b", 2)
    assert file.read() == {"a": 1, "b": 2}
    lock = files.lock_path(path)
    lock.unlink()
    (tmp_path / "precious").write_text("kept")
    lock.symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigError):
        file.set("c", 3)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_long_name_has_side_files_that_a_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 120 + ".json")
    ConfigFile(path).set("a", 1)
    assert json.loads(path.read_text()) == {"a": 1}
