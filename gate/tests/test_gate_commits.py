"""What the gate says of whole commits: toy repositories, real git and real pytest processes."""

from __future__ import annotations

import py_compile
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gate.tests.commit_toys import Toy, only, verdicts

Make = Callable[..., Toy]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(**settings: float) -> Toy:
        return Toy(tmp_path / "repo", **settings)  # type: ignore[arg-type]

    return build


SHOP = "def price(n):\n    return n * 10 + 1\n"
SHOP_FIXED = "def price(n):\n    return n * 10\n"


def test_a_test_that_only_imports_what_the_fix_adds_proves_nothing(make: Make) -> None:
    toy = make()
    toy.commit("base", {"shop.py": SHOP})
    toy.commit(
        "fix: price is one too high",
        {
            "shop.py": SHOP_FIXED + "def price_of_many(ns):\n    return 0\n",
            "test_shop.py": "from shop import price_of_many\n\ndef test_it_exists():\n    assert callable(price_of_many)\n",
        },
    )
    commit = toy.judged()
    assert (commit.kind, commit.result) == ("fix", "fail")
    assert (only(commit).verdict, only(commit).symbol, only(commit).proof) == (
        "missing-api",
        "shop.price_of_many",
        False,
    )


def test_each_test_of_a_file_is_judged_by_itself(make: Make) -> None:
    toy = make(runs=2)
    toy.commit("base", {"shop.py": SHOP})
    toy.commit(
        "fix: price is one too high",
        {
            "shop.py": "def price(n):\n    return times(n)\n\ndef times(n):\n    return n * 10\n",
            "test_shop.py": """
                from shop import price

                def test_price():
                    assert price(2) == 20

                def test_helper():
                    from shop import times
                    assert times(0) == 0
            """,
        },
    )
    commit = toy.judged()
    assert verdicts(commit) == {"test_price": "own-assertion", "test_helper": "missing-api"}
    assert commit.result == "pass"
    proof = commit.tests[0]
    assert (proof.location, proof.exception, len(proof.head), len(proof.parent)) == (
        "test_shop.py:4",
        "AssertionError",
        2,
        2,
    )


def test_phrases_in_the_output_of_a_test_decide_nothing(make: Make) -> None:
    toy = make()
    toy.commit("base", {"words.py": "def explain(e):\n    return 'cannot import'\n"})
    toy.commit(
        "fix: explain says what happened",
        {
            "words.py": "def explain(e):\n    return str(e)\n",
            "test_words.py": """
                import sys
                import words

                def test_message():
                    print("E   ModuleNotFoundError / 1 passed / ERROR collecting / no tests ran")
                    print("INTERNALERROR> Segmentation fault", file=sys.stderr)
                    assert words.explain(ImportError("No module named 'pytest'")) == "No module named 'pytest'"
            """,
        },
    )
    assert only(toy.judged()).verdict == "own-assertion"


def test_conftest_helper_and_data_of_the_fix_are_laid_over_the_parent(make: Make) -> None:
    toy = make()
    toy.commit("base", {"split.py": "def parse(s):\n    return s.split(',')\n", "tests/old.txt": "gone at the fix"})
    toy.commit(
        "fix: parse strips blanks",
        {
            "split.py": "def parse(s):\n    return [p.strip() for p in s.split(',')]\n",
            "tests/old.txt": None,
            "tests/conftest.py": """
                import pathlib
                import pytest

                @pytest.fixture
                def golden():
                    here = pathlib.Path(__file__).parent
                    assert not (here / "old.txt").exists()
                    return (here / "data" / "golden ü.txt").read_text().split()
            """,
            "tests/split_helper.py": "RAW = 'a, b'\n\ndef test_like_name():\n    assert False\n",
            "tests/data/golden ü.txt": "a b",
            "tests/test_split.py": """
                import split
                from split_helper import RAW

                def test_golden(golden):
                    assert split.parse(RAW) == golden
            """,
        },
    )
    commit = toy.judged()
    assert only(commit).verdict == "own-assertion"
    assert commit.result == "pass"


