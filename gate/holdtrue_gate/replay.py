"""A replay: pytest on chosen tests of one tree, under limits, told by a journal.

`run(job)` is a pure job: a `ReplayJob` and its `ReplayResult` can be pickled, so any `concurrent.futures.Executor` can
take it. Faults this module survives: the process ends itself, is killed, hangs, floods its output, leaves children
behind that hold its output open or that moved into a session of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from holdtrue_gate import journal
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.journal import RunRecord

POLL_S = 0.02
OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
OUTPUT_TAIL_BYTES = 32 * 1024
TOKEN_NAME = "HOLDTRUE_GATE_REPLAY"  # noqa: S105 - the name of a variable that marks our own descendants
PROBE_VARIABLE = "HOLDTRUE_GATE_PROBE"

# Variables by which a caller's session would reach into the replay.
_DROPPED_PREFIXES = ("GIT_", "PYTEST_", "COVERAGE_", "COV_CORE_", "HYPOTHESIS_")
_DROPPED = frozenset(
    {"PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONSTARTUP", "PYTHONSAFEPATH", "PYTHONINSPECT", "PYTHONOPTIMIZE"}
)

_live: set[int] = set()
_live_lock = threading.Lock()
_stopping = threading.Event()


@dataclass(frozen=True)
class ReplayJob:
    """What to run, where and how long. Paths of tests are relative to `tree`.

    `tree`: the folder to run in. `repository`: the user's own checkout, whose modules must not be loaded. `files`: what
    pytest is given. A collected id is chosen when it is one of `ids`, or begins with one of `prefixes` (a file, class
    or function), and is not in `exclude`.
    `source`: folders of the tree to put first on PYTHONPATH. `first_party`: dotted names that must come from the tree.
    `variables`: set in the environment of the run. `temporary`: its temporary folder, kept afterwards (None: one that
    is removed).
    `stop_at_red`: end the session after its first failing test.
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
    collect_only: bool = False
    plugin_autoload: bool = True
    hash_seed: int = 0
    variables: tuple[tuple[str, str], ...] = ()
    temporary: Path | None = None
    stop_at_red: bool = False


@dataclass(frozen=True)
class ReplayResult:
    """The record of a replay.

    `alone` holds the records of what was run again by itself, because the first process ended early: by node id, and by
    file when the process did not come to the end of collecting.
    """

    record: RunRecord
    alone: dict[str, RunRecord]

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


def environment(job: ReplayJob, temporary: Path, token: str) -> dict[str, str]:
    """The environment of the replayed process: the caller's, without what would change the answer."""
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(_DROPPED_PREFIXES) and k not in _DROPPED}
    roots = [str(job.tree / root) if root not in ("", ".") else str(job.tree) for root in job.source]
    # Another place's libraries may be needed; the user's own checkout must not answer for the tree.
    checkout = job.repository.resolve()
    given = [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    roots += [str(entry) for entry in given if entry.is_absolute() and not entry.resolve().is_relative_to(checkout)]
    kept |= {
        "PYTHONPATH": os.pathsep.join([*roots, str(temporary)]),
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
    return [*command, "--", *job.files]


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - OUTPUT_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


class _Clock:
    """Follows the journal and says when a node, the collection or the end of the session takes too long."""

    def __init__(self, path: Path, limit_s: float) -> None:
        self._path, self._limit_s = path, limit_s
        self._offset, self._rest = 0, b""
        self._since = time.monotonic()

    def late(self) -> bool:
        """Whether the limit has passed since the last step that a node or the session took."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
            self._offset += len(fresh)
            *lines, self._rest = (self._rest + fresh).split(b"\n")
            # The clock of a node runs from its begin: a test that keeps opening files is not progress.
            if any(not line.startswith((b'{"e": "read"', b'{"e": "phase')) for line in lines):
                self._since = time.monotonic()
        return time.monotonic() - self._since > self._limit_s


def _written(pid: int, output: Path) -> int:
    """Bytes of output: what the process wrote past pytest, or into the file that pytest captures it with (Linux)."""
    sizes = [0]
    for path in (output, Path(f"/proc/{pid}/fd/1"), Path(f"/proc/{pid}/fd/2")):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def _descendants(token: str) -> list[int]:
    """Processes that carry the replay's mark, wherever they moved (Linux; elsewhere the process group has to do)."""
    name, mark = f"{TOKEN_NAME}=".encode(), token.encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(name) and mark in variable for variable in variables):
                found.append(int(entry.name))
    return found


def _kill_group(group: int) -> None:
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            os.kill(group, signal.SIGTERM)
        else:
            os.killpg(group, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    _kill_group(process.pid)
    # A child that called setsid is no longer in the group; it may fork while we look, hence the rounds.
    for _ in range(5):
        left = [pid for pid in _descendants(token) if pid != process.pid]
        if not left:
            break
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.Signals(9))
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)


