"""The code under test comes from the replayed tree, whatever is installed; and what identifies an environment."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from gate.tests.commit_toys import Toy, only, verdicts
from holdtrue_gate import environment, isolation
from holdtrue_gate.errors import CannotJudgeError

BUGGY = "def price(n):\n    return n * 10 + 1\n"
FIXED = "def price(n):\n    return n * 10\n"
MAIN = """\
import sys

from shop import price


def main():
    print(price(int(sys.argv[1])))


if __name__ == "__main__":
    main()
"""

posix = pytest.mark.skipif(sys.platform == "win32", reason="the layout of a virtual environment")


class Venv:
    """A virtual environment without pip that borrows the packages of the one that runs these tests."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if not entry.name.startswith(("holdtrue", "_editable", "__editable", "__pycache__")):
                (self.site / entry.name).symlink_to(entry)

    def script(self, name: str, text: str) -> None:
        path = self.python.parent / name
        path.write_text(f"#!{self.python}\n{text}")
        path.chmod(0o755)


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path / "venv")


def sources(toy: Toy, layout: str) -> str:
    return "src/" if layout == "src" else ""


def built(root: Path, test: str, extra: dict[str, str] | None = None, layout: str = "src") -> Toy:
    """A fix of the price in a package, and a test for it."""
    toy = Toy(root)
    lead = sources(toy, layout)
    toy.commit("base", {f"{lead}shop/__init__.py": BUGGY, f"{lead}shop/__main__.py": MAIN})
    files = {f"{lead}shop/__init__.py": FIXED, "tests/test_shop.py": test} | (extra or {})
    toy.commit("fix: price", files)
    return toy


IMPORTED = "import shop\n\ndef test_it():\n    assert shop.price(1) == 10\n"
CALLED = """
    import subprocess, sys

    def test_it():
        said = subprocess.run(COMMAND, capture_output=True, text=True)
        assert said.stdout == "10\\n", said.stderr
"""


def by_path_file(venv: Venv, source: Path) -> None:
    (venv.site / "shop.pth").write_text(f"{source}\n")


def by_finder(venv: Venv, source: Path, where: str = "append(Finder)") -> None:
    """As setuptools does it, and with `where` as build tools do that put themselves first."""
    code = f"""
        import importlib.util, sys

        MAPPING = {{"shop": {str(source / "shop")!r}, "tills": {str(source / "tills")!r}}}

        class Finder:
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                top, _, rest = name.partition(".")
                if top in MAPPING:
                    base = MAPPING[top] + ("/" + rest.replace(".", "/") if rest else "")
                    import os
                    for place, inside in ((base + "/__init__.py", [base]), (base + ".py", None)):
                        if os.path.exists(place):
                            return importlib.util.spec_from_file_location(
                                name, place, submodule_search_locations=inside
                            )

        def install():
            sys.meta_path.{where}
    """
    (venv.site / "__editable___shop_finder.py").write_text(textwrap.dedent(code))
    (venv.site / "__editable__.shop.pth").write_text(
        "import __editable___shop_finder; __editable___shop_finder.install()\n"
    )


INSTALLS = {
    "a path file": by_path_file,
    "a finder": by_finder,
    "a finder before all others": lambda venv, source: by_finder(venv, source, "insert(0, Finder)"),
}


@posix
@pytest.mark.parametrize("install", INSTALLS)
@pytest.mark.parametrize("how", ["imported", "python -m", "a console script"])
def test_an_editable_install_of_the_checkout_does_not_answer_for_the_parent(
    tmp_path: Path, venv: Venv, install: str, how: str
) -> None:
    command = {"python -m": [str(venv.python), "-m", "shop", "1"], "a console script": ["shop", "1"]}.get(how, [])
    test = IMPORTED if how == "imported" else textwrap.dedent(CALLED).replace("COMMAND", repr(command))
    toy = built(tmp_path / "checkout", test)
    INSTALLS[install](venv, toy.root / "src")
    venv.script("shop", "import sys\nfrom shop.__main__ import main\nsys.exit(main())\n")
    # The install works, and it is the fixed code.
    said = subprocess.run([venv.python, "-m", "shop", "1"], capture_output=True, text=True, check=True, cwd="/")
    assert said.stdout == "10\n"
    commit = toy.judged(python=venv.python)
    assert (only(commit).verdict, commit.result) == ("own-assertion", "pass"), only(commit).reason