def test_a_conftest_that_needs_the_fix_is_no_red_of_the_test(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "A = 1\n"})
    toy.commit(
        "fix: A is two",
        {
            "m.py": "A = 2\nB = 3\n",
            "tests/conftest.py": "from m import B\n",
            "tests/test_a.py": "import m\n\ndef test_a():\n    assert m.A == 2\n",
        },
    )
    commit = toy.judged()
    assert (only(commit).verdict, only(commit).location) == ("missing-api", "tests/conftest.py:1")
    assert commit.result == "fail"


REDS = {
    "vacuous": ("def go():\n    return 1\n", "assert True"),
    "own-assertion": ("def go():\n    return 1\n", "assert m.go() == 2"),
    "undeclared-exception": ("def go():\n    raise ValueError('no')\n", "assert m.go() == 2"),
    "product-assertion": ("def go():\n    assert False, 'broken'\n", "assert m.go() == 2"),
    "suspect": ("def go():\n    return 1\n", "assert hasattr(m, 'fresh')"),
    "missing-api": ("def go():\n    return 1\n", "assert m.go(limit=3) == 2"),
}


def test_each_way_to_be_red_has_its_own_name(make: Make) -> None:
    toy = make()
    toy.commit(
        "base", {f"pkg/{name.replace('-', '_')}.py": old for name, (old, _) in REDS.items()} | {"pkg/__init__.py": ""}
    )
    fixed = "fresh = 1\n\ndef go(limit=0):\n    return 2\n"
    tests = "\n\n".join(
        f"def test_{name.replace('-', '_')}():\n    from pkg import {name.replace('-', '_')} as m\n    {line}"
        for name, (_, line) in REDS.items()
    )
    extra = """

        @pytest.fixture
        def ready():
            from pkg import undeclared_exception as m
            return m.go()

        def test_fixture(ready):
            assert ready == 2

        @pytest.mark.skip(reason="later")
        def test_skipped():
            assert False

        @pytest.mark.xfail(reason="known")
        def test_expected_to_fail():
            assert False

        def test_masked():
            try:
                from pkg.vacuous import fresh
            except ImportError:
                pytest.fail("fresh is missing")

        def test_reads_source():
            import pathlib
            assert "fresh" in (pathlib.Path(__file__).parent.parent / "pkg" / "vacuous.py").read_text()

        class TestCases(unittest.TestCase):
            def test_unit(self):
                from pkg.own_assertion import go
                self.assertEqual(go(), 2)

            def test_subtests(self):
                from pkg.own_assertion import go
                for n in range(2):
                    with self.subTest(n=n):
                        self.assertEqual(go(), 2)

        class TestSetUp(unittest.TestCase):
            def setUp(self):
                from pkg.own_assertion import go
                self.assertEqual(go(), 2)

            def test_behind_setup(self):
                pass
    """
    toy.commit(
        "fix: go goes",
        {f"pkg/{name.replace('-', '_')}.py": fixed for name in REDS}
        | {"tests/test_all.py": "import unittest\n\nimport pytest\n\n" + tests + textwrap.dedent(extra)},
    )
    commit = toy.judged()
    found = verdicts(commit)
    assert {name: found.pop(f"test_{name.replace('-', '_')}") for name in REDS} == {name: name for name in REDS}
    assert found == {
        "test_fixture": "fixture-error",
        "test_skipped": "not-run",
        "test_expected_to_fail": "not-run",
        "test_masked": "missing-api",
        "test_reads_source": "suspect",
        "TestCases::test_unit": "own-assertion",
        "TestCases::test_subtests": "own-assertion",
        "TestSetUp::test_behind_setup": "fixture-error",
    }
    assert commit.result == "fail"


