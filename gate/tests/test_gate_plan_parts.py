"""The parts of the plan that need no process: path rules, settings, fingerprints, added names, kinds, overlays."""

from __future__ import annotations

import pickle
import textwrap
from collections.abc import Mapping

import pytest

from holdtrue_gate import choice, config, declared, doctests, plan, projectfile, pytestfile, symbols, testsource
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


class Files:
    """Stands for a repository: listings whose entries carry the text itself."""

    def text(self, listing: Mapping[str, Entry], path: str) -> bytes | None:
        entry = listing.get(path)
        return textwrap.dedent(entry.sha).encode() if entry is not None else None


def chosen(old: dict[str, str], new: dict[str, str], **ground: object) -> list[str]:
    """What is new between two trees of tests: `+` added, `~` changed, `#` widened; `tests/` is left out."""
    base, head = ({path: Entry("100644", text) for path, text in side.items()} for side in (old, new))
    rules = PathRules(["tests"])
    found, _ = choice.choose(
        Files(),  # type: ignore[arg-type]
        base,
        head,
        [path for path in plan.changed_paths(base, head) if rules.matches(path)],
        choice.Ground(rules.matches, **ground),  # type: ignore[arg-type]
    )
    marks = zip("+~#", (found.added, found.changed, found.widened), strict=True)
    return [mark + prefix.removeprefix("tests/") for mark, prefixes in marks for prefix in prefixes]


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
    source = """
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

        def test_high(high):
            assert high

        def test_other(other):
            assert other
        """
    old = {"tests/test_a.py": source}
    assert chosen(old, {"tests/test_a.py": source.replace("return 1", "return 2")}) == ["~test_a.py::test_high"]


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


# --- which tests are new: what a test reaches

ONE = "def test_a():\n    assert 1\n"
IN_CLASS = "class TestA:\n    def test_a(self):\n        assert 1\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"test_a.py": ONE}, ["+test_a.py"]),
        ({"test_a.py": ONE}, {"test_a.py": ONE + "\ndef test_b():\n    pass\n"}, ["+test_a.py::test_b"]),
        ({"test_a.py": ONE}, {"test_b.py": ONE}, []),
        ({"test_a.py": IN_CLASS}, {"deep/test_a.py": IN_CLASS.replace("TestA", "TestB")}, []),
        ({"test_a.py": ONE}, {"test_a.py": "def test_a(:\n"}, ["+test_a.py"]),
        ({"test_a.py": "def test_a(:\n"}, {"test_a.py": "def test_a(::\n"}, []),
        (
            {"test_a.py": "import m\nX = [1]\nX.append(2)\n\ndef test_a():\n    assert X\n"},
            {"test_a.py": "import m\nX = [1]\nX.append(3)\n\ndef test_a():\n    assert X\n"},
            ["~test_a.py::test_a"],
        ),
        (
            {"test_a.py": "A, B = 1, 2\n\ndef test_a():\n    assert B\n"},
            {"test_a.py": "A, B = 1, 3\n\ndef test_a():\n    assert B\n"},
            ["~test_a.py::test_a"],
        ),
        (
            {"test_a.py": "def test_a(value):\n    assert value\n\ndef value():\n    return 1\n"},
            {"test_a.py": "def test_a(value):\n    assert value\n\ndef value():\n    return 2\n"},
            ["~test_a.py::value"],
        ),
    ],
    ids=[
        "a new file",
        "a new function",
        "a renamed file",
        "a test that moved into another class of another file",
        "a file that is no Python any more",
        "a file that was none before",
        "a list that is filled later",
        "two names at once",
        "a helper with the name of an argument",
    ],
)
def test_a_test_is_new_by_what_it_is(old: dict[str, str], new: dict[str, str], expected: list[str]) -> None:
    def below(files: dict[str, str]) -> dict[str, str]:
        return {f"tests/{path}": text for path, text in files.items()}

    assert chosen(below(old), below(new)) == expected


