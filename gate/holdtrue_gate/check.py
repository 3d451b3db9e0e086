"""`gate check`: takes a commit through plan, trees, replays and verdicts. It owns the temporary trees and removes them
whatever happens."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from holdtrue_gate import ablate, course, decision, expectations, isolation, process, replay, verdict, weaken
from holdtrue_gate import plan as planning
from holdtrue_gate.ablate import HunkReport, Status
from holdtrue_gate.cache import Cache
from holdtrue_gate.config import Config
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.lab import Lab, results, rounds_of, scratch
from holdtrue_gate.plan import Kind, Plan
from holdtrue_gate.replay import ReplayResult
from holdtrue_gate.repo import Repository
from holdtrue_gate.verdict import Judgement, Verdict
from holdtrue_gate.weaken import Comparison, Weakening


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
    hunks: tuple[HunkReport, ...] = ()
    weakened: tuple[Weakening, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """A finished check: what was asked, the result over all commits, and each commit."""

    range: str
    result: str
    commits: tuple[CommitReport, ...]
    seconds: float = 0.0


class Ablation(StrEnum):
    """For which commits the hunks are taken back one by one."""

    WHEN_NEEDED = "when-needed"
    FIXES = "fixes"
    ALL = "all"


@dataclass(frozen=True)
class Options:
    """What the command line may say; None leaves it to `[tool.gate]`.

    `isolate`: replay in an environment built for the project. `jobs`: pytest processes at a time. `cache`: take the
    records of replays that ran before, and keep those of new ones. `allow_weakened`: tell what became less strict
    without a reason, and do not fail for it.
    """

    runs: int | None = None
    timeout_s: float | None = None
    python: Path | None = None
    ablation: Ablation = Ablation.WHEN_NEEDED
    isolate: bool = False
    fork: bool | None = None
    cache: bool = False
    allow_weakened: bool = False
    jobs: int = field(default_factory=lambda: max(1, min(os.cpu_count() or 1, 8)))

    def override(self, config: Config) -> Config:
        """The configuration with these options."""
        return config.overridden(runs=self.runs, timeout_s=self.timeout_s, fork=self.fork)


# --- replays


def _under(id_: str, prefixes: Sequence[str]) -> bool:
    return any(id_ == p or id_.startswith((p + "[", p + "::")) for p in prefixes)


def _known_ids(lab: Lab, plan: Plan) -> tuple[set[str], set[str]]:
    """Among the widened tests: ids that a parent had too (not new), and ids whose values changed behind the id."""
    choice = plan.choice
    if not choice.widened:
        return set(), set()
    others = []
    for number, other in enumerate(plan.others):
        side = f"other-{number}"
        lab.add(side, {**plan.around_head, **{plan.prefix + path: entry for path, entry in other.items()}})
        others.extend(lab.submit(side, prefixes=choice.widened, collect_only=True))
    base, head = (
        lab.submit("base", prefixes=choice.widened, collect_only=True),
        lab.submit("head", prefixes=choice.widened, collect_only=True),
    )
    before = {id_ for result in results(base) for id_ in result.collected}
    elsewhere = {id_ for result in results(others) for id_ in result.collected}
    now = [id_ for result in results(head) for id_ in result.collected]
    known: set[str] = set()
    altered: set[str] = set()
    for prefix in choice.widened:
        ids, old = {id_ for id_ in now if _under(id_, [prefix])}, {id_ for id_ in before if _under(id_, [prefix])}
        # Values changed behind the same ids: every one of them may now test something else.
        if ids == old:
            altered |= ids
        else:
            known |= ids & (before | elsewhere)
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
    if name.startswith("test_") or name.endswith("_test.py") or file in plan.documented | plan.choice.texts:
        return True
    return any(key.startswith(f"{file}::") and key.rpartition("::")[2].startswith("test") for key in plan.looks)


@contextmanager
def laboratory(
    repository: Repository, plan: Plan, options: Options, executor: Executor, owner: str = ""
) -> Iterator[Lab]:
    """A lab for a plan: its interpreter chosen, its folder removed and its replays ended afterwards. Raises GateError."""
    python = replay.find_python(repository.root / repository.prefix, options.python)
    if options.isolate:
        python = isolation.environment(repository, plan, python)
    kept = Cache() if options.cache else None
    with scratch() as folder:
        lab = Lab(repository, plan, python, folder, executor, kept, owner=owner)
        try:
            yield lab
        finally:
            lab.settle()


def judge(lab: Lab, plan: Plan) -> list[Judgement]:
    """The verdicts on the tests that the plan chose. Raises CannotJudgeError."""
    known, altered = _known_ids(lab, plan)
    if plan.differs:
        # Before anything runs: an overlay that fails must not leave a process behind.
        lab.check("parent")
    judged, forked = _rounds(lab, plan, known, altered)
    doubtful = frozenset(test.id for test in judged if course.doubtful(test, forked))
    if doubtful:
        # A forked child is nearly a process of its own. Where a test is red or uneven, nearly is not enough. In new
        # trees: what the first runs left behind could make every further run the same.
        for side in ("head", "parent"):
            lab.drop(side)
        again, _ = _rounds(lab, plan, known, altered, focus=doubtful, fork=False)
        sure = {test.id: test for test in again if test.id in doubtful}
        judged = [sure.get(test.id, test) for test in judged]
    return judged


def _rounds(
    lab: Lab,
    plan: Plan,
    known: set[str],
    altered: set[str],
    *,
    focus: frozenset[str] | None = None,
    fork: bool = True,
) -> tuple[list[Judgement], bool]:
    """The judgements from the rounds of both sides, which run beside each other; and whether any of them was forked."""
    choice, exclude = plan.choice, sorted(known)
    head = lab.rounds("head", prefixes=choice.prefixes, exclude=exclude, focus=focus, fork=fork)
    parent = (
        lab.rounds("parent", prefixes=choice.prefixes, exclude=exclude, focus=focus, fork=fork) if plan.differs else []
    )
    heads, parents = results(head), results(parent)
    judged = []
    for id_ in _new_ids([rounds[0] for rounds in heads], plan):
        at_head = course.Runs.of(id_, rounds_of(id_, heads), plan)
        # Without a product change the parent with these tests is the commit itself.
        at_parent = course.Runs.of(id_, rounds_of(id_, parents), plan) if plan.differs else at_head
        changed = _under(id_, choice.changed) or id_ in altered
        test = verdict.judge(id_, at_head.readings, at_parent.readings, plan.expectation_of(id_), changed=changed)
        judged.append(course.told(test, at_head, at_parent))
    return judged, any(result.forked for rounds in (*heads, *parents) for result in rounds)


# What may be kept: a red, uneven or missing run may have a cause outside of the trees, which may be gone the next time.
_KEPT = frozenset(Verdict) - {
    Verdict.ENVIRONMENT,
    Verdict.FLAKY,
    Verdict.HANG,
    Verdict.HEAD_RED,
    Verdict.NOT_RUN,
    Verdict.OWN_PROBABILISTIC,
}


# --- commits


def _problem_report(
    sha: str, subject: str, kind: Kind, parent: str | None, problem: Problem, tests: Sequence[Judgement] = ()
) -> CommitReport:
    return CommitReport(sha, parent, subject, kind, decision.CANNOT_JUDGE, problem.message, tuple(tests), (problem,))


NO_TESTS_HINT = "Add a test in the same commit that fails without the change."


def _check_commit(repository: Repository, sha: str, options: Options, executor: Executor, owner: str) -> CommitReport:
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
    found = weaken.of_plan(repository, plan)
    if not plan.choice.prefixes:
        if plan.product:
            shown = ", ".join(plan.product[:3]) + (", ..." if len(plan.product) > 3 else "")
            problem = Problem("no-tests", f"the product changed ({shown}) and no test is new or changed", NO_TESTS_HINT)
            report = _problem_report(sha, commit.subject, plan.kind, parent, problem)
            # A deleted test leaves nothing to judge, and is asked all the same whether it would still pass.
            return _with_weakened(report, plan, weakened_by(repository, plan, found, options, executor, owner), options)
        made = decision.decide(plan.kind, False, plan.has_finding, ())
        report = CommitReport(sha, parent, commit.subject, plan.kind, made.result, made.reason)
        return _with_weakened(report, plan, expectations.unasked(found), options)
    return _replayed(repository, plan, found, options, executor, owner)


def weakened_by(
    repository: Repository, plan: Plan, found: Comparison, options: Options, executor: Executor, owner: str = ""
) -> expectations.Answer:
    """What the commit weakened, with the parent's versions of its tests run on its product. Raises GateError."""
    if not found.changed or not plan.product:
        return expectations.unasked(found)
    with laboratory(repository, plan, options, executor, owner) as lab:
        return expectations.ask(lab, repository, plan, found, ())