@posix
@pytest.mark.parametrize("install", INSTALLS)
def test_a_module_that_only_the_checkout_has_does_not_exist_at_the_parent(
    tmp_path: Path, venv: Venv, install: str
) -> None:
    test = "def test_it():\n    import tills\n    assert tills.OPEN\n"
    toy = built(tmp_path / "checkout", test, {"src/tills/__init__.py": "OPEN = True\n"})
    INSTALLS[install](venv, toy.root / "src")
    assert only(toy.judged(python=venv.python)).verdict == "missing-api"


@posix
def test_a_module_that_is_installed_beside_the_tree_cannot_be_judged(tmp_path: Path, venv: Venv) -> None:
    test = "def test_it():\n    import tills\n    assert tills.OPEN\n"
    toy = built(tmp_path / "checkout", test, {"src/tills.py": "OPEN = True\n"})
    (venv.site / "tills.py").write_text("OPEN = False\n")
    test_ = only(toy.judged(python=venv.python))
    assert test_.verdict == "environment"
    assert "tills was loaded from" in test_.reason


@posix
def test_an_installed_copy_of_the_package_does_not_answer_for_the_tree(tmp_path: Path, venv: Venv) -> None:
    toy = built(tmp_path / "checkout", IMPORTED)
    (venv.site / "shop").mkdir()
    (venv.site / "shop" / "__init__.py").write_text(FIXED)
    assert only(toy.judged(python=venv.python)).verdict == "own-assertion"


@posix
@pytest.mark.parametrize(
    "change", ["env={'PATH': '/usr/bin:/bin'}", "env={**__import__('os').environ, 'PYTHONPATH': ''}"]
)
def test_a_child_that_is_kept_from_the_tree_and_runs_the_install_cannot_be_judged(
    tmp_path: Path, venv: Venv, change: str
) -> None:
    test = textwrap.dedent(CALLED).replace("COMMAND", f"[{str(venv.python)!r}, '-m', 'shop', '1'], {change}")
    toy = built(tmp_path / "checkout", test)
    by_path_file(venv, toy.root / "src")
    assert only(toy.judged(python=venv.python)).verdict == "environment"


@posix
def test_a_child_whose_own_path_leads_into_the_tree_runs_the_tree(tmp_path: Path, venv: Venv) -> None:
    own = "env={'PYTHONPATH': __import__('os').path.abspath(__file__ + '/../../src')}"
    test = textwrap.dedent(CALLED).replace("COMMAND", f"[{str(venv.python)!r}, '-m', 'shop', '1'], {own}")
    toy = built(tmp_path / "checkout", test)
    by_path_file(venv, toy.root / "src")
    assert only(toy.judged(python=venv.python)).verdict == "own-assertion"


@posix
def test_a_child_that_ignores_the_environment_and_runs_the_install_cannot_be_judged(tmp_path: Path, venv: Venv) -> None:
    test = textwrap.dedent(CALLED).replace("COMMAND", f"[{str(venv.python)!r}, '-I', '-m', 'shop', '1']")
    toy = built(tmp_path / "checkout", test)
    by_path_file(venv, toy.root / "src")
    assert only(toy.judged(python=venv.python)).verdict == "environment"


@posix
def test_a_child_with_an_environment_of_its_own_that_does_not_run_the_project_is_no_doubt(
    tmp_path: Path, venv: Venv
) -> None:
    test = f"""
        import subprocess
        import shop

        def test_it():
            said = subprocess.run([{str(venv.python)!r}, "-c", "print(10)"], env={{}}, capture_output=True, text=True)
            assert said.stdout == f"{{shop.price(1)}}\\n"
    """
    toy = built(tmp_path / "checkout", test)
    by_path_file(venv, toy.root / "src")
    assert only(toy.judged(python=venv.python)).verdict == "own-assertion"