CONFTEST = """
    import pytest
    from tests.values import LIMIT

    pytest_plugins = ["tests.plugin"]

    @pytest.fixture
    def limit():
        return LIMIT

    @pytest.fixture(autouse=True)
    def ready():
        return start()

    def start():
        return 1
"""
WORLD = {
    "tests/__init__.py": "",
    "tests/conftest.py": CONFTEST,
    "tests/values.py": "LIMIT = 1\nOTHER = 1\n",
    "tests/plugin.py": "import pytest\n\n@pytest.fixture\ndef plugged():\n    return 1\n",
    "tests/shared.py": "import pytest\n\n@pytest.fixture\ndef lent():\n    return 1\n",
    "tests/base.py": "class Base:\n    def test_base(self):\n        assert self.x\n",
    "tests/sub/conftest.py": "import pytest\n\n@pytest.fixture\ndef inner(limit):\n    return limit\n",
    "tests/sub/test_in.py": "def test_inner(inner):\n    assert inner\n\ndef test_none():\n    assert 1\n",
    "tests/test_plug.py": "def test_plug(plugged):\n    assert plugged\n",
    "tests/test_lent.py": "from tests.shared import lent\n\ndef test_lent(lent):\n    assert lent\n",
    "tests/test_base.py": "from tests.base import Base\n\nclass TestMine(Base):\n    x = 1\n",
    "tests/test_use.py": """
        from . import values as v

        def test_limit():
            assert v.LIMIT

        def test_other():
            assert v.OTHER
    """,
    "tests/test_data.py": "def test_data():\n    assert open('tests/data/a.txt')\n\ndef test_not():\n    assert 1\n",
    "tests/data/a.txt": "a",
    "tests/test_snap.py": "def test_snap(snapshot):\n    assert snapshot\n\ndef test_plain():\n    assert 1\n",
    "tests/__snapshots__/test_snap.ambr": "a",
}
ALL = [
    "~sub/test_in.py::test_inner",
    "~sub/test_in.py::test_none",
    "~test_base.py::TestMine",
    *("~test_data.py::test_data", "~test_data.py::test_not", "~test_lent.py::test_lent", "~test_plug.py::test_plug"),
    *("~test_snap.py::test_snap", "~test_snap.py::test_plain", "~test_use.py::test_limit", "~test_use.py::test_other"),
]


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("values.py", "LIMIT = 1", "LIMIT = 2", ["~sub/test_in.py::test_inner", "~test_use.py::test_limit"]),
        ("values.py", "OTHER = 1", "OTHER = 2", ["~test_use.py::test_other"]),
        ("values.py", "LIMIT = 1", "LIMIT = 1  # why", []),
        ("plugin.py", "return 1", "return 2", ["~test_plug.py::test_plug"]),
        ("shared.py", "return 1", "return 2", ["~test_lent.py::test_lent"]),
        ("test_base.py", "x = 1", "x = 2", ["~test_base.py::TestMine"]),
        ("base.py", "self.x", "self.x == 1", ["~base.py::Base::test_base", "~test_base.py::TestMine"]),
        ("sub/conftest.py", "return limit", "return limit + 1", ["~sub/test_in.py::test_inner"]),
        ("conftest.py", "return LIMIT", "return LIMIT + 1", ["~sub/test_in.py::test_inner"]),
        ("data/a.txt", "a", "b", ["~test_data.py::test_data"]),
        ("__snapshots__/test_snap.ambr", "a", "b", ["~test_snap.py::test_snap"]),
    ],
)
def test_a_change_counts_for_the_tests_that_reach_it(path: str, old: str, new: str, expected: list[str]) -> None:
    before = WORLD["tests/" + path]
    assert old in before
    assert sorted(chosen(WORLD, {**WORLD, "tests/" + path: before.replace(old, new)})) == expected


@pytest.mark.parametrize(("old", "new"), [("return start()", "return start"), ("return 1", "return 2")])
def test_an_autouse_fixture_counts_for_every_test_below_it(old: str, new: str) -> None:
    found = chosen(WORLD, {**WORLD, "tests/conftest.py": CONFTEST.replace(old, new)})
    assert set(found) == {*ALL, "~base.py::Base::test_base"}


def test_what_is_new_against_one_parent_only_is_not_the_merge_s_own() -> None:
    mine = choice.Choice(
        added=("a.py", "b.py::test_x"), changed=("c.py::test_y", "d.py::test_z"), widened=("e.py::test_w",)
    )
    theirs = choice.Choice(added=("a.py::test_1", "e.py::test_w"), widened=("c.py::test_y",))
    assert mine.common(theirs) == choice.Choice(added=("a.py::test_1",), widened=("c.py::test_y", "e.py::test_w"))
    assert mine.common(choice.Choice()) == choice.Choice()


# --- settings of pytest, of the build, of versions


