"""Which parts of a commit's change its new tests need: toy repositories, real git and real pytest processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from gate.tests.commit_toys import Toy, only
from holdtrue_gate.ablate import HunkReport, Table
from holdtrue_gate.check import Ablation, CommitReport
from holdtrue_gate.cli import gate
from holdtrue_gate.verdict import Verdict

Make = Callable[..., CommitReport]
Files = Mapping[str, str | bytes | None]


@pytest.fixture
def ablated(tmp_path: Path) -> Make:
    def build(base: Files, change: Files, *, ablation: Ablation = Ablation.ALL, **settings: float) -> CommitReport:
        toy = Toy(tmp_path / "repo", **settings)  # type: ignore[arg-type]
        toy.commit("base", base)
        toy.commit("fix: the change", change)
        before = toy.git("status", "--porcelain", "--ignored"), toy.git("count-objects", "-v")
        report = toy.judged(ablation=ablation)
        assert (toy.git("status", "--porcelain", "--ignored"), toy.git("count-objects", "-v")) == before
        return report

    return build


def statuses(commit: CommitReport) -> list[tuple[str, str]]:
    return [(hunk.file, str(hunk.status)) for hunk in commit.hunks]


def hunk_in(commit: CommitReport, file: str) -> HunkReport:
    (hunk,) = [hunk for hunk in commit.hunks if hunk.file == file]
    return hunk


SHOP = "def price(n):\n    return n * 10 + 1\n\n\ndef tax(n):\n    return n + 1\n"


def test_of_two_hunks_the_one_that_no_test_needs_is_unpinned(ablated: Make) -> None:
    commit = ablated(
        {"shop.py": SHOP},
        {
            "shop.py": SHOP.replace("* 10 + 1", "* 10").replace("n + 1", "n"),
            "test_shop.py": "from shop import price\n\ndef test_price():\n    assert price(2) == 20\n",
        },
    )
    pinned, unpinned = commit.hunks
    assert (pinned.status, pinned.tests, pinned.head) == ("pinned", ("test_shop.py::test_price",), (2, 1))
    assert "test_shop.py:4" in pinned.reason
    assert (unpinned.status, unpinned.tests, unpinned.head) == ("unpinned", (), (6, 1))
    assert [(cell.id, cell.verdict, cell.pins) for cell in unpinned.cells] == [
        ("test_shop.py::test_price", "passed", False)
    ]
    assert commit.result == "pass"
    assert Table(commit.hunks).result == "fail"


def test_a_definition_is_taken_back_with_its_use_across_files(ablated: Make) -> None:
    commit = ablated(
        {"shop.py": SHOP, "rates.py": "VAT = 1\n"},
        {
            "shop.py": "from rates import times\n\n\n" + SHOP.replace("n * 10 + 1", "times(n)"),
            "rates.py": "VAT = 1\n\n\ndef times(n):\n    return n * 10\n",
            "test_shop.py": "from shop import price\n\ndef test_price():\n    assert price(2) == 20\n",
        },
    )
    definition, import_, use = commit.hunks
    assert [hunk.status for hunk in commit.hunks] == ["pinned", "pinned", "pinned"]
    assert definition.group == ("H1", "H2", "H3")
    assert import_.group == ("H2", "H3")
    assert use.group == ()


def test_an_attribute_that_one_hunk_sets_and_another_reads_is_found_when_it_is_missed(ablated: Make) -> None:
    base = """
        class Till:
            def __init__(self):
                self.sum = 0

            def total(self):
                return self.sum

            def empty(self):
                return 1
    """
    head = """
        class Till:
            def __init__(self):
                self.sum = 0
                self.fee = 3

            def total(self):
                return self.sum + self.fee

            def empty(self):
                return 2
    """
    test = "from till import Till\n\ndef test_total():\n    assert Till().total() == 3\n"
    commit = ablated({"till.py": base}, {"till.py": head, "test_till.py": test})
    assert [(str(hunk.status), hunk.group) for hunk in commit.hunks] == [
        ("pinned", ("H1", "H2")),
        ("pinned", ()),
        ("unpinned", ()),
    ]


def test_a_signature_that_was_changed_goes_with_its_calls(ablated: Make) -> None:
    base = "def area(a):\n    return a\n\n\ndef use(a, b):\n    return area(a)\n"
    head = "def area(a, b):\n    return a * b\n\n\ndef use(a, b):\n    return area(a, b)\n"
    test = "from m import use\n\ndef test_area():\n    assert use(2, 3) == 6\n"
    commit = ablated({"m.py": base}, {"m.py": head, "test_m.py": test})
    assert [(str(hunk.status), hunk.group) for hunk in commit.hunks] == [("pinned", ("H1", "H2"))] * 2


def test_comments_and_annotations_are_skipped_and_named(ablated: Make) -> None:
    commit = ablated(
        {"shop.py": "# shop\n\n\n" + SHOP},
        {
            "shop.py": "# the shop\n\n\n" + SHOP.replace("* 10 + 1", "* 10").replace("tax(n)", "tax(n: int) -> int"),
            "test_shop.py": "from shop import price\n\ndef test_price():\n    assert price(2) == 20\n",
        },
    )
    assert [(str(hunk.status), hunk.reason) for hunk in commit.hunks if hunk.status != "pinned"] == [
        ("skipped", "only comments"),
        ("skipped", "only comments, docstrings, annotations or layout"),
    ]
    assert Table(commit.hunks).result == "pass"


def test_data_modes_and_new_files_are_hunks_too(ablated: Make, tmp_path: Path) -> None:
    read = "import pathlib\n\n\ndef rate():\n    return int((pathlib.Path(__file__).parent / 'rate.txt').read_bytes()[0])\n"
    commit = ablated(
        {"rates.py": read, "rate.txt": b"\x01\x00", "pkg/__init__.py": ""},
        {
            "rate.txt": b"\x02\x00",
            "pkg/extra.py": "def extra():\n    return 1\n",
            "pkg/idle.py": "X = 1\n",
            "test_rates.py": """
                from rates import rate

                def test_rate():
                    assert rate() == 2
            """,
            "test_extra.py": """
                def test_extra():
                    from pkg.extra import extra
                    assert extra() == 1
            """,
        },
    )
    assert (hunk_in(commit, "rate.txt").status, hunk_in(commit, "rate.txt").kind) == ("pinned", "content")
    assert hunk_in(commit, "pkg/idle.py").status == "unpinned"
    extra = hunk_in(commit, "pkg/extra.py")
    assert extra.kind == "added-file"
    # Its test only misses the file: nothing is known of what the file does.
    assert "test_extra.py::test_extra" not in extra.tests


def test_a_moved_module_and_its_imports_are_one_change(ablated: Make) -> None:
    body = "".join(f"def f{n}(x):\n    return x + {n}\n\n\n" for n in range(6))
    commit = ablated(
        {"old.py": body, "use.py": "from old import f1\n\n\ndef use(x):\n    return f1(x)\n"},
        {
            "old.py": None,
            "new.py": body.replace("x + 1\n", "x + 7\n"),
            "use.py": "from new import f1\n\n\ndef use(x):\n    return f1(x)\n",
            "test_use.py": "from use import use\n\ndef test_use():\n    assert use(1) == 8\n",
        },
    )
    by_kind = {(hunk.file, hunk.kind): hunk for hunk in commit.hunks}
    assert by_kind["new.py", "lines"].status == "pinned"
    assert by_kind["new.py", "lines"].group == ()
    move, imports = by_kind["new.py", "renamed-file"], by_kind["use.py", "lines"]
    assert move.status == imports.status == "unpinned"
    assert move.group == imports.group == (min(move.id, imports.id), max(move.id, imports.id))


def test_a_hang_and_a_crash_are_told_apart_and_the_other_tests_still_speak(ablated: Make) -> None:
    base = (
        "import os, time\n\n\ndef a():\n    os._exit(3)\n\n\ndef b():\n    time.sleep(60)\n\n\ndef c():\n    return 1\n"
    )
    head = (
        base.replace("os._exit(3)", "return 1")
        .replace("time.sleep(60)", "return 1")
        .replace("c():\n    return 1", "c():\n    return 2")
    )
    commit = ablated(
        {"m.py": base},
        {
            "m.py": head,
            "test_m.py": """
                import m

                def test_a():
                    assert m.a() == 1

                def test_b():
                    assert m.b() == 1

                def test_c():
                    assert m.c() == 2
            """,
        },
        timeout_s=3,
    )
    assert statuses(commit) == [("m.py", "crash"), ("m.py", "hang"), ("m.py", "pinned")]
    crash, hang, pinned = commit.hunks
    assert [cell.verdict for cell in crash.cells] == ["crash", "passed", "passed"]
    assert [cell.verdict for cell in hang.cells] == ["passed", "hang", "passed"]
    assert pinned.tests == ("test_m.py::test_c",)


def test_a_red_that_is_no_assertion_of_the_test_does_not_pin(ablated: Make) -> None:
    base = "def go(n):\n    raise OverflowError('no')\n"
    test = "import m\n\ndef test_go():\n    assert m.go(1) == 1\n"
    commit = ablated({"m.py": base}, {"m.py": "def go(n):\n    return n\n", "test_m.py": test})
    (hunk,) = commit.hunks
    assert (hunk.status, hunk.tests) == ("noticed", ())
    assert "undeclared-exception" in hunk.reason
    assert Table(commit.hunks).result == "cannot-judge"


def test_a_leftover_that_is_brought_back_and_that_nothing_uses_is_no_gap(ablated: Make) -> None:
    base = "def half(n):\n    return n // 2\n\n\ndef price(n):\n    return half(n)\n"
    commit = ablated(
        {"m.py": base},
        {
            "m.py": "def price(n):\n    return n / 2\n",
            "test_m.py": "from m import price\n\ndef test_price():\n    assert price(3) == 1.5\n",
        },
    )
    leftover, use = commit.hunks
    assert (leftover.status, leftover.reason) == ("skipped", "only a definition that nothing uses any more")
    assert (use.status, use.group) == ("pinned", ("H1", "H2"))


# --- proof of a test that needs a new name

TIMES = "def price(n):\n    return times(n)\n\n\ndef tax(n):\n    return n + 1\n\n\ndef times(n):\n    return n * 10\n"
NEEDS_BOTH = """
    from shop import price, times

    def test_price():
        assert times(1) == 10
        assert price(2) == 20
