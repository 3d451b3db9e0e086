"""`gate prove`: one test against the product of any revision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdtrue_gate import decision
from holdtrue_gate import plan as planning
from holdtrue_gate.check import Options, judge, laboratory
from holdtrue_gate.errors import UsageError
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.output import MARKS, Reports, emit, exit_with, interruptible, line, safe
from holdtrue_gate.plan import Choice, Kind
from holdtrue_gate.replay_options import interpreter, replay_options, spinner
from holdtrue_gate.repo import Repository
from holdtrue_gate.report import json as json_report
from holdtrue_gate.verdict import Judgement, Verdict

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "holdtrue.gate.prove/1"


@click.command("prove")
@click.argument("node", metavar="NODEID")
@click.option("--against", required=True, metavar="REV", help="The revision whose product the test should fail on.")
@click.option("--at", "at", default="HEAD", show_default=True, metavar="REV", help="The revision that has the test.")
@directory_option
@replay_options
@json_option
@report_option
@guarded
def prove_command(
    node: str,
    against: str,
    at: str,
    directory: Path,
    runs: int | None,
    timeout_s: float | None,
    python: Path | None,
    as_json: bool,
    reports: Reports,
) -> None:
    """Judge one test, as it is at HEAD (or --at), against the product of another revision.

    The verdict is that of `gate check`: the test must be green where it lives, and is run on the other revision with the
    test side of its own laid over it. Exit code 0: it is proof; 1: it is not; 3: cannot judge.
    """
    options = Options(runs=runs, timeout_s=timeout_s, python=interpreter(python))
    with interruptible(), spinner("judging the test"):
        data, tests, made = prove(directory, node, against, at, options)
    emit(data, lambda console: show(console, data, tests, made), as_json, reports)
    exit_with(made.result)


def prove(
    directory: Path, node: str, against: str, at: str, options: Options
) -> tuple[dict[str, Any], list[Judgement], decision.Decision]:
    """The verdicts of a test (of each of its parameters) and what they mean together. Raises GateError."""
    node = node.removeprefix("./")
    with Repository(directory) as repository, ThreadPoolExecutor(options.jobs) as executor:
        commit = repository.commit(repository.resolve(at))
        other = repository.resolve(against)
        # One parent, whichever it is: that of a merge would narrow what counts as its own.
        plan = planning.make(repository, replace(commit, parents=(other,)), other, options.override)
        if node.partition("::")[0] not in plan.head:
            raise UsageError(
                "no-test", f"{node.partition('::')[0]!r} is no file of {at}", "Give a node id, as pytest prints it."
            )
        plan = replace(plan, choice=Choice(added=(node,)))
        with laboratory(repository, plan, options, executor) as lab:
            tests = judge(lab, plan)
    if not tests or all(test.side == "head" and test.reason.startswith("was not collected") for test in tests):
        raise UsageError("no-test", f"pytest collects no {node!r} at {at}", "`pytest --collect-only -q` lists the ids.")
    made = decision.decide(Kind.FIX, True, False, tests)
    if made.result == decision.FAIL:
        made = replace(made, reason=_told(tests))
    if made.result == decision.PASS:
        made = replace(made, reason="it is proof" if len(tests) == 1 else "its parameters are proof")
    data = {
        "schema": SCHEMA,
        "node": node,
        "at": commit.sha,
        "against": other,
        "result": made.result,
        "reason": made.reason,
        "tests": json_report.tests_as_dicts(tests, made.blocking),
    }
    return data, tests, made


def _told(tests: list[Judgement]) -> str:
    first = next((test for test in tests if not test.proof), tests[0])
    return f"{first.verdict}: {first.reason}"


def show(console: Console, data: dict[str, Any], tests: list[Judgement], made: decision.Decision) -> None:
    """The answer for a person."""
    line(console, f"{data['at'][:10]} against the product of {data['against'][:10]}", style="bold")
    for test in tests:
        mark = "✔" if test.proof else "?" if test.verdict is Verdict.ENVIRONMENT else "✘"
        line(console, f"  {mark} {test.verdict}  {safe(test.id)}  {safe(test.location or '')}")
        told = safe(f"{test.exception}: {test.message}" if test.exception else test.reason)
        line(console, f"      {told if len(told) <= 160 else told[:159] + '…'}")
    console.print(f"gate prove: {MARKS[made.result]}", end="  ")
    line(console, safe(made.reason))
