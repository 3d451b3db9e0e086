"""What the parent's tests say of the commit's product: a test that was changed or deleted is run once more as it was.

Red there by its own assertion, green at the parent, and green in its new version: the commit changed what is expected.
Red because a name is missing: its interface changed. Nothing here judges a commit; that is the decision's rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdtrue_gate.demands import Check
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.lab import Lab, reading, results
from holdtrue_gate.plan import Plan
from holdtrue_gate.repo import Entry, Repository
from holdtrue_gate.syntax import snippet
from holdtrue_gate.verdict import Judgement, Reading, Verdict
from holdtrue_gate.weaken import Comparison, Pair, Weakening, ordered

SIDE = "expected"

# No word about the test: neither that it holds nor that it does not.
_SILENT = frozenset({Verdict.ENVIRONMENT, Verdict.NOT_RUN, Verdict.FLAKY})
_UNSOUND = _SILENT | {Verdict.HANG, Verdict.CRASH}


@dataclass(frozen=True)
class Answer:
    """The findings in view of what the old tests did, what could not be asked, and whether the runs may be kept."""

    weakened: tuple[Weakening, ...]
    notes: tuple[str, ...] = ()
    sound: bool = True


@dataclass(frozen=True)
class Old:
    """What one old test did on the commit's product, by node id. `red`: twice red there and green at the parent."""

    readings: Mapping[str, Reading] = field(default_factory=dict)
    red: Mapping[str, Reading] = field(default_factory=dict)


def listing(plan: Plan) -> dict[str, Entry]:
    """The whole tree: the commit with the test side of its parent."""
    rules = plan.config.test_rules
    support = {
        path
        for path, entry in plan.overlay.items()
        if not rules.matches(path) and entry == plan.head.get(path) and entry != plan.base.get(path)
    }
    inner = {path: entry for path, entry in plan.head.items() if not rules.matches(path) and path not in support}
    inner |= {path: entry for path, entry in plan.base.items() if rules.matches(path) or path in support}
    return {**plan.around_head, **{plan.prefix + path: entry for path, entry in inner.items()}}


def _targets(plan: Plan, found: Comparison) -> dict[str, Pair | None]:
    """Old node ids without parameters: what the comparison names, and tests whose fixtures changed."""
    targets: dict[str, Pair | None] = {pair.old_id: pair for pair in found.changed}
    for id_ in (*plan.choice.changed, *plan.choice.widened):
        if id_.partition("::")[0] in plan.base and "::" in id_:
            targets.setdefault(id_, None)
    return targets


def _function(id_: str) -> str:
    file, _, rest = id_.partition("::")
    return f"{file}::{rest.partition('[')[0]}"


def unasked(found: Comparison) -> Answer:
    """The findings alone, with the files that could not be compared."""
    unread = [
        f"{path} is no valid Python for this interpreter, so its tests were not compared" for path in found.unread
    ]
    return Answer(found.weakened, tuple(unread))


def ask(lab: Lab, repository: Repository, plan: Plan, found: Comparison, tests: Sequence[Judgement]) -> Answer:
    """Runs the old versions and says what they add to the findings. Raises CannotJudgeError.

    Without a product change they have nothing to say, and those of a merge belong to its branches.
    """
    targets = _targets(plan, found)
    if not targets or not plan.product or len(plan.commit.parents) != 1:
        return unasked(found)
    lab.add(SIDE, listing(plan))
    try:
        lab.check(SIDE)
    except CannotJudgeError as error:
        note = f"the parent's tests could not be laid over the commit: {error.message}"
        return Answer(found.weakened, (*unasked(found).notes, note), False)
    first = results(lab.submit(SIDE, prefixes=sorted(targets)))
    ids = [id_ for result in first for id_ in result.collected if _function(id_) in targets]
    readings = {id_: reading(id_, first, plan) for id_ in ids}
    red = sorted(id_ for id_, one in readings.items() if not one.green)
    confirmed: dict[str, Reading] = {}
    if red:
        before, again = lab.submit("base", ids=red), lab.submit(SIDE, ids=red)
        at_parent, twice = results(before), results(again)
        for id_ in red:
            # What was red before, or is red only now and then, was not made red by the commit.
            if reading(id_, at_parent, plan).green and not reading(id_, twice, plan).green:
                confirmed[id_] = readings[id_]
    by_function: dict[str, dict[str, Reading]] = defaultdict(dict)
    for id_, one in readings.items():
        by_function[_function(id_)][id_] = one
    old = {
        name: Old(by_function.get(name, {}), {i: r for i, r in confirmed.items() if _function(i) == name})
        for name in targets
    }
    # What is chosen for its changed source alone may be a helper, which is never collected.
    silent = sorted(name for name, one in old.items() if not one.readings and targets[name] is not None)
    silent += sorted({_function(i) for i, r in confirmed.items() if r.verdict in _SILENT})
    text = {name: _line_of(repository, plan, one) for name, one in old.items()}
    weakened = concluded(found.weakened, targets, old, text, {t.id for t in tests if t.verdict is Verdict.HEAD_RED})
    notes = (*unasked(found).notes, *([_note(silent)] if silent else []))
    sound = not silent and all(one.verdict not in _UNSOUND for one in readings.values())
    return Answer(weakened, notes, sound)


