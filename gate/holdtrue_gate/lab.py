"""The trees of one commit on disk and the replays that run in them. Owns its folders; the caller removes them with
`scratch()`, after `settle()`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path

from holdtrue_gate import config as settings
from holdtrue_gate import replay, verdict
from holdtrue_gate.plan import Plan, under
from holdtrue_gate.replay import ReplayJob, ReplayResult
from holdtrue_gate.repo import Listing, Repository, remove_tree
from holdtrue_gate.verdict import Reading, Verdict

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


class Lab:
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
        self._listings: dict[str, Listing] = {}
        self._submitted: list[Future[ReplayResult]] = []

    def add(self, side: str, listing: Listing) -> None:
        """Names one more side: a whole tree beside "head", "parent" and "base". Nothing is written yet."""
        self._listings[side] = listing

    def tree(self, side: str) -> Path:
        """The folder of the project in the tree of a side ("head", "parent", "base" or an added one), written at the
        first call."""
        if side not in self._trees:
            # Named like the checkout: with an `__init__.py` at the root, that name is the package's.
            target = self._scratch / side / (self._repository.root.name or "tree")
            listing = self._listings[side] if side in self._listings else self._plan.tree(side)
            self._repository.write_tree(listing, target)
            self._trees[side] = target / self._plan.prefix if self._plan.prefix else target
        return self._trees[side]

    def _present(self, side: str) -> Listing:
        if side in self._listings:
            return under(self._listings[side], self._plan.prefix)
        return self._plan.base if side == "base" else self._plan.head

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
        jobs = []
        for files in _groups(self._repository, self._plan, sorted(wanted & set(self._present(side)))):
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


def results(futures: Sequence[Future[ReplayResult]]) -> list[ReplayResult]:
    """Waits for what `Lab.submit` gave back. Raises what a job raised."""
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


def reading(id_: str, found: Sequence[ReplayResult], plan: Plan) -> Reading:
    """How one node id did in one replay of all its groups."""
    result = _result_of(id_, found)
    if result is None:
        return Reading(Verdict.NOT_RUN, reason="was not collected")
    return verdict.read_run(result.record_of(id_), id_, plan.layout, plan.expectation_of(id_), plan.looks_of(id_))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the trees of one commit, removed whatever happens."""
    # realpath: on macOS /tmp is a link, and frames are compared with real paths.
    folder = Path(tempfile.mkdtemp(prefix="gate-")).resolve()
    try:
        yield folder
    finally:
        remove_tree(folder)