def stop_all() -> None:
    """Ends every replay of this process at once and refuses new ones: for Ctrl-C, before the trees are removed."""
    _stopping.set()
    with _live_lock:
        for group in _live:
            _kill_group(group)


def allow() -> None:
    """Lets replays start again after `stop_all`."""
    _stopping.clear()


def _once(job: ReplayJob) -> RunRecord:
    """One process. Raises CannotJudgeError when the interpreter cannot start."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir=job.scratch))
    temporary = job.temporary or folder / "t"
    temporary.mkdir(exist_ok=True)
    token = secrets.token_hex(8)
    probe = f"_gate_probe_{token}"
    journal_path, output_path = folder / "journal.jsonl", folder / "output"
    (temporary / f"{probe}.py").write_bytes(resources.files("holdtrue_gate").joinpath("probe.py").read_bytes())
    settings = {
        "tree": str(job.tree),
        "repository": str(job.repository),
        "journal": str(journal_path),
        "first_party": job.first_party,
        "ids": job.ids,
        "prefixes": job.prefixes,
        "exclude": job.exclude,
        "collect_only": job.collect_only,
        "stop_at_red": job.stop_at_red,
    }
    (folder / "probe.json").write_text(json.dumps(settings), encoding="utf-8")
    env = environment(job, temporary, token) | {PROBE_VARIABLE: str(folder / "probe.json")}
    started = time.monotonic()
    ended_for = ""
    # A file, not a pipe: a grandchild that keeps the descriptor open cannot make us wait.
    with output_path.open("wb") as output:
        try:
            process = subprocess.Popen(
                _command(job, probe, folder),
                cwd=job.tree,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotJudgeError(
                "no-interpreter", f"the interpreter {job.python} cannot start: {error}", "Give another with --python."
            ) from error
    with _live_lock:
        _live.add(process.pid)
    try:
        clock = _Clock(journal_path, job.node_limit_s)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=POLL_S)
                break
            if clock.late():
                ended_for = f"did not end within {job.node_limit_s:g} s"
            elif time.monotonic() - started > job.run_limit_s:
                ended_for = f"was at work when the replay's limit of {job.run_limit_s:g} s passed"
            elif _written(process.pid, output_path) > OUTPUT_LIMIT_BYTES:
                ended_for = f"wrote more than {OUTPUT_LIMIT_BYTES // 2**20} MiB"
            if ended_for:
                break
            if _stopping.is_set():
                break
    finally:
        _end(process, token)
        with _live_lock:
            _live.discard(process.pid)
    lines = journal_path.read_bytes().splitlines() if journal_path.exists() else []
    record = journal.read(lines)
    record.returncode = process.returncode
    record.timed_out = bool(ended_for)
    record.ended_for = ended_for
    record.seconds = time.monotonic() - started
    record.output = _tail(output_path)
    shutil.rmtree(folder, ignore_errors=True)
    return record


def run(job: ReplayJob) -> ReplayResult:
    """Runs the chosen tests of a tree once.

    When the process ends or hangs inside a test, the tests that had not begun are run again, one process each; when it
    does while collecting, each file is. Raises CannotJudgeError (`no-interpreter`) when the interpreter cannot start;
    every other fault is part of the record.
    """
    record = _once(job)
    alone: dict[str, RunRecord] = {}
    if record.started and not record.collection_done and len(job.files) > 1:
        for file in job.files:
            if not _stopping.is_set():
                own = run(replace(job, files=(file,)))
                alone |= {file: own.record} | own.alone
    elif not job.collect_only and (record.open_node is not None or record.session_exit is None):
        for id_ in record.unfinished:
            if not _stopping.is_set():
                alone[id_] = _once(replace(job, files=(id_.partition("::")[0],), ids=(id_,), prefixes=(), exclude=()))
    return ReplayResult(record, alone)


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
