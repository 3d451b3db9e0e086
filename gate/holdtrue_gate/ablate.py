"""Ablation: each hunk of a change taken back alone at the head; do the new tests notice?

A hunk is `pinned` when at least one new test goes red without it, with a verdict that would be proof at the parent, and
`unpinned` when all of them stay green. A hunk whose absence leaves code that cannot work (an import, a name, a signature)
is taken back together with the hunks it belongs to, by symbol first and by neighbourhood then, and what is not needed of
them is put back again; when no set of hunks can be judged it is `inseparable`. Runs are bounded in number and in time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from holdtrue_gate import verdict
from holdtrue_gate.bonds import Bonds
from holdtrue_gate.decision import WithoutHunk, is_evidence
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.hunks import MODULE_MODE, Diff, Hunk, HunkKind, Version
from holdtrue_gate.lab import Lab, reading, results
from holdtrue_gate.plan import Plan
from holdtrue_gate.replay import ReplayResult
from holdtrue_gate.repo import Entry, Listing, Repository
from holdtrue_gate.snapshot import changed_product
from holdtrue_gate.verdict import Judgement, Reading, Verdict

# Trees on disk at one time: enough to keep the workers busy while the next is written.
TREES_AT_ONCE = 6
# Tries to judge one hunk that cannot be judged alone; the last one takes the whole change back.
MAX_TRIES = 5
# After a test hangs or kills the process, the others are run again without it, at most so often.
MAX_DEATHS = 3
# A node that is red because it waits gets this much more than it takes at the head, and at least the floor.
LIMIT_FACTOR, LIMIT_FLOOR_S = 10.0, 20.0

_QUOTED = re.compile(r"['\"]([A-Za-z_][\w.]*)['\"]|\b([A-Za-z_]\w*)\(\)")
_BROKEN_TYPES = frozenset(
    {
        "NameError",
        "UnboundLocalError",
        "ImportError",
        "ModuleNotFoundError",
        "SyntaxError",
        "IndentationError",
        "TabError",
    }
)
_NO_ATTRIBUTE = re.compile(r"has no attribute '")
_OF_NOTHING = re.compile(r"'NoneType' object")
_BINDING = re.compile(
    r"unexpected keyword argument|takes .*positional argument|missing \d+ required|takes no (?:keyword )?arguments"
    r"|got multiple values for|cannot unpack|(?:not enough|too many) values to unpack|__init__\(\)"
)
_NO_SUCH = re.compile(r"no such (?:table|column|function|index)|has no column named")


class Status(StrEnum):
    """What is known of a hunk."""

    PINNED = "pinned"
    UNPINNED = "unpinned"
    INSEPARABLE = "inseparable"
    NOTICED = "noticed"
    HANG = "hang"
    CRASH = "crash"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


JUDGED = frozenset({Status.PINNED, Status.UNPINNED})


@dataclass(frozen=True)
class Cell:
    """One test without one hunk (or group of hunks)."""

    id: str
    verdict: str
    pins: bool
    exception: str | None = None
    location: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The shape in a report; a green test is `passed`."""
        return {
            "id": self.id,
            "outcome": self.verdict,
            "pins": self.pins,
            "exception": self.exception,
            "location": self.location,
        }