def _with_weakened(report: CommitReport, plan: Plan, answer: expectations.Answer, options: Options) -> CommitReport:
    given = weaken.reasons(plan.commit.trailers)
    if options.allow_weakened:
        given.append(("", "allowed by the caller"))
    weakened = weaken.explained(answer.weakened, given)
    made = decision.with_weakened(decision.Decision(report.result, report.blocking, report.reason), weakened)
    return replace(
        report, result=made.result, reason=made.reason, weakened=weakened, notes=(*report.notes, *answer.notes)
    )


def _neutralised(lab: Lab) -> tuple[str, ...]:
    told = ", ".join(f"{name}={value}" for name, value in sorted(lab.neutralised.items()))
    return (f"settings of pytest that do not count here: {told}",) if told else ()


def _replayed(
    repository: Repository, plan: Plan, found: Comparison, options: Options, executor: Executor, owner: str
) -> CommitReport:
    commit = plan.commit
    with laboratory(repository, plan, options, executor, owner) as lab:
        try:
            tests = judge(lab, plan)
            tests, hunks = _ablated(lab, repository, plan, tests, options)
            answer = expectations.ask(lab, repository, plan, found, tests)
            notes = _neutralised(lab)
            if answer.sound and all(test.verdict in _KEPT for test in tests):
                lab.keep()
        except CannotJudgeError as error:
            if error.code not in ("overlay-failed", "history-missing"):
                raise
            problem = Problem(error.code, error.message, error.hint)
            report = _problem_report(commit.sha, commit.subject, plan.kind, plan.parent, problem)
            return _with_weakened(report, plan, expectations.unasked(found), options)
    ran = [test for test in tests if not (test.side == "head" and test.verdict is Verdict.NOT_RUN)]
    if not ran and plan.product:
        what = "no test was collected from the changed test files" if not tests else "every new test is skipped"
        report = _problem_report(
            commit.sha, commit.subject, plan.kind, plan.parent, Problem("no-tests", what, NO_TESTS_HINT), tests
        )
        return _with_weakened(report, plan, answer, options)
    made = decision.decide(plan.kind, bool(plan.product), plan.has_finding, tests)
    unpinned = [ablate.place(hunk) for hunk in hunks if hunk.status is Status.UNPINNED]
    made = decision.with_hunks(made, unpinned, required=plan.config.require_pinned)
    if plan.config.require_pinned:
        hunks = tuple(replace(hunk, blocks=hunk.status is Status.UNPINNED) for hunk in hunks)
    report = CommitReport(
        sha=commit.sha,
        parent=plan.parent,
        subject=commit.subject,
        kind=plan.kind,
        result=made.result,
        reason=made.reason,
        tests=tuple(tests),
        notes=notes,
        blocking=made.blocking,
        hunks=hunks,
    )
    return _with_weakened(report, plan, answer, options)


