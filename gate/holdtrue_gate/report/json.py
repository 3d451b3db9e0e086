"""The JSON report, schema `holdtrue.gate/1`: the source of every other report, byte-stable for one result.

Its shape is `gate-1.schema.json` beside this module.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from holdtrue_gate import weaken
from holdtrue_gate.check import CheckReport, CommitReport
from holdtrue_gate.verdict import Judgement, Reading
from holdtrue_gate.weaken import Weakening

SCHEMA = "holdtrue.gate/1"


def _source(reading: Reading) -> list[dict[str, Any]]:
    where = (reading.location or "").rpartition(":")[2]
    return [{"line": line, "text": text, "marked": str(line) == where} for line, text in reading.source]


def _run(side: str, reading: Reading) -> dict[str, Any]:
    return {
        "side": side,
        "outcome": "passed" if reading.green else str(reading.verdict),
        "phase": reading.phase,
        "exception": reading.exception,
        "message": reading.message or None,
        "location": reading.location,
        "reason": reading.reason,
        "source": _source(reading),
        "output": reading.output or None,
    }


def _test(test: Judgement, blocking: bool) -> dict[str, Any]:
    # The head's first: that is the file as the reader has it.
    line = next((reading.line for reading in (*test.head, *test.parent) if reading.line is not None), None)
    return {
        "id": test.id,
        "line": line,
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


def tests_as_dicts(tests: Iterable[Judgement], blocking: Collection[str]) -> list[dict[str, Any]]:
    """Judged tests as plain data, by id."""
    return [_test(test, test.id in blocking) for test in sorted(tests, key=lambda test: test.id)]


def _commit(commit: CommitReport) -> dict[str, Any]:
    return {
        "sha": commit.sha,
        "parent": commit.parent,
        "subject": commit.subject,
        "kind": str(commit.kind),
        "result": commit.result,
        "reason": commit.reason,
        "tests": tests_as_dicts(commit.tests, commit.blocking),
        "weakened": [weakened_as_dict(item) for item in weaken.ordered(commit.weakened)],
        "hunks": [hunk.as_dict() for hunk in sorted(commit.hunks, key=lambda hunk: (hunk.file, hunk.head, hunk.kind))],
        "problems": [{"code": p.code, "message": p.message, "hint": p.hint} for p in commit.problems],
        "notes": list(commit.notes),
    }


def weakened_as_dict(item: Weakening) -> dict[str, Any]:
    """One weakening, as every document carries it."""
    return {
        "id": item.id,
        "kind": item.kind,
        "before": item.before,
        "after": item.after,
        "location": item.location,
        "reason": item.reason_given,
        "blocks": item.blocks,
        "certain": item.certain,
        "note": item.note,
    }


def as_dict(report: CheckReport) -> dict[str, Any]:
    """The report as plain data. Durations are left out: the same result gives the same bytes."""
    return {
        "schema": SCHEMA,
        "range": report.range,
        "result": report.result,
        "commits": [_commit(commit) for commit in report.commits],
    }


def text(document: Mapping[str, Any]) -> str:
    """A document as indented ASCII JSON with sorted keys, without a final newline."""
    written = json.dumps(document, indent=2, sort_keys=True)
    # A runner of GitHub takes `##[` anywhere in a line for a command to it; only strings can hold it.
    return written.replace("##[", "#\\u0023[")


def render(report: CheckReport) -> str:
    """The report as JSON text: see `text`."""
    return text(as_dict(report))
