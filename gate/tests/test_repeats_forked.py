"""The runs of a side as children of one pytest process: each with the state of after collecting, none with another's."""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from gate.tests.commit_toys import Toy, only, verdicts
from holdtrue_gate import replay
from holdtrue_gate.replay import ReplayJob, ReplayResult, Step

BUGGY = "def price(n):\n    return n * 10 + 1\n"
FIXED = "def price(n):\n    return n * 10\n"


@dataclass(frozen=True)
class Times:
    """Everything `runs` times together."""

    runs: int

    def next(self, done: list[ReplayResult]) -> Step | None:
        return Step(tuple(done[0].collected)) if len(done) < self.runs else None


def rounds(folder: Path, test: str, runs: int = 3, **settings: object) -> list[ReplayResult]:
    tree, scratch = folder / "tree", folder / "scratch"
    tree.mkdir()
    scratch.mkdir()
    (tree / "test_it.py").write_text(textwrap.dedent(test), encoding="utf-8")
    job = ReplayJob(
        tree=tree,
        repository=folder / "elsewhere",
        python=Path(sys.executable),
        scratch=scratch,
        files=("test_it.py",),
        prefixes=("test_it.py",),
        plugin_autoload=False,
        **settings,  # type: ignore[arg-type]
    )
    found = replay.rounds(job, Times(runs))
    assert list(scratch.iterdir()) == []
    return found


def outcomes(found: list[ReplayResult], id_: str = "test_it.py::test_it") -> list[str]:
    return [
        "failed"
        if result.record_of(id_).nodes[id_].failed
        else "passed"
        if result.record_of(id_).nodes[id_].finished
        else "died"
        for result in found
    ]


def messages(found: list[ReplayResult]) -> list[str]:
    failed = [result.record.nodes["test_it.py::test_it"].failed for result in found]
    return [phases[0].raised.message for phases in failed if phases and phases[0].raised]


FRESH = {
    "module state": """
        SEEN = []

        def test_it():
            SEEN.append(1)
            assert SEEN == [1]
    """,
    "the temporary folder": """
        import pathlib, tempfile

        def test_it():
            path = pathlib.Path(tempfile.gettempdir()) / "left"
            assert not path.exists()
            path.write_text("by an earlier run")
    """,
    "what collecting put into the temporary folder": """
        import pathlib, tempfile

        PATH = pathlib.Path(tempfile.gettempdir()) / "made"
        PATH.write_text("while collecting")

        def test_it():
            assert PATH.read_text() == "while collecting"
            PATH.unlink()
    """,
    "pytest's cache": """
        def test_it(pytestconfig):
            assert pytestconfig.cache.get("ours/run", None) is None
            pytestconfig.cache.set("ours/run", 1)
    """,
    "captured output": """
        import os

        def test_it(capfd):
            os.write(1, b"once")
            assert capfd.readouterr().out == "once"
    """,
    "fixtures of the session": """
        import pytest

        MADE = []

        @pytest.fixture(scope="session")
        def resource():
            MADE.append(1)
            yield len(MADE)
            MADE.clear()

        def test_it(resource):
            assert resource == 1
    """,
    "processes": """
        import os, pathlib, subprocess, sys, time

        def test_it():
            alive = []
            for entry in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if b"the-runs-own-sleeper" in (entry / "cmdline").read_bytes():
                        alive.append(entry.name)
                except OSError:
                    pass
            assert not alive
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(50)  # the-runs-own-sleeper"], start_new_session=True
            )
    """,
}


@pytest.mark.parametrize("what", FRESH)
def test_no_run_meets_what_another_left(tmp_path: Path, what: str) -> None:
    found = rounds(tmp_path, FRESH[what])
    assert outcomes(found) == ["passed"] * 3
    assert all(result.forked for result in found) == hasattr(os, "fork")


def test_random_numbers_differ_from_run_to_run_although_all_share_one_start(tmp_path: Path) -> None:
    found = rounds(tmp_path, "import random\n\ndef test_it():\n    assert 0, random.random()\n")
    assert all(result.forked for result in found)
    assert len(set(messages(found))) == 3


def test_a_seed_that_is_set_while_collecting_holds_in_every_run(tmp_path: Path) -> None:
    found = rounds(tmp_path, "import random\nrandom.seed(4)\n\ndef test_it():\n    assert 0, random.random()\n")
    assert len(set(messages(found))) == 1


UNSAFE = {
    "threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n",
    "a child process": "import subprocess\nCHILD = subprocess.Popen(['sleep', '30'])\n",
    "a socket": "import socket\nA, B = socket.socketpair()\n",
    "a file open for writing": "FILE = open('log.txt', 'w')\n",
    "the random state": "import random\nrandom.seed(4)\n",
}


@pytest.mark.parametrize("what", UNSAFE)
def test_what_children_would_share_or_lose_is_not_forked(tmp_path: Path, what: str) -> None:
    found = rounds(tmp_path, UNSAFE[what] + "\ndef test_it():\n    pass\n", runs=2)
    assert [result.forked for result in found] == [False, False]
    assert outcomes(found) == ["passed", "passed"]


