"""Old fixes taken back on later code: toy repositories, real git and real pytest processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gate.tests.commit_toys import Toy
from holdtrue_gate.check import Options
from holdtrue_gate.cli import gate
from holdtrue_gate.hunks import Diff, Version
from holdtrue_gate.revive import Revival, run
from holdtrue_gate.transplant import changes, places


def version(text: str) -> Version:
    return Version("100644", text.encode())


def moved(parent: str, fix: str, today: dict[str, str]) -> tuple[list[tuple[str, str, int]], dict[str, str | None]]:
    """How each hunk lies today, and today's files without those that apply."""
    old, new = {"m.py": version(parent)}, {"m.py": version(fix)}
    now = {path: version(text) for path, text in today.items()}
    found = places(Diff(old, new), old, new, now)
    made = changes([place for place in found if place.applies], old, now)
    return [(p.how, p.file, p.line) for p in found], {k: v and v.data.decode() for k, v in made.items()}


PARENT = "def a():\n    return 1\n\n\ndef b():\n    x = 1\n    return x\n"
FIX = "def a():\n    return 1\n\n\ndef b():\n    x = 2\n    return x\n"


def test_a_hunk_is_found_at_its_place_below_new_lines_and_in_another_file() -> None:
    assert moved(PARENT, FIX, {"m.py": FIX}) == ([("exact", "m.py", 6)], {"m.py": PARENT})
    above = "import os\n\n\n"
    assert moved(PARENT, FIX, {"m.py": above + FIX}) == ([("moved", "m.py", 9)], {"m.py": above + PARENT})
    away = {"m.py": "def a():\n    return 1\n", "n.py": "def b():\n    x = 2\n    return x\n"}
    assert moved(PARENT, FIX, away) == ([("moved", "n.py", 2)], {"n.py": "def b():\n    x = 1\n    return x\n"})


def test_a_hunk_whose_lines_were_changed_or_stand_twice_does_not_apply() -> None:
    assert moved(PARENT, FIX, {"m.py": FIX.replace("x = 2", "x = 3")})[0] == [("gone", "", 0)]
    assert moved(PARENT, FIX, {"other.py": "y = 1\n"})[0] == [("gone", "", 0)]
    twice = "def b():\n    x = 2\n    return x\n"
    assert moved(PARENT, FIX, {"m.py": "y = 1\n", "n.py": twice, "o.py": twice})[0] == [("gone", "", 0)]


def test_removed_lines_come_back_between_their_old_neighbours() -> None:
    parent, fix = "a = 1\nb = 2\nc = 3\nd = 4\n", "a = 1\nb = 2\nd = 4\n"
    assert moved(parent, fix, {"m.py": "z = 0\n" + fix}) == ([("moved", "m.py", 4)], {"m.py": "z = 0\n" + parent})
    assert moved(parent, fix, {"m.py": "a = 1\nb = 2\nq = 9\nd = 4\n"})[0] == [("gone", "", 0)]


def test_files_that_were_added_deleted_or_replaced_apply_when_nothing_touched_them_since() -> None:
    binary, other = Version("100644", b"\0a"), Version("100644", b"\0b")
    old, new = {"gone.txt": version("g\n"), "b.bin": binary}, {"new.txt": version("completely\n"), "b.bin": other}
    diff = Diff(old, new)
    same = places(diff, old, new, new)
    assert [p.how for p in same] == ["exact", "exact", "exact"]
    assert changes(same, old, new) == {"new.txt": None, "gone.txt": old["gone.txt"], "b.bin": binary}
    later = {"new.txt": version("changed\n"), "gone.txt": version("back\n"), "b.bin": Version("100644", b"\0c")}
    assert [p.how for p in places(diff, old, new, later)] == ["gone", "gone", "gone"]


# --- whole commits

SHOP = "def price(n):\n    return n * 10 + 1\n\n\ndef tax(n):\n    return n + 1\n"
TEST = "from shop import price\n\ndef test_price():\n    assert price(2) == 20\n"
FINDING = 'id = "F-0007"\ntests = ["regressions/F-0007-price/test_price.py::test_price"]\n'


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path / "repo")
    toy.write({"pyproject.toml": (toy.root / "pyproject.toml").read_text() + 'tests = ["regressions"]\n'})
    toy.commit("base", {"shop.py": SHOP})
    fixed = SHOP.replace("* 10 + 1", "* 10").replace("n + 1", "n")
    folder = "regressions/F-0007-price"
    toy.commit(
        "fix: price\n\nFinding: F-0007",
        {"shop.py": fixed, f"{folder}/finding.toml": FINDING, f"{folder}/test_price.py": TEST},
    )
    toy.git("tag", "fix")
    return toy


def revived(toy: Toy, *tests: str, at: str = "HEAD") -> Revival:
    return run(toy.root, "fix", at, tests, Options(python=Path(sys.executable)))