def test_other_processes_threads_groups_and_handlers_do_not_hide_where_it_failed(make: Make) -> None:
    toy = make()
    old = "def work(n):\n    assert n == 2\n    return n\n\ndef twice(n):\n    return n\n"
    toy.commit("base", {"pkg/__init__.py": "", "pkg/w.py": old})
    toy.commit(
        "fix: work",
        {
            "pkg/w.py": "fresh = 1\n\ndef work(n):\n    return n\n\ndef twice(n):\n    return n * 2\n",
            "tests/test_w.py": """
                import asyncio, concurrent.futures, multiprocessing, traceback, unittest.mock

                import pytest
                from pkg import w

                FORK = multiprocessing.get_context("fork")

                def check(n):
                    assert w.twice(n) == n * 2

                def gather(*functions):
                    async def call(function):
                        function()

                    async def main():
                        async with asyncio.TaskGroup() as group:
                            for function in functions:
                                group.create_task(call(function))
                    asyncio.run(main())

                def test_pool_in_product():
                    with FORK.Pool(1) as pool:
                        assert pool.map(w.work, [1]) == [1]

                def test_pool_in_test():
                    with FORK.Pool(1) as pool:
                        pool.map(check, [1])

                def test_futures_in_product():
                    with concurrent.futures.ProcessPoolExecutor(1, FORK) as pool:
                        assert pool.submit(w.work, 1).result() == 1

                def test_group():
                    gather(lambda: check(1), lambda: check(2))

                def test_mixed_group():
                    gather(lambda: check(1), lambda: w.fresh)

                def test_mock_patch():
                    with unittest.mock.patch("pkg.w.fresh", 3):
                        assert w.fresh == 3

                def test_monkeypatch(monkeypatch):
                    monkeypatch.setattr(w, "fresh", 3)

                def test_raised_from_none():
                    try:
                        from pkg.w import fresh
                    except ImportError:
                        raise AssertionError("no") from None

                def test_teardown(request):
                    request.addfinalizer(lambda: check(1))

                def test_formatted_traceback():
                    try:
                        w.work("x") + 1
                    except Exception:
                        traceback.format_exc()
                    check(1)

                def test_raises():
                    with pytest.raises(ValueError):
                        if w.twice(1) == 2:
                            raise ValueError

                def test_pytest_exit():
                    if w.twice(1) == 1:
                        pytest.exit("stop", returncode=0)
            """,
        },
    )
    assert toy.verdicts() == {
        "test_pool_in_product": "product-assertion",
        "test_pool_in_test": "own-assertion",
        "test_futures_in_product": "product-assertion",
        "test_group": "own-assertion",
        "test_mixed_group": "missing-api",
        "test_mock_patch": "missing-api",
        "test_monkeypatch": "missing-api",
        "test_raised_from_none": "missing-api",
        "test_teardown": "own-assertion",
        "test_formatted_traceback": "own-assertion",
        "test_raises": "own-assertion",
        "test_pytest_exit": "crash",
    }


def test_a_conftest_fixture_counts_for_old_tests_and_a_moved_file_is_not_new(make: Make) -> None:
    toy = make()
    conftest = """
        import pytest

        @pytest.fixture
        def ground():
            return {}

        @pytest.fixture
        def tower(ground):
            return ground
    """
    old = "import m\n\ndef test_t(tower):\n    assert m.twice(tower) == tower * 2\n\ndef test_u():\n    pass\n"
    toy.commit(
        "base",
        {
            "m.py": "def twice(n):\n    return n + 1\n",
            "tests/conftest.py": conftest.format(1),
            "tests/test_old.py": old,
            "tests/test_moved.py": "def test_m():\n    assert 1\n",
            "tests/odd name\nü.txt": "x",
        },
    )
    (toy.root / "outside").symlink_to("/etc")
    toy.commit("link", {})
    toy.commit(
        "fix: twice",
        {
            "m.py": "def twice(n):\n    return n * 2\n",
            "tests/conftest.py": conftest.format(3),
            "tests/test_moved.py": None,
            "tests/deep/test_moved.py": "def test_m():\n    assert 1\n",
        },
    )
    commit = toy.judged()
    told = [(test.id, str(test.verdict), test.changed) for test in commit.tests]
    assert told == [("tests/test_old.py::test_t", "own-assertion", True)]
    assert commit.result == "pass"