@dataclass(frozen=True)
class HunkReport:
    """One hunk, judged. `head` and `parent` are (first line, lines); `group` holds the ids of all hunks that were taken
    back with it, itself included, and is empty when it was taken back alone. `tests` are the ids
    that pin it; `blocks` says that the commit fails for it."""

    id: str
    file: str
    old_file: str
    kind: str
    head: tuple[int, int]
    parent: tuple[int, int]
    status: Status
    reason: str
    tests: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    digest: str = ""
    blocks: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The shape in a report."""
        return {
            "id": self.id,
            "file": self.file,
            "old_file": self.old_file,
            "kind": self.kind,
            "head": list(self.head),
            "parent": list(self.parent),
            "status": str(self.status),
            "reason": self.reason,
            "tests": list(self.tests),
            "group": list(self.group),
            "runs": [cell.as_dict() for cell in self.cells],
            "digest": self.digest,
            "blocks": self.blocks,
        }


@dataclass(frozen=True)
class Table:
    """The tests against the hunks. `tests`: those that were run; `without`: each set of hunks that was, for the rules;
    `runs`: how many trees were tried."""

    hunks: tuple[HunkReport, ...] = ()
    tests: tuple[str, ...] = ()
    without: tuple[WithoutHunk, ...] = ()
    runs: int = 0

    @property
    def result(self) -> str:
        """`pass` when every hunk that could be judged is pinned, `fail` when one is not, `cannot-judge` when none could."""
        states = {hunk.status for hunk in self.hunks} & JUDGED
        if Status.UNPINNED in states:
            return "fail"
        return "pass" if states else "cannot-judge"


# --- the files of a change


def versions(repository: Repository, listing: Listing, paths: Collection[str]) -> dict[str, Version]:
    """The files of a listing among `paths`."""
    found = {}
    for path in paths:
        entry = listing.get(path)
        if entry is not None:
            data = entry.sha.encode() if entry.mode == MODULE_MODE else repository.blob(entry.sha)
            found[path] = Version(entry.mode, data)
    return found


def entry_of(repository: Repository, version: Version) -> Entry:
    """A file of a tree with these bytes."""
    if version.mode == MODULE_MODE:
        return Entry(version.mode, version.data.decode())
    return Entry(version.mode, repository.hold(version.data))


def relisted(
    repository: Repository, listing: Listing, prefix: str, changes: Mapping[str, Version | None]
) -> dict[str, Entry]:
    """A whole listing with some of the project's files changed; None takes a file away."""
    made = dict(listing)
    for path, version in changes.items():
        if version is None:
            made.pop(prefix + path, None)
        else:
            made[prefix + path] = entry_of(repository, version)
    return made


# --- one tree


Readings = Mapping[str, tuple[Reading, ...]]


def broken(found: Reading) -> bool:
    """Whether a red says that the code does not hang together, and not that it does the wrong thing."""
    if found.verdict is Verdict.MISSING_API:
        return True
    if found.verdict is Verdict.ENVIRONMENT:
        return found.exception in _BROKEN_TYPES
    if found.exception is None or found.verdict in (Verdict.OWN_ASSERTION, Verdict.DECLARED_EXCEPTION, Verdict.SUSPECT):
        return False
    if found.exception in _BROKEN_TYPES:
        return True
    if found.exception == "AttributeError":
        return bool(_NO_ATTRIBUTE.search(found.message)) and not _OF_NOTHING.search(found.message)
    if found.exception in ("TypeError", "ValueError"):
        return bool(_BINDING.search(found.message))
    return bool(_NO_SUCH.search(found.message))


def missing_names(found: Reading) -> set[str]:
    """The names that a broken reading complains of."""
    names = {name.rpartition(".")[2] for pair in _QUOTED.findall(found.message) for name in pair if name}
    return names | ({found.symbol.rpartition(".")[2]} if found.symbol else set())


def limit_of(heads: Readings) -> float:
    """Seconds that a test may take without a hunk, in coarse steps: a kept replay is known again by its limit too."""
    slowest = max((run.seconds for runs in heads.values() for run in runs), default=0.0)
    limit_s = LIMIT_FLOOR_S
    while limit_s < LIMIT_FACTOR * slowest:
        limit_s *= 2
    return limit_s


@dataclass
class _Run:
    """A tree at work."""

    side: str
    ids: list[str]
    first: list[Future[ReplayResult]]
    more: list[tuple[list[str], list[Future[ReplayResult]]]]


