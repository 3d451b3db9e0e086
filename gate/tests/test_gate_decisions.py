"""What verdicts mean for a commit: pure rules on hand-made judgements."""

from __future__ import annotations

import pytest

from holdtrue_gate.decision import decide, overall
from holdtrue_gate.plan import Kind
from holdtrue_gate.verdict import PROOF, Judgement, Verdict


def judged_as(
    verdict: Verdict, id_: str = "", *, proof: bool | None = None, side: str = "parent", changed: bool = False
) -> Judgement:
    proved = verdict in PROOF if proof is None else proof
    name = id_ or f"test_a.py::test_{verdict}"
    return Judgement(name, verdict, proved, None, "", None, "", side, changed=changed)


OWN = judged_as(Verdict.OWN_ASSERTION, "test_a.py::test_p[0]")
BLOCKS_A_FIX = {
    Verdict.VACUOUS,
    Verdict.UNDECLARED_EXCEPTION,
    Verdict.PRODUCT_ASSERTION,
    Verdict.FIXTURE_ERROR,
    Verdict.HANG,
    Verdict.CRASH,
    Verdict.NOT_RUN,
    Verdict.FLAKY,
    Verdict.SUSPECT,
    Verdict.HEAD_RED,
}


@pytest.mark.parametrize("verdict", list(Verdict), ids=str)
def test_a_fix_with_one_test_passes_only_on_proof(verdict: Verdict) -> None:
    expected = "pass" if verdict in PROOF else "cannot-judge" if verdict is Verdict.ENVIRONMENT else "fail"
    assert decide(Kind.FIX, True, False, [judged_as(verdict)]).result == expected


@pytest.mark.parametrize("verdict", list(Verdict), ids=str)
def test_a_proof_does_not_excuse_a_worthless_test_beside_it(verdict: Verdict) -> None:
    made = decide(Kind.FIX, True, False, [OWN, judged_as(verdict)])
    expected = "fail" if verdict in BLOCKS_A_FIX else "cannot-judge" if verdict is Verdict.ENVIRONMENT else "pass"
    assert made.result == expected
    assert (made.blocking == (f"test_a.py::test_{verdict}",)) == (expected == "fail")


@pytest.mark.parametrize("verdict", list(Verdict), ids=str)
def test_a_feature_needs_green_tests_and_no_red(verdict: Verdict) -> None:
    expected = "fail" if verdict is Verdict.HEAD_RED else "cannot-judge" if verdict is Verdict.ENVIRONMENT else "pass"
    assert decide(Kind.FEATURE, True, False, [judged_as(verdict)]).result == expected


@pytest.mark.parametrize("kind", list(Kind), ids=str)
def test_a_test_that_flickers_at_the_commit_blocks_every_kind(kind: Kind) -> None:
    assert decide(kind, True, False, [OWN, judged_as(Verdict.FLAKY, side="head")]).result == "fail"


def test_beside_a_proof_a_changed_test_and_a_further_parameter_may_pass_on_both_sides() -> None:
    changed = judged_as(Verdict.VACUOUS, "test_a.py::test_old", changed=True)
    further = judged_as(Verdict.VACUOUS, "test_a.py::test_p[1]")
    assert decide(Kind.FIX, True, False, [OWN, changed, further]).result == "pass"
    assert decide(Kind.FIX, True, False, [changed, further]).result == "fail"


@pytest.mark.parametrize("verdict", [Verdict.HANG, Verdict.CRASH], ids=str)
def test_a_declared_end_of_the_process_is_proof(verdict: Verdict) -> None:
    assert decide(Kind.FIX, True, False, [judged_as(verdict, proof=True)]).result == "pass"


def test_a_commit_without_product_change_has_nothing_to_prove_unless_it_closes_a_finding() -> None:
    silent = [judged_as(Verdict.VACUOUS)]
    assert decide(Kind.FIX, False, False, silent).result == "pass"
    assert decide(Kind.TEST_ONLY, False, False, silent).result == "pass"
    assert decide(Kind.OTHER, False, False, []).result == "pass"
    assert decide(Kind.FIX, False, True, silent).result == "fail"
    assert decide(Kind.FIX, False, True, []).result == "fail"
    assert decide(Kind.FIX, True, False, []).result == "fail"


def test_one_no_outweighs_doubt_and_doubt_outweighs_every_pass() -> None:
    assert overall(["pass", "cannot-judge", "fail"]) == "fail"
    assert overall(["pass", "cannot-judge"]) == "cannot-judge"
    assert overall(["pass"]) == overall([]) == "pass"