def test_further_parameters_of_a_proof_may_pass_on_both_sides(make: Make) -> None:
    toy = make()
    toy.commit("base", {"shop.py": "def price(n):\n    return n * 10 if n else 1\n"})
    toy.commit(
        "fix: nothing costs nothing",
        {
            "shop.py": SHOP_FIXED,
            "test_shop.py": """
                import pytest
                import shop

                @pytest.mark.parametrize("n", [0, 1])
                def test_price(n):
                    assert shop.price(n) == n * 10
            """,
        },
    )
    commit = toy.judged()
    assert verdicts(commit) == {"test_price[0]": "own-assertion", "test_price[1]": "vacuous"}
    assert (commit.result, commit.blocking) == ("pass", ())


def test_a_process_that_ends_itself_is_a_crash_of_one_test_and_the_rest_is_still_judged(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "import os\n\ndef stop():\n    os._exit(0)\n\ndef value():\n    return 1\n"})
    toy.commit(
        "fix: stop returns",
        {
            "m.py": "def stop():\n    return 3\n\ndef value():\n    return 2\n",
            "test_m.py": """
                import m

                def test_before():
                    assert m.value() in (1, 2)

                def test_stop():
                    assert m.stop() == 3

                def test_value():
                    assert m.value() == 2
            """,
        },
    )
    assert toy.verdicts() == {"test_before": "vacuous", "test_stop": "crash", "test_value": "own-assertion"}


def test_a_file_that_ends_the_process_at_import_does_not_silence_the_others(make: Make) -> None:
    toy = make()
    toy.commit("base", {"a.py": "import os\nos._exit(0)\n", "b.py": "B = 1\n", "one/x.py": "", "two/x.py": ""})
    toy.commit(
        "fix: a and b",
        {
            "a.py": "A = 2\n",
            "b.py": "B = 2\n",
            "one/test_a.py": "import a\n\ndef test_a():\n    assert a.A == 2\n",
            "two/test_b.py": "import b\n\ndef test_b():\n    assert b.B == 2\n",
        },
    )
    commit = toy.judged()
    assert verdicts(commit) == {"test_a": "environment", "test_b": "own-assertion"}
    assert commit.result == "cannot-judge"


def test_exit_status_zero_does_not_hide_a_failure(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "V = 1\n"})
    toy.commit(
        "fix: V",
        {
            "m.py": "V = 2\n",
            "test_v.py": "import atexit, os, m\natexit.register(os._exit, 0)\n\ndef test_v():\n    assert m.V == 2\n",
        },
    )
    assert toy.verdicts() == {"test_v": "own-assertion"}


def test_a_test_that_flickers_at_the_parent_is_flaky(make: Make, tmp_path: Path) -> None:
    toy = make(runs=2)
    toy.commit("base", {"m.py": "GOOD = False\n"})
    counter = tmp_path / "counter"
    toy.commit(
        "fix: good",
        {
            "m.py": "GOOD = True\n",
            "test_m.py": f"""
                import os
                import m

                def test_sometimes():
                    if m.GOOD:
                        return
                    fd = os.open({str(counter)!r}, os.O_CREAT | os.O_APPEND | os.O_RDWR)
                    os.write(fd, b"x")
                    assert os.fstat(fd).st_size % 2
            """,
        },
    )
    judged = only(toy.judged())
    assert (judged.verdict, judged.side, judged.proof) == ("flaky", "parent", False)


def test_a_race_is_proof_when_its_declared_rate_is_reached(make: Make, tmp_path: Path) -> None:
    toy = make(runs=1)
    toy.commit("base", {"m.py": "GOOD = False\n"})
    counter = tmp_path / "counter"
    toy.commit(
        "Close the window\n\nFinding: F-0001",
        {
            "m.py": "GOOD = True\n",
            "regressions/F-0001-window/finding.toml": 'id = "F-0001"\ndetects = "1/2"\n',
            "regressions/F-0001-window/test_window.py": f"""
                import os
                import m

                def test_window():
                    if m.GOOD:
                        return
                    fd = os.open({str(counter)!r}, os.O_CREAT | os.O_APPEND | os.O_RDWR)
                    os.write(fd, b"x")
                    assert os.fstat(fd).st_size % 2
            """,
        },
    )
    commit = toy.judged()
    assert (commit.kind, commit.result) == ("fix", "pass")
    assert (only(commit).verdict, len(only(commit).parent)) == ("own-probabilistic", 2)