def _note(silent: Sequence[str]) -> str:
    shown = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")
    return f"the parent's version could not be run on this product: {shown}"


def _line_of(repository: Repository, plan: Plan, old: Old) -> str:
    """The source line at which an old test failed: its own, or one of the commit's product."""
    for one in old.red.values():
        file, _, line = (one.location or "").rpartition(":")
        side = plan.base if plan.config.test_rules.matches(file) else plan.head
        source = repository.text(side, file) if file else None
        lines = source.decode("utf-8", "replace").splitlines() if source is not None else []
        if line.isdigit() and 0 < int(line) <= len(lines):
            return snippet(lines[int(line) - 1])
    return ""


def _failed_check(pair: Pair | None, one: Reading) -> Check | None:
    line = (one.location or "").rpartition(":")[2]
    if pair is None or not line.isdigit() or not (one.location or "").startswith(pair.path + ":"):
        return None
    return next((c for c in pair.old.checks if c.line <= int(line) <= c.last_line), None)


def _counterpart(pair: Pair | None, failed: Check | None) -> Check | None:
    if pair is None or pair.new is None or failed is None:
        return None
    old_forms = {check.form for check in pair.old.checks}
    gained = [check for check in pair.new.checks if check.form not in old_forms]
    for same in (
        lambda c: bool(c.strong & failed.strong),
        lambda c: bool(c.weak & failed.weak),
        lambda c: c.outline == failed.outline,
    ):
        found = next((check for check in gained if same(check)), None)
        if found is not None:
            return found
    return None


def concluded(
    weakened: Sequence[Weakening],
    targets: Mapping[str, Pair | None],
    old: Mapping[str, Old],
    lines: Mapping[str, str],
    head_red: set[str],
) -> tuple[Weakening, ...]:
    """The findings with what the old tests did: a pure rule.

    `targets`: the old tests by node id; `lines`: the source line at which each failed; `head_red`: node ids that are red
    at the commit itself.
    """
    told = [_revised(item, old) for item in weakened]
    for name, pair in targets.items():
        if (pair is not None and pair.new is None) or not old[name].red:
            continue
        new_id = pair.new_id if pair is not None else name
        if any(_function(id_) == new_id for id_ in head_red):
            continue
        own = {id_: one for id_, one in old[name].red.items() if one.verdict is Verdict.OWN_ASSERTION}
        speaking = own or {id_: one for id_, one in old[name].red.items() if one.verdict not in _SILENT}
        if not speaking:
            continue
        one = speaking[min(speaking)]
        failed = _failed_check(pair, one)
        after = _counterpart(pair, failed)
        kind = "changed-interface" if one.verdict is Verdict.MISSING_API else "changed-expectation"
        where = f"{pair.new_path}:{after.line if after else pair.new.line}" if pair and pair.new else one.location or ""
        count = f" ({len(speaking)} of its parameters)" if len(speaking) > 1 else ""
        note = f"the parent's version fails with this product{count}: {one.verdict}"
        if one.symbol:
            note += f" {one.symbol}"
        before = failed.source if failed is not None else lines.get(name, "")
        told.append(Weakening(new_id, kind, before, after.source if after else "", where, None, bool(own), note))
    return ordered(told)


def _revised(item: Weakening, old: Mapping[str, Old]) -> Weakening:
    """A deletion in the light of what the deleted test would do now."""
    if item.kind != "deleted" or item.id not in old or not old[item.id].readings:
        return item
    one = old[item.id]
    if (
        one.red
        and all(r.verdict is Verdict.MISSING_API for r in one.red.values())
        and len(one.red) == len(one.readings)
    ):
        missing = next((r.symbol for r in one.red.values() if r.symbol), None)
        note = f"{missing or 'what it needs'} went away with it"
        return replace(item, certain=False, note=note)
    if all(r.green for r in one.readings.values()) and item.note.endswith("went away with it"):
        return replace(item, certain=True, note="it would still pass")
    return item
