"""What one version of a test demands less than another: pairs their demands and names what was lost.

A loss is certain only where both sides plainly speak of the same thing.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdtrue_gate.demands import Check
from holdtrue_gate.strictness import Level, Tolerance


@dataclass(frozen=True)
class Loss:
    """What the new version of a test demands less. `after` is None where nothing took the place of `before`."""

    kind: str
    before: Check
    after: Check | None
    certain: bool
    note: str


# --- exceptions


def is_wider(old: str, new: str, bases: Mapping[str, Sequence[str]]) -> bool | None:
    """Whether exception `new` is a proper ancestor of `old`; None when it cannot be told. `bases`: base names of the
    project's classes by name."""
    first, second = old.rpartition(".")[2], new.rpartition(".")[2]
    if first == second:
        return False
    if second in ("Exception", "BaseException"):
        return first != "BaseException"
    known_old, known_new = getattr(builtins, first, None), getattr(builtins, second, None)
    if isinstance(known_old, type) and isinstance(known_new, type):
        return issubclass(known_old, known_new)
    waiting, seen = list(bases.get(first, ())), set[str]()
    while waiting:
        name = waiting.pop().rpartition(".")[2]
        if name == second:
            return True
        if name in seen:
            continue
        seen.add(name)
        waiting.extend(bases.get(name, ()))
        known = getattr(builtins, name, None)
        if isinstance(known, type) and isinstance(known_new, type) and issubclass(known, known_new):
            return True
    return False if first in bases else None


# --- pairs


def _pair(
    old: list[Check], new: list[Check], same: Callable[[Check, Check], bool], *, best: bool = False
) -> list[tuple[Check, Check]]:
    """Takes pairs out of both lists, in order; `best` prefers the strictest partner."""
    pairs = []
    for before in list(old):
        partners = [after for after in new if same(before, after)]
        if partners:
            after = max(partners, key=lambda check: check.effective) if best else partners[0]
            old.remove(before)
            new.remove(after)
            pairs.append((before, after))
    return pairs


def _flags(before: Check, after: Check, certain: bool) -> Loss | None:
    if after.swallowed and not before.swallowed and not before.dead:
        return Loss("swallowed", before, after, certain, "a handler now swallows its failure")
    if after.dead and not before.dead and not before.swallowed:
        return Loss("unreachable", before, after, certain, "it is no longer reached")
    if after.guarded and not before.guarded:
        return Loss("conditional", before, after, False, "it now runs only under a condition")
    return None


def _looser_raises(
    before: Check, after: Check, certain: bool, new_asserts: bool, bases: Mapping[str, Sequence[str]]
) -> list[Loss]:
    losses = []
    gained, lost = set(after.types) - set(before.types), set(before.types) - set(after.types)
    if gained and not lost and before.types:
        losses.append(Loss("wider-exception", before, after, certain, f"{', '.join(sorted(gained))} is accepted too"))
    elif gained and lost:
        wider = [is_wider(old, new, bases) for old in sorted(lost) for new in sorted(gained)]
        if any(wider):
            losses.append(
                Loss("wider-exception", before, after, certain, f"{', '.join(sorted(gained))} includes what it was")
            )
    elif lost and not after.types:
        losses.append(Loss("wider-exception", before, after, False, "no type is named any more"))
    if before.match is not None and after.match is None:
        note = "the text of the exception is no longer asked for"
        losses.append(Loss("dropped-match", before, after, certain and not new_asserts, note))
    elif before.match and after.match and len(after.match) < len(before.match) and after.match in before.match:
        losses.append(Loss("dropped-match", before, after, False, "a shorter text is asked for"))
    # Other demands may have taken over what match= asked.
    return [loss for loss in losses if not (loss.kind == "dropped-match" and new_asserts)]


def _covers(wide: Tolerance, narrow: Tolerance) -> bool:
    return wide.relative >= narrow.relative and wide.absolute >= narrow.absolute


def _looser_numbers(before: Check, after: Check, certain: bool) -> Loss | None:
    old, new = before.tolerance, after.tolerance
    if old is not None and new is not None and old != new and before.form != after.form and _covers(new, old):
        exact = old == Tolerance(0.0, 0.0)
        note = "it was exact" if exact else "the two may lie further apart"
        return Loss("widened-tolerance", before, after, certain and not exact, note)
    if before.bound and after.bound and before.bound[0] == after.bound[0]:
        way, limit = before.bound
        wider = after.bound[1] > limit if way == "upper" else after.bound[1] < limit
        if wider:
            return Loss("widened-tolerance", before, after, certain, "the bound lies further out")
    if before.members is not None and after.members is not None and before.members < after.members:
        return Loss("less-strict", before, after, certain, "more values are accepted")
    return None


