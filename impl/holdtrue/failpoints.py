"""Named points at which a test may kill, delay or break this process, or make two processes meet.

`HOLDTRUE_FAILPOINTS="writer.after_commit=kill@3;reader.snapshot=delay(0.5)"` arms them for a process and its children:

    kill            SIGKILL to this process, so the parent sees -9 and nothing is cleaned up
    raise, raise(NAME)  `FailpointRaised`, or the OSError with that errno name (ENOSPC, EIO)
    delay(SECONDS)  sleep
    rendezvous(N, SECONDS)  wait, at most SECONDS, until N processes stand at this point

`@K` fires at the K-th hit only; without it every hit fires. Off, a hit is one comparison with None.

With `HOLDTRUE_FAILPOINT_JOURNAL` naming a file, each point's first hit in a process and each firing are appended to it
as a JSON line, before the action, so that a point which was asked for and never fired is a failed test and not a silent
pass. Rendezvous counts arrivals in files beside the journal.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from holdtrue.errors import FailpointError, FailpointRaised

ENVIRONMENT = "HOLDTRUE_FAILPOINTS"
JOURNAL_ENVIRONMENT = "HOLDTRUE_FAILPOINT_JOURNAL"

_RULE = re.compile(
    r"(?P<point>[a-z][a-z0-9_.]*)=(?P<action>kill|raise|delay|rendezvous)(?:\((?P<arguments>[^()]*)\))?(?:@(?P<nth>\d+))?"
)
_POLL_S = 0.002
_LONGEST_S = 600.0


@dataclass(frozen=True)
class _Rule:
    action: str
    arguments: tuple[str, ...]
    nth: int | None


class _Armed:
    """The rules of one process, its hit counters and its journal."""

    def __init__(self, rules: dict[str, _Rule], journal: str | None) -> None:
        self.rules = rules
        self.journal = journal
        self.hits: dict[str, int] = {}
        self.lock = threading.Lock()

    def hit(self, point: str) -> None:
        with self.lock:
            count = self.hits.get(point, 0) + 1
            self.hits[point] = count
        if count == 1:
            self.note(point, "reached", count)
        rule = self.rules.get(point)
        if rule is None or (rule.nth is not None and rule.nth != count):
            return
        self.note(point, "fired", count)
        self.act(point, rule)

    def note(self, point: str, event: str, count: int) -> None:
        if self.journal is None:
            return
        line = json.dumps({"point": point, "event": event, "n": count, "pid": os.getpid(), "ns": time.monotonic_ns()})
        # One write to an O_APPEND descriptor: whole lines from many processes, kept by the page cache after SIGKILL.
        descriptor = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)

    def act(self, point: str, rule: _Rule) -> None:
        if rule.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # the signal is on its way; nothing after this point may run
        elif rule.action == "raise":
            name = rule.arguments[0] if rule.arguments else ""
            number = getattr(errno, name, None)
            if isinstance(number, int):
                raise OSError(number, f"{os.strerror(number)} (failpoint {point})")
            raise FailpointRaised(f"failpoint {point}")
        elif rule.action == "delay":
            time.sleep(float(rule.arguments[0]))
        else:
            self.meet(point, int(rule.arguments[0]), float(rule.arguments[1]))

    def meet(self, point: str, parties: int, limit_s: float) -> None:
        if self.journal is None:
            raise FailpointError(
                f"A rendezvous needs {JOURNAL_ENVIRONMENT}.", hint="Name a file in a folder of the test."
            )
        place = Path(f"{self.journal}.{point}")
        place.mkdir(mode=0o700, exist_ok=True)
        (place / str(os.getpid())).touch(mode=0o600)
        deadline = time.monotonic() + limit_s
        # The wait must be able to run out: where the code is right, the others may never get here.
        while len(list(place.iterdir())) < parties and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _parse(text: str) -> dict[str, _Rule]:
    rules: dict[str, _Rule] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        match = _RULE.fullmatch(part)
        if match is None:
            raise FailpointError(
                f"{ENVIRONMENT} holds {part!r}, which is not POINT=ACTION.",
                hint="Write for example writer.after_commit=kill@3 or reader.snapshot=delay(0.5).",
            )
        arguments = tuple(filter(None, (piece.strip() for piece in (match["arguments"] or "").split(","))))
        wanted = {"kill": (0,), "raise": (0, 1), "delay": (1,), "rendezvous": (2,)}[match["action"]]
        if len(arguments) not in wanted:
            raise FailpointError(
                f"{part!r} has {len(arguments)} arguments.", hint=f"{match['action']} takes {wanted[-1]}."
            )
        problem = _problem(match["action"], arguments, match["nth"])
        if match["point"] in rules:
            problem = "the point has a rule already"
        if problem:
            raise FailpointError(f"{part!r} would not do what it says: {problem}.", hint="Correct the rule.")
        rules[match["point"]] = _Rule(match["action"], arguments, int(match["nth"]) if match["nth"] else None)
    return rules


def _problem(action: str, arguments: tuple[str, ...], nth: str | None) -> str:
    """Why a rule of the right shape means nothing; empty when it means something."""
    if nth is not None and int(nth) < 1:
        return "hits are counted from 1"
    if action == "raise" and arguments and not isinstance(getattr(errno, arguments[0], None), int):
        return f"there is no errno {arguments[0]}"
    if action == "rendezvous" and not arguments[0].isdecimal():
        return f"{arguments[0]} is not a number of processes"
    if action in ("delay", "rendezvous"):
        try:
            seconds = float(arguments[-1])
        except ValueError:
            seconds = -1.0
        if not 0.0 <= seconds <= _LONGEST_S:
            return f"{arguments[-1]} is not a number of seconds up to {_LONGEST_S:g}"
    return ""


def _armed_from_environment() -> _Armed | None:
    rules = os.environ.get(ENVIRONMENT, "")
    journal = os.environ.get(JOURNAL_ENVIRONMENT) or None
    if not rules and journal is None:
        return None
    return _Armed(_parse(rules), journal)


_armed = _armed_from_environment()


def hit(point: str) -> None:
    """Stand at a named point. Returns at once unless a test armed it."""
    if _armed is not None:
        _armed.hit(point)
