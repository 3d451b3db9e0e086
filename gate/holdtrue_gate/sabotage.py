"""`gate sabotage`: plant each bug of the specs in a private copy of the project and see whether its tests notice.

A planted bug is caught when, in every entry of its `caught_by`, at least one test that passes without the patch fails with
it in an assertion of its own. An ImportError, a broken fixture, a hang or an assertion of the product is not a catch: a
test that fails for such a reason says nothing about the promise. What could not be tried is `cannot-judge`, never caught.
A sample tries one planted bug of each invariant; which one, the commit or a seed decides.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdtrue_gate import patches, process, treedigest, workcopy
from holdtrue_gate.project import Project
from holdtrue_gate.replay import ReplayJob
from holdtrue_gate.replay import run as replay
from holdtrue_gate.repo import Repository, remove_tree
from holdtrue_gate.spec import Sabotage, Spec, find, load
from holdtrue_gate.trace import selects
from holdtrue_gate.treedigest import Subject
from holdtrue_gate.verdict import Layout, Reading, Verdict, read_run

SCHEMA = "holdtrue.gate.sabotage/1"

CAUGHT = "caught"
NOT_CAUGHT = "not-caught"
CANNOT_JUDGE = "cannot-judge"

# `suspect` is an own assertion of a test that reads product source. Of a new test that is a doubt, because it may only look
# for the name that a fix brings; of a property that searches the source for a forbidden call it is its work.
_OWN = frozenset({Verdict.OWN_ASSERTION, Verdict.SUSPECT})

Readings = Mapping[str, Reading]


@dataclass(frozen=True)
class Catch:
    """A test that noticed, and the line of its assertion."""

    node: str
    location: str
    exception: str

    def as_dict(self) -> dict[str, str]:
        return {"id": self.node, "location": self.location, "exception": self.exception}


@dataclass(frozen=True)
class Outcome:
    """What became of one planted bug. `why` is empty when it was caught."""

    invariant: str
    bug: str
    status: str
    catches: tuple[Catch, ...] = ()
    why: str = ""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        return {
            "invariant": self.invariant,
            "name": self.bug,
            "status": self.status,
            "caught_by": [catch.as_dict() for catch in self.catches],
            "why": self.why,
            "seconds": round(self.seconds, 2),
        }


def result(outcomes: list[Outcome]) -> str:
    """`pass`, `fail` or `cannot-judge` for all of them; no outcome at all proves nothing."""
    states = {outcome.status for outcome in outcomes}
    if NOT_CAUGHT in states:
        return "fail"
    return "pass" if states == {CAUGHT} else "cannot-judge"


@dataclass(frozen=True)
class Sample:
    """One planted bug of each invariant, by `seed`: a number given, else the commit, else the digest of the files. `of`
    is how many there are in all, and is known once the specs are read."""

    seed: str = ""
    of: int = 0

    def as_dict(self) -> dict[str, object]:
        return {"seed": self.seed, "of": self.of}


def pick(planted: Sequence[tuple[Spec, Sabotage]], seed: str) -> list[tuple[Spec, Sabotage]]:
    """One bug of each spec, the same for the same seed; over many seeds each of them. Pure."""
    bugs: dict[str, list[tuple[Spec, Sabotage]]] = {}
    for spec, bug in planted:
        bugs.setdefault(spec.id, []).append((spec, bug))
    return [found[_number(f"{seed}\0{id_}") % len(found)] for id_, found in bugs.items()]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def as_dict(outcomes: list[Outcome], subject: Subject | None = None, sample: Sample | None = None) -> dict[str, object]:
    """What `--json` prints."""
    return {
        "schema": SCHEMA,
        "result": result(outcomes),
        "subject": subject.as_dict() if subject else None,
        "sample": sample.as_dict() if sample else None,
        "sabotage": [outcome.as_dict() for outcome in outcomes],
    }


def judge(spec: Spec, bug: Sabotage, without: Readings, under: Readings) -> Outcome:
    """The rule, on what each test did without the patch and under it. Pure."""
    doubt = baseline_doubt(bug, without)
    if doubt:
        return Outcome(spec.id, bug.name, CANNOT_JUDGE, why=doubt)
    catches: list[Catch] = []
    missed: list[str] = []
    for entry in bug.caught_by:
        readings = {node: under[node] for node in _green(entry, without) if node in under}
        own = [node for node, reading in readings.items() if reading.verdict in _OWN]
        if own:
            reading = readings[own[0]]
            catches.append(Catch(own[0], reading.location or "", reading.exception or ""))
            continue
        for node, reading in readings.items():
            # An import that fails under the patch only is the patch's doing; with no exception pytest itself failed.
            if reading.verdict is Verdict.ENVIRONMENT and reading.exception is None:
                return Outcome(spec.id, bug.name, CANNOT_JUDGE, tuple(catches), f"{node}: {reading.reason}")
        missed.append(_how_missed(entry, readings))
    if missed:
        return Outcome(spec.id, bug.name, NOT_CAUGHT, tuple(catches), "; ".join(missed))
    return Outcome(spec.id, bug.name, CAUGHT, tuple(catches))


def baseline_doubt(bug: Sabotage, without: Readings) -> str:
    """Why nothing can be said about this bug: its tests do not all pass without the patch. "" when they do."""
    for entry in bug.caught_by:
        chosen = {node: reading for node, reading in without.items() if selects(entry, node)}
        red = [node for node, reading in chosen.items() if not reading.green and reading.verdict is not Verdict.NOT_RUN]
        if red:
            return f"without the patch {red[0]} is not green: {_told(chosen[red[0]])}"
        if not any(reading.green for reading in chosen.values()):
            skipped = next(iter(chosen.values()), None)
            return f"no test of {entry} ran{f': it {skipped.reason}' if skipped else ': pytest collects none'}"
    return ""


def _green(entry: str, without: Readings) -> list[str]:
    return [node for node, reading in without.items() if selects(entry, node) and reading.green]


def _how_missed(entry: str, readings: Readings) -> str:
    red = {node: reading for node, reading in readings.items() if not reading.green}
    if not red:
        number = len(readings)
        return f"{entry}: {'it passes' if number == 1 else f'all {number} tests pass'} with the bug in place"
    node, reading = next(iter(red.items()))
    return f"{node} fails, but not in an assertion of its own: {_told(reading)}"


def _told(reading: Reading) -> str:
    if reading.exception is None:
        return f"{reading.verdict}, {reading.reason}{f': {reading.message}' if reading.message else ''}"
    return f"{reading.verdict} ({reading.exception}){f' at {reading.location}' if reading.location else ''}"


@dataclass(frozen=True)
class Progress:
    """What a run tells while it works: what begins now, as number `step` of `steps`."""

    message: str
    step: int
    steps: int


def run(
    project: Project,
    ids: tuple[str, ...] = (),
    *,
    revision: str | None = None,
    progress: Callable[[Progress], None] = lambda _progress: None,
    seen: Callable[[Subject], None] = lambda _subject: None,
    sample: Sample | None = None,
    sampled: Callable[[Sample], None] = lambda _sample: None,
    jobs: int = 1,
) -> list[Outcome]:
    """Try every planted bug of the invariants named (of all, when none is), first all their tests without any patch.

    Specs, patches, tests and product all come from one copy: of the working tree, or of a commit; `seen` is told which.
    With `sample` one bug of each invariant is tried; `sampled` is told by which seed and of how many. `jobs` bugs are
    tried at a time: where tests measure time, or race on purpose, others beside them can change what they do.
    Raises GateError.
    """
    with _copies(project, revision) as (pristine, scratch):
        subject = treedigest.subject(project.root, pristine.root, revision)
        seen(subject)
        specs = load(pristine.root)
        chosen = [find(specs, id_) for id_ in ids] or specs
        planted = [(spec, bug) for spec in chosen for bug in spec.sabotage]
        if sample is not None:
            seed = sample.seed or subject.commit or subject.sha256
            sampled(Sample(seed, len(planted)))
            planted = pick(planted, seed)
        steps = len(planted) + 1
        progress(Progress("the tests without any patch", 0, steps))
        without = _without_patch(pristine, scratch, [entry for _, bug in planted for entry in bug.caught_by])
        owner = secrets.token_hex(8)

        def attempt(step: int, spec: Spec, bug: Sabotage) -> Outcome:
            progress(Progress(f"{spec.id} {bug.name}", step, steps))
            started = time.monotonic()
            outcome = _try(pristine, scratch / str(step), spec, bug, without, owner)
            return replace(outcome, seconds=time.monotonic() - started)

        tasks = [(step, spec, bug) for step, (spec, bug) in enumerate(planted, start=1)]
        if jobs == 1:
            return [attempt(*task) for task in tasks]
        with ThreadPoolExecutor(jobs) as executor:
            futures = [executor.submit(attempt, *task) for task in tasks]
            try:
                return [future.result() for future in futures]
            except BaseException:
                process.stop(owner)
                for future in futures:
                    future.cancel()
                raise


def read(job: ReplayJob, layout: Layout) -> dict[str, Reading]:
    """How each chosen test did. What could not be collected is read for the entry that asked for it."""
    if not job.files:
        return {}
    answer = replay(job)
    nodes = [*answer.record.collected]
    # Nothing of a file that cannot be imported is collected: it is read under the names that the caller asked for.
    nodes += [entry for entry in (*job.ids, *job.prefixes) if not any(selects(entry, node) for node in nodes)]
    return {id_: read_run(answer.record_of(id_), id_, layout) for id_ in dict.fromkeys(nodes)}


def _without_patch(pristine: Project, scratch: Path, entries: list[str]) -> dict[str, Reading]:
    tree = scratch / "without"
    workcopy.copy_of_copy(pristine.root, tree)
    try:
        return read(pristine.job(tree, scratch, entries), pristine.layout)
    finally:
        remove_tree(tree)


def _try(pristine: Project, scratch: Path, spec: Spec, bug: Sabotage, without: Readings, owner: str) -> Outcome:
    patch = pristine.root / bug.patch
    doubt = f"there is no file {bug.patch}" if not patch.is_file() else baseline_doubt(bug, without)
    if not doubt:
        foreign = [file for file in patches.touched_files(patch) if not pristine.is_product(file)]
        doubt = f"{bug.patch} changes {', '.join(foreign)}, which is no product file" if foreign else ""
    if doubt:
        return Outcome(spec.id, bug.name, CANNOT_JUDGE, why=doubt)
    tree = scratch / "patched"
    scratch.mkdir()
    workcopy.copy_of_copy(pristine.root, tree)
    try:
        reason = patches.apply(tree, patch)
        if reason:
            return Outcome(spec.id, bug.name, CANNOT_JUDGE, why=f"{bug.patch} does not apply: {reason}")
        green = tuple(dict.fromkeys(node for entry in bug.caught_by for node in _green(entry, without)))
        job = replace(pristine.job(tree, scratch, bug.caught_by), prefixes=(), ids=green, owner=owner)
        under = _under_patch(job, pristine.layout, one_is_enough=len(bug.caught_by) == 1)
        return judge(spec, bug, without, under)
    finally:
        remove_tree(scratch)


def _under_patch(job: ReplayJob, layout: Layout, *, one_is_enough: bool) -> dict[str, Reading]:
    """How the tests do under the patch; where one catch is enough, the rest is not run after it."""
    if not one_is_enough:
        return read(job, layout)
    first = read(replace(job, stop_at_red=True), layout)
    ran = {node: reading for node, reading in first.items() if reading.verdict is not Verdict.NOT_RUN}
    if any(reading.verdict in _OWN for reading in ran.values()):
        return ran
    rest = tuple(node for node in job.ids if node not in ran)
    # The first red was no catch; one of the tests after it may still be.
    return ran | read(replace(job, ids=rest), layout) if rest and ran else first


@contextmanager
def _copies(project: Project, revision: str | None) -> Iterator[tuple[Project, Path]]:
    """A pristine copy of the project and a scratch folder beside it, both removed at the end."""
    base = Path(tempfile.mkdtemp(prefix="gate-sabotage-")).resolve()
    try:
        scratch, copy = base / "scratch", base / "pristine"
        scratch.mkdir()
        with Repository(project.root) as repository:
            if revision is None:
                workcopy.copy_working_tree(project.root, copy)
            else:
                workcopy.copy_revision(repository, revision, copy)
        yield Project.at(copy, checkout=project.checkout), scratch
    finally:
        remove_tree(base)