def _judge_pair(
    before: Check, after: Check, certain: bool, new_asserts: bool, bases: Mapping[str, Sequence[str]]
) -> list[Loss]:
    flag = _flags(before, after, certain)
    if flag is not None:
        return [flag]
    if before.family in ("raises", "warns"):
        return _looser_raises(before, after, certain, new_asserts, bases) if after.family == before.family else []
    if after.effective < before.effective:
        # `x == []` and `not x`, `x is True` and `x`: told apart by few, and changed by style alone.
        idiom = before.idiom and after.level is Level.TRUTH
        return [Loss("less-strict", before, after, certain and not idiom, _step(before, after))]
    numbers = _looser_numbers(before, after, certain)
    return [numbers] if numbers is not None else []


def _step(before: Check, after: Check) -> str:
    named = {Level.EQUALITY: "equality", Level.ORDER: "order or membership", Level.TRUTH: "truthiness"}
    return f"from {named.get(before.effective, 'nothing')} to {named.get(after.effective, 'what cannot fail')}"


def compare(
    old: Sequence[Check],
    new: Sequence[Check],
    *,
    bases: Mapping[str, Sequence[str]] | None = None,
    rewritten: bool = False,
) -> tuple[list[Loss], list[Check]]:
    """What `new` demands less than `old`, and the demands of `new` that have no counterpart.

    `bases`: the project's exception classes. `rewritten`: the two have little in common, so no loss is certain.
    """
    known = bases or {}
    before, after = list(old), list(new)
    losses: list[Loss] = []
    exact = _pair(before, after, lambda a, b: a.form == b.form and a.family == b.family and _flags(a, b, True) is None)
    exact += _pair(before, after, lambda a, b: a.form == b.form and a.family == b.family)
    for a, b in exact:
        flag = _flags(a, b, not rewritten)
        if flag is not None:
            losses.append(flag)
    # Shape goes first where it hides only names: otherwise a variable that is used twice would pair across.
    firm = _pair(before, after, lambda a, b: a.family == b.family and bool(a.strong & b.strong), best=True)
    loose = _pair(
        before, after, lambda a, b: a.family == b.family and a.shape == b.shape and b.effective >= a.effective
    )
    loose += _pair(
        before, after, lambda a, b: a.family == b.family and a.outline == b.outline and b.effective >= a.effective
    )
    loose += _pair(before, after, lambda a, b: a.family == b.family and bool(a.weak & b.weak), best=True)
    raising = ("raises", "warns")
    for family in raising:
        if sum(c.family == family for c in before) == sum(c.family == family for c in after):
            loose += _pair(before, after, lambda a, b: a.family == b.family == family)  # noqa: B023 - used at once
    gained = [check for check in after if check.effective > Level.NOTHING]
    for a, b in firm:
        losses.extend(_judge_pair(a, b, not rewritten, bool(gained), known))
    for a, b in loose:
        losses.extend(_judge_pair(a, b, False, bool(gained), known))
    known_forms = {check.form for check in old}
    before = [a for a in before if not _covered(a, [b for b in new if b.form not in known_forms])]
    losses.extend(_leftover(before, gained, rewritten, new))
    return losses, after


def _covered(before: Check, new: Sequence[Check]) -> bool:
    """Whether a new and stricter demand speaks about the same: `xs == [a, b]` says all that `a in xs` said."""
    return any(
        after.effective > before.effective and bool(before.strong & after.strong or before.weak & after.weak)
        for after in new
    )


def _leftover(before: Sequence[Check], gained: Sequence[Check], rewritten: bool, new: Sequence[Check]) -> list[Loss]:
    """The old demands that found no partner: replaced by new ones, or gone."""
    losses = []
    free = sorted(gained, key=lambda check: check.effective)
    kept = Counter(check.shape for check in new)
    for check in sorted(before, key=lambda check: (-check.effective, check.line)):
        if check.effective is Level.NOTHING:
            continue
        partner = next((other for other in free if other.effective >= check.effective), None)
        if partner is not None:
            free.remove(partner)
            continue
        if gained:
            note = "only weaker demands took its place" if free else "fewer demands took its place"
            losses.append(Loss("removed-assertion", check, None, False, note))
            continue
        # A truth test before a stricter one is often there for the type checker; a repeated one is said once more.
        certain = check.level >= Level.ORDER and not rewritten and not kept[check.shape] and not check.guarded
        losses.append(Loss("removed-assertion", check, None, certain, "nothing took its place"))
    return losses
