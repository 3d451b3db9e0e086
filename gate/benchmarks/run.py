"""What a check costs, in plain `pytest` runs of the same test; and what the nearest peer says of the same commits.

    python -m gate.benchmarks.run [--json] [--only speed|cache|scaling|peer] [--repetitions N]

Figures are ratios of one run: both sides of a ratio take turns. Exit status 1 when a target is missed. Byte code is kept
for both sides, as on a machine where each has run before, and neither takes the other's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gate.benchmarks.rows import BUGGY, FIXED, OLD_TESTS, ROWS, Row

PEER = "fixwitness==1.0.0"
PLAIN_RUNS_A_CHECK = 2.2
CACHED_S = 0.4
# On two cores the second of two jobs cannot be had for nothing: trees are written and read by one process.
SCALING = 1.5
TIMEOUT_S = 5


@dataclass
class Figure:
    """One measured number and what it is held against."""

    name: str
    value: float
    unit: str
    target: float | None = None
    lower_is_better: bool = True
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.lower_is_better else self.value >= self.target


@dataclass
class Report:
    """Figures, and the peer's answers beside ours by row."""

    figures: list[Figure] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        """Whether no target was missed and no row was judged wrongly."""
        return all(figure.reached is not False for figure in self.figures) and all(row["right"] for row in self.rows)


