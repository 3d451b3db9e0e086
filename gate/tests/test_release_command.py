"""The command `gate release` on toy repositories: each thing that must stop it is planted, and it must say so."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gate.tests import commit_toys, spec_toys
from gate.tests.spec_toys import PROPERTY, SPEC, STOCK
from holdtrue_gate.cli import gate

FINDING = """\
id = "F-0001"
title = "the last piece is never sold"
category = "data"
severity = "B"
invariant = "INV-001"
status = "fixed"
tests = ["regressions/F-0001-last-piece/test_last_piece.py::test_the_last_piece_is_sold"]
"""
FOLDER = "regressions/F-0001-last-piece"
REGRESSION = """\
from shop.stock import Shelf


def test_the_last_piece_is_sold():
    assert Shelf(1).take(1) == 1
"""
SETTINGS = (
    """tests = ["properties"]""",
    """tests = ["properties", "regressions"]\nplugin_autoload = false\nruns = 1""",
)
CHANGES = "# Changes\n\n## 1.2.3 (2030-06-15)\n"


class Toy(spec_toys.Toy):
    """The shop with one finding that was fixed, committed, ready to be released as 1.2.3."""

    def head(self) -> str:
        return self.answer("rev-parse", "HEAD").strip()

    def answer(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def release(self, *arguments: str) -> Result:
        return self.gate("release", "-j", "1", *arguments)

    def said(self, *arguments: str) -> dict[str, object]:
        done = self.release("--json", *arguments)
        assert done.stdout, done.output
        return {"exit": done.exit_code, **json.loads(done.stdout)}


def reasons(said: dict[str, object]) -> list[tuple[str, str]]:
    return [(reason["check"], reason["code"]) for reason in said["reasons"] if reason["outcome"] != "warn"]  # type: ignore[attr-defined]


@functools.cache
def _template() -> Path:
    root = Path(tempfile.mkdtemp(prefix="release-toy-")) / "shop"
    toy = Toy.build(root)
    toy.change("pyproject.toml", 'name = "shop"', 'name = "shop"\nversion = "1.2.3"')
    toy.change("pyproject.toml", *SETTINGS)
    toy.write("CHANGELOG.md", CHANGES)
    toy.git("config", "user.name", "Toy")
    toy.git("config", "user.email", "toy@example.org")
    toy.change(STOCK, "wanted > self.pieces", "wanted >= self.pieces")
    toy.commit()
    toy.change(STOCK, "wanted >= self.pieces", "wanted > self.pieces")
    toy.write(f"{FOLDER}/finding.toml", FINDING)
    toy.write(f"{FOLDER}/test_last_piece.py", REGRESSION)
    toy.git("add", "-A")
    toy.git("commit", "-q", "-m", "fix: sell the last piece\n\nFinding: F-0001")
    done = toy.gate("sabotage", "--rev", "HEAD", "--report", f"json={root.parent / 'sabotage.json'}")
    assert done.exit_code == 0, done.output
    return root


@pytest.fixture(autouse=True)
def shared_cache(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache for all of this module: the fix of the template is replayed once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(template.parent / "cache"))


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    yield _template()
    shutil.rmtree(_template().parent, ignore_errors=True)


@pytest.fixture
def toy(template: Path, tmp_path: Path) -> Toy:
    shutil.copytree(template, tmp_path / "shop", symlinks=True)
    return Toy(tmp_path / "shop")


def without_invariants(toy: Toy) -> None:
    """Take the invariants out, for tests that are not about them: to compare and to plant takes its seconds."""
    shutil.rmtree(toy.root / "invariants")


def commit(toy: Toy, message: str = "more") -> None:
    toy.git("add", "-A")
    toy.git("commit", "-q", "-m", message)


@pytest.fixture
def brought(template: Path) -> tuple[str, str]:
    """The planted bugs as they were tried once, for tests that are not about them."""
    return "--sabotage", str(template.parent / "sabotage.json")


def fingerprint(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# --- green


def test_a_commit_with_nothing_against_it_is_released_and_nothing_is_written_into_the_repository(
    toy: Toy, tmp_path: Path
) -> None:
    before = fingerprint(toy.root)
    statement = tmp_path / "statement.json"
    report = tmp_path / "report.json"
    done = toy.release("--attest", str(statement), "--report", f"json={report}")
    assert done.exit_code == 0, done.output
    assert "1 of 1 fixes proved, 1 of 1 planted bugs caught" in done.stdout
    assert fingerprint(toy.root) == before
    said = json.loads(report.read_text())
    (finding,) = said["findings"]
    assert (finding["proof"]["state"], finding["proof"]["commit"]) == ("proved", toy.head())
    written = json.loads(statement.read_text())
    assert written["subject"] == [{"name": "shop", "digest": {"gitCommit": toy.head()}}]
    assert written["predicate"]["result"] == "PASSED"
    assert {"finding F-0001", "invariant INV-001", "work tree"} <= set(written["predicate"]["passedTests"])
    (digest,) = [
        entry["digest"] for entry in written["predicate"]["configuration"] if entry["name"] == "gate-release.json"
    ]
    assert digest == {"sha256": hashlib.sha256(report.read_bytes()).hexdigest()}


def test_the_answer_and_the_statement_have_the_same_bytes_each_time(
    toy: Toy, brought: tuple[str, str], tmp_path: Path
) -> None:
    files = [tmp_path / "1.json", tmp_path / "2.json"]
    outputs = [toy.release("--json", "--attest", str(file), *brought).stdout for file in files]
    assert outputs[0] == outputs[1]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_progress_goes_to_stderr(toy: Toy, brought: tuple[str, str]) -> None:
    done = toy.release("--json", *brought)
    json.loads(done.stdout)
    assert f"fix 1/1 {toy.head()[:10]} pass" in done.stderr


# --- findings


def planted_finding(toy: Toy, id_: str, category: str, severity: str, status: str) -> None:
    text = FINDING.replace('id = "F-0001"', f'id = "{id_}"').replace('"data"', f'"{category}"')
    text = text.replace('"B"', f'"{severity}"').replace('status = "fixed"', status)
    toy.write(f"regressions/{id_}-x/finding.toml", text)


def test_one_open_data_finding_is_enough_to_stop_it(toy: Toy) -> None:
    without_invariants(toy)
    planted_finding(toy, "F-0002", "data", "D", 'status = "open"')
    commit(toy)
    said = toy.said()
    assert (said["exit"], said["result"]) == (1, "fail")
    assert reasons(said) == [("finding F-0002", "open-finding")]


def test_an_open_finding_that_the_policy_lets_through_is_told_and_the_statement_warns(toy: Toy, tmp_path: Path) -> None:
    without_invariants(toy)
    planted_finding(toy, "F-0002", "compatibility", "A", 'status = "open"')
    commit(toy)
    said = toy.said("--attest", str(tmp_path / "s.json"))
    assert (said["exit"], said["result"]) == (0, "pass")
    predicate = json.loads((tmp_path / "s.json").read_text())["predicate"]
    assert (predicate["result"], predicate["warnedTests"]) == ("WARNED", ["finding F-0002"])


def test_a_policy_with_an_unknown_key_is_a_usage_error(toy: Toy) -> None:
    toy.write("pyproject.toml", toy.read("pyproject.toml") + "\n[tool.gate.release]\nblok = []\n")
    commit(toy)
    done = toy.release()
    assert done.exit_code == 2
    assert "did you mean `block`?" in done.output


def test_in_a_shallow_clone_nobody_knows_and_that_is_no_pass(toy: Toy, tmp_path: Path) -> None:
    without_invariants(toy)
    toy.write("README.md", "more\n")
    commit(toy)
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", toy.root.as_uri(), str(shallow)], check=True, timeout=60)
    said = Toy(shallow).said()
    assert (said["exit"], said["result"]) == (3, "cannot-judge")
    assert reasons(said) == [("finding F-0001", "not-proved")]


def vacuous_fix(toy: Toy) -> None:
    """A fix whose test would pass without it, and whose finding is called fixed all the same."""
    test = REGRESSION.replace("Shelf(1).take(1) == 1", "Shelf(3).take(1) == 1").replace("the_last_piece", "one")
    toy.write("regressions/F-0002-one/test_one.py", test)
    finding = FINDING.replace("F-0001-last-piece/test_last_piece", "F-0002-one/test_one").replace("last_piece", "one")
    toy.write("regressions/F-0002-one/finding.toml", finding.replace("F-0001", "F-0002").replace("the_one", "one"))
    toy.change("src/shop/enforces.py", "lambda function: function", "lambda given: given")
    commit(toy, "fix: nothing\n\nFinding: F-0002")


def test_everything_that_stops_it_is_told_at_once_worst_first(toy: Toy, tmp_path: Path) -> None:
    vacuous_fix(toy)
    for number, (category, severity, status) in enumerate(
        (
            ("data", "B", 'status = "open"'),
            ("resource", "C", 'status = "open"'),
            ("compatibility", "D", 'status = "open"'),
            ("compatibility", "D", 'status = "accepted"\nreason = "r"\nexpiry = 2020-01-01'),
            ("trust", "A", 'status = "accepted"\nreason = "r"\nexpiry = 2999-01-01'),
            ("data", "A", 'status = "fixed"'),
        ),
        start=3,
    ):
        planted_finding(toy, f"F-000{number}", category, severity, status)
    toy.write("regressions/F-0009-gone/finding.toml", FINDING.replace("F-0001", "F-0009"))
    commit(toy)
    shutil.rmtree(toy.root / "regressions/F-0009-gone")
    # The policy is that of the commit.
    policy = '\n[[tool.gate.release.block]]\ncategory = ["data", "resource"]\n'
    toy.write("pyproject.toml", toy.read("pyproject.toml") + policy)
    toy.change(f"{FOLDER}/test_last_piece.py", "def test_the_last", "def helper_the_last")
    toy.change(SPEC, 'enforced_by = ["shop.stock:Shelf.take"]', "enforced_by = []")
    toy.change(SPEC, "test_more_than_there_is_cannot_be_taken", "test_nowhere")
    toy.change(
        SPEC, 'caught_by = ["properties/test_inv_001_no_oversell.py::test_nowhere"]', f'caught_by = ["{PROPERTY}"]'
    )
    toy.change(PROPERTY, "assert shelf.take(wanted) == 0", "assert shelf.take(wanted) is not None")
    toy.change(PROPERTY, "    assert shelf.pieces == 3\n", "")
    commit(toy)
    toy.git("tag", "v1.2.4", "HEAD^")
    toy.write("untracked.txt", "x")
    toy.change(STOCK, "def take", "# edited\n    def take")
    statement = tmp_path / "s.json"
    done = toy.release("--tag", "v1.2.4", "--attest", str(statement), "--report", f"json={tmp_path / 'r.json'}")
    assert done.exit_code == 1, done.output
    said = json.loads((tmp_path / "r.json").read_text())
    assert [pair for pair in reasons(said) if not pair[1].startswith("trace:unlisted")] == [
        ("finding F-0003", "open-finding"),
        ("finding F-0004", "open-finding"),
        ("finding F-0006", "expired-acceptance"),
        ("history of findings", "finding-gone"),
        ("finding F-0008", "not-proved"),
        ("finding F-0002", "not-proved"),
        ("finding F-0008", "test-gone"),
        ("finding F-0001", "test-gone"),
        ("invariant INV-001", "sabotage-not-caught"),
        ("invariant INV-001", "trace:no-enforcer"),
        ("invariant INV-001", "trace:property-not-collected"),
        ("work tree", "dirty-tree"),
        ("tag", "tag:elsewhere"),
        ("tag", "tag:version"),
    ]
    told = {(reason["check"], reason["code"]): reason["message"] for reason in said["reasons"]}
    assert "test_one_is_sold is vacuous" in told["finding F-0002", "not-proved"]
    assert "no commit has the trailer" in told["finding F-0008", "not-proved"]
    assert "untracked.txt" in told["work tree", "dirty-tree"]
    assert [reason["check"] for reason in said["reasons"] if reason["outcome"] == "warn"] == [
        "finding F-0005",
        "finding F-0007",
    ]
    shown = [line.split(":")[0].strip("✘? ") for line in done.stdout.splitlines() if line.startswith("  ✘")]
    assert shown == [reason["check"] for reason in said["reasons"] if reason["outcome"] == "fail"]
    assert json.loads(statement.read_text())["predicate"]["result"] == "FAILED"
    assert toy.answer("tag").split() == ["v1.2.4"]


# --- a report of sabotage that was brought along


def test_a_report_of_another_commit_or_of_other_files_is_refused(
    toy: Toy, brought: tuple[str, str], tmp_path: Path
) -> None:
    data = json.loads(Path(brought[1]).read_text())
    assert data["subject"]["commit"] == toy.head()
    changes = [
        ({"subject": {**data["subject"], "commit": "0" * 40}}, "is about commit 0000000000"),
        ({"subject": {**data["subject"], "commit": None}}, "is about a work tree that is no commit"),
        ({"subject": {**data["subject"], "sha256": "0" * 64}}, "is about other files"),
        ({"subject": None}, "does not say which tree"),
        ({"schema": "other/1"}, "no report of the schema"),
        ({"sabotage": [{**data["sabotage"][0], "status": "fine"}]}, "no outcome"),
        ({"sabotage": [{**data["sabotage"][0], "caught_by": []}]}, "caught and by nothing"),
        ({"sabotage": data["sabotage"] * 2}, "twice"),
    ]
    for change, told in changes:
        (tmp_path / "s.json").write_text(json.dumps(data | change))
        done = toy.release("--sabotage", str(tmp_path / "s.json"))
        assert done.exit_code == 2
        assert told in done.output
    (tmp_path / "s.json").write_text("{")
    assert "is not JSON" in toy.release("--sabotage", str(tmp_path / "s.json")).output


def test_a_report_that_leaves_a_planted_bug_out_is_a_doubt(toy: Toy, brought: tuple[str, str], tmp_path: Path) -> None:
    data = json.loads(Path(brought[1]).read_text()) | {"sabotage": []}
    (tmp_path / "s.json").write_text(json.dumps(data))
    said = toy.said("--sabotage", str(tmp_path / "s.json"))
    assert (said["exit"], said["result"]) == (3, "cannot-judge")


def test_a_report_of_a_clean_work_tree_names_its_commit_and_that_of_an_edited_one_none(toy: Toy) -> None:
    assert json.loads(toy.gate("sabotage", "--json").stdout)["subject"]["commit"] == toy.head()
    toy.change(STOCK, "def take", "# edited\n    def take")
    assert json.loads(toy.gate("sabotage", "--json").stdout)["subject"]["commit"] is None


# --- the tree and the tag


def test_a_work_tree_that_is_not_the_commit_stops_it(toy: Toy, brought: tuple[str, str]) -> None:
    toy.change(STOCK, "def take", "# edited\n    def take")
    toy.change(PROPERTY, "import pytest", "# staged\nimport pytest")
    toy.git("add", PROPERTY)
    toy.write("conftest.py", "")
    said = toy.said(*brought)
    assert said["exit"] == 1
    assert reasons(said) == [("work tree", "dirty-tree")]
    (reason,) = said["reasons"]  # type: ignore[misc]
    for file in (STOCK, PROPERTY, "conftest.py"):
        assert file in reason["message"]


def test_a_tag_is_made_on_a_pass_and_never_again_and_no_hook_runs(
    toy: Toy, brought: tuple[str, str], tmp_path: Path
) -> None:
    hook = toy.root / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    done = toy.release("--tag", "v1.2.3", *brought)
    assert done.exit_code == 0, done.output
    assert "tagged v1.2.3" in done.stdout
    assert toy.answer("cat-file", "-t", "v1.2.3").strip() == "tag"
    assert toy.answer("rev-parse", "v1.2.3^{commit}").strip() == toy.head()
    object_ = toy.answer("rev-parse", "v1.2.3")
    assert "is there already" in toy.release("--tag", "v1.2.3", *brought).stdout
    assert toy.answer("rev-parse", "v1.2.3") == object_
    assert not (tmp_path / "ran").exists()


def test_a_tag_that_git_would_not_take_is_a_usage_error(toy: Toy) -> None:
    for tag in ("a b", "-d", "x..y", "v1~"):
        assert toy.release(f"--tag={tag}").exit_code == 2


# --- the wheel


def wheel(path: Path, files: dict[str, str], version: str = "1.2.3") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        metadata = f"Metadata-Version: 2.1\nName: shop\nVersion: {version}\n\n"
        archive.writestr(f"shop-{version}.dist-info/METADATA", metadata)
    return path


def test_a_wheel_of_the_commit_is_a_subject_of_the_statement(
    toy: Toy, brought: tuple[str, str], tmp_path: Path
) -> None:
    made = wheel(tmp_path / "shop-1.2.3-py3-none-any.whl", {"shop/stock.py": toy.read(STOCK)})
    done = toy.release("--wheel", str(made), "--attest", str(tmp_path / "s.json"), *brought)
    assert done.exit_code == 0, done.output
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    subject = json.loads((tmp_path / "s.json").read_text())["subject"]
    assert subject[1] == {"name": made.name, "digest": {"sha256": digest}}


def test_a_wheel_of_other_source_or_another_version_stops_it_and_the_statement_says_failed(
    toy: Toy, brought: tuple[str, str], tmp_path: Path
) -> None:
    edited = toy.read(STOCK).replace("wanted > self.pieces", "False")
    made = wheel(tmp_path / "shop-1.2.2-py3-none-any.whl", {"shop/stock.py": edited}, "1.2.2")
    said = toy.said("--wheel", str(made), "--attest", str(tmp_path / "s.json"), *brought)
    assert said["exit"] == 1
    assert reasons(said) == [("wheel", "foreign-wheel:source"), ("wheel", "foreign-wheel:version")]
    predicate = json.loads((tmp_path / "s.json").read_text())["predicate"]
    assert (predicate["result"], predicate["failedTests"]) == ("FAILED", ["wheel"])


def test_what_is_no_wheel_is_a_usage_error(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_text("no")
    assert toy.release("--wheel", str(tmp_path / "x.whl")).exit_code == 2
    assert toy.release("--wheel", str(tmp_path / "x.whl"), "--build", str(tmp_path)).exit_code == 2


BACKEND = """\
import os, zipfile


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "shop-1.2.3-py3-none-any.whl"
    moment = (1980 + int(os.environ["SOURCE_DATE_EPOCH"]) % 7, 1, 1, 0, 0, 0)
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for file in ("stock.py", "enforces.py", "failpoints.py", "__init__.py"):
            archive.writestr(zipfile.ZipInfo("shop/" + file, moment), open("src/shop/" + file).read())
        info = {"METADATA": "Metadata-Version: 2.1\\nName: shop\\nVersion: 1.2.3\\n"}
        info["WHEEL"] = "Wheel-Version: 1.0\\nGenerator: toy\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        info["RECORD"] = ""
        for file, text in info.items():
            archive.writestr(zipfile.ZipInfo("shop-1.2.3.dist-info/" + file, moment), text)
    open("left-behind", "w").close()
    return name
