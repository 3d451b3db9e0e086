"""`gate trace`: every way in which spec, code and tests can disagree is found and named; agreement passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gate.tests.spec_toys import PATCH, PROPERTY, SPEC, STOCK, Toy
from holdtrue_gate import trace
from holdtrue_gate.marks import Marks, read_marks
from holdtrue_gate.project import Project
from holdtrue_gate.spec import load


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy.build(tmp_path)


def static(toy: Toy) -> trace.Trace:
    """Everything but what needs pytest to be run."""
    found, project, specs = trace.Trace(), Project.at(toy.root), load(toy.root)
    marks = project.marks()
    trace.check_specs(specs, found)
    trace.check_marks(specs, marks, found)
    trace.check_patches(toy.root, specs, project.is_product, found)
    return found


def test_a_project_whose_parts_agree_passes(toy: Toy) -> None:
    done = toy.gate("trace")

    assert done.exit_code == 0, done.output
    assert "1 invariant, 1 function, 1 property, 1 failpoint, 1 planted bug" in done.output
    assert "problem" not in done.output
    assert "warning" not in done.output


SECOND = """
@enforces("INV-001")
def also():
    pass
"""

SPOILED: list[tuple[str, str, Callable[[Toy], None]]] = [
    (
        "unknown-function",
        "there is no function shop.shelf:Shelf.take. Did it move to shop.stock:Shelf.take?",
        lambda toy: toy.change(SPEC, "shop.stock:", "shop.shelf:"),
    ),
    (
        "unmarked-function",
        'src/shop/stock.py:9: shop.stock:Shelf.take is named by invariants/INV-001-no-oversell.toml and is not marked '
        '@enforces("INV-001")',
        lambda toy: toy.change(STOCK, '    @enforces("INV-001")\n', ""),
    ),
    (
        "unknown-invariant",
        "shop.stock:Shelf.take enforces INV-009, which no spec has",
        lambda toy: toy.change(STOCK, '"INV-001"', '"INV-001", "INV-009"'),
    ),
    (
        "unlisted-function",
        "shop.stock:also is marked",
        lambda toy: toy.write(STOCK, toy.read(STOCK) + SECOND),
    ),
    (
        "no-enforcer",
        "name the function that keeps it",
        lambda toy: toy.change(SPEC, '["shop.stock:Shelf.take"]', "[]"),
    ),
    (
        "no-property",
        "name a test that attacks it",
        lambda toy: toy.change(SPEC, f'ties = ["{PROPERTY}::test_more_than_there_is_cannot_be_taken"]', "ties = []"),
    ),
    (
        "no-sabotage",
        "plant a bug",
        lambda toy: toy.write(SPEC, toy.read(SPEC).partition("[[sabotage]]")[0]),
    ),
    (
        "unknown-failpoint",
        'no failpoints.hit("shelf.before_take") stands in the code',
        lambda toy: toy.change(STOCK, "shelf.before_take", "shelf.take"),
    ),
    (
        "unreadable-mark",
        "a failpoint without a literal name cannot be traced",
        lambda toy: toy.change(STOCK, '"shelf.before_take"', "str(wanted)"),
    ),
    (
        "unreadable-mark",
        "the mark on shop.stock:Shelf.take cannot be read",
        lambda toy: toy.change(STOCK, '"INV-001"', "*IDS"),
    ),
    (
        "unreadable-mark",
        "src/shop/broken.py:1: is not Python that can be read",
        lambda toy: toy.write("src/shop/broken.py", "def"),
    ),
    (
        "patch-missing",
        f"planted bug no-look: there is no file {PATCH}",
        lambda toy: (toy.root / PATCH).unlink(),
    ),
    (
        "patch-does-not-apply",
        f"{PATCH}: does not apply to the tree: patch failed: src/shop/stock.py:",
        lambda toy: toy.change(STOCK, "if wanted > self.pieces:", "if self.pieces < wanted:"),
    ),
    (
        "patch-touches-tests",
        f"{PATCH}: changes {PROPERTY}; a planted bug changes product files only.",
        lambda toy: toy.plant(PATCH, PROPERTY, "assert shelf.pieces == 3", "assert True"),
    ),
    (
        "stale-review",
        "run `gate trace --stamp INV-001`",
        lambda toy: toy.change(SPEC, "never hands out", "hardly ever hands out"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "said", "spoil"), SPOILED, ids=[f"{index}-{case[0]}" for index, case in enumerate(SPOILED)]
)
def test_each_kind_of_disagreement_is_found(toy: Toy, code: str, said: str, spoil: Callable[[Toy], None]) -> None:
    assert static(toy).problems == []
    spoil(toy)
    found = static(toy)

    assert code in {remark.code for remark in found.problems}, found.problems
    assert any(said in remark.message for remark in found.problems if remark.code == code), found.problems
    assert found.result == "fail"


def test_a_failpoint_that_no_spec_uses_and_a_spec_that_was_never_reviewed_are_warnings(toy: Toy) -> None:
    toy.change(STOCK, "self.pieces -= wanted", 'failpoints.hit("shelf.after_look")\n        self.pieces -= wanted')
    toy.write(SPEC, toy.read(SPEC).partition("\n[review]")[0])
    toy.plant(PATCH, STOCK, "if wanted > self.pieces:", "if False:")
    found = static(toy)

    assert {remark.code for remark in found.warnings} == {"unused-failpoint", "never-reviewed"}
    assert found.result == "pass"


def test_after_a_stamp_the_changed_text_passes_again(toy: Toy) -> None:
    toy.change(SPEC, "never hands out", "never gives out")
    assert static(toy).result == "fail"
    assert toy.gate("trace", "--stamp", "INV-001").exit_code == 0
    assert static(toy).result == "pass"


def test_a_patch_is_tried_in_the_project_folder_also_below_the_top_of_a_repository(tmp_path: Path) -> None:
    toy = Toy.build(tmp_path / "outer" / "shop")
    (toy.root / ".git").rename(tmp_path / "outer" / ".git")
    assert static(toy).problems == []
    toy.change(STOCK, "if wanted > self.pieces:", "if self.pieces < wanted:")

    assert [remark.code for remark in static(toy).problems] == ["patch-does-not-apply"]


def test_product_is_what_lies_under_a_source_root_and_is_neither_test_side_nor_prose(toy: Toy) -> None:
    project = Project.at(toy.root)

    assert project.is_product(STOCK)
    assert project.is_product("src/shop/table.json")
    for file in ("src/shop/conftest.py", "src/shop/notes.md", PROPERTY, "setup.py", "srcs/shop.py"):
        assert not project.is_product(file), file


def test_properties_that_pytest_does_not_collect_are_named(toy: Toy) -> None:
    toy.change(
        SPEC,
        '_taken"]\nfail',
        '_taken", "properties/test_gone.py::test_x", "properties/test_inv_001_no_oversell.py::test_gone"]\nfail',
    )
    done = toy.gate("trace", "--json")
    answer = json.loads(done.output)

    assert done.exit_code == 1
    assert answer["result"] == "fail"
    assert [(remark["code"], remark["invariant"]) for remark in answer["problems"]] == [
        ("property-not-collected", "INV-001")
    ] * 2
    assert [node["cases"] for node in answer["invariants"][0]["properties"]] == [2, 0, 0]
    assert answer["invariants"][0]["enforced_by"] == [{"file": STOCK, "function": "shop.stock:Shelf.take", "line": 10}]


def test_tests_that_cannot_be_imported_cannot_be_judged(toy: Toy) -> None:
    toy.change(PROPERTY, "import pytest", "import pytest\nimport no_such_module_at_all")
    done = toy.gate("trace")

    assert done.exit_code == 3, done.output
    assert "unknown: collection-broke" in done.output
    assert "no_such_module_at_all" in done.output
    assert "property-not-collected" not in done.output


CHILD = """
def test_a_child_with_a_journal_of_its_own_takes_one(tmp_path):
    import os, subprocess, sys
    code = "from shop.stock import Shelf; Shelf(3).take(1)"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"SHOP_JOURNAL": str(tmp_path / "own")}, check=True)