class Bench:
    """A folder for toys, and an environment that is the same for all that runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GIT_", "PYTEST_")) and name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        }
        gate = os.fspath(Path(__file__).resolve().parents[1])
        self.environment = kept | {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPYCACHEPREFIX": os.fspath(folder / "bytecode"),
            "XDG_CACHE_HOME": os.fspath(folder / "cache"),
        }
        self.gate = [sys.executable, "-m", "holdtrue_gate"]
        self.gate_environment = self.environment | {"PYTHONPATH": gate}

    def git(self, root: Path, *arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=b", "-c", "user.email=b@localhost", "-c", "init.defaultBranch=main", *arguments],
            cwd=root,
            env=self.environment,
            check=True,
            capture_output=True,
        )

    def commit(self, root: Path, message: str, files: Mapping[str, str | None]) -> None:
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text or "", encoding="utf-8")
        self.git(root, "add", "-A")
        self.git(root, "commit", "-q", "-m", message)

    def toy(self, name: str, row: Row, *, plugins: bool = False) -> Path:
        """A repository with one fix."""
        root = self.folder / name
        root.mkdir()
        self.git(root, "init", "-q")
        settings = f"[tool.gate]\nplugin_autoload = {str(plugins).lower()}\ntimeout_s = {TIMEOUT_S}\n"
        settings += '\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
        old = {
            "pyproject.toml": settings,
            "shop.py": row.buggy,
            "tests/test_old.py": OLD_TESTS,
            ".gitignore": "__pycache__\n",
        }
        self.commit(root, "base", {**old, **row.old})
        self.commit(root, "fix: the price", {"shop.py": row.fixed, **row.files})
        return root

    def timed(self, command: list[str], root: Path, environment: Mapping[str, str], status: int | None = 0) -> float:
        """Seconds of a command. Raises RuntimeError when it does not end with the status that it should."""
        began = time.perf_counter()
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if status is not None and done.returncode != status:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return seconds


def _turns(repetitions: int, sides: Iterable[Callable[[], float]]) -> list[list[float]]:
    """Each side once to warm up, then in turns."""
    sides = list(sides)
    for side in sides:
        side()
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(repetitions):
        for side, seconds in zip(sides, found, strict=True):
            seconds.append(side())
    return found


def speed(bench: Bench, repetitions: int) -> list[Figure]:
    """One commit with one new test, against one plain run of that test; with and without installed plugins, both sides
    alike."""
    figures = []
    for plugins in (False, True):
        what = "plugins loaded" if plugins else "no plugins"
        root = bench.toy(f"speed-{plugins}", ROWS[0], plugins=plugins)
        plain = bench.environment | ({} if plugins else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
        pytest = [sys.executable, "-m", "pytest", "-q", "tests/test_new.py"]
        check = [*bench.gate, "check", "--no-cache", "-j2", "--python", sys.executable]
        ours, theirs = _turns(
            repetitions,
            (
                lambda check=check, root=root: bench.timed(check, root, bench.gate_environment),  # type: ignore[misc]
                lambda pytest=pytest, root=root, plain=plain: bench.timed(pytest, root, plain),  # type: ignore[misc]
            ),
        )
        ratio = statistics.median(ours) / statistics.median(theirs)
        note = f"{statistics.median(ours):.2f} s to {statistics.median(theirs):.2f} s, 3 runs a side"
        figures.append(Figure(f"check of one new test, {what}", ratio, "runs", PLAIN_RUNS_A_CHECK, note=note))
    return figures


def cached(bench: Bench, repetitions: int) -> list[Figure]:
    """A check whose replays are kept."""
    root = bench.toy("cached", ROWS[0])
    command = [*bench.gate, "check", "--python", sys.executable]
    (seconds,) = _turns(repetitions, [lambda: bench.timed(command, root, bench.gate_environment)])
    return [Figure("cached check", statistics.median(seconds), "s", CACHED_S, note=f"fastest {min(seconds):.2f} s")]


def scaling(bench: Bench, repetitions: int) -> list[Figure]:
    """Four commits that have nothing to do with each other, one replay at a time and two."""
    root = bench.toy("scaling", ROWS[0])
    for number in range(4):
        name = f"part{number}"
        bench.commit(root, f"add {name}", {f"{name}.py": BUGGY})
        test = f"import {name}\n\n\ndef test_{name}():\n    assert {name}.price(1) == 10\n"
        bench.commit(root, f"fix: {name}", {f"{name}.py": FIXED, f"tests/test_{name}.py": test})
    # The commits between the fixes bring no test and cannot be judged: the range ends with 3, and the fixes pass.
    command = [*bench.gate, "check", "--no-cache", "--python", sys.executable, "HEAD~8..HEAD"]
    one, two = _turns(
        max(3, repetitions // 3),
        [
            lambda: bench.timed([*command, "-j1"], root, bench.gate_environment, 3),
            lambda: bench.timed([*command, "-j2"], root, bench.gate_environment, 3),
        ],
    )
    target = SCALING if (os.cpu_count() or 1) >= 2 else None
    note = f"-j1 {statistics.median(one):.2f} s, -j2 {statistics.median(two):.2f} s"
    ratio = statistics.median(one) / statistics.median(two)
    return [Figure("4 commits, -j2 to -j1", ratio, "x", target, lower_is_better=False, note=note)]


def _peer(bench: Bench) -> Path | None:
    """The peer in an environment of its own, or None when it cannot be had."""
    home = bench.folder / "peer"
    try:
        subprocess.run([sys.executable, "-m", "venv", os.fspath(home)], check=True, capture_output=True)
        subprocess.run(
            [os.fspath(home / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", PEER],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return home / "bin" / "fixwitness"


def peer(bench: Bench, say: Callable[[str], None]) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Both tools on every row: the answer and the seconds."""
    program = _peer(bench)
    rows = []
    for number, row in enumerate(ROWS):
        root = bench.toy(f"row{number}", row)
        check = [*bench.gate, "check", "--no-cache", "--json", "--python", sys.executable]
        began = time.perf_counter()
        done = subprocess.run(check, cwd=root, env=bench.gate_environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        (commit,) = json.loads(done.stdout)["commits"]
        verdicts = tuple(sorted(test["verdict"] for test in commit["tests"]))
        theirs, their_seconds = "not to be had", None
        if program is not None:
            theirs, their_seconds = _ask_peer(bench, program, root)
        right = verdicts == row.verdicts and (commit["result"] == "pass") == row.proved
        rows.append(
            {
                "row": row.name,
                "should_be": list(row.verdicts),
                "ours": list(verdicts),
                "result": commit["result"],
                "right": right,
                "seconds": round(seconds, 2),
                "peer": theirs,
                "peer_right": None if program is None else (theirs == "proved") == row.proved,
                "peer_seconds": their_seconds,
            }
        )
        say(f"{row.name}: {', '.join(verdicts)} ({seconds:.1f} s); peer: {theirs}")
    figures = [Figure("rows judged rightly", sum(row["right"] for row in rows), f"/{len(rows)}", len(rows), False)]
    if program is None:
        # It runs the whole command on both sides; less than two plain runs it cannot take.
        figures.append(
            Figure("peer", float("nan"), "", note="could not be installed: at least two plain runs a commit")
        )
        return figures, rows
    wrong = sum(row["peer_right"] is False for row in rows)
    figures.append(Figure("rows judged wrongly by the peer", wrong, f"/{len(rows)}"))
    usual = [row for row in rows if row["should_be"] not in (["hang"], ["crash"], ["flaky"])]
    ratio = statistics.median(row["seconds"] for row in usual) / statistics.median(row["peer_seconds"] for row in usual)
    figures.append(Figure("our seconds to the peer's, median row", ratio, "x", note="3 runs a side against its one"))
    return figures, rows


def _ask_peer(bench: Bench, program: Path, root: Path) -> tuple[str, float]:
    answer = root.parent / f"{root.name}.json"
    command = [
        os.fspath(program),
        "prove",
        "--repo",
        os.fspath(root),
        "--json",
        os.fspath(answer),
        "--timeout",
        str(TIMEOUT_S),
        "--test",
        f"{sys.executable} -m pytest -q",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=root,
        env=bench.environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # Its limit ends the shell that it started, and not what that had started.
        process.wait(timeout=4 * TIMEOUT_S)
        said = {0: "proved", 1: "not proved", 2: "head red"}.get(process.returncode, f"error {process.returncode}")
    except subprocess.TimeoutExpired:
        said = "does not end"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return said, round(time.perf_counter() - began, 2)


def text(report: Report) -> str:
    """The report for a person."""
    lines = []
    for figure in report.figures:
        aim = "" if figure.target is None else f"{'<=' if figure.lower_is_better else '>='} {figure.target:g}"
        mark = {True: "reached", False: "MISSED", None: ""}[figure.reached]
        lines.append(f"{figure.name:<42}{figure.value:>8.3g} {figure.unit:<5}{aim:<8}{mark:<9}{figure.note}".rstrip())
    if report.rows:
        lines += ["", f"{'the new test':<46}{'gate check':<28}{'s':>5}   {PEER:<20}{'s':>5}"]
    for row in report.rows:
        ours = ", ".join(row["ours"]) + ("" if row["right"] else "  WRONG")
        doubt = "" if row["peer_right"] is not False else "  wrong"
        theirs = "" if row["peer_seconds"] is None else f"{row['peer_seconds']:>5.1f}"
        lines.append(f"{row['row']:<46}{ours:<28}{row['seconds']:>5.1f}   {row['peer'] + doubt:<20}{theirs}")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints, and exits with 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", action="append", choices=("speed", "cache", "scaling", "peer"))
    parser.add_argument("--repetitions", type=int, default=9, metavar="N")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    wanted = options.only or ["speed", "cache", "scaling", "peer"]

    def say(line: str) -> None:
        print(f"    {line}", file=sys.stderr, flush=True)

    report = Report()
    folder = Path(tempfile.mkdtemp(prefix="gate-bench-")).resolve()
    try:
        bench = Bench(folder)
        for name, measure in (("speed", speed), ("cache", cached), ("scaling", scaling)):
            if name in wanted:
                report.figures += measure(bench, options.repetitions)
                say(f"{name}: done")
        if "peer" in wanted:
            figures, rows = peer(bench, say)
            report.figures += figures
            report.rows += rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.as_json:
        figures = [{**asdict(figure), "reached": figure.reached} for figure in report.figures]
        print(json.dumps({"figures": figures, "rows": report.rows}, indent=2))
    else:
        print(text(report))
    sys.exit(0 if report.reached else 1)


if __name__ == "__main__":
    main()
