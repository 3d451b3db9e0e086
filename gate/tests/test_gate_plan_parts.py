"""The parts of the plan that need no process: path rules, settings, fingerprints, added names, kinds, overlays."""

from __future__ import annotations

import pickle
import textwrap

import pytest

from holdtrue_gate import config, declared, plan, symbols, testsource
from holdtrue_gate.config import Config
from holdtrue_gate.errors import CannotJudgeError, ConfigError, GateError
from holdtrue_gate.patterns import PathRules
from holdtrue_gate.plan import Kind
from holdtrue_gate.repo import Commit, Entry, check_paths
from holdtrue_gate.verdict import Expectation


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("tests", "tests/a.py", True),
        ("tests", "pkg/tests/data/a.txt", True),
        ("tests", "pkg/mytests/a.py", False),
        ("tests/", "tests/a.py", True),
        ("impl/tests", "impl/tests/a.py", True),
        ("impl/tests", "other/impl/tests/a.py", False),
        ("test_*.py", "deep/down/test_a.py", True),
        ("test_*.py", "deep/down/attest_a.py", False),
        ("*_test.py", "a_test.py", True),
        ("conftest.py", "a/conftest.py", True),
        ("**/tests/**", "a/b/tests/c", True),
        ("**/tests/**", "tests/c", True),
        ("/docs/**", "docs/a/b.txt", True),
        ("/docs/**", "pkg/docs/b.py", False),
        ("a/*.py", "a/b/c.py", False),
        ("a?.py", "ab.py", True),
        ("a+b", "a+b/x", True),
    ],
)
def test_a_path_rule_means_what_a_reader_expects(rule: str, path: str, matches: bool) -> None:
    assert PathRules([rule]).matches(path) is matches


@pytest.mark.parametrize(
    "path", ["tests/x.bin", "test/x.py", "src/p/tests/x.py", "test_a.py", "p/a_test.py", "conftest.py", "pytest.ini"]
)
def test_what_most_projects_call_tests_needs_no_settings(path: str) -> None:
    assert Config().test_rules.matches(path)


