"""`gate demo`: the demonstration says what it must, and fails when the gate does not."""

from __future__ import annotations

import json

from click.testing import CliRunner

from holdtrue_gate import demo
from holdtrue_gate.cli import gate


def test_the_demonstration_tells_a_proof_from_a_pretence() -> None:
    done = CliRunner().invoke(gate, ["demo", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["right"] is True
    verdicts = [test["verdict"] for one in told["checks"] for commit in one["commits"] for test in commit["tests"]]
    assert verdicts == ["own-assertion", "vacuous"]


def test_the_demonstration_fails_when_the_gate_says_anything_else(monkeypatch) -> None:
    subject, files, _ = demo._HISTORY[1]
    history = (demo._HISTORY[0], (subject, files, ("fail", "vacuous")))
    monkeypatch.setattr(demo, "_HISTORY", history)
    assert CliRunner().invoke(gate, ["demo"]).exit_code == 1