"""
NEEDS_THE_NAME = """
    from shop import times

    def test_times():
        assert times(1) == 10
"""


def test_a_test_of_a_new_name_is_proof_when_it_notices_another_part_of_the_change(ablated: Make) -> None:
    commit = ablated(
        {"shop.py": SHOP}, {"shop.py": TIMES, "test_shop.py": NEEDS_BOTH}, ablation=Ablation.WHEN_NEEDED, runs=2
    )
    test = only(commit)
    assert (test.verdict, test.proof, commit.result) == (Verdict.MISSING_API, True, "pass")
    assert "at the commit without shop.py:2 it fails with its own assertion at test_shop.py:5" in test.reason
    assert commit.hunks == ()


def test_a_test_of_a_new_name_alone_stays_no_proof(ablated: Make) -> None:
    commit = ablated(
        {"shop.py": SHOP}, {"shop.py": TIMES, "test_shop.py": NEEDS_THE_NAME}, ablation=Ablation.WHEN_NEEDED
    )
    assert (only(commit).verdict, only(commit).proof, commit.result) == (Verdict.MISSING_API, False, "fail")


def test_a_part_of_the_new_definition_itself_is_no_other_part(ablated: Make) -> None:
    # The comparison finds an old line inside the new function, so the function is two hunks.
    base = "def old(n):\n    m = n + 1\n    return m\n"
    head = "def new(n):\n    k = n * 2\n    m = n + 1\n    return m * k\n\n\ndef old(n):\n    m = n + 1\n    return m\n"
    test = "from m import new\n\ndef test_new():\n    assert new(1) == 4\n"
    commit = ablated({"m.py": base}, {"m.py": head, "test_m.py": test}, ablation=Ablation.WHEN_NEEDED)
    assert (only(commit).proof, commit.result) == (False, "fail")


def test_a_flickering_notice_of_a_part_is_no_proof(ablated: Make) -> None:
    base = "import pathlib, tempfile\n\n\ndef price(n):\n    return n * 10 + flicker()\n\n\ndef flicker():\n" + (
        "    here = pathlib.Path(__file__).parent / 'seen'\n"
        "    if here.exists():\n        return 0\n"
        "    here.touch()\n    return 1\n"
    )
    head = base.replace("n * 10 + flicker()", "times(n)") + "\n\ndef times(n):\n    return n * 10\n"
    test = "from shop import price, times\n\ndef test_price():\n    assert price(2) == times(2)\n"
    commit = ablated({"shop.py": base}, {"shop.py": head, "test_shop.py": test}, ablation=Ablation.WHEN_NEEDED, runs=3)
    assert (only(commit).proof, commit.result) == (False, "fail")


# --- the command line


def two_hunks(root: Path, settings: str = "") -> Toy:
    toy = Toy(root)
    toy.write({"pyproject.toml": (root / "pyproject.toml").read_text() + settings})
    toy.commit("base", {"shop.py": SHOP})
    toy.commit(
        "fix: price",
        {
            "shop.py": SHOP.replace("* 10 + 1", "* 10").replace("n + 1", "n"),
            "test_shop.py": "from shop import price\n\ndef test_price():\n    assert price(2) == 20\n",
        },
    )
    return toy


def run(toy: Toy, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(gate, [*arguments, "-C", str(toy.root), "--python", sys.executable])
    return done.exit_code, done.output


def test_the_command_prints_the_table_and_says_no_for_an_unpinned_hunk(tmp_path: Path) -> None:
    toy = two_hunks(tmp_path / "repo")
    code, text = run(toy, "ablate", "--report", f"json={tmp_path / 'report.json'}")
    assert code == 1
    assert "shop.py:2" in text
    assert "every new test passes without it" in text
    assert "1 of 2 judged hunks pinned" in text
    data = json.loads((tmp_path / "report.json").read_text())
    assert (data["schema"], data["result"]) == ("holdtrue.gate.ablate/1", "fail")
    assert [(hunk["id"], hunk["status"], hunk["tests"]) for hunk in data["hunks"]] == [
        ("H1", "pinned", ["test_shop.py::test_price"]),
        ("H2", "unpinned", []),
    ]
    code, text = run(toy, "ablate", "--json")
    assert json.loads(text) == data


def test_the_command_passes_when_all_are_pinned_and_cannot_judge_without_tests_or_hunks(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"shop.py": SHOP})
    toy.commit(
        "fix: price",
        {
            "shop.py": SHOP.replace("* 10 + 1", "* 10"),
            "test_shop.py": "from shop import price\n\ndef test_price():\n    assert price(2) == 20\n",
        },
    )
    toy.commit("fix: tax", {"shop.py": SHOP.replace("* 10 + 1", "* 10").replace("n + 1", "n")})
    toy.commit("words", {"README.md": "words\n"})
    assert run(toy, "ablate", "HEAD~2")[0] == 0
    code, text = run(toy, "ablate", "HEAD~1")
    assert (code, "no test is new or changed" in text) == (3, True)
    assert run(toy, "ablate")[0] == 3
    assert run(toy, "ablate", "HEAD~2..HEAD")[0] == 2
    assert run(toy, "ablate", "nowhere")[0] == 2


def test_check_reports_unpinned_hunks_and_fails_for_them_only_where_the_project_requires_it(tmp_path: Path) -> None:
    toy = two_hunks(tmp_path / "one")
    code, text = run(toy, "check", "--ablate", "--json")
    (commit,) = json.loads(text)["commits"]
    assert (code, [hunk["status"] for hunk in commit["hunks"]]) == (0, ["pinned", "unpinned"])
    code, text = run(toy, "check", "--json")
    assert (code, json.loads(text)["commits"][0]["hunks"]) == (0, [])
    strict = two_hunks(tmp_path / "two", "require_pinned = true\n")
    code, text = run(strict, "check", "--ablate", "--json")
    (commit,) = json.loads(text)["commits"]
    assert (code, commit["reason"]) == (1, "no new test needs a part of the change: shop.py:6")
    assert [hunk["blocks"] for hunk in commit["hunks"]] == [False, True]