def _ablated(
    lab: Lab, repository: Repository, plan: Plan, tests: list[Judgement], options: Options
) -> tuple[list[Judgement], tuple[HunkReport, ...]]:
    """The tests in view of the hunks, and the hunks where they were asked for."""
    asked = options.ablation is Ablation.ALL or (options.ablation is Ablation.FIXES and plan.kind is Kind.FIX)
    missing = decision.worth_ablating(plan.kind, bool(plan.product), plan.has_finding, tests)
    if not plan.product or not (asked or missing):
        return tests, ()
    green = [test for test in tests if "::" in test.id and test.head and all(run.green for run in test.head)]
    chosen = green if asked else [test for test in green if test.id in missing]
    table = ablate.table(
        lab,
        repository,
        plan,
        {test.id: test.head for test in chosen},
        whole={test.id: test.parent for test in chosen},
        unproved=[test for test in chosen if test.id in missing],
    )
    judged = [
        decision.by_ablation(test, table.without, plan.expectation_of(test.id)) if test.id in missing else test
        for test in tests
    ]
    return judged, table.hunks if asked else ()


def check(
    directory: Path, revision: str, options: Options, progress: Callable[[str], None] = lambda _text: None
) -> CheckReport:
    """Judges a revision or a range of the repository around `directory`, several commits at a time. Raises GateError;
    ends every replay and removes every tree also on Ctrl-C."""
    began = time.monotonic()
    owner = secrets.token_hex(8)
    with Repository(directory) as repository, ThreadPoolExecutor(options.jobs) as executor:
        shas = repository.commits(revision)
        progress(f"{len(shas)} commits" if len(shas) != 1 else shas[0][:12])
        # One more than can run: its history is read meanwhile. All work is done by these threads, so that Ctrl-C, which
        # reaches the main thread alone, never cuts the making or the removing of a tree.
        with ThreadPoolExecutor(options.jobs + 1 if options.jobs > 1 else 1) as commits:
            futures = [commits.submit(_check_commit, repository, sha, options, executor, owner) for sha in shas]
            try:
                for number, future in enumerate(as_completed(futures), 1):
                    future.result()
                    progress(f"{number}/{len(shas)}")
            except BaseException:
                process.stop(owner)
                for future in futures:
                    future.cancel()
                raise
        reports = [future.result() for future in futures]
    return CheckReport(
        revision, decision.overall(report.result for report in reports), tuple(reports), time.monotonic() - began
    )
