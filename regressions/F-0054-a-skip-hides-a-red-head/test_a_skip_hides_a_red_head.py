"""F-0054: what did not run does not block a feature; what fails at the commit itself always does."""

from __future__ import annotations

from holdtrue_gate.verdict import Reading, Verdict, judge


def test_a_skip_beside_failures_does_not_hide_them() -> None:
    skipped, failed = Reading(Verdict.NOT_RUN, reason="is skipped"), Reading(Verdict.OWN_ASSERTION)
    for head in ([skipped, failed, failed], [failed, skipped]):
        judged = judge("test_m.py::test_a", head, [Reading(Verdict.OWN_ASSERTION)])
        assert (judged.verdict, judged.side) == (Verdict.FLAKY, "head")
    assert judge("test_m.py::test_a", [skipped, skipped], []).verdict is Verdict.NOT_RUN
