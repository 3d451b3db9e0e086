"""The course of the rounds of one side: which of its new tests run again, and which by themselves. Pure rules, no I/O.

The first round runs the new tests together. Where there was company, the second runs each by itself: a test that fails only
after another has run, or passes only after it, has no verdict of its own. The others run together again. What has ruled
proof out is not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdtrue_gate.plan import Plan
from holdtrue_gate.replay import ReplayResult, Step
from holdtrue_gate.verdict import Judgement, Reading, Verdict

# Verdicts of a first run at the parent after which a repeat could still matter.
_WORTH_REPEATING = frozenset({Verdict.OWN_ASSERTION, Verdict.DECLARED_EXCEPTION, Verdict.VACUOUS})
# No run by itself could say more: it would fail for the same want, cost the whole limit again, or not run.
_NOT_ALONE = frozenset({Verdict.ENVIRONMENT, Verdict.NOT_RUN, Verdict.MISSING_API, Verdict.SUSPECT})
# A hang at the commit itself is red enough; each repeat would cost the whole limit.
_NOT_AGAIN = frozenset({Verdict.ENVIRONMENT, Verdict.NOT_RUN, Verdict.HANG})


def read(result: ReplayResult, id_: str, plan: Plan) -> Reading:
    """How one node id did in one round."""
    return plan.read(result.record_of(id_), id_)


@dataclass(frozen=True)
class SideCourse:
    """The course of `side`, "head" or "parent". `focus`: repeat only these (None: all)."""

    plan: Plan
    side: str
    focus: frozenset[str] | None = None

    def next(self, done: Sequence[ReplayResult]) -> Step | None:
        """As `replay.Course` says."""
        first = {id_: read(done[0], id_, self.plan) for id_ in done[0].collected}
        chosen = [id_ for id_ in first if "::" in id_ and (self.focus is None or id_ in self.focus)]
        company = len(first) > 1
        if company and len(done) == 1:
            alone = tuple(id_ for id_ in chosen if self._alone(id_, first[id_]))
            if alone:
                return Step(alone, apart=True)
        # A round of single runs takes the place of one together.
        again = tuple(id_ for id_ in chosen if len(done) < self._runs(id_, first[id_]))
        return Step(again) if again else None

    def _alone(self, id_: str, reading: Reading) -> bool:
        if self.side == "head":
            return reading.verdict not in (Verdict.ENVIRONMENT, Verdict.NOT_RUN)
        hangs = reading.verdict is Verdict.HANG and not self.plan.expectation_of(id_).hang
        return reading.verdict not in _NOT_ALONE and not hangs

    def _runs(self, id_: str, reading: Reading) -> int:
        """How often the test runs in all."""
        expected = self.plan.expectation_of(id_)
        runs = max(self.plan.config.runs, expected.detects[1] if expected.detects else 0)
        if self.side == "head":
            return 1 if reading.verdict in _NOT_AGAIN else runs
        declared = (reading.verdict is Verdict.HANG and expected.hang) or (
            reading.verdict is Verdict.CRASH and expected.crash
        )
        return runs if reading.verdict in _WORTH_REPEATING or declared else 1


@dataclass(frozen=True)
class Runs:
    """The readings of one test on one side, in the order of its runs; `alone` holds the numbers of those by itself."""

    readings: tuple[Reading, ...] = ()
    alone: frozenset[int] = frozenset()

    @classmethod
    def of(cls, id_: str, rounds: Sequence[ReplayResult], plan: Plan) -> Runs:
        """Reads the rounds in which the test took part."""
        took = [result for result in rounds if not result.asked or id_ in result.asked]
        return cls(
            tuple(read(result, id_, plan) for result in took),
            frozenset(number for number, result in enumerate(took) if result.apart),
        )

    @property
    def split(self) -> tuple[Verdict, Verdict] | None:
        """(together, by itself), when the test is of one kind in company and of one other kind alone."""
        together = {reading.verdict for number, reading in enumerate(self.readings) if number not in self.alone}
        alone = {self.readings[number].verdict for number in self.alone}
        if len(together) == len(alone) == 1 and together != alone:
            return next(iter(together)), next(iter(alone))
        return None


def _said(kind: Verdict) -> str:
    return "passes" if kind is Verdict.VACUOUS else f"is {kind}"


def told(judgement: Judgement, head: Runs, parent: Runs) -> Judgement:
    """The judgement, with the reason said where it is the order of the tests: the verdict is never proof then."""
    for runs, where in ((head, "at the commit itself"), (parent, "at the parent")):
        if runs.split is None or judgement.verdict is Verdict.OWN_PROBABILISTIC:
            continue
        together, alone = runs.split
        reason = (
            f"order-dependent: {where} it {_said(together)} in the company of the other new tests "
            f"and {_said(alone)} alone"
        )
        return replace(judgement, reason=reason, proof=False)
    return judgement


def doubtful(judgement: Judgement, forked: bool) -> bool:
    """Whether a judgement from forked runs has to be made again from processes: red or uneven, and forking may be why."""
    return forked and (
        judgement.verdict in (Verdict.FLAKY, Verdict.HEAD_RED, Verdict.CRASH) or "order-dependent" in judgement.reason
    )
