"""A replay: pytest on chosen tests of one tree, under limits, told by a journal.

`run(job)` is a pure job: a `ReplayJob` and its `ReplayResult` can be pickled, so any `concurrent.futures.Executor` can
take it. `rounds(job, course)` is one too: the same tests several times, as the course says. Starting pytest and collecting
is most of what a short test costs, so the rounds run in children that one pytest process forks after it has collected:
each begins with the state that collecting left, none with that of another run. Where forking is not safe (threads, child
processes, open files or sockets after collecting; libraries with a state of their own) each round is a process instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Protocol

from holdtrue_gate import excerpt, journal, process
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.journal import RunRecord
from holdtrue_gate.process import OUTPUT_LIMIT_BYTES, TOKEN_NAME, Limits, Passed, Watch
from holdtrue_gate.repo import remove_tree

__all__ = ["OUTPUT_LIMIT_BYTES", "TOKEN_NAME", "Course", "ReplayJob", "ReplayResult", "Step", "rounds", "run"]

POLL_S = 0.02
GUARD_MARK = "HOLDTRUE_GATE_JOURNAL"  # stands in every guard
PROBE_VARIABLE = "HOLDTRUE_GATE_PROBE"

# Variables by which a caller's session would reach into the replay.
_DROPPED_PREFIXES = ("GIT_", "PYTEST_", "COVERAGE_", "COV_CORE_", "HYPOTHESIS_")
_DROPPED = frozenset(
    {
        "OLDPWD",
        "PWD",
        "PYTHONINSPECT",
        "PYTHONOPTIMIZE",
        "PYTHONPATH",
        "PYTHONPYCACHEPREFIX",
        "PYTHONSAFEPATH",
        "PYTHONSTARTUP",
    }
)

# Without forks each test by itself costs a start of pytest: parameters of one function then share theirs.
_ALONE_PROCESSES = 8


@dataclass(frozen=True)
class ReplayJob:
    """What to run, where and how long. Paths of tests are relative to `tree`.

    `tree`: the folder to run in. `repository`: the user's own checkout, whose modules must not be loaded. `files`: what
    pytest is given. A collected id is chosen when it is one of `ids`, or begins with one of `prefixes` (a file, class
    or function), and is not in `exclude`.
    `source`: folders of the tree to put first on PYTHONPATH. `first_party`: dotted names that must come from the tree.
    `memory_mib`: memory of all processes of a run together.
    `variables`: set in the environment of the run. `temporary`: its temporary folder, kept afterwards (None: one that
    is removed).
    `stop_at_red`: end the session after its first failing test. `rerun`: run what a hang or a crash kept from running by
    itself. `fork`: whether `rounds` may fork. `owner`: whose replay
    it is, for `process.stop`.
    """

    tree: Path
    repository: Path
    python: Path
    scratch: Path
    files: tuple[str, ...]
    ids: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    source: tuple[str, ...] = (".",)
    first_party: tuple[str, ...] = ()
    node_limit_s: float = 60.0
    run_limit_s: float = 900.0
    memory_mib: int = 4096
    collect_only: bool = False
    plugin_autoload: bool = True
    hash_seed: int = 0
    variables: tuple[tuple[str, str], ...] = ()
    temporary: Path | None = None
    stop_at_red: bool = False
    rerun: bool = True
    fork: bool = True
    owner: str = ""

    @property
    def limits(self) -> Limits:
        """What one run may take."""
        return Limits(self.node_limit_s, self.run_limit_s, self.memory_mib)


@dataclass(frozen=True)
class ReplayResult:
    """The record of a replay.

    `alone` holds the records of what was run again by itself, because the first process ended early: by node id, and by
    file when the process did not come to the end of collecting. `apart`: every test was run by itself, and `alone` holds
    all there is. `forked`: in a child of a process that had collected. `asked`: the ids of a later round (none: all).
    """

    record: RunRecord
    alone: dict[str, RunRecord]
    apart: bool = False
    forked: bool = False
    asked: tuple[str, ...] = ()

    def record_of(self, id_: str) -> RunRecord:
        """The record that speaks for one node id or file."""
        return self.alone.get(id_) or self.alone.get(id_.partition("::")[0]) or self.record

    @property
    def collected(self) -> list[str]:
        """The chosen ids, in the order in which they were collected."""
        found = list(self.record.collected)
        for record in self.alone.values():
            found.extend(id_ for id_ in record.collected if id_ not in found)
        return found

    @property
    def records(self) -> list[RunRecord]:
        """Every process of it."""
        return [self.record, *self.alone.values()]


@dataclass(frozen=True)
class Step:
    """One more round of the tests named: together, or each by itself."""

    ids: tuple[str, ...]
    apart: bool = False


class Course(Protocol):
    """Says after each round which tests run once more. It must be picklable and decide by what it is given alone."""

    def next(self, done: Sequence[ReplayResult]) -> Step | None:
        """The next round, or None: enough."""


# --- the environment of a replay


def environment(job: ReplayJob, probes: Path, temporary: Path, token: str) -> dict[str, str]:
    """The environment of the replayed process: the caller's, without what would change the answer."""
    kept = kept_variables()
    roots = [str(job.tree / root) if root not in ("", ".") else str(job.tree) for root in job.source]
    roots += [str(entry) for entry in lent_paths(job.repository)]
    kept |= {
        # The guard comes first: a tree may have a `sitecustomize` of its own.
        "PYTHONPATH": os.pathsep.join([str(probes), *roots]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": str(job.hash_seed),
        "PATH": os.pathsep.join([str(job.python.parent), kept.get("PATH", os.defpath)]),
        "TMPDIR": str(temporary),
        "TEMP": str(temporary),
        "TMP": str(temporary),
        # A gate that is itself replayed starts sessions of its own: the outer one must still find them.
        TOKEN_NAME: f"{os.environ.get(TOKEN_NAME, '')}.{token}",
    }
    if not job.plugin_autoload:
        kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return kept | dict(job.variables)


def kept_variables() -> dict[str, str]:
    """What of the caller's environment reaches a replay."""
    return {k: v for k, v in os.environ.items() if not k.upper().startswith(_DROPPED_PREFIXES) and k not in _DROPPED}


def lent_paths(repository: Path) -> list[Path]:
    """What of the caller's PYTHONPATH stays: another place's libraries may be needed; the user's own checkout must not
    answer for the tree, and where this gate is itself replayed, the guard of that replay must not watch over this one."""
    checkout = repository.resolve()
    given = [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return [
        entry
        for entry in given
        if entry.is_absolute() and not entry.resolve().is_relative_to(checkout) and not _holds_guard(entry)
    ]


def _holds_guard(folder: Path) -> bool:
    try:
        return GUARD_MARK in (folder / "sitecustomize.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _command(job: ReplayJob, probe: str, folder: Path) -> list[str]:
    command = [
        str(job.python),
        "-m",
        "pytest",
        "-p",
        probe,
        "--rootdir",
        str(job.tree),
        "-o",
        f"cache_dir={folder / 'cache'}",
        "--color=no",
    ]
    if job.collect_only:
        command += ["--collect-only", "-q"]
    return [*command, "--", *dict.fromkeys(_argument(file) for file in job.files)]


def _argument(file: str) -> str:
    """How pytest is told of a file: a bracket or `::` in a path would be read as the parameters or parts of a node id, so
    the folder stands for it there, and the probe chooses."""
    while "[" in file or "::" in file:
        file = file.rpartition("/")[0] or "."
    return file


# --- one pytest process


_ACCIDENTS = re.compile(r"(?<=\b0x)[0-9a-fA-F]{4,}|(?<= in )\d+\.\d+(?=s\b)")


def _steady(output: str, tree: Path, temporary: Path, folder: Path) -> str:
    """Output without the accidents of one run: the places of its trees, addresses, and how long pytest took."""
    output = output.replace(f"{tree}{os.sep}", "").replace(str(tree), ".").replace(str(temporary), "<tmp>")
    # The folder of the run itself, which pytest's header names for its cache.
    output = output.replace(str(folder), "<run>")
    return _ACCIDENTS.sub("...", output)


def _can_fork(job: ReplayJob) -> bool:
    return job.fork and hasattr(os, "fork") and not job.collect_only and job.temporary is None


@dataclass
class _Pytest:
    """A started pytest process and its folder; with `forks` it waits after collecting for what it is told."""

    job: ReplayJob
    folder: Path
    temporary: Path
    token: str
    popen: subprocess.Popen[bytes]
    commands: int = -1
    answers: int = -1
    _unread: bytes = b""
    _ended: bool = False
    _lines: list[dict[str, object]] = field(default_factory=list)

    @classmethod
    def start(cls, job: ReplayJob, *, forks: bool) -> _Pytest:
        """Raises CannotJudgeError (`no-interpreter`) when the interpreter cannot start, (`stopped`) when nothing may."""
        if process.stopped(job.owner):
            raise CannotJudgeError("stopped", "the gate was stopped")
        folder = Path(tempfile.mkdtemp(prefix="r", dir=job.scratch))
        temporary, probes = job.temporary or folder / "t", folder / "p"
        temporary.mkdir(exist_ok=True)
        probes.mkdir()
        token = secrets.token_hex(8)
        probe = f"_gate_probe_{token}"
        own = resources.files("holdtrue_gate")
        (probes / f"{probe}.py").write_bytes(own.joinpath("probe.py").read_bytes())
        guarded = (str(job.tree), str(job.repository), job.first_party, str(folder / "journal.jsonl"), str(probes))
        (probes / "sitecustomize.py").write_text(
            own.joinpath("guard.py").read_text(encoding="utf-8") + f"\n\ninstall{guarded!a}\n", encoding="utf-8"
        )
        settings: dict[str, object] = {
            "tree": str(job.tree),
            "repository": str(job.repository),
            "journal": str(folder / "journal.jsonl"),
            "temporary": str(temporary),
            "guarded": str(probes),
            "first_party": job.first_party,
            "ids": job.ids,
            "prefixes": job.prefixes,
            "exclude": job.exclude,
            "collect_only": job.collect_only,
            "stop_at_red": job.stop_at_red,
        }
        theirs: tuple[int, ...] = ()
        ours = (-1, -1)
        if forks:
            told, commands = os.pipe()
            answers, tells = os.pipe()
            theirs, ours = (told, tells), (commands, answers)
            settings["channel"] = theirs
        (folder / "probe.json").write_text(json.dumps(settings), encoding="utf-8")
        env = environment(job, probes, temporary, token) | {PROBE_VARIABLE: str(folder / "probe.json")}
        try:
            # A file, not a pipe: a grandchild that keeps the descriptor open cannot make us wait.
            with (folder / "output").open("wb") as output:
                popen = subprocess.Popen(
                    _command(job, probe, folder),
                    cwd=job.tree,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=theirs,
                )
        except OSError as error:
            for descriptor in ours:
                if descriptor >= 0:
                    os.close(descriptor)
            raise CannotJudgeError(
                "no-interpreter", f"the interpreter {job.python} cannot start: {error}", "Give another with --python."
            ) from error
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        process.enter(popen, job.owner)
        return cls(job, folder, temporary, token, popen, *ours)

    @property
    def journal(self) -> Path:
        """What the process itself writes down."""
        return self.folder / "journal.jsonl"

    def watch(self, journal: Path | None = None, output: Path | None = None) -> Watch:
        """Limits of a run that begins now."""
        return Watch(
            self.job.limits,
            journal or self.journal,
            output or self.folder / "output",
            self.popen.pid,
            self.token,
        )

    def wait(self, watch: Watch) -> Passed | None:
        """Until the process ends or a limit passes, which is given back."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout=POLL_S)
                return None
            passed = watch.passed(self.popen.pid)
            if passed is not None or process.stopped(self.job.owner):
                return passed

    def answer(self, watch: Watch, pid: int) -> dict[str, object] | Passed | None:
        """The next thing that a forking process says; a limit that passed first; or None when it ended or is stopped."""
        while not self._lines:
            if select.select([self.answers], [], [], POLL_S)[0]:
                data = os.read(self.answers, 65536)
                if not data:
                    return None
                *lines, self._unread = (self._unread + data).split(b"\n")
                self._lines.extend(json.loads(line) for line in lines)
                continue
            if self.popen.poll() is not None or process.stopped(self.job.owner):
                return None
            passed = watch.passed(pid)
            if passed is not None:
                return passed
        return self._lines.pop(0)

    def tell(self, **command: object) -> None:
        """A command to a forking process; that it has ended shows in its answer."""
        with contextlib.suppress(OSError):
            os.write(self.commands, json.dumps(command).encode("ascii") + b"\n")

    def end(self) -> None:
        """Ends the process and everything that it started. May be called again."""
        if self._ended:
            return
        self._ended = True
        for name in ("commands", "answers"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
                setattr(self, name, -1)
        process.end(self.popen, self.token)
        process.leave(self.popen)

    def record(self, watch: Watch, passed: Passed | None) -> RunRecord:
        """What the ended process wrote down."""
        return self.record_of(_lines(self.journal), self.popen.returncode, watch, passed)

    def record_of(
        self, lines: tuple[bytes, ...], returncode: int | None, watch: Watch, passed: Passed | None
    ) -> RunRecord:
        """The record of a run that has ended."""
        record = journal.read(lines)
        record.lines = lines
        record.returncode = returncode
        record.timed_out = passed is not None and passed.time
        record.ended_for = passed.reason if passed is not None else ""
        record.seconds = watch.seconds
        output = process.tail(watch.output) or process.tail(self.folder / "output")
        record.output = _steady(output, self.job.tree, self.temporary, self.folder)
        record.sources = excerpt.of(record, self.job.tree)
        return record

    def remove(self) -> None:
        """Removes its folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _lines(path: Path) -> tuple[bytes, ...]:
    return tuple(path.read_bytes().splitlines()) if path.exists() else ()


def _once(job: ReplayJob) -> RunRecord:
    """One process. Raises CannotJudgeError when the interpreter cannot start."""
    pytest = _Pytest.start(job, forks=False)
    try:
        watch = pytest.watch()
        passed = pytest.wait(watch)
    finally:
        pytest.end()
    record = pytest.record(watch, passed)
    pytest.remove()
    return record


def run(job: ReplayJob) -> ReplayResult:
    """Runs the chosen tests of a tree once.

    When the process ends or hangs inside a test, the tests that had not begun are run again, one process each; when it
    does while collecting, each file is. Raises CannotJudgeError (`no-interpreter`) when the interpreter cannot start;
    every other fault is part of the record.
    """
    return _completed(job, _once(job))


def _completed(job: ReplayJob, record: RunRecord) -> ReplayResult:
    """The result of a first record, with what has to be run by itself after it."""
    alone: dict[str, RunRecord] = {}
    if not job.rerun:
        return ReplayResult(record, alone)
    if record.started and not record.collection_done and len(job.files) > 1:
        for file in job.files:
            if not process.stopped(job.owner):
                own = run(replace(job, files=(file,)))
                alone |= {file: own.record} | own.alone
    elif not job.collect_only and (record.open_node is not None or record.session_exit is None):
        for id_ in record.unfinished:
            if not process.stopped(job.owner):
                alone[id_] = _once(_narrowed(job, (id_,)))
    return ReplayResult(record, alone)


def _narrowed(job: ReplayJob, ids: tuple[str, ...]) -> ReplayJob:
    files = tuple(dict.fromkeys(id_.partition("::")[0] for id_ in ids))
    return replace(job, files=files, ids=ids, prefixes=(), exclude=())


# --- several rounds


def rounds(job: ReplayJob, course: Course) -> list[ReplayResult]:
    """Runs the chosen tests once, and then as often and in the way that `course` says. Raises as `run` does."""
    if not _can_fork(job):
        return _in_processes(job, course, [run(job)])
    pytest = _Pytest.start(job, forks=True)
    try:
        watch = pytest.watch()
        answer = pytest.answer(watch, pytest.popen.pid)
        if isinstance(answer, dict) and answer.get("ready") and _unsafe(pytest) is None:
            forks = _Forks(pytest)
            if forks.possible:
                return forks.rounds(course)
        passed = answer if isinstance(answer, Passed) else None
        if isinstance(answer, dict):
            pytest.tell(go="on")
        if passed is None:
            passed = pytest.wait(watch)
    finally:
        pytest.end()
    record = pytest.record(watch, passed)
    pytest.remove()
    return _in_processes(job, course, [_completed(job, record)])


def _in_processes(job: ReplayJob, course: Course, done: list[ReplayResult]) -> list[ReplayResult]:
    while not process.stopped(job.owner) and (step := course.next(done)) is not None:
        if not step.apart:
            done.append(replace(run(_narrowed(job, step.ids)), asked=step.ids))
            continue
        units: dict[str, list[str]] = {}
        for id_ in step.ids:
            units.setdefault(id_ if len(step.ids) <= _ALONE_PROCESSES else id_.partition("[")[0], []).append(id_)
        alone: dict[str, RunRecord] = {}
        for ids in units.values():
            if not process.stopped(job.owner):
                result = run(_narrowed(job, tuple(ids)))
                alone |= {id_: result.record_of(id_) for id_ in ids}
        done.append(ReplayResult(RunRecord(), alone, apart=True, asked=step.ids))
    return done


def _unsafe(pytest: _Pytest) -> str | None:
    """Why a process that says it could fork should not: collecting has left something running beside it."""
    others = [pid for pid in process.descendants(pytest.token) if pid != pytest.popen.pid]
    return f"{len(others)} processes were started while collecting" if others else None


class _Forks:
    """The rounds of one pytest process that has collected and forks a child for each."""

    def __init__(self, pytest: _Pytest) -> None:
        self._pytest, self._job = pytest, pytest.job
        self._collected = tuple(line for line in _lines(pytest.journal) if not line.startswith(b'{"e": "collected"'))
        self._number = 0
        self._kept = pytest.folder / "t0"
        self.possible = self._keep_temporary()

    def _keep_temporary(self) -> bool:
        """What collecting left in the temporary folder is there again for each child."""
        try:
            if any(self._pytest.temporary.iterdir()):
                shutil.copytree(self._pytest.temporary, self._kept, symlinks=True)
        except (OSError, shutil.Error):
            return False
        return True

    def _renew(self) -> None:
        """The same folders under the same names, as collecting left them."""
        for entry in self._pytest.temporary.iterdir():
            _remove(entry)
        if self._kept.exists():
            shutil.copytree(self._kept, self._pytest.temporary, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(self._pytest.folder / "cache", ignore_errors=True)

    def rounds(self, course: Course) -> list[ReplayResult]:
        """Every round, the first too."""
        done = [self._together(None)]
        while not process.stopped(self._job.owner) and (step := course.next(done)) is not None:
            if step.apart:
                alone = {id_: self._child((id_,)) for id_ in step.ids if not process.stopped(self._job.owner)}
                done.append(ReplayResult(RunRecord(), alone, apart=True, forked=True, asked=step.ids))
            else:
                done.append(self._together(step.ids))
        self._pytest.end()
        self._pytest.remove()
        return done

    def _together(self, ids: tuple[str, ...] | None) -> ReplayResult:
        record = self._child(ids)
        alone: dict[str, RunRecord] = {}
        if record.open_node is not None or record.session_exit is None:
            for id_ in record.unfinished:
                if not process.stopped(self._job.owner):
                    alone[id_] = self._child((id_,))
        return ReplayResult(record, alone, forked=True, asked=ids or ())

    def _child(self, ids: tuple[str, ...] | None) -> RunRecord:
        """One forked run of the ids (None: of all that were collected)."""
        pytest = self._pytest
        if self._number:
            self._renew()
        self._number += 1
        journal_path, output = pytest.folder / f"journal{self._number}.jsonl", pytest.folder / f"output{self._number}"
        pytest.tell(run=self._number, journal=str(journal_path), output=str(output), ids=ids)
        watch = pytest.watch(journal_path, output)
        answer = pytest.answer(watch, pytest.popen.pid)
        pid = answer.get("forked") if isinstance(answer, dict) else None
        status: int | None = None
        passed: Passed | None = None
        if isinstance(pid, int):
            told = pytest.answer(watch, pid)
            if isinstance(told, Passed):
                passed = told
                process.kill_group(pid)
                process.end_descendants(pytest.token, pytest.popen.pid)
                told = pytest.answer(pytest.watch(journal_path, output), pytest.popen.pid)
            # Whatever the run left behind must not be there for the next.
            process.kill_group(pid)
            process.end_descendants(pytest.token, pytest.popen.pid)
            if isinstance(told, dict) and isinstance(told.get("ended"), int):
                status = int(str(told["ended"]))
        return pytest.record_of((*self._collected, *_lines(journal_path)), status, watch, passed)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


# --- which interpreter


def find_python(root: Path, given: Path | None) -> Path:
    """The interpreter for replays: `given`, else the project's own environment when it has pytest, else the gate's own."""
    if given is not None:
        return given
    candidates = [root / name for name in (".venv", "venv")]
    active = os.environ.get("VIRTUAL_ENV")
    if active:
        candidates.append(Path(active))
    for folder in candidates:
        for python in (folder / "bin" / "python", folder / "Scripts" / "python.exe"):
            if python.exists() and has_pytest(folder, python):
                return python
    return Path(sys.executable)


def has_pytest(folder: Path, python: Path) -> bool:
    """Whether an environment can import pytest; looks first, and asks its interpreter only when looking does not tell."""
    if (
        next(folder.glob("lib/python*/site-packages/pytest/__init__.py"), None)
        or (folder / "Lib/site-packages/pytest/__init__.py").exists()
    ):
        return True
    try:
        done = subprocess.run(
            [str(python), "-c", "import pytest"],
            capture_output=True,
            timeout=30,
            check=False,
            env=dict(os.environ, PYTHONPATH=""),
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