"""


def test_a_run_sees_failpoints_that_only_a_child_with_its_own_journal_reached(toy: Toy) -> None:
    toy.write(PROPERTY, toy.read(PROPERTY) + CHILD)
    toy.change(
        SPEC,
        'test_more_than_there_is_cannot_be_taken"]\nfail',
        'test_a_child_with_a_journal_of_its_own_takes_one"]\nfail',
    )
    done = toy.gate("trace", "--run", "--json")

    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["invariants"][0]["failpoints"][0]["reached"] == 1


def test_a_run_fails_when_a_failpoint_is_never_reached_or_a_property_is_red(toy: Toy) -> None:
    toy.change(STOCK, 'failpoints.hit("shelf.before_take")', 'wanted > 9 and failpoints.hit("shelf.before_take")')
    toy.change(PROPERTY, "assert shelf.pieces == 3", "assert shelf.pieces == 4")
    done = toy.gate("trace", "--run")

    assert done.exit_code == 1, done.output
    assert "problem: unreached-failpoint INV-001" in done.output
    assert f"problem: property-red: {PROPERTY}::test_more_than_there_is_cannot_be_taken[4]" in done.output


def test_reports_are_written_beside_the_answer_and_an_unwritable_one_is_a_usage_error(toy: Toy) -> None:
    done = toy.gate("trace", "--report", f"json={toy.root}/t.json", "--report", f"terminal={toy.root}/t.txt")

    assert done.exit_code == 0, done.output
    assert json.loads(toy.read("t.json"))["result"] == "pass"
    assert toy.read("t.txt") == done.output
    assert toy.gate("trace", "--stamp", "INV-001", "--report", f"json={toy.root}/nowhere/t.json").exit_code == 2


def test_a_bad_spec_ends_the_command_with_exit_code_two(toy: Toy) -> None:
    toy.change(SPEC, 'severity = "A"', 'severity = "E"')
    done = toy.gate("trace")

    assert done.exit_code == 2
    assert "`severity` is 'E'; write one of A, B, C, D." in done.output


def marks_of(root: Path, text: str, name: str = "room.py") -> Marks:
    (root / name).write_text(text, encoding="utf-8")
    return read_marks(root, ["."], lambda file: file.startswith("test"))


@pytest.mark.parametrize(
    "text",
    [
        "from shop.enforces import enforces\n@enforces('INV-001')\ndef f(): ...",
        "from shop.enforces import enforces as keeps\n@keeps('INV-001')\nasync def f(): ...",
        "from shop import enforces\n@enforces.enforces('INV-001')\ndef f(): ...",
        "import shop.enforces\n@shop.enforces.enforces('INV-001')\ndef f(): ...",
        "from .enforces import enforces\n@property\n@enforces('INV-001')\ndef f(self): ...",
        "if True:\n    from shop.enforces import enforces\n    @enforces('INV-001')\n    def f(): ...",
    ],
)
def test_a_mark_is_read_however_it_was_imported(tmp_path: Path, text: str) -> None:
    assert marks_of(tmp_path, text).functions["room:f"].enforces == ("INV-001",)


def test_several_marks_and_several_ids_add_up(tmp_path: Path) -> None:
    text = "from shop import enforces\n@enforces('INV-001', 'INV-002')\n@enforces('INV-003')\ndef f(): ..."
    assert marks_of(tmp_path, text).functions["room:f"].enforces == ("INV-001", "INV-002", "INV-003")


@pytest.mark.parametrize(
    "text",
    [
        "from shop import failpoints\nfailpoints.hit('a.b')",
        "from shop.failpoints import hit\nhit('a.b')",
        "from shop.failpoints import hit as stand\nstand('a.b')",
        "from shop import failpoints as points\nclass C:\n    def f(self):\n        return [points.hit('a.b')]",
        "import shop.failpoints\nshop.failpoints.hit('a.b')",
        "from . import failpoints\nfailpoints.hit('a.b')",
        "from ..failpoints import hit\nhit('a.b')",
    ],
)
def test_a_failpoint_is_read_however_it_was_imported(tmp_path: Path, text: str) -> None:
    assert list(marks_of(tmp_path, text).failpoints) == ["a.b"]


@pytest.mark.parametrize(
    "text",
    [
        "def hit(name): ...\nhit('a.b')",
        "from shop.targets import hit\nhit('a.b')",
        "class C:\n    def f(self):\n        self.failpoints.hit('a.b')",
        "def enforces(*ids): ...\n@enforces('INV-001')\ndef f(): ...",
    ],
)
def test_what_only_looks_like_a_mark_is_not_read(tmp_path: Path, text: str) -> None:
    marks = marks_of(tmp_path, text)
    assert not marks.failpoints
    assert not any(function.enforces for function in marks.functions.values())


def test_marks_in_test_files_do_not_count(tmp_path: Path) -> None:
    marks = marks_of(tmp_path, "from shop import failpoints\nfailpoints.hit('a.b')", "test_room.py")
    assert not marks.failpoints
    assert not marks.functions