@pytest.mark.parametrize("path", ["src/p/a.py", "p/testing.py", "contest.py", "p/latest.py", "data/x.json"])
def test_product_is_not_taken_for_tests(path: str) -> None:
    assert not Config().test_rules.matches(path)
    assert not Config().ignored_rules.matches(path)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[tool.gate]\nrun = 3", "unknown key 'run'"),
        ("[tool.gate]\nruns = 0", "runs must be"),
        ("[tool.gate]\nruns = true", "runs must be"),
        ("[tool.gate]\ntests = 'tests'", "list of strings"),
        ("[tool.gate]\nsource = [1]", "list of strings"),
        ("[tool.gate]\ntimeout_s = -1", "positive"),
        ("[tool.gate]\nplugin_autoload = 1", "true or false"),
        ("[tool]\ngate = 3", "must be a table"),
        ("[tool.gate", "cannot be read"),
    ],
)
def test_a_setting_that_means_nothing_is_an_error_that_names_it(toml: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        config.parse(toml.encode())
    assert caught.value.exit_code == 2


def test_settings_are_read_and_the_command_line_outranks_them() -> None:
    read = config.parse(b"[tool.gate]\nsource = ['impl']\nruns = 5\ntimeout_s = 2\n[tool.gate.release]\nx = 1\n")
    assert (read.source, read.runs, read.timeout_s) == (("impl",), 5, 2.0)
    assert read.overridden(runs=1, timeout_s=9).runs == 1
    assert config.parse(None) == Config()


def parsed(source: str) -> testsource.TestFile:
    return testsource.parse(textwrap.dedent(source).encode())


BASE = '''
    import pytest
    CASES = [1, 2]

    @pytest.mark.parametrize("n", CASES)
    def test_a(n):
        """Words."""
        assert n

    class Base:
        def setup_method(self):
            self.x = 1

        def test_inherited(self):
            assert self.x

    class TestB(Base):
        def test_own(self):
            assert 1
'''


@pytest.mark.parametrize(
    ("old", "new", "own", "parameters"),
    [
        ("assert n", "assert  (n)  # why", set(), set()),
        ('"""Words."""', '"""Other words."""', set(), set()),
        ("assert n", "assert n == 1", {"test_a"}, set()),
        ("CASES = [1, 2]", "CASES = [1, 2, 3]", set(), {"test_a"}),
        ('("n", CASES)', '("n", [1])', set(), {"test_a"}),
        ("self.x = 1", "self.x = 2", {"Base::test_inherited", "TestB::test_inherited", "TestB::test_own"}, set()),
        ("assert self.x", "assert self.x == 1", {"Base::test_inherited", "TestB::test_inherited"}, set()),
        ("def test_own", "@pytest.mark.slow\n        def test_own", {"TestB::test_own"}, set()),
        (
            "import pytest",
            "import pytest\n    pytestmark = pytest.mark.parametrize('m', [1])",
            set(),
            {"test_a", "Base::test_inherited", "TestB::test_inherited", "TestB::test_own"},
        ),
    ],
)
def test_a_fingerprint_changes_with_meaning_and_not_with_layout(
    old: str, new: str, own: set[str], parameters: set[str]
) -> None:
    assert old in BASE
    before, after = parsed(BASE).functions, parsed(BASE.replace(old, new)).functions
    tests = [name for name in before if "test" in name.rpartition("::")[2]]
    assert {name for name in tests if before[name].own != after[name].own} == own
    assert {name for name in tests if before[name].parameters != after[name].parameters} == parameters


def test_a_fixture_counts_for_every_test_that_reaches_it() -> None:
    file = parsed(
        """
        import pytest

        @pytest.fixture
        def low():
            return 1

        @pytest.fixture
        def high(low):
            return low + 1

        @pytest.fixture
        def other():
            return 3
        """
    )
    changed = dict(file.fixtures) | {"low": testsource.Fixture("changed", frozenset())}
    assert testsource.reach(["high"], file.fixtures) != testsource.reach(["high"], changed)
    assert testsource.reach(["other"], file.fixtures) == testsource.reach(["other"], changed)


def test_names_that_a_test_only_looks_for_are_known() -> None:
    source = """
        def test_a():
            assert hasattr(m, "a") and getattr(m, "b", None)
            assert "c" in dir(m)
            assert "d" in inspect.signature(f).parameters
            assert "e" in m.__all__
            assert "f" in output
    """
    assert parsed(source).functions["test_a"].existence == {"a", "b", "c", "d", "e"}


def test_added_names_are_what_a_caller_can_see() -> None:
    old = b"def f(a):\n    return a\n"
    new = b"""
import os
LIMIT = 3
class Store:
    kind: str = "x"
    def open(self, path, *, mode=None):
        self.handle = local = path
        raise ValueError("zzz")
def f(a, b=1):
    os.environ.get("APP_HOME")
    parser.add_argument("--fresh-start")
    db.execute("CREATE TABLE memo (version_no INTEGER)")
"""
    added = symbols.added([(old, new)])
    assert {
        "LIMIT",
        "Store",
        "kind",
        "open",
        "path",
        "mode",
        "handle",
        "b",
        "APP_HOME",
        "--fresh-start",
        "memo",
        "version_no",
    } <= added
    assert not {"local", "zzz", "a", "f", "self"} & added


@pytest.mark.parametrize(
    ("message", "product", "tests", "kind"),
    [
        ("fix: a", ["a"], ["t"], Kind.FIX),
        ("Fix(core): a", ["a"], ["t"], Kind.FIX),
        ("fixes the race", ["a"], [], Kind.FIX),
        ("Fixed #3", ["a"], ["t"], Kind.FIX),
        ("fixture: more", ["a"], ["t"], Kind.FEATURE),
        ("prefix the names", ["a"], ["t"], Kind.FEATURE),
        ("fix-up of names", ["a"], ["t"], Kind.FEATURE),
        ("Close it\n\nText.\n\nFinding: F-0001\n", ["a"], ["t"], Kind.FIX),
        ("Close it\n\nFinding: F-0001 is told\n\nin prose.\n", ["a"], ["t"], Kind.FEATURE),
        ("fix tests", [], ["t"], Kind.FIX),
        ("more tests", [], ["t"], Kind.TEST_ONLY),
        ("fix a typo", [], [], Kind.OTHER),
    ],
)
def test_the_kind_comes_from_trailer_subject_and_files(
    message: str, product: list[str], tests: list[str], kind: Kind
) -> None:
    assert plan.kind_of(Commit("s", "t", ("p",), message), product, tests) is kind


def test_the_overlay_takes_product_from_the_parent_and_tests_from_the_commit() -> None:
    base = {"m.py": Entry("100644", "1"), "tests/old.py": Entry("100644", "2"), "tests/a.py": Entry("100644", "3")}
    head = {"m.py": Entry("100644", "9"), "n.py": Entry("100644", "9"), "tests/a.py": Entry("100644", "4")}
    assert plan.overlaid(base, head, PathRules(["tests"]).matches) == {
        "m.py": base["m.py"],
        "tests/a.py": head["tests/a.py"],
    }


@pytest.mark.parametrize(
    "paths", [["a", "a/b"], ["../a"], ["/a"], ["a//b"], [".git/config"], ["x/.GIT/hooks/y"], ["a/./b"]]
)
def test_a_path_that_cannot_be_written_safely_is_refused(paths: list[str]) -> None:
    with pytest.raises(CannotJudgeError) as caught:
        check_paths(paths)
    assert caught.value.code == "overlay-failed"


def test_names_of_the_tree_stop_at_packages_and_go_through_namespaces() -> None:
    listing = dict.fromkeys(
        ["src/pkg/__init__.py", "src/pkg/sub/a.py", "src/space/one/__init__.py", "src/single.py", "setup.py"],
        Entry("100644", "1"),
    )
    assert plan.first_party(["src"], [listing]) == {"pkg", "space.one", "single"}


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("", Expectation()),
        ('expected_at_parent = "assertion"', Expectation()),
        ('expected_at_parent = "hang"', Expectation(hang=True)),
        (
            'expected_at_parent = ["crash", "sqlite3.IntegrityError"]',
            Expectation(frozenset({"sqlite3.IntegrityError"}), crash=True),
        ),
        ('detects = "3/10"', Expectation(detects=(3, 10))),
    ],
)
def test_a_finding_declares_what_its_test_does_at_the_parent(toml: str, expected: Expectation) -> None:
    found = declared.collect(["regressions/F-0001-x/finding.toml", "other/finding.toml"], lambda _path: toml.encode())
    assert declared.of_node("regressions/F-0001-x/test_a.py::test_b", found) == expected
    assert declared.of_node("tests/test_a.py::test_b", found) == Expectation()


@pytest.mark.parametrize("toml", ["expected_at_parent = 3", 'detects = "4/3"', 'detects = "often"', "detects = 2", "="])
def test_a_finding_that_declares_nonsense_is_a_configuration_error(toml: str) -> None:
    with pytest.raises(ConfigError):
        declared.parse(toml.encode(), "regressions/F-0001-x/finding.toml")


def test_an_error_survives_the_way_back_from_another_process() -> None:
    error: GateError = pickle.loads(pickle.dumps(CannotJudgeError("git-slow", "late", "wait")))
    assert (type(error), error.code, error.message, error.hint) == (CannotJudgeError, "git-slow", "late", "wait")