@posix
@pytest.mark.parametrize("place", ["the environment", "the tree"])
def test_the_sitecustomize_of_others_still_runs(tmp_path: Path, venv: Venv, place: str) -> None:
    words = "import os\nos.environ['SITE_SAID'] = 'here'\n"
    test = "import os, shop\n\ndef test_it():\n    assert os.environ['SITE_SAID']\n    assert shop.price(1) == 10\n"
    toy = Toy(tmp_path / "checkout")
    toy.commit(
        "base", {"src/shop/__init__.py": BUGGY} | ({"src/sitecustomize.py": words} if place == "the tree" else {})
    )
    toy.commit("fix: price", {"src/shop/__init__.py": FIXED, "tests/test_shop.py": test})
    if place == "the environment":
        (venv.site / "sitecustomize.py").write_text(words)
    assert only(toy.judged(python=venv.python)).verdict == "own-assertion"


def test_a_namespace_package_may_have_parts_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    (other / "acme").mkdir(parents=True)
    (other / "acme" / "scales.py").write_text("UNIT = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(other))
    toy = Toy(tmp_path / "checkout")
    toy.commit("base", {"src/acme/shop.py": BUGGY})
    test = "from acme import scales, shop\n\ndef test_it():\n    assert shop.price(scales.UNIT) == 10\n"
    toy.commit("fix: price", {"src/acme/shop.py": FIXED, "tests/test_shop.py": test})
    assert only(toy.judged()).verdict == "own-assertion"


# --- identity


def identity(venv: Venv, **variables: str) -> str | None:
    return environment.identity(venv.python, variables, [], Path("/nowhere"))


def test_what_is_installed_makes_the_identity(tmp_path: Path, venv: Venv) -> None:
    found = [identity(venv)]

    def differs() -> None:
        found.append(identity(venv))
        assert found[-1] is not None
        assert len(set(found)) == len(found)

    assert identity(venv) == found[0] is not None
    about = venv.site / "tills-1.0.dist-info"
    about.mkdir()
    (about / "RECORD").write_text("tills.py,,\n")
    differs()
    (about / "RECORD").write_text("tills.py,,\ntills_more.py,,\n")
    differs()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tills.py").write_text("A = 1\n")
    by_path_file(venv, elsewhere)
    differs()
    (elsewhere / "tills.py").write_text("A = 12\n")
    differs()
    (elsewhere / "__pycache__").mkdir()
    (elsewhere / "__pycache__" / "tills.cpython-311.pyc").write_text("")
    assert identity(venv) == found[-1]


def test_variables_make_the_identity_but_for_those_of_a_shell(venv: Venv) -> None:
    assert identity(venv, MODE="a") != identity(venv, MODE="b")
    assert identity(venv, SHLVL="1") == identity(venv, SHLVL="2")


def test_an_environment_that_cannot_be_looked_through_has_no_identity(
    venv: Venv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "LENT_FILES", 2)
    (tmp_path / "lent").mkdir()
    for number in range(4):
        (tmp_path / "lent" / f"m{number}.py").write_text("")
    assert environment.identity(venv.python, {}, [tmp_path / "lent"], tmp_path / "none") is None
    assert environment.identity(tmp_path / "no" / "python", {}, [], tmp_path) is None


# --- --isolate

BACKEND = """
import hashlib, pathlib, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "shop-1.0-py3-none-any.whl"
    files = {
        "shop/__init__.py": pathlib.Path("src/shop/__init__.py").read_text(),
        "shop/__main__.py": pathlib.Path("src/shop/__main__.py").read_text(),
        "shop-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: shop\\nVersion: 1.0\\nProvides-Extra: test\\n"
        "Requires-Dist: EXTRA; extra == 'test'\\n",
        "shop-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: toy\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "shop-1.0.dist-info/entry_points.txt": "[console_scripts]\\nshop = shop.__main__:main\\n",
    }
    record = "".join(f"{path},,\\n" for path in files) + "shop-1.0.dist-info/RECORD,,\\n"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        for path, text in {**files, "shop-1.0.dist-info/RECORD": record}.items():
            wheel.writestr(path, text)
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "toy_backend"
backend-path = ["."]

[project]
name = "shop"
version = "1.0"

[project.optional-dependencies]
test = ["EXTRA"]
docs = ["nobody-has-this"]

[tool.gate]
plugin_autoload = false
runs = 1
"""


def repacked(name: str, folder: Path) -> None:
    """The wheel of an installed distribution."""
    found = metadata.distribution(name)
    rows = [row for row in found.files or () if ".." not in row.parts and row.suffix != ".pyc"]
    with zipfile.ZipFile(folder / f"{name}-{found.version}-py3-none-any.whl", "w") as wheel:
        listed = io.StringIO()
        for row in rows:
            if row.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
                wheel.writestr(row.as_posix(), row.read_binary())
                csv.writer(listed, lineterminator="\n").writerow((row.as_posix(), "", ""))
        record = next(row for row in rows if row.name == "RECORD").as_posix()
        wheel.writestr(record, listed.getvalue() + f"{record},,\n")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "sortedcontainers"):
        repacked(name, folder)
    return folder


