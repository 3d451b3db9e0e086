"""The JSON report, schema `holdtrue.gate/1`: the source of every other report, byte-stable for one result."""

from __future__ import annotations

import json
from typing import Any

from holdtrue_gate.check import CheckReport, CommitReport
from holdtrue_gate.verdict import Judgement, Reading

SCHEMA = "holdtrue.gate/1"


def _run(side: str, reading: Reading) -> dict[str, Any]:
    return {
        "side": side,
        "outcome": "passed" if reading.green else str(reading.verdict),
        "phase": reading.phase,
        "exception": reading.exception,
        "message": reading.message or None,
        "location": reading.location,
        "reason": reading.reason,
    }


def _test(test: Judgement, blocking: bool) -> dict[str, Any]:
    return {
        "id": test.id,
        "verdict": str(test.verdict),
        "proof": test.proof,
        "blocks": blocking,
        "changed": test.changed,
        "side": test.side,
        "exception": test.exception,
        "message": test.message or None,
        "location": test.location,
        "symbol": test.symbol,
        "reason": test.reason,
        "runs": [
            *(_run("head", reading) for reading in test.head),
            *(_run("parent", reading) for reading in test.parent),
        ],
    }


def _commit(commit: CommitReport) -> dict[str, Any]:
    return {
        "sha": commit.sha,
        "parent": commit.parent,
        "subject": commit.subject,
        "kind": str(commit.kind),
        "result": commit.result,
        "reason": commit.reason,
        "tests": [_test(test, test.id in commit.blocking) for test in sorted(commit.tests, key=lambda test: test.id)],
        "weakened": [],
        "hunks": [],
        "problems": [{"code": p.code, "message": p.message, "hint": p.hint} for p in commit.problems],
    }


def as_dict(report: CheckReport) -> dict[str, Any]:
    """The report as plain data. Durations are left out: the same result gives the same bytes."""
    return {
        "schema": SCHEMA,
        "range": report.range,
        "result": report.result,
        "commits": [_commit(commit) for commit in report.commits],
    }


def render(report: CheckReport) -> str:
    """The report as indented JSON with sorted keys, without a final newline."""
    return json.dumps(as_dict(report), indent=2, sort_keys=True)
