"""Carrying out proofs: has `gate check` judge the commits that fixed findings, several at once, and applies the rules of
`proof`.

One commit is one pure job for a `concurrent.futures.Executor`. The default one runs processes, because a check ends every
replay of its own process when it is done. Nothing is stored here: the cache of `gate check` keeps replays by content, so
that a proof is found again as long as neither the commit nor the environment changes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from holdtrue_gate import decision, proof
from holdtrue_gate.check import Options, check
from holdtrue_gate.errors import CannotJudgeError, GateError
from holdtrue_gate.finding_history import Mention, id_of_folder
from holdtrue_gate.findings import FILE, FOLDER
from holdtrue_gate.proof import JudgedCommit, JudgedTest, Proof, State
from holdtrue_gate.repo import Repository


@dataclass(frozen=True)
class ProofJob:
    """One commit to be judged; it can be pickled."""

    directory: Path
    sha: str
    options: Options = field(default_factory=lambda: Options(cache=True, allow_weakened=True))


@dataclass(frozen=True)
class Wanted:
    """A finding to be proved, by its id and the tests that it names today."""

    id: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """Told when a commit was judged: how many are done, how many are known to be wanted, and what came out."""

    done: int
    of: int
    commit: JudgedCommit


def carry_out(job: ProofJob) -> JudgedCommit:
    """Judge the commit. What cannot be judged is told in the answer: one commit must not hide the others."""
    _at_work.set()
    try:
        (commit,) = check(job.directory, job.sha, job.options).commits
        named = _named(job)
    except GateError as error:
        return JudgedCommit(job.sha, decision.CANNOT_JUDGE, error.message)
    finally:
        _at_work.clear()
    tests = tuple(JudgedTest(test.id, str(test.verdict), test.proof, test.reason) for test in commit.tests)
    return JudgedCommit(job.sha, commit.result, commit.reason, tests, named)


def _named(job: ProofJob) -> dict[str, tuple[str, ...]]:
    """The tests that each finding names in the commit itself."""
    found: dict[str, tuple[str, ...]] = {}
    with Repository(job.directory) as repository:
        folder = f"{repository.prefix}{FOLDER}/"
        listing = repository.listing(job.sha)
        for path in listing:
            if not path.startswith(folder) or not path.endswith(f"/{FILE}"):
                continue
            id_ = id_of_folder(path.removeprefix(folder).partition("/")[0])
            source = repository.text(listing, path)
            if id_ is None or source is None:
                continue
            with contextlib.suppress(UnicodeDecodeError, tomllib.TOMLDecodeError):
                tests = tomllib.loads(source.decode("utf-8")).get("tests", [])
                if isinstance(tests, list):
                    found[id_] = tuple(entry for entry in tests if isinstance(entry, str))
    return found


def prove(
    directory: Path,
    wanted: Sequence[Wanted],
    mentions: Sequence[Mention],
    options: Options,
    executor: Executor,
    *,
    complete: bool,
    progress: Callable[[Progress], None] = lambda _now: None,
) -> dict[str, Proof]:
    """Prove each finding by the newest of its commits that does it. `mentions` are newest first. Raises GateError."""
    commits = {one.id: [m.sha for m in mentions if one.id in m.findings] for one in wanted}
    found: dict[str, list[Proof]] = {one.id: [] for one in wanted}
    judged: dict[str, JudgedCommit] = {}
    for turn in range(max((len(shas) for shas in commits.values()), default=0)):
        # The older commit of a finding is only judged when the newer one does not prove it.
        left = [one for one in wanted if turn < len(commits[one.id]) and not _is_proved(found[one.id])]
        shas = list(dict.fromkeys(commits[one.id][turn] for one in left))
        fresh = [sha for sha in shas if sha not in judged]
        futures = {executor.submit(carry_out, ProofJob(directory, sha, options)): sha for sha in fresh}
        _collect(futures, judged, progress)
        for one in left:
            found[one.id].append(proof.judge(one.id, one.tests, judged[commits[one.id][turn]]))
    return {one.id: proof.best(one.id, found[one.id], complete=complete) for one in wanted}


def _is_proved(found: Sequence[Proof]) -> bool:
    return any(one.state is State.PROVED for one in found)


def _collect(
    futures: Mapping[Future[JudgedCommit], str],
    judged: dict[str, JudgedCommit],
    progress: Callable[[Progress], None],
) -> None:
    of = len(judged) + len(futures)
    try:
        for future in as_completed(futures):
            commit = future.result()
            judged[commit.sha] = commit
            progress(Progress(len(judged), of, commit))
    except BrokenProcessPool as error:
        raise CannotJudgeError("worker-died", "a process that judged a commit died", "Run it again.") from error
    finally:
        for future in futures:
            future.cancel()


# --- processes

_at_work = threading.Event()


class Inline(Executor):
    """Does each job at once in this process: for one at a time, a process of its own would only cost its start."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `Executor.submit`; what the job raises besides an Exception (Ctrl-C) is raised here."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future hands it on
            future.set_exception(error)
        return future


@contextmanager
def workers(count: int) -> Iterator[Executor]:
    """Processes that judge commits. On an error or Ctrl-C each removes its trees and ends before this does."""
    if count == 1:
        yield Inline()
        return
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        mine = [process for process in multiprocessing.active_children() if process not in before]
        for process in mine:
            process.terminate()
        for process in mine:
            process.join()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        if not _at_work.is_set():
            os._exit(0)
        raise KeyboardInterrupt

    # Ctrl-C reaches the whole group: the parent decides, and tells. A handler and not SIG_IGN, which the replays would
    # inherit: a test of Ctrl-C would wait for ever.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, stop)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    """End with the parent, also when it was killed: nobody else would remove the trees."""
    multiprocessing.connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