"""


def test_the_wheel_is_built_without_a_network_and_the_tree_stays_as_it_is(toy: Toy, tmp_path: Path) -> None:
    without_invariants(toy)
    toy.write("backend.py", BACKEND)
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n\n'
    toy.write("pyproject.toml", system + toy.read("pyproject.toml"))
    commit(toy)
    done = toy.release("--build", str(tmp_path / "dist"))
    assert done.exit_code == 0, done.output
    (built,) = (tmp_path / "dist").glob("*.whl")
    digest = hashlib.sha256(built.read_bytes()).hexdigest()
    statement = json.loads((tmp_path / "dist" / "gate-release.intoto.json").read_text())
    assert statement["subject"][1] == {"name": built.name, "digest": {"sha256": digest}}
    assert toy.answer("status", "--porcelain") == ""


def test_a_wheel_that_cannot_be_built_is_a_doubt(toy: Toy, tmp_path: Path) -> None:
    without_invariants(toy)
    toy.write(
        "pyproject.toml", '[build-system]\nrequires = []\nbuild-backend = "nowhere"\n\n' + toy.read("pyproject.toml")
    )
    commit(toy)
    said = toy.said("--build", str(tmp_path / "dist"))
    assert (said["exit"], said["result"]) == (3, "cannot-judge")
    assert reasons(said) == [("wheel", "wheel-not-built")]


# --- other projects


def test_a_project_without_invariants_or_findings_is_judged_by_what_it_has(tmp_path: Path) -> None:
    plain = commit_toys.Toy(tmp_path / "plain")
    plain.commit("base", {"shop.py": "x = 1\n"})
    done = CliRunner().invoke(gate, ["release", "-C", str(plain.root)])
    assert done.exit_code == 0, done.output
    plain.write({"shop.py": "x = 2\n"})
    assert CliRunner().invoke(gate, ["release", "-C", str(plain.root)]).exit_code == 1


def test_outside_of_git_and_without_a_commit_it_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert CliRunner().invoke(gate, ["release", "-C", str(tmp_path / "plain")]).exit_code == 2
    unborn = commit_toys.Toy(tmp_path / "unborn")
    assert CliRunner().invoke(gate, ["release", "-C", str(unborn.root)]).exit_code == 2
