"""Replays that are kept: which are, what makes one stale, and that nobody can slip a record in."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gate.tests.commit_toys import Toy, only
from holdtrue_gate import cache as caching
from holdtrue_gate.cache import ENTRY_LIMIT_BYTES, Cache
from holdtrue_gate.cli import gate
from holdtrue_gate.report import json as report

BUGGY = "def price(n):\n    return n * 10 + 1\n"
FIXED = "def price(n):\n    return n * 10\n"
TEST = "import shop\n\ndef test_it():\n    assert shop.price(1) == 10\n"


class Shop:
    """A toy with a fix, and a log of every time that pytest collects its tests."""

    def __init__(self, folder: Path, test: str = TEST, **settings: int) -> None:
        self.log = folder / "log"
        self.toy = Toy(folder / "shop", **settings)
        conftest = f"open({str(self.log)!r}, 'a').write('collected\\n')\n"
        self.toy.commit("base", {"shop.py": BUGGY, "conftest.py": conftest})
        self.toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": test})

    def check(self, **options: object) -> tuple[str, int]:
        """The JSON report of the newest commit, and how many pytest sessions it took."""
        self.log.write_text("")
        found = self.toy.check(**{"cache": True, **options})
        return report.render(found), len(self.log.read_text().splitlines())

    def runs(self, **options: object) -> int:
        return self.check(**options)[1]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_an_unchanged_replay_is_not_run_twice_and_its_report_is_the_same_bytes(shop: Shop) -> None:
    first, sessions = shop.check()
    assert sessions == 2
    assert shop.check() == (first, 0)
    assert '"own-assertion"' in first


def test_without_a_cache_everything_runs_and_nothing_is_kept(shop: Shop, own_cache: Path) -> None:
    assert shop.runs(cache=False) == 2
    assert list(own_cache.iterdir()) == []
    assert shop.runs(cache=False) == 2


def test_another_commit_with_the_same_trees_takes_the_same_records(shop: Shop) -> None:
    assert shop.runs() == 2
    shop.toy.git("commit", "--amend", "-q", "-m", "fix: the price, told better")
    assert shop.runs() == 0


def to_product(shop: Shop, _: pytest.MonkeyPatch) -> None:
    shop.toy.write({"shop.py": FIXED + "\n\ndef cost(n):\n    return n\n"})


def to_test(shop: Shop, _: pytest.MonkeyPatch) -> None:
    shop.toy.write({"test_shop.py": TEST.replace("(1) == 10", "(2) == 20")})


def to_data(shop: Shop, _: pytest.MonkeyPatch) -> None:
    shop.toy.write({"notes.md": "a file that a test may read\n"})


def to_variable(_: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_MODE", "strict")


def to_gate(_: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdtrue_gate.lab._gate_digest", lambda: "another release")


def to_installed(_: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdtrue_gate.environment._installed", lambda site: iter([["a package", 1]]))


CHANGES: dict[str, Callable[[Shop, pytest.MonkeyPatch], None]] = {
    "the product": to_product,
    "a test": to_test,
    "any other file": to_data,
    "an environment variable": to_variable,
    "the gate": to_gate,
    "an installed package": to_installed,
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_anything_that_a_replay_rests_on_runs_it_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert shop.runs() == 2
    CHANGES[what](shop, monkeypatch)
    shop.toy.git("add", "-A")
    shop.toy.git("commit", "--amend", "--allow-empty", "-q", "-m", "fix: price")
    assert shop.runs() == 2


@pytest.mark.parametrize("options", [{"runs": 2}, {"timeout_s": 7.0}, {"fork": False}])
def test_another_option_is_another_replay(shop: Shop, options: dict[str, object]) -> None:
    assert shop.runs() == 2
    assert shop.runs(**options) >= 2


def test_the_passing_of_a_shell_does_not_count(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.runs() == 2
    monkeypatch.setenv("SHLVL", "7")
    monkeypatch.setenv("GIT_DIR", "elsewhere")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    assert shop.runs() == 0


NOT_KEPT = {
    "flaky": "import os, pathlib\n\ndef test_it():\n    assert os.getpid() % 2 and pathlib.Path('x').touch()\n",
    "hang": "import shop, time\n\ndef test_it():\n    shop.price(1) == 10 or time.sleep(60)\n",
    "environment": "import shop\nimport no_such_library\n\ndef test_it():\n    pass\n",
    "head-red": "def test_it():\n    assert 0\n",
    "not-run": "import pytest\n\n@pytest.mark.skipif(True, reason='no tool')\ndef test_it():\n    pass\n",
}


@pytest.mark.parametrize("verdict", [name for name in NOT_KEPT if name != "flaky"])
def test_what_may_have_a_cause_outside_of_the_trees_is_never_kept(tmp_path: Path, verdict: str) -> None:
    shop = Shop(tmp_path, NOT_KEPT[verdict], timeout_s=2)
    first, sessions = shop.check()
    assert f'"{verdict}"' in first
    assert sessions >= 2
    assert shop.runs() == sessions


def test_a_flaky_test_is_never_kept(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    test = f"""
        import pathlib
        import shop

        FLAG = pathlib.Path({str(flag)!r})

        def test_it():
            if shop.price(1) != 10:
                FLAG.write_text(FLAG.read_text() + "x" if FLAG.exists() else "x")
                assert len(FLAG.read_text()) % 2
    """
    shop = Shop(tmp_path, test, runs=2)
    first, sessions = shop.check()
    assert '"flaky"' in first
    assert shop.runs() == sessions > 0


# --- the folder


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "holdtrue-gate" / "replays").glob("*.json"))


def test_the_folder_and_its_files_are_the_users_alone(shop: Shop, own_cache: Path) -> None:
    shop.check()
    paths = [own_cache / "holdtrue-gate", own_cache / "holdtrue-gate" / "replays", *entries(own_cache)]
    assert len(paths) == 4
    assert all(not stat.S_IMODE(path.stat().st_mode) & 0o077 for path in paths)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def altered(path: Path) -> None:
    entry = json.loads(path.read_text())
    assert "AssertionError" in entry["payload"] or "passed" in entry["payload"]
    entry["payload"] = entry["payload"].replace("AssertionError", "ValueError").replace("passed", "failed")
    path.write_text(json.dumps(entry))


def swapped(path: Path) -> None:
    entry = json.loads(path.read_text())
    entry["key"] = "0" * 64
    path.write_text(json.dumps(entry))


def pickled(path: Path) -> None:
    path.write_bytes(b"\x80\x04\x95" + b"cos\nsystem\n(S'exit 1'\ntR.")


def deep(path: Path) -> None:
    path.write_text("[" * 200_000)


def huge(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(ENTRY_LIMIT_BYTES + 1)


def linked(path: Path) -> None:
    target = path.with_suffix(".kept")
    path.rename(target)
    path.symlink_to(target)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("harm", [torn, altered, swapped, pickled, deep, huge, linked, a_folder, a_pipe])
def test_a_torn_or_forged_entry_is_ignored(shop: Shop, own_cache: Path, harm: Callable[[Path], None]) -> None:
    first, _ = shop.check()
    for path in entries(own_cache):
        harm(path)
    assert shop.check() == (first, 2)


def test_a_folder_that_others_may_write_into_is_not_used(shop: Shop, own_cache: Path) -> None:
    shop.check()
    (own_cache / "holdtrue-gate" / "replays").chmod(0o777)
    assert shop.runs() == 2


def test_a_folder_that_cannot_be_made_costs_time_and_nothing_else(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (shop.runs(), shop.runs()) == (2, 2)


def test_the_cache_keeps_its_size_and_what_was_of_use_last(tmp_path: Path) -> None:
    kept = Cache(tmp_path / "home", limit_bytes=5000)
    for number in range(4):
        assert kept.put(str(number), "x" * 1000)
        os.utime(kept._path(str(number)), (number, number))
    assert kept.get("0") == "x" * 1000
    assert kept.put("4", "x" * 1000)
    assert kept.info().bytes <= 5000
    assert [kept.get(str(number)) is not None for number in range(5)] == [True, False, True, True, True]
    assert not kept.put("5", "x" * 6000)


def test_gates_beside_each_other_share_it(tmp_path: Path) -> None:
    wrong = []

    def work(name: int) -> None:
        kept = Cache(tmp_path / "home", limit_bytes=20_000)
        for number in range(60):
            kept.put(str(number % 20), str(number % 20) * 700)
            found = kept.get(str((number + name) % 20))
            if found is not None and found != str((number + name) % 20) * 700:
                wrong.append(found[:20])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert Cache(tmp_path / "home").info().bytes <= 20_000
    assert not list((tmp_path / "home" / "replays").glob(".new-*"))


def test_the_command_says_what_is_kept_and_forgets_it(shop: Shop, own_cache: Path) -> None:
    shop.check()
    told = json.loads(CliRunner().invoke(gate, ["cache", "info", "--json"]).output)
    assert (told["entries"], told["folder"]) == (2, str(own_cache / "holdtrue-gate"))
    assert "2 replays" in CliRunner().invoke(gate, ["cache", "info"]).output
    assert CliRunner().invoke(gate, ["cache", "clear"]).output == "2 replays removed\n"
    assert shop.runs() == 2


def test_the_command_line_keeps_replays_unless_it_is_told_not_to(shop: Shop, own_cache: Path) -> None:
    arguments = ["check", "-C", str(shop.toy.root), "--python", sys.executable, "--json"]
    assert CliRunner().invoke(gate, [*arguments, "--no-cache"]).exit_code == 0
    assert entries(own_cache) == []
    assert CliRunner().invoke(gate, arguments).exit_code == 0
    assert len(entries(own_cache)) == 2


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert caching.home() == Path.home() / ".cache" / "holdtrue-gate"


def test_a_kept_record_is_judged_by_the_same_rules(shop: Shop) -> None:
    (first,) = shop.toy.check(cache=True).commits
    (again,) = shop.toy.check(cache=True).commits
    assert only(first) == only(again)
