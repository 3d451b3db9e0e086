"""`gate revive`: the fix of an old finding taken back on today's head as far as it applies. Would today's tests notice?

The tests are those that the commit's finding names today, else the commit's new test files as they are today. First the
whole of what applies is taken back; where the code cannot work so, the parts that can.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdtrue_gate import plan as planning
from holdtrue_gate import snapshot, transplant
from holdtrue_gate.ablate import Bench, Readings, Status, judged, versions
from holdtrue_gate.bonds import Bonds
from holdtrue_gate.check import Options, laboratory
from holdtrue_gate.errors import CannotJudgeError, UsageError
from holdtrue_gate.hunks import Diff, Version
from holdtrue_gate.lab import Lab, reading, results
from holdtrue_gate.plan import Plan
from holdtrue_gate.repo import Commit, Repository
from holdtrue_gate.transplant import Place

SCHEMA = "holdtrue.gate.revive/1"

NOTICED, NOT_NOTICED, CANNOT_JUDGE = "noticed", "not-noticed", "cannot-judge"
RESULTS = {NOTICED: "pass", NOT_NOTICED: "fail", CANNOT_JUDGE: "cannot-judge"}

_FINDING = re.compile(r"F-[0-9]{4,}")


@dataclass(frozen=True)
class Part:
    """One hunk of the old change, today. `how` is exact, moved, gone or silent; `taken` whether it was taken back in the
    run that gave the answer."""

    place: Place
    how: str
    why: str = ""
    taken: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The shape in a report."""
        hunk = self.place.hunk
        today = {"file": self.place.file, "line": self.place.line} if self.place.applies else None
        return {
            "id": hunk.id,
            "file": hunk.file,
            "head": list(hunk.head),
            "kind": str(hunk.kind),
            "how": self.how,
            "today": today,
            "why": self.why,
            "taken": self.taken,
        }


@dataclass(frozen=True)
class Notice:
    """What one test said without the fix."""

    id: str
    outcome: str
    notices: bool
    exception: str | None = None
    message: str = ""
    location: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The shape in a report."""
        return {
            "id": self.id,
            "outcome": self.outcome,
            "notices": self.notices,
            "exception": self.exception,
            "message": self.message or None,
            "location": self.location,
        }


@dataclass(frozen=True)
class Revival:
    """An old fix, taken back on a later commit."""

    ref: str
    sha: str
    subject: str
    at: str
    answer: str
    reason: str
    parts: tuple[Part, ...] = ()
    tests: tuple[Notice, ...] = field(default_factory=tuple)

    @property
    def result(self) -> str:
        """pass, fail or cannot-judge."""
        return RESULTS[self.answer]

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "schema": SCHEMA,
            "ref": self.ref,
            "sha": self.sha,
            "subject": self.subject,
            "at": self.at,
            "answer": self.answer,
            "result": self.result,
            "reason": self.reason,
            "hunks": [part.as_dict() for part in self.parts],
            "tests": [notice.as_dict() for notice in self.tests],
        }


# --- which tests


def findings_of(commit: Commit) -> list[str]:
    """The ids in the commit's `Finding:` trailers."""
    return [id_ for key, value in commit.trailers if key == "finding" for id_ in _FINDING.findall(value)]


def named_tests(repository: Repository, today: Plan, findings: Sequence[str]) -> list[str]:
    """The tests that these findings name today, those that still exist."""
    found: list[str] = []
    for id_ in findings:
        pattern = re.compile(rf"(?:.*/)?regressions/{re.escape(id_)}-[^/]+/finding\.toml")
        for path in sorted(today.head):
            source = repository.text(today.head, path) if pattern.fullmatch(path) else None
            if source is None:
                continue
            try:
                tests = tomllib.loads(source.decode("utf-8")).get("tests", [])
            except (UnicodeDecodeError, tomllib.TOMLDecodeError):
                continue
            if isinstance(tests, list):
                found += [test for test in tests if isinstance(test, str)]
    return [test for test in dict.fromkeys(found) if test.partition("::")[0] in today.head]


def _given(today: Plan, tests: Sequence[str]) -> list[str]:
    chosen = []
    for test in tests:
        file = test.partition("::")[0].removeprefix("./").rstrip("/")
        below = sorted(path for path in today.head if path.startswith(file + "/") and _is_test_file(path))
        if file not in today.head and not below:
            raise UsageError(
                "no-test", f"there is no test file {file!r} at that revision", "Give a path of the project."
            )
        chosen += below if file not in today.head else [test.removeprefix("./")]
    return chosen


def _is_test_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


# --- the revival


def run(
    directory: Path,
    ref: str,
    at: str,
    tests: Sequence[str],
    options: Options,
    progress: Callable[[str], None] = lambda _text: None,
) -> Revival:
    """Takes the fix `ref` back at `at` and asks today's tests. Raises GateError; writes nothing into the repository."""
    with Repository(directory) as repository, ThreadPoolExecutor(options.jobs) as executor:
        commit = repository.commit(repository.resolve(ref))
        if not commit.parents:
            raise CannotJudgeError("no-parent", "this is the first commit: it changed nothing that could come back")
        if not repository.has_commit(commit.parents[0]):
            raise CannotJudgeError(
                "history-missing",
                f"the parent {commit.parents[0][:12]} is not in this clone",
                "Fetch it (`git fetch --unshallow`), then try again.",
            )
        then = planning.make(repository, commit, commit.parents[0], options.override)
        later = repository.commit(repository.resolve(at))
        today = snapshot.make(repository, later, options.override)
        chosen = _given(today, tests) if tests else named_tests(repository, today, findings_of(commit))
        if not chosen:
            chosen = [file for file in then.choice.files if file in today.head]
        revival = _Revival(repository, ref, then, snapshot.make(repository, later, options.override, chosen))
        return revival.answered(options, executor, progress)


