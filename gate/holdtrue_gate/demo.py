"""`gate demo`: a toy repository with two fixes, one proved by its test and one whose test would have passed before it.

It shows on a stranger's machine what `gate check` says, and that it says it: any other answer is a failed demonstration.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from holdtrue_gate.check import CheckReport, Options, check
from holdtrue_gate.errors import EXIT_NO, EXIT_PASS, CannotJudgeError
from holdtrue_gate.options import guarded, json_option

_BUGGY = """\
def total(prices, discount=0):
    return sum(prices) - discount * len(prices)


def label(name):
    return name.strip().title()
"""
_TOTAL_FIXED = _BUGGY.replace("discount * len(prices)", "discount")
_LABEL_FIXED = _TOTAL_FIXED.replace("name.strip().title()", "name.strip().capitalize()")
_FIRST_TEST = """\
from shop import label


def test_a_label_has_no_blanks_around_it():
    assert label("  tea ") == "Tea"
"""
_PROOF = """\
from shop import total


def test_a_discount_is_taken_once_and_not_for_each_item():
    assert total([10, 20, 30], discount=5) == 55
"""
_PRETENCE = """\
from shop import label


def test_only_the_first_word_of_a_label_is_capitalised():
    assert label("green tea").startswith("G")
"""

# Subject, files, and what the gate must say of it.
_HISTORY = (
    ("Sell tea", {"shop.py": _BUGGY, "test_label.py": _FIRST_TEST}, None),
    ("fix: take a discount once", {"shop.py": _TOTAL_FIXED, "test_total.py": _PROOF}, ("pass", "own-assertion")),
    ("fix: capitalise the first word only", {"shop.py": _LABEL_FIXED, "test_words.py": _PRETENCE}, ("fail", "vacuous")),
)


@click.command("demo")
@json_option
@guarded
def demo_command(as_json: bool) -> None:
    """Show the gate at work: on a toy repository, it tells a real proof from a test that proves nothing."""
    if importlib.util.find_spec("pytest") is None:
        raise CannotJudgeError("no-pytest", "pytest is not installed beside the gate.", "pip install 'holdtrue[gate]'")
    with tempfile.TemporaryDirectory(prefix="gate-demo-") as folder:
        shas = _build(Path(folder))
        judged = [
            (wanted, check(Path(folder), sha, Options(python=Path(sys.executable)), lambda _text: None))
            for sha, (_, _, wanted) in zip(shas, _HISTORY, strict=True)
            if wanted is not None
        ]
    right = all(_said(report) == wanted for wanted, report in judged)
    _print(judged, right=right, as_json=as_json)
    sys.exit(EXIT_PASS if right else EXIT_NO)


def _said(report: CheckReport) -> tuple[str, str]:
    verdicts = [str(test.verdict.value) for commit in report.commits for test in commit.tests]
    return report.result, ", ".join(verdicts)


def _print(judged: Sequence[tuple[tuple[str, str], CheckReport]], *, right: bool, as_json: bool) -> None:
    if as_json:
        import json

        from holdtrue_gate.report import json as json_report

        checks = [json_report.as_dict(report) for _, report in judged]
        click.echo(json.dumps({"right": right, "checks": checks}, indent=2))
        return
    from holdtrue_gate.report import json as json_report
    from holdtrue_gate.report import terminal

    click.echo("Two fixes in a toy repository, each with a green test. Does the test fail without the fix?\n")
    for _, report in judged:
        click.echo(terminal.render(json_report.as_dict(report), width=120, colour=sys.stdout.isatty()).strip() + "\n")
    click.echo(
        "The gate let the proved fix through and refused the other."
        if right
        else "The gate did not say what it should have said."
    )


def _build(folder: Path) -> list[str]:
    """Make the history; the sha of each commit."""
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    shas = []
    for subject, files, _ in _HISTORY:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "--message", subject)
        shas.append(_git(folder, "rev-parse", "HEAD"))
    return shas


def _git(folder: Path, *arguments: str) -> str:
    """Run git as somebody who has configured nothing."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    variables |= {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _NOBODY}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=variables, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


_NOBODY = (("NAME", "gate demo"), ("EMAIL", "gate-demo@localhost"))
