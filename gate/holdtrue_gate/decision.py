"""What a commit's verdicts mean for the commit: pure rules, no I/O.

A `fix` with a product change passes when at least one new test is proof and no new test speaks against it. Beside a
proof three kinds of test are let through: one that needs a name the fix adds (`missing-api`: new surface), one that
existed before, was changed, and passes on both sides, and a further parameter of a function that is itself a proof.
A `feature` needs no red at the parent: whatever its tests do
there is reported and does not block. A commit without product change has nothing to prove. In every kind a new test
that fails or flickers at the commit itself blocks, and where nothing ran nothing passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdtrue_gate.plan import Kind
from holdtrue_gate.verdict import Judgement, Verdict

PASS = "pass"  # noqa: S105 - a result, no secret
FAIL = "fail"
CANNOT_JUDGE = "cannot-judge"


@dataclass(frozen=True)
class Decision:
    """The result of a commit, the ids that block it, and why in one sentence."""

    result: str
    blocking: tuple[str, ...]
    reason: str


def _blocks_always(test: Judgement) -> bool:
    return test.verdict is Verdict.HEAD_RED or (test.verdict is Verdict.FLAKY and test.side == "head")


def function_of(id_: str) -> str:
    """A node id without its parameters."""
    file, _, rest = id_.partition("::")
    return f"{file}::{rest.partition('[')[0]}"


def _blocks_fix(test: Judgement, proved: frozenset[str]) -> bool:
    """`proved` holds the functions of the proofs."""
    if test.proof or test.verdict is Verdict.ENVIRONMENT:
        return False
    if not proved:
        return True
    beside = test.verdict is Verdict.VACUOUS and (test.changed or function_of(test.id) in proved)
    return not (beside or test.verdict is Verdict.MISSING_API)


def decide(kind: Kind, has_product: bool, has_finding: bool, tests: Sequence[Judgement]) -> Decision:
    """The result of a commit without problems of its own."""
    proofs = [test for test in tests if test.proof]
    proved = frozenset(function_of(test.id) for test in proofs)
    must_prove = kind is Kind.FIX and (has_product or has_finding)
    blocking = [test for test in tests if _blocks_always(test) or (must_prove and _blocks_fix(test, proved))]
    if blocking:
        named = ", ".join(sorted({str(test.verdict) for test in blocking}))
        subject = "1 new test is" if len(blocking) == 1 else f"{len(blocking)} new tests are"
        return Decision(FAIL, tuple(test.id for test in blocking), f"{subject} not acceptable here: {named}")
    if any(test.verdict is Verdict.ENVIRONMENT for test in tests):
        return Decision(CANNOT_JUDGE, (), "the tests could not be run as they should")
    if must_prove and not proofs:
        return Decision(FAIL, (), "a fix needs at least one new test that fails without it")
    if must_prove:
        return Decision(
            PASS, (), "the fix is proved by 1 test" if len(proofs) == 1 else f"the fix is proved by {len(proofs)} tests"
        )
    if kind is Kind.OTHER:
        return Decision(PASS, (), "neither product nor tests changed")
    if not has_product:
        return Decision(PASS, (), "no product change: nothing to prove")
    silent = bool(tests) and all(test.verdict is Verdict.VACUOUS for test in tests)
    return Decision(
        PASS, (), "green, but no new test notices the change" if silent else "a feature: its new tests are green"
    )


def overall(results: Iterable[str]) -> str:
    """The result of several commits: one no outweighs any doubt, a doubt outweighs every pass."""
    found = set(results)
    return FAIL if FAIL in found else CANNOT_JUDGE if CANNOT_JUDGE in found else PASS