@pytest.mark.parametrize(
    ("files", "file", "options"),
    [
        ({"pytest.toml": "[pytest]\naddopts = ['-x']", "pytest.ini": "[pytest]\naddopts = -v"}, "pytest.toml", ("-x",)),
        ({"pytest.ini": "", "pyproject.toml": "[tool.pytest]\naddopts = ['-x']"}, "pytest.ini", ()),
        ({"pyproject.toml": "[tool.pytest]\naddopts = ['-x']"}, "pyproject.toml", ("-x",)),
        (
            {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-x -k \"a b\"'"},
            "pyproject.toml",
            ("-x", "-k", "a b"),
        ),
        (
            {"pyproject.toml": "[tool.other]\nx = 1", "tox.ini": "[pytest]\naddopts =\n  -x\n  -v"},
            "tox.ini",
            ("-x", "-v"),
        ),
        ({"tox.ini": "[tox]\n", "setup.cfg": "[tool:pytest]\naddopts = -x"}, "setup.cfg", ("-x",)),
        ({"setup.cfg": "[metadata]\nname = %(x)s"}, None, ()),
        ({"pyproject.toml": "[tool.pytest\n", "tox.ini": "[pytest\n"}, None, ()),
    ],
)
def test_the_settings_are_those_that_pytest_takes(
    files: dict[str, str], file: str | None, options: tuple[str, ...]
) -> None:
    found = pytestfile.read(lambda path: files[path].encode() if path in files else None)
    assert (found.file, found.options) == (file, options)


def test_the_build_tells_where_packages_begin_and_never_leads_outside() -> None:
    toml = """
        [tool.setuptools.packages.find]
        where = ["./lib/", "../out", "/abs"]
        [tool.setuptools.package-dir]
        "" = "py"
        [[tool.poetry.packages]]
        include = "pkg"
        from = "poe"
        [tool.hatch.build.targets.wheel]
        packages = ["hat/pkg", "top"]
    """
    assert projectfile.source_folders(textwrap.dedent(toml).encode()) == ("lib", "py", "poe", "hat")
    assert projectfile.source_folders(b"[tool") == projectfile.source_folders(None) == ()


def test_a_version_that_is_counted_up_is_told_from_other_constants() -> None:
    def pair(old: str, new: str) -> frozenset[str]:
        return symbols.versions([(old.encode(), new.encode())])

    assert pair("__version__ = '1'\nA = 1\n", "__version__ = '2'\nA = 1\n") == {"__version__"}
    assert pair("__version__ = '1'\nA = 1\n", "__version__ = '2'\nA = 2\n") == frozenset()
    assert pair("A = 1\n", "A = 2\n") == frozenset()
    assert pair("def f():\n    return 1\n", "def f():\n    return 2\n") == frozenset()


# --- doctests


def test_a_module_gets_the_docstrings_of_another_and_nothing_else() -> None:
    base = b"'Old.'\nimport os\n\ndef f(n):\n    return n\n\n@deco\nclass C:\n    'x'\n    def g(self): return 1\n"
    head = (
        b'"""New.\n\n>>> 1\n1\n"""\nimport os\n\ndef f(n):\n    r"""Doc \xc3\xbc."""\n    return n + 1\n\n'
        b'@deco\nclass C:\n    "y"\n    def g(self):\n        "z"\n        return 2\n\ndef fresh():\n    "f"\n'
    )
    made = doctests.spliced(base, head)
    assert doctests.bare(made) == doctests.bare(base)
    assert b">>> 1" in made
    assert 'r"""Doc ü."""'.encode() in made
    assert b'"y"' in made
    assert b"return n + 1" not in made
    assert doctests.spliced(b"def (", head) == b"def ("


def test_comments_and_layout_are_told_from_code() -> None:
    assert doctests.bare(b"x=1 # a\n", docstrings=True) == doctests.bare(b"x = (1)\n", docstrings=True)
    assert doctests.bare(b"'a'\n", docstrings=True) != doctests.bare(b"'b'\n", docstrings=True)
    assert doctests.bare(b"'a'\n") == doctests.bare(b"'b'\n")
    assert doctests.bare(b"def (") is None


@pytest.mark.parametrize(
    ("trailers", "expected"),
    [
        ([], Expectation()),
        ([("expected-at-parent", "KeyError, sqlite3.Error")], Expectation(frozenset({"KeyError", "sqlite3.Error"}))),
        ([("expected-at-parent", "hang"), ("detects", "3/10")], Expectation(hang=True, detects=(3, 10))),
    ],
)
def test_a_commit_declares_in_its_message_what_a_finding_would(
    trailers: list[tuple[str, str]], expected: Expectation
) -> None:
    assert declared.of_commit(trailers) == expected


def test_a_rate_in_a_message_that_means_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError):
        declared.of_commit([("detects", "4/3")])
