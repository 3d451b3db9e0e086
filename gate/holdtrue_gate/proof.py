"""Is a finding proved by a commit? Pure rules over what `gate check` said about it.

A finding is proved when a commit that names it in its `Finding:` trailer passes, and one of the finding's own tests is a
proof in it. A commit that passes by the test of another finding proves nothing about this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdtrue_gate import decision
from holdtrue_gate.trace import selects


class State(StrEnum):
    """What is known about a fixed finding."""

    PROVED = "proved"
    NOT_PROVED = "not-proved"
    CANNOT_JUDGE = "cannot-judge"


@dataclass(frozen=True)
class JudgedTest:
    """One new test of a judged commit."""

    id: str
    verdict: str
    is_proof: bool
    reason: str = ""

    def as_dict(self) -> dict[str, object]:
        """The shape that `--json` prints."""
        return {"id": self.id, "verdict": self.verdict, "proof": self.is_proof}


@dataclass(frozen=True)
class JudgedCommit:
    """What `gate check` said about a commit, and which tests each finding named as the commit had it."""

    sha: str
    result: str
    reason: str
    tests: tuple[JudgedTest, ...] = ()
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """Whether a finding is proved: by which commit and tests, or why not."""

    finding: str
    state: State
    why: str = ""
    commit: str | None = None
    tests: tuple[JudgedTest, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The shape that `--json` prints."""
        return {
            "state": str(self.state),
            "why": self.why,
            "commit": self.commit,
            "tests": [test.as_dict() for test in self.tests],
        }


def judge(finding: str, tests: Iterable[str], commit: JudgedCommit) -> Proof:
    """What one commit says about one finding. `tests` are those that the finding names today; a test that has moved since
    is known by the name that the commit gave it."""
    entries = {*tests, *commit.named.get(finding, ())}
    own = tuple(test for test in commit.tests if any(selects(entry, test.id) for entry in entries))
    short = commit.sha[:10]

    def answer(state: State, why: str = "") -> Proof:
        return Proof(finding, state, why, commit.sha, own)

    if commit.result == decision.CANNOT_JUDGE:
        return answer(State.CANNOT_JUDGE, f"its commit {short} cannot be judged: {commit.reason}")
    if commit.result != decision.PASS:
        return answer(State.NOT_PROVED, f"its commit {short} does not pass: {commit.reason}{_told(own)}")
    if not own:
        return answer(State.NOT_PROVED, f"none of its tests is new in its commit {short}")
    if not any(test.is_proof for test in own):
        return answer(State.NOT_PROVED, f"its commit {short} passes, but not by a test of this finding{_told(own)}")
    return answer(State.PROVED)


def best(finding: str, found: Sequence[Proof], *, complete: bool) -> Proof:
    """The answer of all commits of a finding, newest first: one proof is enough, a doubt outweighs a no.

    `complete`: whether the whole history is in this clone; without it, a commit that was not found may still exist.
    """
    for proof in found:
        if proof.state is State.PROVED:
            return proof
    for proof in found:
        if proof.state is State.CANNOT_JUDGE:
            return proof
    if not complete:
        return Proof(finding, State.CANNOT_JUDGE, "this clone is shallow: the commit that fixed it may be missing")
    if found:
        return found[0]
    return Proof(finding, State.NOT_PROVED, f"no commit has the trailer `Finding: {finding}`")


def _told(tests: Sequence[JudgedTest]) -> str:
    bad = [test for test in tests if not test.is_proof]
    if not bad:
        return ""
    reason = f" ({bad[0].reason})" if bad[0].reason else ""
    return f"; {bad[0].id} is {bad[0].verdict}{reason}"