class _Revival:
    """The three versions and what is known of them."""

    def __init__(self, repository: Repository, ref: str, then: Plan, today: Plan) -> None:
        self._repository, self._ref, self._then, self._today = repository, ref, then, today
        paths = snapshot.changed_product(then)
        self._parent, self._fix = versions(repository, then.base, paths), versions(repository, then.head, paths)
        self._diff = Diff(self._parent, self._fix)
        self._bonds = Bonds(self._diff, self._parent, self._fix, set(then.head) - set(paths))
        self._product = versions(repository, today.head, snapshot.product_paths(today))
        self._places = transplant.places(self._diff, self._parent, self._fix, self._product)
        self._silent = {hunk.number: why for hunk in self._diff.hunks if (why := self._bonds.silent(hunk))}
        self._usable = [p for p in self._places if p.applies and p.hunk.number not in self._silent]

    def _said(
        self,
        answer: str,
        reason: str,
        taken: Sequence[Place] = (),
        found: Readings | None = None,
        pins: Sequence[str] = (),
    ) -> Revival:
        numbers = {place.hunk.number for place in taken}
        parts = []
        for place in self._places:
            silent = self._silent.get(place.hunk.number)
            how, why = ("silent", silent) if silent else (place.how, place.why)
            parts.append(Part(place, how, why, place.hunk.number in numbers))
        notices = []
        for id_, runs in sorted((found or {}).items()):
            red = next((one for one in runs if not one.green), runs[0])
            outcome = "passed" if red.green else str(red.verdict)
            notices.append(Notice(id_, outcome, id_ in pins, red.exception, red.message, red.location))
        commit = self._then.commit
        return Revival(
            self._ref, commit.sha, commit.subject, self._today.commit.sha, answer, reason, tuple(parts), tuple(notices)
        )

    def answered(self, options: Options, executor: Executor, progress: Callable[[str], None]) -> Revival:
        """The answer. Raises CannotJudgeError."""
        if not self._diff.hunks:
            return self._said(CANNOT_JUDGE, "the commit changed no product file")
        if not self._usable:
            silent = all(place.hunk.number in self._silent for place in self._places)
            what = "the change was one of words alone" if silent else "nothing of the change applies today"
            return self._said(CANNOT_JUDGE, what)
        if not self._today.choice.prefixes:
            return self._said(CANNOT_JUDGE, "none of its tests exists today: name some with --tests")
        with laboratory(self._repository, self._today, options, executor) as lab:
            progress("today's tests with the fix")
            heads, why = self._green(lab)
            if not heads:
                return self._said(CANNOT_JUDGE, why)
            progress("today's tests without the fix")
            return self._asked(lab, heads)

    def _green(self, lab: Lab) -> tuple[Readings, str]:
        """The tests that pass today, as they are; and why there is none."""
        found = results(lab.submit("head", prefixes=self._today.choice.prefixes))
        ids = [id_ for result in found for id_ in result.collected]
        readings = {id_: reading(id_, found, self._today) for id_ in ids}
        green = {id_: (one,) for id_, one in readings.items() if one.green}
        if green:
            return green, ""
        first = next(iter(readings.items()), None)
        if first is None:
            return {}, "none of its tests can be collected today"
        return {}, f"no test of it passes today: {first[0]}: {first[1].reason}"

    def _sets(self) -> list[list[Place]]:
        """What to take back, in turn: all that applies; then, where that cannot work, each hunk with those it needs."""
        numbers = [place.hunk.number for place in self._usable]
        by_number = {place.hunk.number: place for place in self._usable}
        parts = {self._bonds.closed([number], numbers) for number in numbers} - {frozenset(numbers)}
        return [[by_number[number] for number in sorted(part)] for part in sorted(parts, key=sorted)]

    def _asked(self, lab: Lab, heads: Readings) -> Revival:
        bench = Bench(lab, self._repository, self._today, self._today.tree("head"), heads, "revived")
        whole = self._usable
        outcome = judged(heads, next(iter(bench.run([self._changes(whole)]))), self._today)
        if outcome.status is Status.PINNED:
            return self._said(NOTICED, outcome.reason, whole, outcome.readings, outcome.pins)
        if outcome.status is Status.UNPINNED:
            left = [p for p in self._places if not p.applies and p.hunk.number not in self._silent]
            of = f" ({len(whole)} of {len(whole) + len(left)} hunks still apply)" if left else ""
            return self._said(NOT_NOTICED, f"today's tests pass without the fix{of}", whole, outcome.readings)
        parts = self._sets()
        for taken, found in zip(parts, bench.run([self._changes(part) for part in parts]), strict=True):
            one = judged(heads, found, self._today)
            if one.status is Status.PINNED:
                return self._said(NOTICED, one.reason, taken, one.readings, one.pins)
        reason = f"taken back today, {_softened(outcome.reason)}"
        return self._said(CANNOT_JUDGE, reason, whole, outcome.readings)

    def _changes(self, taken: Sequence[Place]) -> Mapping[str, Version | None]:
        return transplant.changes(taken, self._parent, self._product)


def _softened(reason: str) -> str:
    return reason.replace(" without it", "")
