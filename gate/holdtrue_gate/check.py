"""`gate check`: takes a commit through plan, trees, replays and verdicts. It owns the temporary trees and removes them
whatever happens."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdtrue_gate import config as settings
from holdtrue_gate import decision, replay, verdict
from holdtrue_gate import plan as planning
from holdtrue_gate.config import Config
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.plan import Choice, Kind, Plan
from holdtrue_gate.replay import ReplayJob, ReplayResult
from holdtrue_gate.repo import Repository, remove_tree
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


@dataclass(frozen=True)
class _Side:
    """One tree on disk and how its tests are grouped."""

    tree: Path
    groups: tuple[tuple[str, ...], ...]


# --- groups: which files one pytest process may take together


def _has_pytest_settings(repository: Repository, plan: Plan, folder: str) -> bool:
    for name, mark in (
        ("pytest.ini", b""),
        (".pytest.ini", b""),
        ("tox.ini", b"[pytest]"),
        ("setup.cfg", b"[tool:pytest]"),
    ):
        text = repository.text(plan.head, folder + name)
        if text is not None and mark in text:
            return True
    return bool(settings.pytest_table(repository.text(plan.head, folder + "pyproject.toml")))


def _settings_folder(repository: Repository, plan: Plan, file: str) -> str:
    folder = file
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        if _has_pytest_settings(repository, plan, folder + "/"):
            return folder
    return ""


def _groups(repository: Repository, plan: Plan, files: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Files by the folder whose settings pytest takes for them: given together, it would take those of the folder they
    share."""
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(_settings_folder(repository, plan, file), []).append(file)
    return tuple(tuple(group) for _, group in sorted(found.items()))


# --- replays


class _Lab:
    """The trees of one commit and the processes that run in them."""

    def __init__(self, repository: Repository, plan: Plan, python: Path, scratch: Path, executor: Executor) -> None:
        self._repository, self._plan, self._python, self._scratch, self._executor = (
            repository,
            plan,
            python,
            scratch,
            executor,
        )
        self._trees: dict[str, Path] = {}
        self._submitted: list[Future[ReplayResult]] = []
        self._groups = _groups(repository, plan, plan.choice.files)

    def tree(self, side: str) -> Path:
        """The folder of the project in the tree of a side, written at the first call."""
        if side not in self._trees:
            # Named like the checkout: with an `__init__.py` at the root, that name is the package's.
            target = self._scratch / side / (self._repository.root.name or "tree")
            self._repository.write_tree(self._plan.tree(side), target)
            self._trees[side] = target / self._plan.prefix if self._plan.prefix else target
        return self._trees[side]

    def submit(
        self,
        side: str,
        *,
        ids: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        exclude: Sequence[str] = (),
        collect_only: bool = False,
    ) -> list[Future[ReplayResult]]:
        """One replay of a side, as one job a group of files."""
        tree = self.tree(side)
        wanted = {id_.partition("::")[0] for id_ in (*ids, *prefixes)}
        present = self._plan.base if side == "base" else self._plan.head
        jobs = []
        for group in self._groups:
            files = tuple(file for file in group if file in wanted and file in present)
            if not files:
                continue
            folder = _settings_folder(self._repository, self._plan, files[0])
            nested = tuple(root for root in (f"{folder}/src", folder) if folder and (tree / root).is_dir())
            jobs.append(
                ReplayJob(
                    tree=tree,
                    repository=self._repository.root,
                    python=self._python,
                    scratch=self._scratch,
                    files=files,
                    ids=tuple(ids),
                    prefixes=tuple(prefixes),
                    exclude=tuple(exclude),
                    source=(*self._plan.source, *nested),
                    first_party=tuple(sorted(self._plan.first_party)),
                    node_limit_s=self._plan.config.timeout_s,
                    run_limit_s=self._plan.config.run_timeout_s,
                    collect_only=collect_only,
                    plugin_autoload=self._plan.config.plugin_autoload,
                )
            )
        futures = [self._executor.submit(replay.run, job) for job in jobs]
        self._submitted.extend(futures)
        return futures

    def settle(self) -> None:
        """Ends what still runs: a tree cannot be removed under a process that writes into it."""
        replay.stop_all()
        for future in self._submitted:
            future.cancel()
        wait(self._submitted)
        replay.allow()


def _results(futures: Sequence[Future[ReplayResult]]) -> list[ReplayResult]:
    return [future.result() for future in futures]


def _result_of(id_: str, results: Sequence[ReplayResult]) -> ReplayResult | None:
    """The result whose files hold the id: with several groups only one saw it."""
    for result in results:
        if id_ in result.record.collected or id_ in result.record.nodes or id_ in result.alone:
            return result
    file = id_.partition("::")[0]
    for result in results:
        if file in result.alone or any(error.partition("::")[0] == file for error in result.record.collect_errors):
            return result
    return results[0] if results else None


def _reading(id_: str, results: Sequence[ReplayResult], plan: Plan) -> Reading:
    result = _result_of(id_, results)
    if result is None:
        return Reading(Verdict.NOT_RUN, reason="was not collected")
    return verdict.read_run(result.record_of(id_), id_, plan.layout, plan.expectation_of(id_), plan.looks_of(id_))


def _under(id_: str, prefixes: Sequence[str]) -> bool:
    return any(id_ == p or id_.startswith((p + "[", p + "::")) for p in prefixes)


def _known_ids(lab: _Lab, choice: Choice) -> tuple[set[str], set[str]]:
    """Among the widened tests: ids that the parent had too (not new), and ids whose values changed behind the id."""
    if not choice.widened:
        return set(), set()
    base, head = (
        lab.submit("base", prefixes=choice.widened, collect_only=True),
        lab.submit("head", prefixes=choice.widened, collect_only=True),
    )
    before = {id_ for result in _results(base) for id_ in result.collected}
    now = [id_ for result in _results(head) for id_ in result.collected]
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


def _judge(lab: _Lab, plan: Plan) -> list[Judgement]:
    choice = plan.choice
    known, altered = _known_ids(lab, choice)
    replays_parent = bool(plan.product)
    if replays_parent:
        # Before anything runs: an overlay that fails must not leave a process behind.
        lab.tree("parent")
    head = lab.submit("head", prefixes=choice.prefixes, exclude=sorted(known))
    parent = lab.submit("parent", prefixes=choice.prefixes, exclude=sorted(known)) if replays_parent else []
    head_runs, parent_runs = [_results(head)], [_results(parent)]
    ids = _new_ids(head_runs[0], plan)
    heads = {id_: [_reading(id_, head_runs[0], plan)] for id_ in ids}
    parents: dict[str, list[Reading]] = {
        id_: [_reading(id_, parent_runs[0], plan)] if replays_parent else [] for id_ in ids
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


def _repeat(lab: _Lab, plan: Plan, heads: dict[str, list[Reading]], parents: dict[str, list[Reading]]) -> None:
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
        results = _results(futures)
        for id_ in ids:
            store[id_].append(_reading(id_, results, plan))


# --- commits


@contextmanager
def _scratch() -> Iterator[Path]:
    # realpath: on macOS /tmp is a link, and frames are compared with real paths.
    folder = Path(tempfile.mkdtemp(prefix="gate-")).resolve()
    try:
        yield folder
    finally:
        remove_tree(folder)


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
    with _scratch() as scratch:
        lab = _Lab(repository, plan, python, scratch, executor)
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
