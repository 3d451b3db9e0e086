"""What the gate says of commits that weaken their tests: toy repositories, real git and real pytest processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gate.tests.commit_toys import Toy
from holdtrue_gate.check import CommitReport
from holdtrue_gate.cli import gate
from holdtrue_gate.report import json as json_report
from holdtrue_gate.report import terminal

Make = Callable[..., Toy]

SHOP = "def price(n):\n    return n * 10 + 1\n\n\ndef tax(n):\n    return n // 5\n"
FIXED = SHOP.replace(" + 1", "")
TAX = "def test_tax():\n    assert tax(10) == 2\n"
TESTS = "from shop import price, tax\n\n" + TAX
IN_A_CLASS = """
    from shop import tax

    class TestTax:
        def test_of_ten(self):
            assert tax(10) == 2

        def test_of_none(self):
            assert tax(0) == 0
"""
WITH_PARAMETERS = """
    import pytest
    from shop import tax

    @pytest.mark.parametrize("n, wanted", [(10, 2), (0, 0)])
    def test_tax(n, wanted):
        assert tax(n) == wanted
"""
PROOF = "\n\ndef test_price():\n    assert price(2) == 20\n"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(name: str = "repo", **settings: float) -> Toy:
        toy = Toy(tmp_path / name, **settings)  # type: ignore[arg-type]
        toy.commit("base", {"shop.py": SHOP, "test_shop.py": TESTS})
        return toy

    return build


def weakened(commit: CommitReport) -> list[tuple[str, str, bool]]:
    return [(item.id.partition("::")[2], item.kind, item.blocks) for item in commit.weakened]


def run(toy: Toy, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(gate, ["weaken", "-C", str(toy.root), *arguments], env=environment or None)


def test_a_proved_fix_that_deletes_a_test_fails_and_passes_with_a_reason(make: Make) -> None:
    files = {"shop.py": FIXED, "test_shop.py": TESTS.replace(TAX, "") + PROOF}
    toy = make()
    toy.commit("fix: price is one too high", files)
    commit = toy.judged()
    assert (commit.result, weakened(commit)) == ("fail", [("test_tax", "deleted", True)])
    assert commit.tests[0].proof
    allowed = toy.judged(allow_weakened=True)
    assert (allowed.result, weakened(allowed)) == ("pass", [("test_tax", "deleted", False)])
    explained = make("explained")
    explained.commit("fix: price is one too high\n\nTest-change: tax is asked by the bookkeeper now", files)
    commit = explained.judged()
    assert (commit.result, commit.weakened[0].reason_given) == ("pass", "tax is asked by the bookkeeper now")


@pytest.mark.parametrize(
    ("new", "kind"),
    [
        (TAX.replace("tax(10) == 2", "tax(10)"), "less-strict"),
        ("import pytest\n\n\n@pytest.mark.skip\n" + TAX, "skipped"),
        ("import pytest\n\n\n@pytest.mark.xfail\n" + TAX, "xfail"),
    ],
)
def test_a_commit_of_tests_alone_is_judged_too(make: Make, new: str, kind: str) -> None:
    toy = make()
    toy.commit("tidy the tests", {"test_shop.py": TESTS.replace(TAX, new)})
    commit = toy.judged()
    assert (str(commit.kind), commit.result) == ("test-only", "fail")
    assert ("test_tax", kind, True) in weakened(commit)


def test_a_deleted_test_beside_a_product_change_without_tests_is_a_no_and_not_only_a_doubt(make: Make) -> None:
    toy = make()
    toy.commit("another price", {"shop.py": FIXED, "test_shop.py": "from shop import price, tax\n"})
    commit = toy.judged()
    assert (commit.result, [p.code for p in commit.problems]) == ("fail", ["no-tests"])
    assert weakened(commit) == [("test_tax", "deleted", True)]


def test_a_changed_expectation_is_named_with_the_old_assertion(make: Make) -> None:
    toy = make()
    toy.commit(
        "count tax in full",
        {"shop.py": SHOP.replace("n // 5", "n // 2"), "test_shop.py": TESTS.replace("tax(10) == 2", "tax(10) == 5")},
    )
    commit = toy.judged()
    (item,) = commit.weakened
    assert (item.id, item.kind, item.location) == ("test_shop.py::test_tax", "changed-expectation", "test_shop.py:4")
    assert (item.before, item.after) == ("assert tax(10) == 2", "assert tax(10) == 5")
    assert (commit.result, item.blocks) == ("fail", True)


def test_a_changed_expectation_of_one_parameter_is_told_once_for_its_function(make: Make) -> None:
    toy = make()
    rows = '@pytest.mark.parametrize("n, wanted", [(10, 2), (20, 4), (0, 0)])\ndef test_tax(n, wanted):\n'
    tests = "import pytest\n\nfrom shop import tax\n\n\n" + rows + "    assert tax(n) == wanted\n"
    toy.commit("more rows", {"test_shop.py": tests})
    toy.commit(
        "count tax in full",
        {
            "shop.py": SHOP.replace("n // 5", "n // 2"),
            "test_shop.py": tests.replace("(10, 2), (20, 4)", "(10, 5), (20, 10)"),
        },
    )
    (item,) = toy.judged().weakened
    assert (item.id, item.kind, "2 of its parameters" in item.note) == (
        "test_shop.py::test_tax",
        "changed-expectation",
        True,
    )


def test_a_test_that_follows_a_renamed_function_is_doubtful(make: Make) -> None:
    toy = make()
    toy.commit(
        "tax is called duty",
        {
            "shop.py": SHOP.replace("tax", "duty"),
            "test_shop.py": TESTS.replace(" tax", " duty").replace("tax(", "duty("),
        },
    )
    commit = toy.judged()
    assert commit.result == "pass"
    assert all(not item.certain for item in commit.weakened)


def test_a_test_that_goes_with_the_module_it_tested_is_doubtful(make: Make) -> None:
    toy = make()
    toy.commit(
        "a till",
        {
            "till.py": "def ring():\n    return 1\n",
            "test_till.py": "from till import ring\n\ndef test_ring():\n    assert ring() == 1\n",
        },
    )
    toy.commit("no till any more", {"till.py": None, "test_till.py": None})
    commit = toy.judged()
    assert [(item.kind, item.blocks) for item in commit.weakened] == [("deleted", False)]
    assert commit.result == "cannot-judge"


def test_a_test_whose_name_only_seems_gone_is_certain_when_it_would_still_pass(make: Make) -> None:
    toy = make()
    # `n` and `rate` leave the product; the test speaks of a rate and needs none of it.
    toy.commit("rates", {"shop.py": SHOP + "\n\ndef rate(rate_of=1):\n    return rate_of\n"})
    toy.commit(
        "a test of words",
        {"test_words.py": "from shop import tax\n\n\ndef test_rate():\n    assert {'rate': tax(10)} == {'rate': 2}\n"},
    )
    toy.commit(
        "no rates",
        {
            "shop.py": SHOP,
            "test_words.py": None,
            "test_shop.py": TESTS + "\n\ndef test_none():\n    assert tax(0) == 0\n",
        },
    )
    (item,) = toy.judged().weakened
    assert (item.kind, item.certain, item.note) == ("deleted", True, "it would still pass")


def test_a_red_that_the_parent_has_too_is_no_changed_expectation(make: Make) -> None:
    toy = make()
    red = TESTS + "\n\ndef test_red():\n    assert price(1) == 99\n"
    toy.commit("a red test", {"test_shop.py": red})
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": red.replace("== 99", "== 10")})
    commit = toy.judged()
    assert (commit.weakened, commit.result) == ((), "pass")


def test_an_old_test_that_the_product_stops_is_shown_with_the_line_of_the_commit(make: Make) -> None:
    toy = make()
    toy.commit("a refusal", {"test_shop.py": TESTS + "\n\ndef test_odd():\n    price(-1)\n"})
    refusing = "# refuses\n# what is\n# below zero\n" + FIXED.replace(
        "def price(n):\n", "def price(n):\n    if n < 0:\n        raise ValueError(n)\n", 1
    )
    test = TESTS + "\n\ndef test_odd():\n    import pytest\n    pytest.raises(ValueError, price, -1)\n"
    toy.commit("fix: refuse what is below zero", {"shop.py": refusing, "test_shop.py": test})
    items = {item.kind: item for item in toy.judged().weakened}
    assert items["changed-expectation"].before == "raise ValueError(n)"


def test_a_changed_helper_is_no_test_that_could_not_be_run(make: Make) -> None:
    toy = make()
    helped = TESTS.replace("assert tax(10) == 2", "assert tax(ten()) == 2") + "\n\ndef ten():\n    return {ten}\n"
    toy.commit("a helper", {"test_shop.py": helped.format(ten="10")})
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": helped.format(ten="5 + 5") + PROOF})
    commit = toy.judged()
    assert (commit.result, commit.weakened, commit.notes) == ("pass", (), ())


def test_moving_renaming_and_merging_tests_is_no_weakening(make: Make) -> None:
    toy = make()
    two = TESTS + "\n\ndef test_no_tax():\n    assert tax(0) == 0\n"
    toy.commit("one more", {"test_shop.py": two})
    toy.commit(
        "a class, a file and another name",
        {
            "test_shop.py": None,
            "tests/test_tax.py": IN_A_CLASS,
        },
    )
    commit = toy.judged()
    assert (commit.weakened, commit.result) == ((), "pass")
    toy.commit(
        "one with parameters",
        {
            "tests/test_tax.py": WITH_PARAMETERS,
        },
    )
    commit = toy.judged()
    assert (commit.weakened, commit.result) == ((), "pass")


def test_a_merge_is_not_blamed_for_what_came_with_its_branch(make: Make) -> None:
    toy = make()
    toy.git("checkout", "-q", "-b", "side")
    toy.commit("less tests\n\nTest-change: asked elsewhere", {"test_shop.py": "from shop import tax\n"})
    toy.git("checkout", "-q", "main")
    toy.commit("more", {"other.txt": "a"})
    toy.git("merge", "-q", "--no-ff", "-m", "merge side", "side")
    assert all(not item.certain for item in toy.judged().weakened)
    assert run(toy).exit_code == 0


def test_the_reports_carry_what_was_weakened(make: Make) -> None:
    toy = make()
    toy.commit("tidy [bold]the[/] tests", {"test_shop.py": TESTS.replace("tax(10) == 2", "tax(10)")})
    report = toy.check()
    (entry,) = json_report.as_dict(report)["commits"][0]["weakened"]
    assert entry == {
        "id": "test_shop.py::test_tax",
        "kind": "less-strict",
        "before": "assert tax(10) == 2",
        "after": "assert tax(10)",
        "location": "test_shop.py:4",
        "reason": None,
        "blocks": True,
        "certain": True,
        "note": "from equality to truthiness",
    }
    text = terminal.render(json_report.as_dict(report))
    assert "less-strict" in text
    assert "assert tax(10) == 2" in text
    assert "Test-change:" in text


# --- the command


def test_the_command_reads_source_alone_and_ends_with_1(make: Make) -> None:
    toy = make()
    # Were anything run, this would hang.
    toy.commit("tidy", {"test_shop.py": "import time\n\ntime.sleep(600)\n" + TESTS.replace("tax(10) == 2", "tax(10)")})
    done = run(toy)
    assert (done.exit_code, "less-strict  test_shop.py::test_tax" in done.output) == (1, True)
    assert run(toy, "HEAD^").exit_code == 0
    assert run(toy, "HEAD^..HEAD").exit_code == 1


def test_the_command_prints_one_document_and_writes_reports(make: Make, tmp_path: Path) -> None:
    toy = make()
    sha = toy.commit("tidy", {"test_shop.py": TESTS.replace(TAX, "")})
    done = run(toy, "--json", "--report", f"json={tmp_path / 'weaken.json'}")
    data = json.loads(done.output)
    assert (data["schema"], data["result"], data["commits"][0]["sha"]) == ("holdtrue.gate.weaken/1", "fail", sha)
    assert [entry["kind"] for entry in data["commits"][0]["weakened"]] == ["deleted"]
    assert json.loads((tmp_path / "weaken.json").read_text()) == data


def test_text_of_the_repository_is_shown_as_it_is(make: Make) -> None:
    toy = make()
    toy.commit("[red]tidy\x1b[2J", {"test_shop.py": TESTS.replace("== 2", "in [2]  # [bold]")})
    done = run(toy)
    assert "[red]tidy" in done.output
    assert "\x1b" not in done.output


def test_with_replay_the_command_names_a_changed_expectation(make: Make) -> None:
    toy = make()
    toy.commit(
        "count tax in full",
        {"shop.py": SHOP.replace("n // 5", "n // 2"), "test_shop.py": TESTS.replace("tax(10) == 2", "tax(10) == 5")},
    )
    assert run(toy).exit_code == 0
    done = run(toy, "--replay", "--python", sys.executable)
    assert (done.exit_code, "changed-expectation" in done.output) == (1, True)


def test_what_cannot_be_read_and_a_missing_parent_end_with_3(make: Make, tmp_path: Path) -> None:
    toy = make()
    toy.commit("broken", {"test_shop.py": "def test_tax(:\n"})
    done = run(toy)
    assert (done.exit_code, "no valid Python" in done.output) == (3, True)
    clone = tmp_path / "clone"
    toy.git("clone", "-q", "--depth", "1", f"file://{toy.root}", str(clone))
    done = CliRunner().invoke(gate, ["weaken", "-C", str(clone)])
    assert (done.exit_code, "not in this clone" in done.output) == (3, True)


def test_data_that_is_no_valid_python_is_nobodys_test(make: Make) -> None:
    toy = make()
    toy.commit("samples", {"tests/data/broken.py": "def (:\n"})
    assert run(toy).exit_code == 0


def test_the_index_is_judged_before_the_commit(make: Make, tmp_path: Path) -> None:
    toy = make()
    assert run(toy, "--staged").exit_code == 0
    toy.write({"test_shop.py": TESTS.replace(TAX, "")})
    assert run(toy, "--staged").exit_code == 0
    toy.git("add", "-A")
    assert run(toy, "--staged").exit_code == 1
    message = tmp_path / "message"
    message.write_text("tidy\n\nTest-change: asked elsewhere\n# a comment\n")
    assert run(toy, "--staged", "--message", str(message)).exit_code == 0
    message.write_text("tidy\n\n# Test-change: a comment gives no reason\n")
    assert run(toy, "--staged", "--message", str(message)).exit_code == 1
    assert run(toy, "--staged", "HEAD~1").exit_code == 2
    assert run(toy, "--message", str(message)).exit_code == 2


def test_a_hook_judges_the_index_that_git_made_for_the_commit(make: Make) -> None:
    toy = make()
    hook = toy.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec {sys.executable} -m holdtrue_gate weaken --staged\n")
    hook.chmod(0o755)
    toy.write({"test_shop.py": TESTS.replace(TAX, "")})
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    command = ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-q", "-a", "-m", "tidy"]
    # `commit -a` leaves the usual index alone until the hook has said yes.
    done = subprocess.run(
        command, cwd=toy.root, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "deleted" in done.stdout + done.stderr) == (1, True)
    assert toy.git("log", "-1", "--format=%s").strip() == "base"


def test_a_first_commit_weakens_nothing(make: Make) -> None:
    toy = make()
    root = toy.git("rev-list", "--max-parents=0", "HEAD").strip()
    assert run(toy, root).exit_code == 0