def test_a_finding_may_declare_the_exception_at_the_parent(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "def go():\n    raise KeyError('k')\n"})
    toy.commit(
        "Go\n\nBecause it must.\n\nFinding: F-0002\nReviewed-by: R",
        {
            "m.py": "def go():\n    return 1\n",
            "regressions/F-0002-go/finding.toml": 'id = "F-0002"\nexpected_at_parent = "KeyError"\n',
            "regressions/F-0002-go/test_go.py": "import m\n\ndef test_go():\n    m.go()\n",
        },
    )
    assert (only(toy.judged()).verdict, toy.judged().result) == ("declared-exception", "pass")


def test_a_hang_ends_within_its_limit_and_leaves_no_process(make: Make, tmp_path: Path) -> None:
    toy = make(timeout_s=2)
    pids = tmp_path / "pids"
    toy.commit(
        "base",
        {
            "m.py": f"""
                import subprocess, sys, time

                def run():
                    for detached in (False, True):
                        command = [sys.executable, "-c", "import time; time.sleep(60)"]
                        child = subprocess.Popen(command, start_new_session=detached)
                        with open({str(pids)!r}, "a") as file:
                            file.write(f"{{child.pid}}\\n")
                    time.sleep(600)
            """
        },
    )
    toy.commit(
        "fix: run ends",
        {
            "m.py": "def run():\n    return 1\n",
            "test_m.py": "import m\n\ndef test_run():\n    assert m.run() == 1\n\ndef test_late():\n    assert m.run\n",
        },
    )
    began = time.monotonic()
    assert toy.verdicts() == {"test_run": "hang", "test_late": "vacuous"}
    assert time.monotonic() - began < 20
    for pid in pids.read_text().split():
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().split()[2] == "Z", f"the grandchild {pid} is still alive"


def test_a_test_that_floods_its_output_is_ended(make: Make) -> None:
    toy = make(timeout_s=20)
    toy.commit("base", {"m.py": "def run():\n    while True:\n        print('x' * 1_000_000)\n"})
    toy.commit(
        "fix: run ends", {"m.py": "def run():\n    pass\n", "test_m.py": "import m\n\ndef test_run():\n    m.run()\n"}
    )
    began = time.monotonic()
    judged = only(toy.judged())
    assert (judged.verdict, judged.reason) == ("hang", "wrote more than 64 MiB")
    assert time.monotonic() - began < 15


def test_a_red_head_blocks_and_so_does_one_that_cannot_be_imported(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "A = 1\n"})
    toy.commit(
        "fix: A",
        {
            "m.py": "A = 2\n",
            "test_a.py": "import m\n\ndef test_a():\n    assert m.A == 3\n",
            "test_b.py": "import m\n\ndef test_b(:\n    pass\n",
        },
    )
    commit = toy.judged()
    assert verdicts(commit) == {"test_a": "head-red", "test_b.py": "head-red"}
    assert commit.result == "fail"


def test_a_library_that_is_not_installed_is_no_verdict_on_the_commit(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "A = 1\n"})
    toy.commit(
        "fix: A",
        {"m.py": "A = 2\n", "test_a.py": "import no_such_library\nimport m\n\ndef test_a():\n    assert m.A == 2\n"},
    )
    commit = toy.judged()
    assert (verdicts(commit), commit.result) == ({"test_a.py": "environment"}, "cannot-judge")


def test_code_from_another_checkout_is_no_verdict(make: Make, tmp_path: Path) -> None:
    toy = make()
    away = tmp_path / "installed"
    (away / "pkg").mkdir(parents=True)
    (away / "pkg" / "__init__.py").write_text("A = 2\n")
    toy.commit("base", {"pkg/__init__.py": "A = 1\n"})
    toy.commit(
        "fix: A",
        {
            "pkg/__init__.py": "A = 2\n",
            "test_a.py": f"""
                import sys
                sys.path.insert(0, {str(away)!r})
                import pkg

                def test_a():
                    assert pkg.A == 2
            """,
        },
    )
    judged = only(toy.judged())
    assert judged.verdict == "environment"
    assert "pkg was loaded from" in judged.reason


