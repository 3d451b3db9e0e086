"""`gate check`: takes a commit through plan, trees, replays and verdicts. It owns the temporary trees and removes them
whatever happens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from holdtrue_gate import decision, replay, verdict
from holdtrue_gate import plan as planning
from holdtrue_gate.config import Config
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.lab import Lab, reading, results, scratch
from holdtrue_gate.plan import Choice, Kind, Plan
from holdtrue_gate.replay import ReplayResult
from holdtrue_gate.repo import Repository
from holdtrue_gate.verdict import Judgement, Reading, Verdict

# Verdicts of a first run at the parent after which a repeat could still matter.
_WORTH_REPEATING = frozenset({Verdict.OWN_ASSERTION, Verdict.DECLARED_EXCEPTION, Verdict.VACUOUS})


@dataclass(frozen=True)
class Problem:
    """Why a commit cannot be judged; `code` is one of no-parent, history-missing, no-tests, overlay-failed."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class CommitReport:
    """One commit, judged."""

    sha: str
    parent: str | None
    subject: str
    kind: Kind
    result: str
    reason: str
    tests: tuple[Judgement, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    blocking: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class CheckReport:
    """A finished check: what was asked, the result over all commits, and each commit."""

    range: str
    result: str
    commits: tuple[CommitReport, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Options:
    """What the command line may say; None leaves it to `[tool.gate]`."""

    runs: int | None = None
    timeout_s: float | None = None
    python: Path | None = None
    jobs: int = field(default_factory=lambda: max(1, min(os.cpu_count() or 1, 8)))

    def override(self, config: Config) -> Config:
        """The configuration with these options."""
        return config.overridden(runs=self.runs, timeout_s=self.timeout_s)


# --- replays


def _under(id_: str, prefixes: Sequence[str]) -> bool:
    return any(id_ == p or id_.startswith((p + "[", p + "::")) for p in prefixes)


def _known_ids(lab: Lab, choice: Choice) -> tuple[set[str], set[str]]:
    """Among the widened tests: ids that the parent had too (not new), and ids whose values changed behind the id."""
    if not choice.widened:
        return set(), set()
    base, head = (
        lab.submit("base", prefixes=choice.widened, collect_only=True),
        lab.submit("head", prefixes=choice.widened, collect_only=True),
    )
    before = {id_ for result in results(base) for id_ in result.collected}
    now = [id_ for result in results(head) for id_ in result.collected]
    known: set[str] = set()
    altered: set[str] = set()
    for prefix in choice.widened:
        ids, old = {id_ for id_ in now if _under(id_, [prefix])}, {id_ for id_ in before if _under(id_, [prefix])}
        # Values changed behind the same ids: every one of them may now test something else.
        if ids == old:
            altered |= ids
        else:
            known |= ids & before
    return known, altered


def _new_ids(results: Sequence[ReplayResult], plan: Plan) -> list[str]:
    """Ids to judge: the collected ones, and each chosen file that yielded none because it could not be collected or is
    skipped."""
    ids = [id_ for result in results for id_ in result.collected]
    covered = {id_.partition("::")[0] for id_ in ids}
    for result in results:
        for file in plan.choice.files:
            record = result.record_of(file)
            broken = [*record.collect_errors, *record.collect_skips]
            named = any(file == item or item.startswith(file + "::") for item in broken)
            if file not in covered and (named or not record.collection_done) and _looks_like_tests(file, plan):
                covered.add(file)
                ids.append(file)
    return ids


def _looks_like_tests(file: str, plan: Plan) -> bool:
    name = file.rpartition("/")[2]
    if name.startswith("test_") or name.endswith("_test.py"):
        return True
    return any(key.startswith(f"{file}::") and key.rpartition("::")[2].startswith("test") for key in plan.looks)


def _judge(lab: Lab, plan: Plan) -> list[Judgement]:
    choice = plan.choice
    known, altered = _known_ids(lab, choice)
    replays_parent = bool(plan.product)
    if replays_parent:
        # Before anything runs: an overlay that fails must not leave a process behind.
        lab.tree("parent")
    head = lab.submit("head", prefixes=choice.prefixes, exclude=sorted(known))
    parent = lab.submit("parent", prefixes=choice.prefixes, exclude=sorted(known)) if replays_parent else []
    head_runs, parent_runs = [results(head)], [results(parent)]
    ids = _new_ids(head_runs[0], plan)
    heads = {id_: [reading(id_, head_runs[0], plan)] for id_ in ids}
    parents: dict[str, list[Reading]] = {
        id_: [reading(id_, parent_runs[0], plan)] if replays_parent else [] for id_ in ids
    }
    _repeat(lab, plan, heads, parents)
    judged = []
    for id_ in ids:
        changed = _under(id_, choice.changed) or id_ in altered
        if replays_parent:
            judged.append(verdict.judge(id_, heads[id_], parents[id_], plan.expectation_of(id_), changed=changed))
        else:
            # Without a product change the parent with these tests is the commit itself.
            same = verdict.judge(id_, heads[id_], heads[id_], plan.expectation_of(id_), changed=changed)
            judged.append(same)
    return judged


def _repeat(lab: Lab, plan: Plan, heads: dict[str, list[Reading]], parents: dict[str, list[Reading]]) -> None:
    """The runs after the first, all submitted at once."""
    wanted_head: dict[str, int] = {}
    wanted_parent: dict[str, int] = {}
    for id_, readings in heads.items():
        # A hang at the commit itself is red enough; each repeat would cost the whole limit.
        if "::" not in id_ or readings[0].verdict in (Verdict.ENVIRONMENT, Verdict.NOT_RUN, Verdict.HANG):
            continue
        expected = plan.expectation_of(id_)
        runs = max(plan.config.runs, expected.detects[1] if expected.detects else 0)
        wanted_head[id_] = runs
        first = parents[id_][0].verdict if parents[id_] else None
        declared = (first is Verdict.HANG and expected.hang) or (first is Verdict.CRASH and expected.crash)
        if readings[0].green and (first in _WORTH_REPEATING or declared):
            wanted_parent[id_] = runs
    rounds = max([*wanted_head.values(), *wanted_parent.values()], default=1)
    waiting = []
    for number in range(1, rounds):
        for side, wanted, store in (("head", wanted_head, heads), ("parent", wanted_parent, parents)):
            ids = [id_ for id_, runs in wanted.items() if number < runs]
            if ids:
                waiting.append((ids, store, lab.submit(side, ids=ids)))
    for ids, store, futures in waiting:
        found = results(futures)
        for id_ in ids:
            store[id_].append(reading(id_, found, plan))


# --- commits


def _problem_report(
    sha: str, subject: str, kind: Kind, parent: str | None, problem: Problem, tests: Sequence[Judgement] = ()
) -> CommitReport:
    return CommitReport(sha, parent, subject, kind, decision.CANNOT_JUDGE, problem.message, tuple(tests), (problem,))


NO_TESTS_HINT = "Add a test in the same commit that fails without the change."


def _check_commit(repository: Repository, sha: str, options: Options, executor: Executor) -> CommitReport:
    commit = repository.commit(sha)
    if not commit.parents:
        plan = planning.make(repository, commit, None, options.override)
        problem = Problem("no-parent", "this is the first commit: there is no code before it to prove anything against")
        return _problem_report(sha, commit.subject, plan.kind, None, problem)
    # A merge is judged against the mainline: its first parent.
    parent = commit.parents[0]
    if not repository.has_commit(parent):
        kind = Kind.FIX if planning.kind_of(commit, ["?"], []) is Kind.FIX else Kind.FEATURE
        problem = Problem(
            "history-missing",
            f"the parent {parent[:12]} is not in this clone",
            "Fetch it (`git fetch --deepen=1`, or --unshallow), then check again.",
        )
        return _problem_report(sha, commit.subject, kind, parent, problem)
    plan = planning.make(repository, commit, parent, options.override)
    if not plan.choice.prefixes:
        if plan.product:
            shown = ", ".join(plan.product[:3]) + (", ..." if len(plan.product) > 3 else "")
            problem = Problem("no-tests", f"the product changed ({shown}) and no test is new or changed", NO_TESTS_HINT)
            return _problem_report(sha, commit.subject, plan.kind, parent, problem)
        made = decision.decide(plan.kind, False, plan.has_finding, ())
        return CommitReport(sha, parent, commit.subject, plan.kind, made.result, made.reason)
    return _replayed(repository, plan, options, executor)


def _replayed(repository: Repository, plan: Plan, options: Options, executor: Executor) -> CommitReport:
    commit = plan.commit
    python = replay.find_python(repository.root / repository.prefix, options.python)
    with scratch() as folder:
        lab = Lab(repository, plan, python, folder, executor)
        try:
            tests = _judge(lab, plan)
        except CannotJudgeError as error:
            if error.code not in ("overlay-failed", "history-missing"):
                raise
            problem = Problem(error.code, error.message, error.hint)
            return _problem_report(commit.sha, commit.subject, plan.kind, plan.parent, problem)
        finally:
            lab.settle()
    ran = [test for test in tests if not (test.side == "head" and test.verdict is Verdict.NOT_RUN)]
    if not ran and plan.product:
        what = "no test was collected from the changed test files" if not tests else "every new test is skipped"
        return _problem_report(
            commit.sha, commit.subject, plan.kind, plan.parent, Problem("no-tests", what, NO_TESTS_HINT), tests
        )
    made = decision.decide(plan.kind, bool(plan.product), plan.has_finding, tests)
    return CommitReport(
        sha=commit.sha,
        parent=plan.parent,
        subject=commit.subject,
        kind=plan.kind,
        result=made.result,
        reason=made.reason,
        tests=tuple(tests),
        blocking=made.blocking,
    )


def check(
    directory: Path, revision: str, options: Options, progress: Callable[[str], None] = lambda _text: None
) -> CheckReport:
    """Judges a revision or a range of the repository around `directory`. Raises GateError; removes every tree also on
    Ctrl-C."""
    began = time.monotonic()
    reports = []
    replay.allow()
    with Repository(directory) as repository, ThreadPoolExecutor(options.jobs) as executor:
        shas = repository.commits(revision)
        for number, sha in enumerate(shas, 1):
            progress(f"{number}/{len(shas)} {sha[:12]}")
            reports.append(_check_commit(repository, sha, options, executor))
    return CheckReport(
        revision, decision.overall(report.result for report in reports), tuple(reports), time.monotonic() - began
    )
