"""`gate sabotage`: what counts as a catch, what does not, what cannot be judged; and that the project stays untouched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from gate.tests.spec_toys import PATCH, PROPERTY, SPEC, STOCK, Toy
from holdtrue_gate.sabotage import CANNOT_JUDGE, CAUGHT, NOT_CAUGHT, Outcome, judge, result
from holdtrue_gate.spec import Sabotage, load
from holdtrue_gate.verdict import Reading, Verdict

KIT = """
def assert_gone(shelf, left):
    assert shelf.pieces == left
"""
USES_KIT = """

def test_the_kit_sees_what_is_left():
    from properties.kit import assert_gone

    shelf = Shelf(3)
    shelf.take(2)
    assert_gone(shelf, 1)
"""


def planted(name: str, caught_by: str = PROPERTY) -> str:
    return f'\n[[sabotage]]\nname = "{name}"\npatch = "{patch(name)}"\ncaught_by = ["{caught_by}"]\n'


def patch(name: str) -> str:
    return f"invariants/sabotage/INV-001-{name}.patch"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, int, dict[str, dict[str, Any]]]:
    """One run over planted bugs of every kind; nothing of the project is committed yet."""
    toy = Toy.build(tmp_path_factory.mktemp("shop"))
    toy.write("properties/kit.py", KIT)
    toy.change("pyproject.toml", 'pythonpath = ["src"]', 'pythonpath = ["src", "."]')
    toy.write(PROPERTY, toy.read(PROPERTY) + USES_KIT)
    toy.plant(patch("harmless"), STOCK, "self.pieces -= wanted", "self.pieces = self.pieces - wanted")
    toy.plant(patch("import-error"), STOCK, "class Shelf", "import shop.nowhere\n\n\nclass Shelf")
    toy.plant(patch("raises"), STOCK, "return wanted", "raise ValueError(wanted)")
    whole = "if wanted > self.pieces:\n            return 0\n        self.pieces -= wanted"
    toy.plant(patch("raises-first"), STOCK, whole, "if wanted > self.pieces:\n            raise ValueError")
    toy.plant(patch("kept"), STOCK, "self.pieces -= wanted", "pass")
    toy.write(patch("stale"), toy.read(PATCH).replace("if wanted > self.pieces", "if wanted > self.places"))
    toy.plant(patch("on-a-test"), PROPERTY, "assert shelf.pieces == 3", "assert shelf.pieces == 4")
    names = ["harmless", "import-error", "raises-first", "stale", "on-a-test", "absent"]
    spec = toy.read(SPEC) + "".join(planted(name) for name in names)
    spec += planted("raises", f"{PROPERTY}::test_what_is_taken_is_gone")
    spec += planted("kept", f"{PROPERTY}::test_the_kit_sees_what_is_left")
    toy.write(SPEC, spec)
    before = snapshot(toy)
    done = toy.gate("sabotage", "--json")
    assert snapshot(toy) == before, "the project itself was changed"
    answer = json.loads(done.output)
    return toy, done.exit_code, {entry["name"]: entry for entry in answer["sabotage"]}


def snapshot(toy: Toy) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(toy.root.rglob("*")) if path.is_file()}


def test_a_bug_is_caught_by_an_assertion_of_a_test(judged: tuple[Toy, int, dict[str, dict[str, Any]]]) -> None:
    bug = judged[2]["no-look"]

    assert bug["status"] == "caught"
    (catch,) = bug["caught_by"]
    assert catch["id"].startswith(f"{PROPERTY}::test_more_than_there_is_cannot_be_taken[")
    assert catch["location"] == f"{PROPERTY}:9"
    assert catch["exception"] == "AssertionError"


def test_an_assertion_in_the_shared_kit_is_one_of_the_tests(judged: tuple[Toy, int, dict[str, dict[str, Any]]]) -> None:
    bug = judged[2]["kept"]

    assert bug["status"] == "caught"
    assert bug["caught_by"][0]["location"] == "properties/kit.py:3"


def test_a_failure_that_is_no_catch_does_not_hide_a_catch_after_it(
    judged: tuple[Toy, int, dict[str, dict[str, Any]]],
) -> None:
    bug = judged[2]["raises-first"]

    assert bug["status"] == "caught"
    assert bug["caught_by"][0]["id"] == f"{PROPERTY}::test_what_is_taken_is_gone"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("harmless", "tests pass with the bug in place"),
        (
            "import-error",
            "not in an assertion of its own: undeclared-exception (ModuleNotFoundError) at src/shop/stock.py:",
        ),
        ("raises", "not in an assertion of its own: undeclared-exception (ValueError) at src/shop/stock.py:"),
    ],
)
def test_no_other_failure_is_a_catch(judged: tuple[Toy, int, dict[str, dict[str, Any]]], name: str, why: str) -> None:
    bug = judged[2][name]

    assert bug["status"] == "not-caught"
    assert why in bug["why"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stale", "does not apply: patch failed: src/shop/stock.py"),
        ("on-a-test", f"changes {PROPERTY}, which is no product file"),
        ("absent", "there is no file invariants/sabotage/INV-001-absent.patch"),
    ],
)
def test_what_cannot_be_planted_cannot_be_judged(
    judged: tuple[Toy, int, dict[str, dict[str, Any]]], name: str, why: str
) -> None:
    bug = judged[2][name]

    assert bug["status"] == "cannot-judge"
    assert why in bug["why"]


def test_one_bug_that_is_not_caught_makes_the_answer_no(judged: tuple[Toy, int, dict[str, dict[str, Any]]]) -> None:
    assert judged[1] == 1


def test_a_commit_is_judged_as_it_was_and_tests_that_are_red_without_the_patch_cannot_judge(tmp_path: Path) -> None:
    toy = Toy.build(tmp_path)
    toy.commit()
    toy.change(PROPERTY, "assert shelf.pieces == 3", "assert shelf.pieces == 4")

    committed = toy.gate("sabotage", "--rev", "HEAD", "INV-001")
    assert committed.exit_code == 0, committed.output
    assert "1 of 1 caught" in committed.output

    edited = toy.gate("sabotage", "INV-001")
    assert edited.exit_code == 3, edited.output
    assert "CANNOT JUDGE: without the patch" in " ".join(edited.output.split())


def test_tests_that_cannot_be_imported_without_the_patch_cannot_judge_and_say_why(tmp_path: Path) -> None:
    toy = Toy.build(tmp_path)
    toy.change(PROPERTY, "import pytest", "import pytest\nimport no_such_module_at_all")
    done = toy.gate("sabotage", "--json")

    assert done.exit_code == 3
    (bug,) = json.loads(done.output)["sabotage"]
    assert bug["status"] == "cannot-judge"
    assert f"without the patch {PROPERTY}::test_more_than_there_is_cannot_be_taken is not green" in bug["why"]
    assert "environment (ModuleNotFoundError)" in bug["why"]


def test_an_interrupted_run_answers_nothing_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy.build(tmp_path / "shop")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    def interrupt(*_arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr("holdtrue_gate.patches.apply", interrupt)
    done = toy.gate("sabotage")

    assert done.exit_code == 3
    assert "interrupted" in done.output
    assert not list((tmp_path / "temporary").iterdir())


def test_a_project_outside_git_or_an_unknown_invariant_or_revision_is_a_usage_error(tmp_path: Path) -> None:
    toy = Toy.build(tmp_path)
    assert toy.gate("sabotage", "INV-404").exit_code == 2
    assert toy.gate("sabotage", "--rev", "nowhere").exit_code == 2
    subprocess.run(["rm", "-rf", str(toy.root / ".git")], check=True)
    assert toy.gate("sabotage").exit_code == 2


def test_an_invariant_without_a_planted_bug_proves_nothing(tmp_path: Path) -> None:
    toy = Toy.build(tmp_path)
    toy.write(SPEC, toy.read(SPEC).partition("[[sabotage]]")[0])
    done = toy.gate("sabotage")

    assert done.exit_code == 3
    assert "No bug is planted here" in done.output


GREEN = Reading(Verdict.VACUOUS, reason="passes")
OWN = Reading(Verdict.OWN_ASSERTION, "AssertionError", location="t.py:3")
HANG = Reading(Verdict.HANG, "no end within 60 s", reason="did not end within 60 s")
NO_MODULE = Reading(Verdict.ENVIRONMENT, "ModuleNotFoundError", reason="the module 'x' is not installed")
SKIPPED = Reading(Verdict.NOT_RUN, reason="is skipped (no fork)")
BROKEN = Reading(Verdict.ENVIRONMENT, reason="pytest did not start (exit status 4)")


def verdict_on(
    toy: Path, without: dict[str, Reading], under: dict[str, Reading], caught_by: tuple[str, ...] = ("t.py",)
) -> Outcome:
    Toy.build(toy)
    return judge(load(toy)[0], Sabotage("bug", "bug.patch", caught_by), without, under)


@pytest.mark.parametrize(
    ("without", "under", "caught_by", "status"),
    [
        ({"t.py::a": GREEN}, {"t.py::a": OWN}, ("t.py",), CAUGHT),
        ({"t.py::a": GREEN}, {"t.py::a": HANG}, ("t.py",), NOT_CAUGHT),
        ({"t.py::a": GREEN}, {"t.py::a": NO_MODULE}, ("t.py",), NOT_CAUGHT),
        ({"t.py::a": GREEN}, {"t.py::a": BROKEN}, ("t.py",), CANNOT_JUDGE),
        ({"t.py::a": GREEN}, {"t.py::a": SKIPPED}, ("t.py",), NOT_CAUGHT),
        ({"t.py::a": GREEN, "t.py::b": GREEN}, {"t.py::a": OWN, "t.py::b": GREEN}, ("t.py",), CAUGHT),
        ({"t.py::a": GREEN, "t.py::b": GREEN}, {"t.py::a": OWN, "t.py::b": GREEN}, ("t.py::a", "t.py::b"), NOT_CAUGHT),
        ({"t.py::a": GREEN, "t.py::b": GREEN}, {"t.py::a": OWN, "t.py::b": OWN}, ("t.py::a", "t.py::b"), CAUGHT),
        ({"t.py::a": OWN}, {"t.py::a": OWN}, ("t.py",), CANNOT_JUDGE),
        ({"t.py::a": SKIPPED}, {"t.py::a": OWN}, ("t.py",), CANNOT_JUDGE),
        ({}, {"t.py::a": OWN}, ("t.py",), CANNOT_JUDGE),
        ({"t.py::a": GREEN, "t.py::b": SKIPPED}, {"t.py::a": GREEN, "t.py::b": OWN}, ("t.py",), NOT_CAUGHT),
        ({"t.py::ab": GREEN}, {"t.py::ab": OWN}, ("t.py::a",), CANNOT_JUDGE),
    ],
)
def test_the_rule_asks_every_entry_for_a_test_that_was_green_and_fails_in_its_own_assertion(
    tmp_path: Path, without: dict[str, Reading], under: dict[str, Reading], caught_by: tuple[str, ...], status: str
) -> None:
    assert verdict_on(tmp_path, without, under, caught_by).status == status


def test_the_answer_for_all_is_no_before_unknown_before_yes() -> None:
    caught, missed, unknown = (Outcome("INV-001", "x", status) for status in (CAUGHT, NOT_CAUGHT, CANNOT_JUDGE))

    assert result([caught]) == "pass"
    assert result([caught, unknown]) == "cannot-judge"
    assert result([unknown, missed, caught]) == "fail"
    assert result([]) == "cannot-judge"