def test_the_users_own_checkout_never_answers_for_the_parent(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = make()
    monkeypatch.setenv("PYTHONPATH", str(toy.root / "src"))
    toy.commit("base", {"src/pkgq/__init__.py": "", "src/pkgq/core.py": "def cap(n):\n    return n\n"})
    toy.commit(
        "fix(core): cap caps",
        {
            "src/pkgq/core.py": "def cap(n):\n    return min(n, 10)\n",
            "tests/test_cap.py": "from pkgq.core import cap\n\ndef test_cap():\n    assert cap(99) == 10\n",
        },
    )
    assert only(toy.judged()).verdict == "own-assertion"


def test_bytecode_of_the_fix_never_answers_for_the_parent(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "cache"))
    toy = make(runs=3)
    toy.commit("base", {"calc.py": "def add(a, b): return a - b\n"})
    toy.write({"calc.py": "def add(a, b): return a + b\n"})
    cached = py_compile.compile(
        str(toy.root / "calc.py"),
        cfile=str(tmp_path / "c.pyc"),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    toy.commit(
        "Fixes add",
        {
            "calc.py": "def add(a, b): return a + b\n",
            f"__pycache__/calc.{sys.implementation.cache_tag}.pyc": Path(str(cached)).read_bytes(),
            "test_add.py": "import calc\n\ndef test_add():\n    assert calc.add(2, 2) == 4\n",
        },
    )
    toy.commit(
        "more",
        {
            "test_add.py": "import calc\n\ndef test_add():\n    assert calc.add(2, 2) == 4\n\ndef test_more():\n    pass\n"
        },
    )
    assert only(toy.check("HEAD^").commits[0]).verdict == "own-assertion"


def test_settings_of_the_caller_do_not_reach_the_replay(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toy = make()
    toy.commit("base", {"shop.py": SHOP})
    toy.commit(
        "fix: price",
        {"shop.py": SHOP_FIXED, "test_shop.py": "import shop\n\ndef test_price():\n    assert shop.price(1) == 10\n"},
    )
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only -k nothing")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert toy.verdicts() == {"test_price": "own-assertion"}


def test_options_of_the_project_that_stop_early_or_deselect_do_not_count(make: Make) -> None:
    toy = make()
    options = '-x --ff -k "not price" -m "not slow" --deselect test_shop.py::test_price'
    ini = f"[pytest]\naddopts = {options}\nmarkers = slow: s\n"
    toy.commit("base", {"shop.py": SHOP, "pytest.ini": ini})
    toy.commit(
        "fix: price",
        {
            "shop.py": SHOP_FIXED,
            "test_shop.py": """
                import pytest
                import shop

                @pytest.mark.slow
                def test_first_price():
                    assert shop.price(1) == 10

                def test_price():
                    assert shop.price(1) == 10
            """,
        },
    )
    assert toy.verdicts() == {"test_first_price": "own-assertion", "test_price": "own-assertion"}


def test_only_new_and_changed_ids_are_judged(make: Make) -> None:
    toy = make()
    old = """
        import pytest
        import shop

        CASES = [1, 2]

        def test_old():
            assert shop.price(0) >= 0

        def test_strict():
            assert shop.price(1) > 0

        @pytest.fixture
        def basket():
            return [1]

        def test_basket(basket):
            assert shop.price(len(basket)) > 0

        @pytest.mark.parametrize("n", CASES)
        def test_many(n):
            assert shop.price(n) >= n
    """
    new = old.replace("def test_old():", "def test_old( ):  # moved").replace("[1, 2]", "[1, 2, 0.5]")
    new = new.replace("shop.price(1) > 0", "shop.price(1) == 10").replace("return [1]", "return [1, 1]")
    toy.commit("base", {"shop.py": SHOP, "test_shop.py": old})
    toy.commit("fix price", {"shop.py": SHOP_FIXED, "test_shop.py": new})
    commit = toy.judged()
    assert verdicts(commit) == {"test_strict": "own-assertion", "test_basket": "vacuous", "test_many[0.5]": "vacuous"}
    assert {test.id.partition("::")[2]: test.changed for test in commit.tests} == {
        "test_strict": True,
        "test_basket": True,
        "test_many[0.5]": False,
    }
    assert commit.blocking == ("test_shop.py::test_many[0.5]",)


def test_strange_node_ids_are_judged_and_run_alone(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "import os\n\ndef go(s):\n    os._exit(1) if s == 'die' else None\n"})
    toy.commit(
        "fix: go",
        {
            "m.py": "def go(s):\n    return s\n",
            "test_m.py": r"""
                import m
                import pytest

                @pytest.mark.parametrize("s", ["a b", "die", "x::y [z]", "back\\slash ü"], ids=lambda s: s)
                def test_go(s):
                    assert m.go(s) == s
            """,
        },
    )
    found = list(toy.verdicts().values())
    assert sorted(found) == ["crash", *["own-assertion"] * 3]


def test_a_feature_may_bring_new_names_and_tests_that_pass_on_both_sides(make: Make) -> None:
    toy = make()
    toy.commit("base", {"shop.py": SHOP})
    toy.commit(
        "Add a discount",
        {
            "shop.py": SHOP + "def discount(n):\n    return n // 2\n",
            "test_shop.py": """
                import shop

                def test_discount():
                    assert shop.discount(4) == 2

                def test_kept():
                    assert shop.price(1) == 11
            """,
        },
    )
    commit = toy.judged()
    assert (commit.kind, commit.result) == ("feature", "pass")
    assert verdicts(commit) == {"test_discount": "missing-api", "test_kept": "vacuous"}


def test_a_product_change_without_a_new_test_cannot_be_judged(make: Make) -> None:
    toy = make()
    toy.commit("base", {"shop.py": SHOP, "test_shop.py": "import shop\n\ndef test_price():\n    assert shop.price\n"})
    toy.commit(
        "Refactor",
        {"shop.py": SHOP_FIXED, "test_shop.py": "import shop\n\n\ndef test_price():  # same\n    assert shop.price\n"},
    )
    commit = toy.judged()
    assert (commit.result, [problem.code for problem in commit.problems]) == ("cannot-judge", ["no-tests"])


def test_tests_that_nobody_runs_are_no_tests(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "N = 1\n"})
    toy.commit(
        "fix: N",
        {
            "m.py": "N = 2\n",
            "test_n.py": "import m\n\ndef check_n():\n    assert m.N == 2\n",
            "test_skip.py": "import pytest\npytest.skip('later', allow_module_level=True)\n\ndef test_m():\n    assert 0\n",
        },
    )
    commit = toy.judged()
    assert (commit.result, [problem.code for problem in commit.problems]) == ("cannot-judge", ["no-tests"])
    assert verdicts(commit) == {"test_skip.py": "not-run"}


