"""The trees of one commit on disk and the replays that run in them. Owns its folders; the caller removes them with
`scratch()`, after `settle()`. A replay whose record is kept from before does not run, and needs no tree."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from holdtrue_gate import config as settings
from holdtrue_gate import environment, process, recording, replay
from holdtrue_gate.cache import Cache
from holdtrue_gate.course import SideCourse
from holdtrue_gate.plan import Plan, under
from holdtrue_gate.replay import ReplayJob, ReplayResult
from holdtrue_gate.repo import Listing, Repository, check_paths, remove_tree
from holdtrue_gate.verdict import Reading, Verdict

T = TypeVar("T")

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


# --- what a replay rests on

# Of a job, what says where it runs and not what it runs.
_PLACES = frozenset({"tree", "repository", "python", "scratch", "temporary", "owner"})


@cache
def _gate_digest() -> str:
    """Of the gate's own code, the probe's too: another gate may read a journal in another way."""
    digest = hashlib.sha256()
    for file in sorted(resources.files("holdtrue_gate").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _listing_digest(listing: Listing) -> str:
    """Of paths, modes and contents: an entry's id is the digest of its bytes, also of those that no commit has."""
    digest = hashlib.sha256()
    for path, entry in sorted(listing.items()):
        digest.update(os.fsencode(path) + f"\0{entry.mode}\0{entry.sha}\0".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Submitted:
    """A replay under way: where its results would be kept, None when they may not be, and whether they came from there."""

    future: Future[list[ReplayResult]] | Future[ReplayResult]
    key: str | None
    kept: bool = False

    @property
    def found(self) -> list[ReplayResult]:
        """The results, when they are all there."""
        if not self.future.done() or self.future.cancelled() or self.future.exception() is not None:
            return []
        result = self.future.result()
        return result if isinstance(result, list) else [result]


# --- replays


class Lab:
    """The trees of one commit and the processes that run in them.

    `kept`: where the records of earlier replays are (None: every replay runs). What runs here is kept by `keep`, once the
    caller has found nothing wrong with it.
    """

    def __init__(
        self,
        repository: Repository,
        plan: Plan,
        python: Path,
        scratch: Path,
        executor: Executor,
        kept: Cache | None = None,
        *,
        owner: str = "",
    ) -> None:
        self._repository, self._plan, self._python, self._scratch, self._executor = (
            repository,
            plan,
            python,
            scratch,
            executor,
        )
        self._kept = kept
        # Below the caller's: who stops the caller's replays stops these too.
        self._owner = f"{owner}.{secrets.token_hex(8)}"
        self._trees: dict[str, Path] = {}
        self._listings: dict[str, Listing] = {}
        self._submitted: list[Submitted] = []

    def add(self, side: str, listing: Listing) -> None:
        """Names one more side: a whole tree beside "head", "parent" and "base". Nothing is written yet."""
        self._listings[side] = listing

    def tree(self, side: str) -> Path:
        """The folder of the project in the tree of a side ("head", "parent", "base" or an added one), written at the
        first call."""
        if side not in self._trees:
            target = self._target(side)
            self._repository.write_tree(self._listing(side), target, self._may_stay_empty)
            self._trees[side] = target / self._plan.prefix if self._plan.prefix else target
        return self._trees[side]

    @property
    def neutralised(self) -> dict[str, str]:
        """Options of the project that would stop early, deselect or retry, with their values: no replay heeds them."""
        records = [record for submitted in self._submitted for result in submitted.found for record in result.records]
        return {name: value for record in records for name, value in record.neutralised.items()}

    def _may_stay_empty(self, path: str) -> bool:
        return self._plan.config.ignored_rules.matches(path.removeprefix(self._plan.prefix))

    def check(self, side: str) -> None:
        """Raises CannotJudgeError (`overlay-failed`) when the tree of a side cannot be written. Nothing is."""
        check_paths(self._listing(side))

    def _target(self, side: str) -> Path:
        # Named like the checkout: with an `__init__.py` at the root, that name is the package's.
        return self._scratch / side / (self._repository.root.name or "tree")

    def _listing(self, side: str) -> Listing:
        return self._listings[side] if side in self._listings else self._plan.tree(side)

    def drop(self, side: str) -> None:
        """Removes the tree of an added side. Its replays must have ended."""
        self._listings.pop(side, None)
        if self._trees.pop(side, None) is not None:
            remove_tree(self._scratch / side)

    def _present(self, side: str) -> Listing:
        if side in self._listings:
            return under(self._listings[side], self._plan.prefix)
        return {"base": self._plan.base, "parent": self._plan.overlay}.get(side, self._plan.head)

    def submit(
        self,
        side: str,
        *,
        ids: Sequence[str] = (),
        prefixes: Sequence[str] = (),
        exclude: Sequence[str] = (),
        collect_only: bool = False,
        limit_s: float | None = None,
        rerun: bool = True,
    ) -> list[Future[ReplayResult]]:
        """One replay of a side, as one job a group of files.

        `limit_s`: the limit of a node, where it is shorter than the configured one. `rerun`: whether tests that a hang or
        a crash kept from running are run again by themselves.
        """
        jobs = self._jobs(side, ids, prefixes, exclude, collect_only=collect_only, limit_s=limit_s, rerun=rerun)
        futures = []
        for job in jobs:
            key = self._key(side, job, None)
            found = self._found(key)
            futures.append(self._started(side, key, found[0] if found else None, replay.run, job))
        return futures

    def rounds(
        self,
        side: str,
        *,
        prefixes: Sequence[str],
        exclude: Sequence[str] = (),
        focus: frozenset[str] | None = None,
        fork: bool = True,
    ) -> list[Future[list[ReplayResult]]]:
        """All rounds of a side, "head" or "parent", as one job a group of files. `focus`: repeat only these ids. `fork`:
        whether one process may stand for several."""
        course = SideCourse(self._plan, side, focus)
        jobs = self._jobs(side, (), prefixes, exclude, fork=fork and self._plan.config.fork)
        futures = []
        for job in jobs:
            key = self._key(side, job, course)
            futures.append(self._started(side, key, self._found(key), replay.rounds, job, course))
        return futures

    def _jobs(
        self,
        side: str,
        ids: Sequence[str],
        prefixes: Sequence[str],
        exclude: Sequence[str],
        *,
        collect_only: bool = False,
        limit_s: float | None = None,
        rerun: bool = True,
        fork: bool = True,
    ) -> list[ReplayJob]:
        config = self._plan.config
        present = self._present(side)
        wanted = {id_.partition("::")[0] for id_ in (*ids, *prefixes)}
        jobs = []
        for files in _groups(self._repository, self._plan, sorted(wanted & set(present))):
            folder = _settings_folder(self._repository, self._plan, files[0])
            nested = tuple(
                root
                for root in (f"{folder}/src", folder)
                if folder and any(path.startswith(root + "/") for path in present)
            )
            target = self._target(side)
            jobs.append(
                ReplayJob(
                    tree=target / self._plan.prefix if self._plan.prefix else target,
                    repository=self._repository.root,
                    python=self._python,
                    scratch=self._scratch,
                    files=files,
                    ids=tuple(ids),
                    prefixes=tuple(prefixes),
                    exclude=tuple(exclude),
                    source=(*self._plan.source, *nested),
                    first_party=tuple(sorted(self._plan.first_party)),
                    node_limit_s=min(limit_s or config.timeout_s, config.timeout_s),
                    run_limit_s=config.run_timeout_s,
                    memory_mib=config.memory_mib,
                    collect_only=collect_only,
                    plugin_autoload=config.plugin_autoload,
                    rerun=rerun,
                    fork=fork,
                    owner=self._owner,
                )
            )
        return jobs

    def _found(self, key: str | None) -> list[ReplayResult] | None:
        text = self._kept.get(key) if key is not None and self._kept is not None else None
        return (recording.loads(text) or None) if text is not None else None

    def _started(
        self, side: str, key: str | None, found: T | None, what: Callable[..., T], *given: object
    ) -> Future[T]:
        """The future of a replay: at work, or with what was kept of it."""
        future: Future[T] = Future()
        if found is not None:
            future.set_result(found)
        else:
            self.tree(side)
            future = self._executor.submit(what, *given)
        self._submitted.append(Submitted(future, key, kept=found is not None))  # type: ignore[arg-type]
        return future

    def _key(self, side: str, job: ReplayJob, course: SideCourse | None) -> str | None:
        """The digest of everything that the results of a job rest on, or None when that cannot be told."""
        if self._kept is None or self._identity is None:
            return None
        told: dict[str, Any] = {
            "gate": _gate_digest(),
            "environment": self._identity,
            "name": [self._repository.root.name, self._plan.prefix],
            "tree": _listing_digest(self._listing(side)),
            # What is declared, and what the commit adds, is read off both sides.
            "commit": self._commit_digest,
            "job": {name.name: getattr(job, name.name) for name in fields(job) if name.name not in _PLACES},
            "course": None
            if course is None
            else [course.side, self._plan.config.runs, course.focus and sorted(course.focus)],
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    @cached_property
    def _identity(self) -> str | None:
        lent = replay.lent_paths(self._repository.root)
        return environment.identity(self._python, replay.kept_variables(), lent, self._repository.root)

    @cached_property
    def _commit_digest(self) -> list[str]:
        plan = self._plan
        return [*(_listing_digest(plan.tree(side)) for side in ("head", "base")), repr(plan.config)]

    def keep(self) -> None:
        """Keeps the results of what ran here, but for those that were ended or did not come from the tree."""
        if self._kept is None:
            return
        for submitted in self._submitted:
            found = [] if submitted.key is None or submitted.kept else submitted.found
            if submitted.key is not None and found and all(recording.may_be_kept(result) for result in found):
                self._kept.put(submitted.key, recording.dumps(found))

    def settle(self) -> None:
        """Ends what still runs: a tree cannot be removed under a process that writes into it."""
        process.stop(self._owner)
        for submitted in self._submitted:
            submitted.future.cancel()
        futures: list[Future[Any]] = [submitted.future for submitted in self._submitted]
        wait(futures)
        process.allow(self._owner)


def results(futures: Sequence[Future[T]]) -> list[T]:
    """Waits for what `Lab.submit` or `Lab.rounds` gave back. Raises what a job raised."""
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


def rounds_of(id_: str, groups: Sequence[Sequence[ReplayResult]]) -> Sequence[ReplayResult]:
    """The rounds of the group that holds the id."""
    first = [rounds[0] for rounds in groups]
    held = _result_of(id_, first)
    return next((rounds for rounds, result in zip(groups, first, strict=True) if result is held), ())


def reading(id_: str, found: Sequence[ReplayResult], plan: Plan) -> Reading:
    """How one node id did in one replay of all its groups."""
    result = _result_of(id_, found)
    if result is None:
        return Reading(Verdict.NOT_RUN, reason="was not collected")
    return plan.read(result.record_of(id_), id_)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the trees of one commit, removed whatever happens."""
    # realpath: on macOS /tmp is a link, and frames are compared with real paths.
    folder = Path(tempfile.mkdtemp(prefix="gate-")).resolve()
    try:
        yield folder
    finally:
        remove_tree(folder)