class Bench:
    """Runs tests on trees that differ from a side of a lab in a few files. Each tree lives as long as its runs."""

    def __init__(
        self, lab: Lab, repository: Repository, plan: Plan, listing: Listing, heads: Readings, name: str = "without"
    ) -> None:
        self._lab, self._repository, self._plan, self._listing, self._heads = lab, repository, plan, listing, heads
        self._limit_s = limit_of(heads)
        self._name = name
        self.runs = 0

    def _repeats(self, id_: str) -> int:
        declared = self._plan.expectation_of(id_).detects
        return declared[1] if declared else 1

    def _start(self, changes: Mapping[str, Version | None], repeats: int) -> _Run | None:
        self.runs += 1
        side = f"{self._name}{self.runs}"
        self._lab.add(side, relisted(self._repository, self._listing, self._plan.prefix, changes))
        try:
            self._lab.check(side)
        except CannotJudgeError:
            # A file on one side and a folder on the other: these hunks do not exist one without the other.
            self._lab.drop(side)
            return None
        ids = list(self._heads)
        first = self._submit(side, ids)
        more = []
        for number in range(1, max([repeats, *(self._repeats(id_) for id_ in ids)])):
            again = [id_ for id_ in ids if number < max(repeats, self._repeats(id_))]
            more.append((again, self._submit(side, again)))
        return _Run(side, ids, first, more)

    def _submit(self, side: str, ids: Sequence[str]) -> list[Future[ReplayResult]]:
        return self._lab.submit(side, ids=ids, limit_s=self._limit_s, rerun=False)

    def _finish(self, run: _Run) -> Readings:
        try:
            found = {id_: [reading(id_, results(run.first), self._plan)] for id_ in run.ids}
            for ids, futures in run.more:
                answers = results(futures)
                for id_ in ids:
                    found[id_].append(reading(id_, answers, self._plan))
            # What a dead process kept from running is run again without the test that it died in.
            for _ in range(MAX_DEATHS):
                died = any(runs[0].verdict in (Verdict.HANG, Verdict.CRASH) for runs in found.values())
                left = [id_ for id_, runs in found.items() if runs[0].verdict is Verdict.NOT_RUN]
                if not (died and left):
                    break
                answers = results(self._submit(run.side, left))
                again = {id_: reading(id_, answers, self._plan) for id_ in left}
                if all(one.verdict is Verdict.NOT_RUN for one in again.values()):
                    break
                found |= {id_: [one] for id_, one in again.items()}
            return {id_: tuple(runs) for id_, runs in found.items()}
        finally:
            self._lab.drop(run.side)

    def run(self, sets: Sequence[Mapping[str, Version | None]], repeats: int = 1) -> Iterator[Readings | None]:
        """The readings on each tree, in order; None where the tree cannot exist."""
        waiting: deque[_Run | None] = deque()
        for changes in sets:
            if len(waiting) >= TREES_AT_ONCE:
                run = waiting.popleft()
                yield self._finish(run) if run is not None else None
            waiting.append(self._start(changes, repeats))
        while waiting:
            run = waiting.popleft()
            yield self._finish(run) if run is not None else None


# --- one set of hunks


@dataclass(frozen=True)
class _Outcome:
    """What the tests say of one set of hunks."""

    status: Status
    readings: Readings = field(default_factory=dict)
    pins: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    reason: str = ""


def judged(heads: Readings, found: Readings | None, plan: Plan, likely: Collection[str] = ()) -> _Outcome:
    """The rule for one set of hunks: from what each test did without them to a status. `likely`: names that may be gone."""
    if found is None:
        return _Outcome(Status.INSEPARABLE, reason="the files cannot be laid out without it")
    judgements = {id_: verdict.judge(id_, heads[id_], runs, plan.expectation_of(id_)) for id_, runs in found.items()}
    red = {id_: j for id_, j in judgements.items() if j.verdict is not Verdict.VACUOUS}
    if not red:
        return _Outcome(Status.UNPINNED, found, reason="every new test passes without it")
    pins = tuple(sorted(id_ for id_, j in red.items() if j.proof))
    torn = {id_: run for id_ in red for run in found[id_] if broken(run)}
    names = {name for run in torn.values() for name in missing_names(run)} | set(likely)
    # A test that itself uses a name which is gone says nothing against another one's assertion; product code that does, may
    # have caused it.
    inside = {id_: run for id_, run in torn.items() if run.verdict is not Verdict.MISSING_API}
    if pins and not inside and not likely:
        return _Outcome(Status.PINNED, found, pins, reason=_told(judgements[pins[0]]))
    if torn or likely:
        what = next(iter(torn.values()), None)
        why = f"{what.exception}: {_short(what.message)}" if what and what.exception else _listed(likely)
        reason = f"the code does not work without it ({why})"
        return _Outcome(Status.INSEPARABLE, found, names=frozenset(names), reason=reason)
    for state, kind in ((Status.HANG, Verdict.HANG), (Status.CRASH, Verdict.CRASH)):
        first = next((j for j in red.values() if j.verdict is kind), None)
        if first is not None:
            return _Outcome(state, found, reason=f"{first.id} {first.reason}, which no finding declares")
    first = next(iter(red.values()))
    if all(j.verdict in (Verdict.ENVIRONMENT, Verdict.NOT_RUN) for j in red.values()):
        return _Outcome(Status.UNKNOWN, found, reason=f"{first.id}: {first.reason}")
    first = next(j for j in red.values() if j.verdict not in (Verdict.ENVIRONMENT, Verdict.NOT_RUN))
    return _Outcome(
        Status.NOTICED, found, reason=f"{first.id} is red without it, and not by its own assertion ({first.verdict})"
    )


def _told(judgement: Judgement) -> str:
    where = f" at {judgement.location}" if judgement.location else ""
    return f"{judgement.id} fails with its own assertion{where}" if judgement.exception else judgement.reason