@pytest.fixture
def offline(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return


def packaged(root: Path, test: str, extra: str) -> Toy:
    toy = Toy(root)
    toy.commit(
        "base",
        {
            "pyproject.toml": PROJECT.replace("EXTRA", extra),
            "toy_backend.py": BACKEND.replace("EXTRA", extra),
            "src/shop/__init__.py": BUGGY,
            "src/shop/__main__.py": MAIN,
        },
    )
    toy.commit("fix: price", {"src/shop/__init__.py": FIXED, "tests/test_shop.py": test})
    return toy


@posix
@pytest.mark.timeout(300)
def test_an_isolated_environment_has_the_declared_dependencies_and_the_code_of_the_tree(
    tmp_path: Path, own_cache: Path, offline: None
) -> None:
    test = """
        import importlib.metadata
        import subprocess, sys
        import sortedcontainers
        import shop

        def test_imported():
            assert importlib.metadata.version("shop") == "1.0"
            assert list(sortedcontainers.SortedList([shop.price(1), 3])) == [3, 10]

        def test_script():
            assert subprocess.run(["shop", "1"], capture_output=True, text=True).stdout == "10\\n"

        def test_nothing_else_is_installed():
            assert shop.price(1) == 10
            import hypothesis
    """
    toy = packaged(tmp_path / "checkout", test, "sortedcontainers")
    commit = toy.judged(isolate=True)
    assert verdicts(commit) == {
        "test_imported": "own-assertion",
        "test_script": "own-assertion",
        "test_nothing_else_is_installed": "environment",
    }, [test.reason for test in commit.tests]
    (built_one,) = [path for path in (own_cache / "holdtrue-gate" / "environments").iterdir() if path.is_dir()]
    made = built_one.stat().st_ctime_ns, (built_one / ".ready").stat().st_mtime_ns
    toy.judged(isolate=True)
    assert (built_one / ".ready").stat().st_mtime_ns == made[1]


@posix
@pytest.mark.timeout(300)
def test_an_environment_that_cannot_be_built_cannot_be_judged_and_says_what_pip_said(
    tmp_path: Path, own_cache: Path, offline: None
) -> None:
    toy = packaged(tmp_path / "checkout", IMPORTED, "no-such-distribution-anywhere")
    with pytest.raises(CannotJudgeError) as caught:
        toy.judged(isolate=True)
    assert caught.value.code == "no-environment"
    assert "no-such-distribution-anywhere" in caught.value.message
    assert not [path for path in (own_cache / "holdtrue-gate" / "environments").iterdir() if path.is_dir()]


def test_extras_and_groups_for_tests_are_found_by_name() -> None:
    text = b"""
        [project]
        name = "x"
        [project.optional-dependencies]
        docs = ["sphinx"]
        tests = ["a"]
        [dependency-groups]
        base = ["b"]
        test = ["c", {include-group = "base"}, {include-group = "test"}]
        lint = ["d"]
    """
    assert isolation.extras(text) == ("tests",)
    assert isolation.group_requirements(text) == ("c", "b")
    assert isolation.extras(None, b"[options.extras_require]\ntest = a\ndocs = b\n[other]\ndev = c\n") == ("test",)
    assert isolation.extras(b"not toml [", None) == ()