def test_a_commit_without_product_or_tests_passes_as_other(make: Make) -> None:
    toy = make()
    toy.commit("base", {"shop.py": SHOP})
    toy.commit("fix a typo", {"README.md": "words\n", "docs/a.txt": "more\n", ".github/workflows/ci.yml": "on: push\n"})
    commit = toy.judged()
    assert (commit.kind, commit.result, commit.tests) == ("other", "pass", ())


def test_a_commit_of_tests_only_has_nothing_to_prove(make: Make) -> None:
    toy = make()
    toy.commit("base", {"shop.py": SHOP})
    toy.commit("Test the price", {"test_shop.py": "import shop\n\ndef test_price():\n    assert shop.price(0) == 1\n"})
    commit = toy.judged()
    assert (commit.kind, commit.result, verdicts(commit)) == ("test-only", "pass", {"test_price": "vacuous"})


def test_a_first_commit_and_a_shallow_boundary_are_two_answers_and_no_pass(make: Make, tmp_path: Path) -> None:
    toy = make()
    files = {"m.py": "def f():\n    return 1\n", "test_m.py": "import m\n\ndef test_f():\n    assert m.f() == 1\n"}
    toy.commit("fix: first", files)
    first = toy.judged()
    assert ([problem.code for problem in first.problems], first.result, first.parent) == (
        ["no-parent"],
        "cannot-judge",
        None,
    )
    toy.commit(
        "fix: second",
        {"m.py": "def f():\n    return 2\n", "test_m.py": "import m\n\ndef test_f():\n    assert m.f() == 2\n"},
    )
    assert toy.verdicts() == {"test_f": "own-assertion"}
    toy.git("clone", "-q", "--depth", "1", f"file://{toy.root}", str(tmp_path / "shallow"))
    shallow = Toy.__new__(Toy)
    shallow.root = tmp_path / "shallow"
    commit = shallow.judged()
    assert ([problem.code for problem in commit.problems], commit.result) == (["history-missing"], "cannot-judge")
    assert commit.parent is not None


