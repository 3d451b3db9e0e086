"""A process under limits: of time, memory and output; and the end of everything that it started.

Faults this module survives: the process ends itself, is killed, hangs, floods its output, eats the memory, leaves
children behind that hold its output open or that moved into a session of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
OUTPUT_TAIL_BYTES = 32 * 1024
TOKEN_NAME = "HOLDTRUE_GATE_REPLAY"  # noqa: S105 - the name of a variable that marks our own descendants

# Looking at every process costs some milliseconds; a test cannot fill gigabytes between two looks at this pace.
_MEMORY_POLL_S = 0.1
_PS_POLL_S = 1.0
# A process that left the session is found by its environment, and reading that of every process is the dear part.
_WIDE_EVERY = 10
_HAS_PROC = Path("/proc/self/stat").exists()
_KILL = signal.Signals(9)

_live: dict[int, str] = {}
_live_lock = threading.Lock()
_stopped: set[str] = set()


@dataclass(frozen=True)
class Limits:
    """What one run may take: seconds for a node, seconds in all, mebibytes of memory of all its processes together."""

    node_s: float
    run_s: float
    memory_mib: int


@dataclass(frozen=True)
class Passed:
    """The limit that was passed, in words; `time` when it is one of time or output, which a hang can explain."""

    reason: str
    time: bool = True


# --- what runs


def enter(process: subprocess.Popen[bytes], owner: str) -> None:
    """Makes a process known to `stop`."""
    with _live_lock:
        _live[process.pid] = owner


def leave(process: subprocess.Popen[bytes]) -> None:
    """The process has been ended."""
    with _live_lock:
        _live.pop(process.pid, None)


def stop(owner: str) -> None:
    """Ends the processes of an owner, and of owners below it ("a.b" is below "a"), and refuses new ones."""
    with _live_lock:
        _stopped.add(owner)
        groups = [group for group, whose in _live.items() if _below(whose, owner)]
    for group in groups:
        kill_group(group)


def allow(owner: str) -> None:
    """Lets processes of the owner start again."""
    with _live_lock:
        _stopped.discard(owner)


def stopped(owner: str) -> bool:
    """Whether `stop` was called for this owner or one above it."""
    return any(_below(owner, other) for other in list(_stopped))


def _below(owner: str, above: str) -> bool:
    return owner == above or owner.startswith(above + ".")


def kill_group(group: int) -> None:
    """SIGKILL to a process group; it may be gone already."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            os.kill(group, signal.SIGTERM)
        else:
            os.killpg(group, signal.SIGKILL)


def _processes() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only, and often
    return []


def descendants(token: str) -> list[int]:
    """Processes that carry the replay's mark, wherever they moved (Linux; elsewhere the process group has to do)."""
    name, mark = f"{TOKEN_NAME}=".encode(), token.encode()
    found = []
    for pid in _processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - often
            content = file.read()
            if mark in content and any(v.startswith(name) and mark in v for v in content.split(b"\0")):
                found.append(pid)
    return found


def end_descendants(token: str, spared: int | None = None) -> None:
    """Kills what carries the mark, but for one process."""
    # A child that called setsid is no longer in the group; it may fork while we look, hence the rounds.
    for _ in range(50):
        left = [pid for pid in descendants(token) if pid != spared and not _is_dead(pid)]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, _KILL)
        time.sleep(0.005)


def _is_dead(pid: int) -> bool:
    """A zombie still shows its environment in some kernels, and nobody can kill it."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    return True


def end(process: subprocess.Popen[bytes], token: str) -> None:
    """Ends a process and everything that it started."""
    kill_group(process.pid)
    end_descendants(token, process.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)


# --- limits


class Clock:
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


@dataclass
class Watch:
    """The limits of one run: its journal, its output, the process that runs it and the session that this lies in."""

    limits: Limits
    journal: Path
    output: Path
    session: int
    token: str
    _started: float = field(default_factory=time.monotonic)
    _memory_at: float = 0.0
    _looks: int = 0

    def __post_init__(self) -> None:
        self._clock = Clock(self.journal, self.limits.node_s)
        self._memory_at = self._started + _MEMORY_POLL_S

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._started

    def passed(self, pid: int) -> Passed | None:
        """The limit that the run in process `pid` has passed, if any."""
        if self._clock.late():
            return Passed(f"did not end within {self.limits.node_s:g} s")
        if self.seconds > self.limits.run_s:
            return Passed(f"was at work when the replay's limit of {self.limits.run_s:g} s passed")
        if _written(pid, self.output) > OUTPUT_LIMIT_BYTES:
            return Passed(f"wrote more than {OUTPUT_LIMIT_BYTES // 2**20} MiB")
        now = time.monotonic()
        if now >= self._memory_at:
            limit = self.limits.memory_mib * 2**20
            self._looks += 1
            used = memory_bytes(self.session, self.token, limit, wide=self._looks % _WIDE_EVERY == 0)
            self._memory_at = time.monotonic() + (_MEMORY_POLL_S if _HAS_PROC else _PS_POLL_S)
            if used > limit:
                return Passed(f"used more than {self.limits.memory_mib} MiB of memory", time=False)
        return None


def _written(pid: int, output: Path) -> int:
    """Bytes of output: what the process wrote past pytest, or into the file that pytest captures it with (Linux)."""
    sizes = [0]
    for path in (os.fspath(output), f"/proc/{pid}/fd/1", f"/proc/{pid}/fd/2"):
        with contextlib.suppress(OSError):
            sizes.append(os.stat(path).st_size)  # noqa: PTH116 - at every poll
    return max(sizes)


def tail(path: Path) -> str:
    """The end of an output file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - OUTPUT_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def memory_bytes(session: int, token: str, limit_bytes: int, *, wide: bool = True) -> int:
    """Resident memory of a session and, when looking `wide`, of what left it. Pages that several of its processes share
    are counted once, when the sum with them would pass the limit."""
    if not _HAS_PROC:
        return _memory_by_ps(session)
    page = os.sysconf("SC_PAGE_SIZE")
    inside: dict[int, int] = {}
    others: dict[int, int] = {}
    for pid in _processes():
        with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - often
            # proc(5): after the name in brackets come state, ppid, pgrp, session, ...; rss in pages is field 24.
            fields = file.read().rpartition(b")")[2].split()
            (inside if int(fields[3]) == session else others)[pid] = int(fields[21]) * page
    if wide and sum(inside.values()) + sum(others.values()) > limit_bytes:
        inside |= {pid: others[pid] for pid in descendants(token) if pid in others}
    total = sum(inside.values())
    if total <= limit_bytes:
        return total
    return sum(_proportional(pid, rss) for pid, rss in inside.items())


def _proportional(pid: int, rss: int) -> int:
    """The process' share of its memory (PSS), or all of it where the kernel does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return rss


def _memory_by_ps(session: int) -> int:
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        done = subprocess.run(
            ["ps", "-A", "-o", "pgid=,sess=,rss="], capture_output=True, text=True, timeout=10, check=False
        )
        rows = [line.split() for line in done.stdout.splitlines()]
        return sum(int(row[2]) * 1024 for row in rows if len(row) == 3 and str(session) in row[:2])
    return 0
