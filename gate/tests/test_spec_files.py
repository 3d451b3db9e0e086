"""Specs: what is accepted, what is refused and in which words, and that the JSON Schema says the same."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gate.tests.spec_toys import FILES, SPEC
from holdtrue_gate.spec import SpecError, find, load, stamp

SCHEMA = json.loads((Path(__file__).parents[2] / "invariants" / "schema.json").read_text(encoding="utf-8"))
GOOD = FILES[SPEC]


def project(root: Path, **files: str) -> Path:
    """A project with these specs; the names are file names with `_` for `-`."""
    (root / "invariants").mkdir()
    for name, text in files.items():
        (root / "invariants" / f"{name.replace('_', '-')}.toml").write_text(text, encoding="utf-8")
    return root


def problems_of(root: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(root)
    assert caught.value.exit_code == 2
    return caught.value.problems


def test_a_good_spec_is_read_whole(tmp_path: Path) -> None:
    (spec,) = load(project(tmp_path, INV_001_no_oversell=GOOD))

    assert (spec.id, spec.slug, spec.name) == ("INV-001", "no-oversell", "no oversell")
    assert (spec.category, spec.severity, spec.crash_model) == ("data", "A", "none")
    assert spec.enforced_by == ("shop.stock:Shelf.take",)
    assert spec.failpoints == ("shelf.before_take",)
    assert [bug.name for bug in spec.sabotage] == ["no-look"]
    assert spec.file == SPEC
    assert spec.review == "never"


def test_specs_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    def numbered(number: str) -> str:
        return GOOD.replace("INV-001", f"INV-{number}").replace("no-oversell", f"promise-{number}")

    names = {f"INV_{number}_promise_{number}": numbered(number) for number in ("1000", "999", "002")}
    assert [spec.id for spec in load(project(tmp_path, **names))] == ["INV-002", "INV-999", "INV-1000"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "INV-001"', 'id = "INV-1"', "`id` is 'INV-1'; write INV- and three digits, for example INV-001."),
        ('slug = "no-oversell"', 'slug = "No oversell"', "write lower-case words joined by hyphens"),
        ('category = "data"', 'category = "fun"', "`category` is 'fun'; write one of data, trust, concurrency"),
        ('severity = "A"', 'severity = "E"', "`severity` is 'E'; write one of A, B, C, D."),
        ('crash_model = "none"', 'crash_model = "kill"', "write one of none, process, power."),
        ('severity = "A"', "", "`severity` is missing."),
        ('severity = "A"', 'severty = "A"', "`severty` is not a key here; did you mean `severity`?"),
        ("Counting down without looking.", " ", "`violated_by` is ' '; write a sentence."),
        ("shop.stock:Shelf.take", "shop.stock.take", "write module:function, for example shop.stock:reserve"),
        ('["shop.stock:Shelf.take"]', '"shop.stock:Shelf.take"', "`enforced_by` is a text; write a list of texts."),
        ("no_oversell.py::test_more_than_there_is_cannot_be_taken", "no_oversell.py", "write a pytest node id"),
        ('"properties/', '"/properties/', "write a pytest node id"),
        ('"properties/', '"properties/../', "write a pytest node id"),
        ('["shelf.before_take"]', '["shelf.before_take", "shelf.before_take"]', "names 'shelf.before_take' twice"),
        ('["shelf.before_take"]', "[3]", "`failpoints` holds a number; write texts in quotes."),
        ("no-look.patch", "no-look.diff", "write the path of a .patch file"),
        ('name = "no-look"', "", "sabotage 1: `name` is missing."),
        (
            'name = "no-look"',
            'name = "no-look"\ncolour = "red"',
            "sabotage 1: `colour` is not a key here; the keys are",
        ),
        ("[[sabotage]]", "[sabotage]", "`sabotage` is a table; write tables [[sabotage]]."),
        ('id = "INV-001"', "id = INV-001", "is not TOML"),
        ('slug = "no-oversell"', 'slug = "no-undersell"', "the file must be called INV-001-no-undersell.toml"),
    ],
)
def test_a_bad_spec_is_refused_with_what_to_write_instead(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    problems = problems_of(project(tmp_path, INV_001_no_oversell=GOOD.replace(old, new)))

    assert any(said in problem for problem in problems), problems
    assert all(problem.startswith(f"{SPEC}: ") for problem in problems)


def test_all_problems_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    problems = problems_of(
        project(
            tmp_path,
            INV_001_no_oversell=GOOD.replace('severity = "A"', 'severity = "E"').replace('"data"', '"fun"'),
            INV_002_other="id = 2",
            INV_003_broken="not toml",
        )
    )
    text = "\n".join(problems)
    for part in (
        "`severity` is 'E'",
        "`category` is 'fun'",
        "`id` is a number",
        "`statement` is missing",
        "is not TOML",
    ):
        assert part in text


def test_two_specs_cannot_share_an_id_or_a_slug(tmp_path: Path) -> None:
    problems = problems_of(
        project(
            tmp_path,
            INV_001_no_oversell=GOOD,
            INV_001_other=GOOD.replace("no-oversell", "other"),
            INV_002_no_oversell=GOOD.replace("INV-001", "INV-002"),
        )
    )
    assert any("have the same id 'INV-001'" in problem for problem in problems)
    assert any("have the same slug 'no-oversell'" in problem for problem in problems)


def test_two_planted_bugs_of_one_spec_cannot_share_a_name(tmp_path: Path) -> None:
    twice = GOOD + GOOD[GOOD.index("[[sabotage]]") :]
    assert problems_of(project(tmp_path, INV_001_no_oversell=twice)) == [
        f"{SPEC}: two planted bugs are called 'no-look'; rename one."
    ]


def test_a_project_without_specs_is_told_what_to_write(tmp_path: Path) -> None:
    assert "is no folder here" in problems_of(tmp_path)[0]
    (tmp_path / "invariants").mkdir()
    assert "holds no spec" in problems_of(tmp_path)[0]


def test_a_spec_is_found_by_id_or_slug_and_an_unknown_one_names_the_others(tmp_path: Path) -> None:
    specs = load(project(tmp_path, INV_001_no_oversell=GOOD))

    assert find(specs, "inv-001") is find(specs, "no-oversell") is specs[0]
    with pytest.raises(SpecError, match="the book holds INV-001"):
        find(specs, "INV-009")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_stamp_is_written_once_and_replaced_later_and_nothing_else_changes(
    tmp_path: Path, newline: str, ending: str
) -> None:
    text = ("# Kept.\n" + GOOD.rstrip() + ending).replace("\n", newline)
    root = project(tmp_path)
    path = root / SPEC
    path.write_bytes(text.encode())

    stamp(root, load(root)[0])
    stamped = path.read_bytes().decode()
    assert load(root)[0].review == "current"
    assert stamped.startswith(text)
    assert stamped.count("\n") == stamped.count(newline)

    path.write_bytes(stamped.replace("never hands out", "hardly ever hands out").encode())
    assert load(root)[0].review == "stale"
    stamp(root, load(root)[0])
    assert load(root)[0].review == "current"
    assert path.read_bytes().decode().count("sha256") == 1


def test_breaking_the_lines_of_a_statement_anew_does_not_make_its_review_stale(tmp_path: Path) -> None:
    root = project(tmp_path, INV_001_no_oversell=GOOD)
    stamp(root, load(root)[0])
    path = root / SPEC
    statement = '"A shelf never hands out more pieces than it holds."'
    broken = '"""A shelf never hands out\nmore pieces   than it holds.\n"""'
    path.write_text(path.read_text().replace(statement, broken))

    assert load(root)[0].review == "current"


@pytest.mark.parametrize("key", ["statement", "violated_by", "crash_model", "severity", "category"])
def test_every_normative_key_counts_for_the_review(tmp_path: Path, key: str) -> None:
    root = project(tmp_path, INV_001_no_oversell=GOOD)
    before = load(root)[0].fingerprint
    other = {"crash_model": "power", "severity": "D", "category": "trust"}.get(key, "Another text.")
    lines = [f'{key} = "{other}"' if line.startswith(f"{key} =") else line for line in GOOD.splitlines()]
    (root / SPEC).write_text("\n".join(lines))

    assert load(root)[0].fingerprint != before


def put(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(table: dict[str, Any]) -> None:
        place: Any = table
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


VALUES: list[object] = [
    "", " ", "x", "A", "data", "power", "INV-001", "INV-1", "INV-1000", "no-look", "No", "-a", "a--b", "a.b", "a.b:c",
    "a.b:c.d", "a:b:c", ":c", "t.py", "t.py::x", "a/t.py::x[1-/../]", "/t.py::x", "../t.py::x", "a/../t.py::x",
    "./t.py::x", "t.py:: ", "a.patch", "/a.patch", "a/b.patch", ".patch", "point", "point.a", "Point", "point.", "p..q",
    "a" * 64, "A" * 64, 1, 1.5, True, [], {}, [1], [""], ["x"], ["a.b:c"], ["t.py::x"], ["t.py"], ["t.py", "t.py"],
    ["point", "point"], ["point.a", "point.b"], [{}], [[]], {"sha256": "a" * 64}, {"sha256": "b"}, {"sha": "a"},
]  # fmt: skip
PATHS: list[tuple[str | int, ...]] = [
    *[(key,) for key in SCHEMA["properties"]],
    ("unknown",),
    *[("sabotage", 0, key) for key in ("name", "patch", "caught_by", "unknown")],
    ("review", "sha256"),
    ("review", "unknown"),
]


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_the_schema_and_the_loader_accept_and_refuse_the_same(tmp_path: Path, path: tuple[str | int, ...]) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    seen = set()
    for value in VALUES:
        table: dict[str, Any] = tomllib.loads(GOOD) | {"review": {"sha256": "a" * 64}}
        put(*path, value=value)(table)
        by_schema = validator.is_valid(table)
        by_loader = accepts(tmp_path, table)
        assert by_schema == by_loader, f"{path} = {value!r}: schema {by_schema}, loader {by_loader}"
        seen.add(by_schema)
    assert False in seen, "no value was refused: this test could not fail"


@pytest.mark.parametrize("key", SCHEMA["properties"])
def test_the_schema_and_the_loader_require_the_same_keys(tmp_path: Path, key: str) -> None:
    table: dict[str, Any] = tomllib.loads(GOOD) | {"review": {"sha256": "a" * 64}}
    del table[key]

    assert accepts(tmp_path, table) == jsonschema.Draft202012Validator(SCHEMA).is_valid(table)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def accepts(root: Path, table: dict[str, Any]) -> bool:
    """Whether the loader takes this table, in a file of the right name."""
    folder = root / "invariants"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.toml"):
        old.unlink()
    name = f"{table.get('id', 'x')}-{table.get('slug', 'x')}.toml"
    (folder / (name if "/" not in name and len(name) < 200 else "x.toml")).write_text(toml(table), encoding="utf-8")
    try:
        load(root)
    except SpecError:
        return False
    return True


def toml(table: dict[str, Any]) -> str:
    """A table as TOML. JSON's texts, numbers and booleans are TOML's too; tables are written inline."""
    return "".join(f"{json.dumps(key)} = {inline(value)}\n" for key, value in table.items())


def inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(entry) for entry in value) + "]"
    return json.dumps(value)