def test_todays_tests_notice_an_old_bug_in_code_that_moved(toy: Toy) -> None:
    shop = (toy.root / "shop.py").read_text()
    toy.commit("more", {"shop.py": "import os\n\n\ndef other():\n    return os.sep\n\n\n" + shop})
    before = toy.git("status", "--porcelain", "--ignored"), toy.git("count-objects", "-v")
    found = revived(toy)
    assert (found.answer, found.result) == ("noticed", "pass")
    assert [(part.how, part.place.line, part.taken) for part in found.parts] == [
        ("moved", 9, True),
        ("moved", 13, True),
    ]
    (notice,) = found.tests
    assert (notice.id, notice.notices, notice.exception) == (
        "regressions/F-0007-price/test_price.py::test_price",
        True,
        "AssertionError",
    )
    assert notice.location == "regressions/F-0007-price/test_price.py:4"
    assert (toy.git("status", "--porcelain", "--ignored"), toy.git("count-objects", "-v")) == before


def test_a_test_that_was_made_worthless_since_is_told(toy: Toy) -> None:
    toy.commit("weaker", {"regressions/F-0007-price/test_price.py": TEST.replace("== 20", "> 0")})
    found = revived(toy)
    assert (found.answer, found.tests[0].outcome) == ("not-noticed", "passed")
    assert revived(toy, at="HEAD~1").answer == "noticed"


def test_what_no_longer_applies_is_named_and_the_rest_is_judged(toy: Toy) -> None:
    shop = (toy.root / "shop.py").read_text()
    toy.commit("tax", {"shop.py": shop.replace("def tax(n):\n    return n\n", "def tax(n):\n    return 2 * n\n")})
    found = revived(toy)
    assert [(part.how, part.why, part.taken) for part in found.parts] == [
        ("exact", "", True),
        ("gone", "its lines were changed since", False),
    ]
    assert found.answer == "noticed"
    toy.commit("all", {"shop.py": "def price(n):\n    return sum([n] * 10)\n"})
    found = revived(toy)
    assert (found.answer, found.reason) == ("cannot-judge", "nothing of the change applies today")


def test_where_the_whole_cannot_work_today_its_parts_are_asked(toy: Toy) -> None:
    # The fix of tax would bring back a call that today's code has no name for.
    toy.commit(
        "base 2", {"m.py": "def old(n):\n    return n\n\n\ndef a(n):\n    return old(n)\n\n\ndef b(n):\n    return 1\n"}
    )
    toy.commit(
        "fix: two",
        {
            "m.py": "def old(n):\n    return n\n\n\ndef a(n):\n    return n + 0\n\n\ndef b(n):\n    return 2\n",
            "regressions/test_m.py": "import m\n\ndef test_m():\n    assert m.a(1) == 1\n    assert m.b(1) == 2\n",
        },
    )
    toy.git("tag", "-f", "fix")
    toy.commit("later", {"m.py": "def a(n):\n    return n + 0\n\n\ndef b(n):\n    return 2\n"})
    found = revived(toy)
    assert found.answer == "noticed"
    assert [part.taken for part in found.parts] == [False, True]


def test_other_tests_can_be_asked_and_must_exist(toy: Toy) -> None:
    toy.commit(
        "tests", {"regressions/more/test_tax.py": "from shop import tax\n\ndef test_tax():\n    assert tax(1) == 1\n"}
    )
    found = revived(toy, "regressions/more/test_tax.py")
    assert (found.answer, [notice.id for notice in found.tests]) == (
        "noticed",
        ["regressions/more/test_tax.py::test_tax"],
    )
    assert len(revived(toy, "regressions").tests) == 2
    done = CliRunner().invoke(gate, ["revive", "fix", "-C", str(toy.root), "--tests", "nowhere.py"])
    assert (done.exit_code, "no-test" in done.output) == (2, True)


def test_the_command_says_what_came_of_it_by_its_exit_code(toy: Toy) -> None:
    def command(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(gate, ["revive", *arguments, "-C", str(toy.root), "--python", sys.executable])
        return done.exit_code, done.output

    code, text = command("fix", "--json")
    data = json.loads(text)
    assert (code, data["answer"], data["schema"]) == (0, "noticed", "holdtrue.gate.revive/1")
    assert [(hunk["how"], hunk["today"]) for hunk in data["hunks"]] == [
        ("exact", {"file": "shop.py", "line": 2}),
        ("exact", {"file": "shop.py", "line": 6}),
    ]
    toy.commit("weaker", {"regressions/F-0007-price/test_price.py": TEST.replace("== 20", "> 0")})
    code, text = command("fix")
    assert (code, "not noticed  today's tests pass without the fix" in text) == (1, True)
    toy.commit("none", {"shop.py": "def price(n):\n    return 1\n"})
    assert command("fix")[0] == 3
    assert command("fix~1")[0] == 3
    assert command("nowhere")[0] == 2
