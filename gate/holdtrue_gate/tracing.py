"""Carrying out `gate trace`: reads the source, asks pytest, runs the properties, and applies the rules of `trace`.

Whether a failpoint is reached is told by the product itself: it appends JSON lines `{"point", "event", "pid"}` to the file
that an environment variable names. Tests often give the processes they start a journal of their own; the run has a
temporary folder to itself, and every journal found in it counts.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from holdtrue_gate import project as projects
from holdtrue_gate import trace as rules
from holdtrue_gate.marks import Marks
from holdtrue_gate.project import Collected, Project
from holdtrue_gate.replay import run as replay
from holdtrue_gate.repo import remove_tree
from holdtrue_gate.spec import Spec
from holdtrue_gate.trace import Remark, Trace
from holdtrue_gate.verdict import Verdict, read_run

_PLURALS = {"property": "properties"}
_JOURNAL_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Traced:
    """A trace and what it rests on. `reached` is None when the properties were not run."""

    specs: list[Spec]
    marks: Marks
    trace: Trace
    collected: Collected
    applies: dict[tuple[str, str], bool]
    reached: Counter[str] | None

    @property
    def summary(self) -> str:
        """What was compared, in one line."""
        functions = {name for spec in self.specs for name in spec.enforced_by}
        properties = {node for spec in self.specs for node in spec.properties}
        points = {point for spec in self.specs for point in spec.failpoints}
        bugs = sum(len(spec.sabotage) for spec in self.specs)
        run = "not tried" if self.reached is None else f"reached: {len(points & set(self.reached))} of {len(points)}"
        counts = {
            "invariant": len(self.specs),
            "function": len(functions),
            "property": len(properties),
            "failpoint": len(points),
            "planted bug": bugs,
        }
        told = [
            f"{number} {noun if number == 1 else _PLURALS.get(noun, f'{noun}s')}" for noun, number in counts.items()
        ]
        return f"{', '.join(told)}; failpoints {run}"

    def as_dict(self) -> dict[str, object]:
        """What `--json` prints."""
        return rules.as_dict(
            self.specs, self.marks, self.trace, collected=self.collected, applies=self.applies, reached=self.reached
        )


def run(project: Project, specs: list[Spec], *, with_run: bool = False) -> Traced:
    """Compare specs, source, tests and patches; with `with_run` also run the properties of specs with failpoints."""
    trace, marks = Trace(), project.marks()
    rules.check_specs(specs, trace)
    rules.check_marks(specs, marks, trace)
    applies = rules.check_patches(project.root, specs, project.is_product, trace)
    entries = [node for spec in specs for node in spec.properties]
    entries += [node for spec in specs for bug in spec.sabotage for node in bug.caught_by]
    base = Path(tempfile.mkdtemp(prefix="gate-trace-")).resolve()
    try:
        collected = projects.collect(project.job(project.root, base, entries))
        rules.check_nodes(specs, collected, trace)
        reached = _run_properties(project, specs, base, trace) if with_run else None
    finally:
        remove_tree(base)
    if reached is not None:
        rules.check_reached(specs, marks, reached, trace)
    return Traced(specs, marks, trace, collected, applies, reached)


def _run_properties(project: Project, specs: list[Spec], base: Path, trace: Trace) -> Counter[str]:
    """Run the properties of every spec with failpoints once; how often each point was noted."""
    entries = [node for spec in specs if spec.failpoints for node in spec.properties]
    job = project.job(project.root, base, entries)
    if not job.files:
        return Counter()
    temporary = base / "t"
    journal = temporary / "failpoints.jsonl"
    answer = replay(
        replace(job, temporary=temporary, variables=((project.config.failpoint_journal_env, str(journal)),))
    )
    nodes = answer.record.collected
    for id_ in nodes:
        reading = read_run(answer.record_of(id_), id_, project.layout)
        if reading.verdict in (Verdict.ENVIRONMENT, Verdict.NOT_RUN):
            trace.unknown.append(Remark("property-not-run", f"{id_}: {reading.reason}."))
        elif not reading.green:
            where = f" at {reading.location}" if reading.location else ""
            trace.problems.append(Remark("property-red", f"{id_}: {reading.reason}{where}."))
    if not nodes:
        trace.unknown.append(Remark("property-not-run", "pytest ran none of the properties."))
    return Counter(_noted(temporary))


def _noted(folder: Path) -> Iterator[str]:
    """The failpoints named in every journal below the folder. A journal is a file whose first line says so."""
    for path in sorted(folder.rglob("*")):
        try:
            if path.is_symlink() or not path.is_file() or not 0 < path.stat().st_size <= _JOURNAL_BYTES:
                continue
            with path.open("rb") as file:
                first = file.readline(4096)
                if _point(first) is None:
                    continue
                for line in (first, *file):
                    point = _point(line)
                    if point is not None:
                        yield point
        except OSError:
            continue


def _point(line: bytes) -> str | None:
    if not line.startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        # The last line of a process that was killed inside the write, or a file of another kind.
        return None
    if event.get("event") in ("reached", "fired") and isinstance(event.get("point"), str):
        return str(event["point"])
    return None