def test_forking_can_be_forbidden(tmp_path: Path) -> None:
    assert not any(result.forked for result in rounds(tmp_path, "def test_it():\n    pass\n", fork=False))


def test_a_run_that_dies_or_hangs_leaves_the_runs_after_it_whole(tmp_path: Path) -> None:
    test = """
        import os, time

        def test_dies():
            os.kill(os.getpid(), 9)

        def test_hangs():
            time.sleep(60)

        def test_it():
            assert 0, "own words"
    """
    found = rounds(tmp_path, test, runs=2, node_limit_s=1.5)
    for result in found:
        assert result.forked
        died, hung = result.record_of("test_it.py::test_dies"), result.record_of("test_it.py::test_hangs")
        assert (died.returncode, died.open_node) == (-9, "test_it.py::test_dies")
        assert (hung.timed_out, hung.open_node) == (True, "test_it.py::test_hangs")
        assert outcomes([result]) == ["failed"]


def started(toy: Toy, log: Path, **options: object) -> int:
    """How often pytest collected the toy's tests in a check of its newest commit."""
    log.write_text("")
    assert toy.judged(**options).result == "pass"
    return len(log.read_text().splitlines())


def proved(root: Path, log: Path, runs: int = 3) -> Toy:
    toy = Toy(root, runs=runs)
    toy.commit("base", {"shop.py": BUGGY, "conftest.py": f"open({str(log)!r}, 'a').write('collected\\n')\n"})
    toy.commit(
        "fix: price",
        {"shop.py": FIXED, "test_shop.py": "import shop\n\ndef test_it():\n    assert shop.price(1) == 10\n"},
    )
    return toy


def test_each_side_collects_once_for_all_its_runs(tmp_path: Path) -> None:
    toy = proved(tmp_path / "shop", tmp_path / "log")
    assert started(toy, tmp_path / "log") == 2
    assert started(toy, tmp_path / "log", fork=False) == 6


def test_a_test_that_forking_disturbs_is_judged_by_processes(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "shop", runs=2)
    toy.commit("base", {"shop.py": BUGGY})
    test = """
        import os
        import shop

        HOME = os.getpid()

        def test_it():
            assert os.getpid() == HOME, "a connection belongs to the process that opened it"
            assert shop.price(1) == 10
    """
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": test})
    commit = toy.judged()
    assert (only(commit).verdict, commit.result) == ("own-assertion", "pass")
    assert "11 == 10" in only(commit).message


# --- the order of tests

STATE = """
    import shop

    STATE = []

    def test_first():
        STATE.append(1)
        assert shop.price(1) == 10

"""


def ordered(tmp_path: Path, second: str, *, fork: bool | None) -> dict[str, tuple[str, bool, bool]]:
    toy = Toy(tmp_path / "shop", runs=1)
    toy.commit("base", {"shop.py": BUGGY})
    test = textwrap.dedent(STATE) + textwrap.dedent(second)
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": test})
    commit = toy.judged(fork=fork)
    return {
        test.id.partition("::")[2]: (str(test.verdict), test.proof, "order-dependent" in test.reason)
        for test in commit.tests
    }


@pytest.mark.parametrize("fork", [None, False])
def test_a_proof_in_company_only_is_none_and_said_to_be_order_dependent(tmp_path: Path, fork: bool | None) -> None:
    found = ordered(tmp_path, "def test_second():\n    assert not STATE or shop.price(1) == 10\n", fork=fork)
    assert found == {"test_first": ("own-assertion", True, False), "test_second": ("flaky", False, True)}


def test_a_test_that_is_red_at_the_commit_only_after_another_is_order_dependent(tmp_path: Path) -> None:
    found = ordered(tmp_path, "def test_second():\n    assert not STATE\n", fork=None)
    assert found["test_second"] == ("flaky", False, True)
    assert found["test_first"] == ("own-assertion", True, False)


def test_a_test_that_is_green_at_the_commit_only_after_another_is_order_dependent(tmp_path: Path) -> None:
    found = ordered(tmp_path, "def test_second():\n    assert STATE and shop.price(1) == 10\n", fork=None)
    assert found["test_second"] == ("flaky", False, True)


def test_tests_that_do_not_care_for_company_are_not_called_order_dependent(tmp_path: Path) -> None:
    found = ordered(tmp_path, "def test_second():\n    assert shop.price(2) == 20\n", fork=None)
    assert set(found.values()) == {("own-assertion", True, False)}


def test_flickering_is_seen_through_forked_runs_too(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "shop", runs=6)
    toy.commit("base", {"shop.py": BUGGY})
    test = "import random\nimport shop\n\ndef test_it():\n    assert shop.price(1) == 10 or random.random() < 0.5\n"
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": test})
    assert verdicts(toy.judged()) == {"test_it": "flaky"}