def test_a_file_that_becomes_a_test_folder_cannot_be_laid_over(make: Make) -> None:
    toy = make()
    toy.commit("base", {"m.py": "A = 1\n", "tests_here": "a file\n"})
    toy.write({"tests_here": None})
    toy.commit(
        "fix: A", {"m.py": "A = 2\n", "tests_here/test_a.py": "import m\n\ndef test_a():\n    assert m.A == 2\n"}
    )
    commit = toy.judged()
    assert ([problem.code for problem in commit.problems], commit.result) == (["overlay-failed"], "cannot-judge")


def test_a_range_is_judged_commit_by_commit(make: Make) -> None:
    toy = make()
    toy.commit("base", {"shop.py": SHOP})
    base = toy.git("rev-parse", "HEAD").strip()
    toy.commit("docs", {"README.md": "a\n"})
    toy.git("checkout", "-q", "-b", "side", base)
    toy.commit(
        "fix: price",
        {"shop.py": SHOP_FIXED, "test_shop.py": "import shop\n\ndef test_price():\n    assert shop.price(1) == 10\n"},
    )
    toy.git("checkout", "-q", "-")
    toy.git("merge", "-q", "--no-edit", "side")
    report = toy.check(f"{base}..HEAD")
    # The merge is one of them: what it brings came in from its parents, and was judged there.
    assert sorted((str(commit.kind), commit.result) for commit in report.commits) == [
        ("fix", "pass"),
        ("other", "pass"),
        ("other", "pass"),
    ]
    assert report.result == "pass"
    (merge,) = toy.check("HEAD").commits
    assert (len(merge.tests), merge.result) == (0, "pass")


def test_a_project_in_a_folder_of_a_repository_is_judged_by_itself(make: Make) -> None:
    toy = make()
    toy.commit(
        "base",
        {
            "common.txt": "s\n",
            "sub/pyproject.toml": "[tool.gate]\nplugin_autoload = false\nruns = 1\n",
            "sub/shop.py": SHOP,
            "other.py": "A = 1\n",
        },
    )
    toy.commit(
        "fix: price",
        {
            "sub/shop.py": SHOP_FIXED,
            "other.py": "A = 2\n",
            "sub/tests/test_shop.py": """
                import pathlib
                import shop

                def test_price():
                    assert pathlib.Path("../common.txt").exists()
                    assert shop.price(1) == 10
            """,
        },
    )
    outer = toy.root
    toy.root = outer / "sub"
    commit = toy.judged()
    assert [(test.id, test.verdict, test.location) for test in commit.tests] == [
        ("tests/test_shop.py::test_price", "own-assertion", "tests/test_shop.py:6")
    ]


def test_files_under_settings_of_their_own_run_with_those_settings(make: Make) -> None:
    toy = make()
    toy.commit(
        "base", {"shop.py": SHOP, "part/m.py": "A = 1\n", "part/pytest.ini": "[pytest]\npython_functions = check_*\n"}
    )
    toy.commit(
        "fix: both",
        {
            "shop.py": SHOP_FIXED,
            "part/m.py": "A = 2\n",
            "tests/test_shop.py": "import shop\n\ndef test_price():\n    assert shop.price(1) == 10\n",
            "part/tests/test_m.py": "import m\n\ndef check_a():\n    assert m.A == 2\n",
        },
    )
    assert toy.verdicts() == {"test_price": "own-assertion", "check_a": "own-assertion"}
