"""Failpoints: what a rule may say, what it does, and that off it does nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from holdtrue import failpoints
from holdtrue.errors import FailpointError

RunPython = Callable[..., CompletedProcess[str]]

HITS = """
import errno, sys
from holdtrue import failpoints
for number in range(1, 5):
    try:
        failpoints.hit("writer.after_commit")
        failpoints.hit("other")
    except OSError as error:
        print(number, errno.errorcode[error.errno])
    except Exception as error:
        print(number, type(error).__name__)
print("over", flush=True)
"""


def test_off_a_hit_does_nothing(run_python: RunPython) -> None:
    done = run_python(HITS)
    assert (done.stdout, done.stderr, done.returncode) == ("over\n", "", 0)


@pytest.mark.parametrize(
    ("rules", "printed"),
    [
        ("writer.after_commit=raise", ["1 FailpointRaised", "2 FailpointRaised", "3 FailpointRaised", "4 Failpoint"]),
        ("writer.after_commit=raise@3", ["3 FailpointRaised"]),
        ("writer.after_commit=raise(ENOSPC)@2", ["2 ENOSPC"]),
        ("writer.after_commit=raise(EIO)@4 ; other=raise@2;", ["2 FailpointRaised", "4 EIO"]),
        ("writer.after_commit=delay(0.01);never=kill", []),
    ],
)
def test_a_rule_fires_at_the_hit_it_names(run_python: RunPython, rules: str, printed: list[str]) -> None:
    done = run_python(HITS, HOLDTRUE_FAILPOINTS=rules)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines.pop() == "over"
    assert [line[: len(wanted)] for line, wanted in zip(lines, printed, strict=True)] == printed


def test_a_kill_is_sigkill_and_stands_in_the_journal_before_it(run_python: RunPython, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    done = run_python(HITS, HOLDTRUE_FAILPOINTS="writer.after_commit=kill@2", HOLDTRUE_FAILPOINT_JOURNAL=str(journal))
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [(line["point"], line["event"], line["n"]) for line in lines] == [
        ("writer.after_commit", "reached", 1),
        ("other", "reached", 1),
        ("writer.after_commit", "fired", 2),
    ]


def test_a_journal_alone_notes_what_is_reached_and_fires_nothing(run_python: RunPython, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    done = run_python(HITS, HOLDTRUE_FAILPOINT_JOURNAL=str(journal))
    assert done.stdout == "over\n"
    assert [json.loads(line)["event"] for line in journal.read_text().splitlines()] == ["reached", "reached"]


def test_a_rendezvous_waits_for_as_many_processes_and_its_wait_runs_out(run_python: RunPython, tmp_path: Path) -> None:
    program = (
        "import os, time\nfrom holdtrue import failpoints\nchild = os.fork() if {fork} else 1\n"
        "began = time.monotonic()\nfailpoints.hit('here')\n"
        "waited = time.monotonic() - began\n"
        "os.write(1, b'soon ' if waited < {soon} else b'late ')\n"
        "if child == 0: os._exit(0)\n"
        "if {fork}: os.waitpid(child, 0)\n"
    )
    for fork, limit, soon, answer in ((True, 20, 15, "soon soon "), (False, 0.3, 0.3, "late ")):
        done = run_python(
            program.format(fork=fork, soon=soon),
            HOLDTRUE_FAILPOINTS=f"here=rendezvous(2, {limit})",
            HOLDTRUE_FAILPOINT_JOURNAL=str(tmp_path / f"journal-{fork}"),
        )
        assert (done.stdout, done.stderr) == (answer, "")


@pytest.mark.parametrize(
    "rules",
    [
        *("writer", "=kill", "writer=", "writer=explode", "Writer=kill", "writer=kill@", "writer=kill@x"),
        *("writer=kill(1)", "writer=delay", "writer=delay()", "writer=delay(1,2)", "writer=rendezvous(2)"),
        *("writer=raise(A,B)", "writer=kill@1@2", "writer = kill", "a=kill,b=kill", "writer=delay((1))"),
    ],
)
def test_a_rule_that_cannot_be_understood_is_refused(monkeypatch: pytest.MonkeyPatch, rules: str) -> None:
    monkeypatch.setenv(failpoints.ENVIRONMENT, rules)
    with pytest.raises(FailpointError):
        failpoints._armed_from_environment()


def test_a_program_with_a_rule_that_cannot_be_understood_does_not_start(run_python: RunPython) -> None:
    done = run_python("import holdtrue.failpoints; print('started')", HOLDTRUE_FAILPOINTS="writer=explode")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "FailpointError" in done.stderr


def test_this_test_run_has_nothing_armed() -> None:
    assert failpoints._armed is None
