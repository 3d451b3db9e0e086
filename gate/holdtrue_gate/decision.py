"""What a commit's verdicts mean for the commit: pure rules, no I/O.

A `fix` with a product change passes when at least one new test is proof and no new test speaks against it. Beside a
proof three kinds of test are let through: one that needs a name the fix adds (`missing-api`: new surface), one that
existed before, was changed, and passes on both sides, and a further parameter of a function that is itself a proof.
A `feature` needs no red at the parent: whatever its tests do
there is reported and does not block. A commit without product change has nothing to prove. In every kind a new test
that fails or flickers at the commit itself blocks, and where nothing ran nothing passes.

A test that needs a name which the fix adds cannot speak at the parent. It is proof all the same when it goes red by its own
assertion at the commit itself with a part of the change taken back that is not that name: `by_ablation`.

A test that is plainly weaker than at the parent blocks a commit of every kind, unless the message gives a reason:
`with_weakened`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdtrue_gate import verdict
from holdtrue_gate.plan import Kind
from holdtrue_gate.verdict import NOTHING_DECLARED, PROOF, Expectation, Judgement, Reading, Verdict
from holdtrue_gate.weaken import Weakening

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


# --- parts of the change


@dataclass(frozen=True)
class WithoutHunk:
    """What tests do at the commit without some hunks of its change. `where` names the hunks by file and line.

    `vanished`: names that the product then lacks. `only_new`: the hunks bring new definitions and change nothing that the
    parent had. `sound`: the code works without them, and a test went red by its own assertion.
    """

    hunks: tuple[str, ...]
    where: str
    readings: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    vanished: frozenset[str] = frozenset()
    only_new: bool = False
    sound: bool = True


def worth_ablating(kind: Kind, has_product: bool, has_finding: bool, tests: Sequence[Judgement]) -> tuple[str, ...]:
    """The tests that could prove the fix by ablation alone: it has no other proof, and would pass if one of them were."""
    if kind is not Kind.FIX or not has_product or any(test.proof for test in tests):
        return ()
    missing = [
        test for test in tests if test.verdict is Verdict.MISSING_API and test.head and all(r.green for r in test.head)
    ]
    hoped = [replace(test, proof=test in missing) for test in tests]
    if not missing or decide(kind, has_product, has_finding, hoped).result != PASS:
        return ()
    return tuple(test.id for test in missing if "::" in test.id)


def is_evidence(test: Judgement, without: WithoutHunk, expected: Expectation = NOTHING_DECLARED) -> bool:
    """Whether a `missing-api` test shows, without these hunks, that it notices more than the name it needs."""
    runs = without.readings.get(test.id, ())
    if not runs or not without.sound or without.only_new:
        return False
    if test.symbol and test.symbol.rpartition(".")[2] in without.vanished:
        return False
    return verdict.judge(test.id, test.head, runs, expected).verdict in PROOF


def by_ablation(test: Judgement, without: Iterable[WithoutHunk], expected: Expectation = NOTHING_DECLARED) -> Judgement:
    """The test as proof, when the commit without a part of the change says so; else as it was."""
    if test.verdict is not Verdict.MISSING_API or test.side != "parent":
        return test
    for one in without:
        if is_evidence(test, one, expected):
            red = verdict.judge(test.id, test.head, one.readings[test.id], expected)
            where = f" at {red.location}" if red.location else ""
            reason = f"{test.reason}; at the commit without {one.where} it fails with its own assertion{where}"
            return replace(test, proof=True, reason=reason)
    return test


def with_hunks(made: Decision, unpinned: Sequence[str], *, required: bool) -> Decision:
    """The decision in view of the parts of the change that no test needs (`unpinned`, by place)."""
    if not (required and unpinned and made.result == PASS):
        return made
    what = "a part of the change" if len(unpinned) == 1 else f"{len(unpinned)} parts of the change"
    return Decision(FAIL, made.blocking, f"no new test needs {what}: {', '.join(unpinned[:3])}")


def with_weakened(made: Decision, weakened: Sequence[Weakening]) -> Decision:
    """The decision in view of what the commit's tests demand less than before: of whatever kind the commit is, what is
    certain and has no reason in the message is a no, also where the commit cannot be judged otherwise."""
    blocking = [item for item in weakened if item.blocks]
    if not blocking:
        return made
    named = ", ".join(sorted({item.kind for item in blocking}))
    subject = "a test is weakened" if len(blocking) == 1 else f"tests are weakened in {len(blocking)} places"
    reason = f"{subject} and the message gives no reason (Test-change:): {named}"
    if made.result == FAIL:
        reason = f"{made.reason}; {reason}"
    return Decision(FAIL, made.blocking, reason)


def overall(results: Iterable[str]) -> str:
    """The result of several commits: one no outweighs any doubt, a doubt outweighs every pass."""
    found = set(results)
    return FAIL if FAIL in found else CANNOT_JUDGE if CANNOT_JUDGE in found else PASS