def _short(text: str) -> str:
    line = next((part for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= 120 else line[:119] + "…"


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:3])


# --- the table


class _Search:
    """The state of one ablation: which sets were tried, and which each hunk waits for."""

    def __init__(
        self, bonds: Bonds, among: Sequence[int], bench: Bench, heads: Readings, plan: Plan, budget: int
    ) -> None:
        self._bonds, self._among, self._bench, self._heads, self._plan = bonds, among, bench, heads, plan
        self._everything = frozenset(among)
        self._budget = budget
        self.tried: dict[frozenset[int], _Outcome] = {}

    def know(self, found: Readings) -> None:
        """What the tests do without the whole change is known: the parent with these tests is that tree."""
        self.tried[self._everything] = judged(self._heads, found, self._plan)

    def try_(self, sets: Collection[frozenset[int]], progress: Callable[[str], None]) -> None:
        """Runs the sets that were not tried yet, as far as the budget goes."""
        fresh = [chosen for chosen in dict.fromkeys(sets) if chosen not in self.tried]
        for chosen in [chosen for chosen in fresh if self._bonds.certain(chosen)]:
            missing = sorted({item.name for item in self._bonds.certain(chosen)})
            self.tried[chosen] = _Outcome(
                Status.INSEPARABLE,
                names=frozenset(missing),
                reason=f"the code does not work without it ({_listed(missing)})",
            )
            fresh.remove(chosen)
        fresh = fresh[: max(0, self._budget - self._bench.runs)]
        trees = [self._bonds.diff.reversed(chosen) for chosen in fresh]
        for number, (chosen, found) in enumerate(zip(fresh, self._bench.run(trees), strict=True), 1):
            likely = frozenset[str]() if chosen == self._everything else self._bonds.likely(chosen)
            self.tried[chosen] = judged(self._heads, found, self._plan, likely)
            progress(f"hunks {number}/{len(fresh)}")

    def wider(self, chosen: frozenset[int], tries: int) -> frozenset[int]:
        """The next set to try for a hunk whose last one could not be judged."""
        if tries >= MAX_TRIES - 1:
            return self._everything
        more = set(self._bonds.mentioning(self.tried[chosen].names, chosen, self._among))
        if not more:
            more = set(self._bonds.near(chosen, self._among, 2**tries))
        return self._bonds.closed(chosen | more, self._among) if more else self._everything

    def narrowed(self, hunk: int, chosen: frozenset[int], progress: Callable[[str], None]) -> frozenset[int]:
        """A smaller set that holds the hunk and can still be judged: halves of the others are put back, as in ddmin
        (Zeller and Hildebrandt 2002), as long as the budget goes."""
        core = self._bonds.closed([hunk], self._among)
        parts = 2
        while chosen - core and len(chosen - core) >= 1 and self._bench.runs < self._budget:
            extra = sorted(chosen - core)
            parts = min(parts, len(extra))
            size = -(-len(extra) // parts)
            pieces = [frozenset(extra[at : at + size]) for at in range(0, len(extra), size)]
            candidates = [self._bonds.closed(chosen - piece, self._among) for piece in pieces]
            candidates = [candidate for candidate in candidates if candidate < chosen]
            self.try_(candidates, progress)
            fit = [c for c in candidates if c in self.tried and self.tried[c].status is not Status.INSEPARABLE]
            if fit:
                chosen, parts = min(fit, key=lambda c: (len(c), sorted(c))), max(parts - 1, 2)
            elif parts < len(extra):
                parts = min(parts * 2, len(extra))
            else:
                break
        return chosen


def table(
    lab: Lab,
    repository: Repository,
    plan: Plan,
    heads: Readings,
    *,
    whole: Readings | None = None,
    unproved: Sequence[Judgement] = (),
    progress: Callable[[str], None] = lambda _text: None,
) -> Table:
    """Takes back each hunk of the plan's product change at the head and runs the tests of `heads` without it.

    `heads`: their readings at the head, all green. `whole`: their readings at the parent, when they are known.
    `unproved`: tests of which the table may become the proof: what speaks for one is run as often as a proof is. Raises
    CannotJudgeError.
    """
    paths = changed_product(plan)
    parent, head = (versions(repository, side, paths) for side in (plan.base, plan.head))
    diff = Diff(parent, head)
    others = set(plan.head) - set(head)
    bonds = Bonds(diff, parent, head, others)
    silent = {hunk.number: why for hunk in diff.hunks if (why := bonds.silent(hunk))}
    among = [hunk.number for hunk in diff.hunks if hunk.number not in silent]
    if not heads:
        why = "no new test is green at the commit"
        return Table(tuple(_report(h, _Outcome(Status.UNKNOWN, reason=why), (), diff) for h in diff.hunks))
    bench = Bench(lab, repository, plan, plan.tree("head"), heads)
    search = _Search(bonds, among, bench, heads, plan, budget=3 * len(among) + 8)
    if whole is not None and set(whole) == set(heads) and all(whole.values()):
        search.know(whole)
    sets = {number: bonds.closed([number], among) for number in among}
    for tries in range(MAX_TRIES):
        search.try_(list(sets.values()), progress)
        waiting = [n for n in among if (o := search.tried.get(sets[n])) and o.status is Status.INSEPARABLE]
        waiting = [n for n in waiting if len(sets[n]) < len(among)]
        if not waiting:
            break
        for number in waiting:
            sets[number] = search.wider(sets[number], tries)
    for number in among:
        outcome = search.tried.get(sets[number])
        if outcome is not None and outcome.status is not Status.INSEPARABLE:
            sets[number] = search.narrowed(number, sets[number], progress)
    reports = []
    for hunk in diff.hunks:
        if hunk.number in silent:
            reports.append(_report(hunk, _Outcome(Status.SKIPPED, reason=silent[hunk.number]), (), diff))
            continue
        chosen = sets[hunk.number]
        outcome = search.tried.get(chosen) or _Outcome(
            Status.INSEPARABLE, reason=f"cannot be judged within {bench.runs} runs"
        )
        if outcome.status is Status.UNPINNED and bonds.only_old(chosen):
            outcome = replace(outcome, status=Status.SKIPPED, reason="only a definition that nothing uses any more")
        reports.append(_report(hunk, outcome, chosen, diff))
    tried = sorted(search.tried.items(), key=lambda item: (len(item[0]), sorted(item[0])))
    without = {
        chosen: WithoutHunk(
            hunks=tuple(f"H{number}" for number in sorted(chosen)),
            where=_where(diff, chosen),
            readings=outcome.readings,
            vanished=bonds.vanished(chosen),
            only_new=bonds.only_new(chosen),
            sound=outcome.status is Status.PINNED,
        )
        for chosen, outcome in tried
    }
    for test in unproved:
        expected = plan.expectation_of(test.id)
        speaking = next((chosen for chosen, one in without.items() if is_evidence(test, one, expected)), None)
        if speaking is not None and plan.config.runs > 1:
            # One run made it a candidate; a proof has to be the same in every run.
            again = next(bench.run([diff.reversed(speaking)], plan.config.runs))
            without[speaking] = replace(without[speaking], readings=again or {})
    return Table(tuple(reports), tuple(sorted(heads)), tuple(without.values()), bench.runs)


def _where(diff: Diff, chosen: Collection[int]) -> str:
    return ", ".join(place(hunk) for hunk in diff.hunks if hunk.number in chosen)


def place(hunk: Hunk | HunkReport) -> str:
    """A hunk as a person finds it at the head: `shop.py:10-12`."""
    if hunk.kind is not HunkKind.LINES and hunk.kind != HunkKind.LINES:
        return hunk.file
    first, count = hunk.head
    return f"{hunk.file}:{first}" + (f"-{first + count - 1}" if count > 1 else "")


def _report(hunk: Hunk, outcome: _Outcome, chosen: Collection[int], diff: Diff) -> HunkReport:
    group = tuple(f"H{number}" for number in sorted(chosen)) if len(chosen) > 1 else ()
    reason = outcome.reason
    if group and outcome.status not in (Status.INSEPARABLE, Status.SKIPPED):
        others = ", ".join(place(other) for other in diff.hunks if other.number in chosen and other is not hunk)
        reason += f" (taken back together with {others})"
    cells = tuple(
        Cell(
            id_,
            "passed" if all(run.green for run in runs) else str(_red(runs).verdict),
            id_ in outcome.pins,
            _red(runs).exception,
            _red(runs).location,
        )
        for id_, runs in sorted(outcome.readings.items())
        if runs
    )
    return HunkReport(
        id=hunk.id,
        file=hunk.file,
        old_file=hunk.old_file,
        kind=str(hunk.kind),
        head=hunk.head,
        parent=hunk.parent,
        status=outcome.status,
        reason=reason,
        tests=outcome.pins,
        group=group,
        cells=cells,
        digest=hunk.digest,
    )


def _red(runs: Sequence[Reading]) -> Reading:
    return next((run for run in runs if not run.green), runs[0])
