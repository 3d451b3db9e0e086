"""Reports as a user asks for them: `--report KIND=FILE`, `gate report KIND [FILE]`, a step of GitHub Actions; and the frame
and the output of real runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gate.tests.commit_toys import Toy
from gate.tests.report_documents import full, hostile
from holdtrue_gate import cli
from holdtrue_gate.report import document as reading
from holdtrue_gate.report import github, kinds
from holdtrue_gate.report import json as json_report

BASE = {"shop.py": "def price(n):\n    return n * 10 + 1\n"}
FIXED = "def price(n):\n    return n * 10\n"
TEST = """
    import os
    import sys
    import tempfile

    import shop


    def test_price(tmp_path):
        print("the price is", shop.price(1), "in", tmp_path)
        print("seen from", os.getcwd(), "and", tempfile.gettempdir(), file=sys.stderr)
        print("an object", object())

        expected = 10
        assert shop.price(1) == expected


    def test_beside():
        print("nobody needs to read this")
        assert shop.price(0) in (0, 1)
"""


@pytest.fixture(autouse=True)
def _outside_of_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    made = Toy(tmp_path / "repo")
    made.commit("base", BASE)
    made.commit("fix: price", {"shop.py": FIXED, "test_shop.py": TEST})
    return made


def check(toy: Toy, *arguments: str) -> Result:
    return CliRunner().invoke(cli.gate, ["check", "-C", str(toy.root), "--python", sys.executable, *arguments])


def document_of(toy: Toy) -> dict[str, Any]:
    return json_report.as_dict(toy.check())


def run_of(test: dict[str, Any], side: str) -> dict[str, Any]:
    return next(run for run in test["runs"] if run["side"] == side)


# --- the frame and the output


def test_a_red_run_carries_the_lines_around_its_failure_and_what_it_printed(toy: Toy) -> None:
    data = document_of(toy)
    reading.validate(data)
    beside, price = data["commits"][0]["tests"]
    red = run_of(price, "parent")
    assert red["location"] == "test_shop.py:14"
    assert [(line["line"], line["marked"]) for line in red["source"]] == [(n, n == 14) for n in range(9, 15)]
    assert [line["text"] for line in red["source"]][2:] == [
        '    print("an object", object())',
        "",
        "    expected = 10",
        "    assert shop.price(1) == expected",
    ]
    assert "[Captured stdout call]\nthe price is 11 in <tmp>/" in red["output"]
    assert "[Captured stderr call]\nseen from . and <tmp>" in red["output"]
    assert "an object <object object at 0x...>" in red["output"]
    assert price["line"] == 8
    green = run_of(price, "head")
    assert (green["source"], green["output"]) == ([], None)
    assert run_of(beside, "parent")["output"] is None


def test_the_frame_is_that_of_the_product_when_the_failure_is_there(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", {"shop.py": "# caf\xe9\ndef price(n):\n    if n:\n        raise ValueError(n)\n".encode()})
    toy.commit(
        "fix: price",
        {"shop.py": FIXED, "test_shop.py": "import shop\n\ndef test_price():\n    assert shop.price(1) == 10\n"},
    )
    (test,) = document_of(toy)["commits"][0]["tests"]
    lines = run_of(test, "parent")["source"]
    assert [line["text"] for line in lines if line["marked"]] == ["        raise ValueError(n)"]
    assert lines[0]["text"] == "# café"


@pytest.mark.parametrize(
    "bodies",
    [
        ["assert False, (str(tmp_path), shop.__file__)", "raise LookupError(object(), tmp_path)"],
        ["import faulthandler, os; faulthandler.enable(); os.abort()"],
        ["import pytest; pytest.exit('enough')"],
    ],
    ids=["exceptions", "abort", "exit"],
)
def test_two_checks_of_a_commit_give_the_same_bytes(tmp_path: Path, bodies: list[str]) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", BASE)
    text = "import shop\n"
    for number, body in enumerate(bodies):
        text += f"\ndef test_{number}(tmp_path):\n    print(tmp_path)\n    if shop.price(1) == 11:\n        {body}\n"
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": text})
    first, second = (json_report.render(toy.check()) for _ in range(2))
    assert first == second
    assert "/gate-" not in first


def test_long_output_is_kept_at_its_end_and_within_bounds(tmp_path: Path) -> None:
    toy = Toy(tmp_path / "repo")
    toy.commit("base", BASE)
    text = "import shop\n\ndef test_price():\n    print('x' * 500000, 'the end')\n    assert shop.price(1) == 10\n"
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": text})
    (test,) = document_of(toy)["commits"][0]["tests"]
    output = run_of(test, "parent")["output"]
    assert len(output) == 4000
    assert output.endswith("the end")


def test_a_frame_that_names_a_file_elsewhere_shows_nothing_of_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("the_secret = 1\n" * 9)
    toy = Toy(tmp_path / "repo")
    toy.commit("base", BASE)
    text = f"""
        import os

        import shop

        def test_price():
            if not os.path.lexists("linked.py"):
                os.symlink({str(secret)!r}, "linked.py")
            exec(compile("\\n\\nassert shop.price(1) == 10", os.path.abspath("linked.py"), "exec"))
    """
    toy.commit("fix: price", {"shop.py": FIXED, "test_shop.py": text})
    assert "the_secret" not in json.dumps(document_of(toy))


# --- --report


def test_every_kind_is_written_and_is_what_the_stored_document_gives(toy: Toy, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"gate.{kind}" for kind in kinds.KINDS}
    done = check(toy, "--json", *(part for kind, file in files.items() for part in ("--report", f"{kind}={file}")))
    # Beside a proof, a test that passes on both sides and is no old one blocks.
    assert done.exit_code == 1
    stored = files["json"].read_text()
    assert stored == done.stdout
    for kind, file in files.items():
        from_stdin = CliRunner().invoke(cli.gate, ["report", kind], input=stored)
        from_file = CliRunner().invoke(cli.gate, ["report", kind, str(files["json"])])
        assert (from_stdin.exit_code, from_file.exit_code) == (0, 0)
        assert from_stdin.output == from_file.output == file.read_text()


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_report_into_a_missing_folder_is_refused_before_anything_runs(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def never(*_arguments: object, **_more: object) -> None:
        raise AssertionError("the check began")

    monkeypatch.setattr(cli, "check", never)
    for target, words in ((tmp_path / "no" / "gate.out", "does not exist"), (tmp_path, "is a folder")):
        done = check(toy, "--report", f"{kind}={target}")
        assert done.exit_code == 2
        assert words in " ".join(done.output.split())


def test_a_report_that_cannot_be_written_is_a_usage_error(toy: Toy) -> None:
    done = check(toy, "--report", "html=/dev/full")
    assert done.exit_code == 2
    assert "report-unwritable" in done.output


# --- gate report


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema": "holdtrue.gate/9"}', "bad-document"),
        ("<script>alert(1)</script>", "not JSON"),
    ],
    ids=["empty", "deep", "other-schema", "markup"],
)
def test_a_wrong_document_is_a_clear_usage_error(text: str, words: str) -> None:
    done = CliRunner().invoke(cli.gate, ["report", "html"], input=text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert "gate check --json" in done.stderr
    as_json = CliRunner().invoke(cli.gate, ["report", "html", "--json"], input=text)
    assert json.loads(as_json.stdout)["error"]["code"] == "bad-document"


def test_a_missing_file_and_an_unknown_kind_are_usage_errors(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.gate, ["report", "html", str(tmp_path / "none.json")])
    assert (done.exit_code, "unreadable-document" in done.stderr) == (2, True)
    assert CliRunner().invoke(cli.gate, ["report", "pdf"], input="{}").exit_code == 2


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_hostile_document_is_rendered_in_any_locale(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdtrue_gate", "report", kind, "-"],
        input=json.dumps(hostile()).encode(),
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout


# --- in a step of GitHub Actions


def test_in_a_step_the_change_is_annotated_and_the_summary_is_written(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = check(toy)
    assert done.exit_code == 1
    first, *_, last = done.stdout.rstrip("\n").split("\n")
    assert first.startswith("::stop-commands::")
    assert last == f"::{first.removeprefix('::stop-commands::')}::"
    assert done.stderr.startswith(
        "::error file=test_shop.py,line=17,title=gate%3A Passes without the change (vacuous)::"
    )
    assert "### ❌ NO" in summary.read_text()
    as_json = check(toy, "--json")
    assert json.loads(as_json.stdout)["result"] == "fail"
    assert as_json.stderr == done.stderr


def test_outside_of_a_step_nothing_is_annotated(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    done = check(toy)
    assert "::" not in done.stderr
    assert not done.stdout.startswith("::")
    assert not (tmp_path / "summary.md").exists()


def test_the_log_of_a_runner_obeys_nothing_between_two_secret_words() -> None:
    text = kinds.render("terminal", full())
    first, second = github.quieted(text), github.quieted(text)
    assert first != second
    assert text in first
