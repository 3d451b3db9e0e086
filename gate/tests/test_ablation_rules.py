"""What a commit without a part of its change says: pure rules on hand-made readings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdtrue_gate.ablate import Cell, HunkReport, Status, Table, broken, judged, limit_of, missing_names
from holdtrue_gate.config import Config
from holdtrue_gate.decision import FAIL, PASS, Decision, WithoutHunk, by_ablation, decide, with_hunks, worth_ablating
from holdtrue_gate.plan import Kind, Plan
from holdtrue_gate.repo import Commit
from holdtrue_gate.verdict import Expectation, Judgement, Reading, Verdict, judge

GREEN = Reading(Verdict.VACUOUS, reason="passes", seconds=0.5)
OWN = Reading(Verdict.OWN_ASSERTION, "AssertionError", location="test_a.py:4")
MISSING = Reading(Verdict.MISSING_API, "ImportError", "cannot import name 'times' from 'shop'", symbol="shop.times")
TORN = Reading(Verdict.UNDECLARED_EXCEPTION, "NameError", "name 'times' is not defined", location="shop.py:2")
ID = "test_a.py::test_a"
PLAN = Plan(Commit("a" * 40, "b" * 40, ("c" * 40,), "fix: x"), "c" * 40, Kind.FIX, Config())


def missing(id_: str = ID, parent: tuple[Reading, ...] = (MISSING,)) -> Judgement:
    return judge(id_, (GREEN, GREEN), parent)


def without(reading: Reading = OWN, **more: object) -> WithoutHunk:
    return replace(WithoutHunk(("H1",), "shop.py:2", {ID: (reading, reading)}), **more)  # type: ignore[arg-type]


# --- the table as proof


def test_a_missing_name_becomes_proof_by_a_part_that_is_not_the_name() -> None:
    test = missing()
    assert (test.verdict, test.proof) == (Verdict.MISSING_API, False)
    proved = by_ablation(test, [without()])
    assert (proved.verdict, proved.proof) == (Verdict.MISSING_API, True)
    assert proved.reason.endswith("; at the commit without shop.py:2 it fails with its own assertion at test_a.py:4")
    assert decide(Kind.FIX, True, False, [proved]).result == PASS
    assert decide(Kind.FIX, True, False, [test]).result == FAIL


NO_EVIDENCE = {
    "no part at all": [],
    "a part it passes without": [without(GREEN)],
    "a part it misses by name too": [without(MISSING)],
    "a part whose absence breaks the product": [without(TORN)],
    "a part that only an exception notices": [without(Reading(Verdict.UNDECLARED_EXCEPTION, "ValueError"))],
    "a part that a suspect notices": [without(Reading(Verdict.SUSPECT, "AssertionError"))],
    "a part with the name itself": [without(vanished=frozenset({"times"}))],
    "a part of new definitions": [without(only_new=True)],
    "a tree in which something else is broken": [without(sound=False)],
    "a part that it notices at times": [without(readings={ID: (OWN, GREEN, OWN)})],
    "a part that another test notices": [without(readings={"test_a.py::test_b": (OWN,)})],
}


@pytest.mark.parametrize("parts", NO_EVIDENCE.values(), ids=NO_EVIDENCE)
def test_a_missing_name_stays_no_proof_without_evidence(parts: list[WithoutHunk]) -> None:
    assert by_ablation(missing(), parts) == missing()


def test_only_a_missing_name_at_the_parent_becomes_proof() -> None:
    for first in (GREEN, TORN, Reading(Verdict.SUSPECT), Reading(Verdict.HANG), Reading(Verdict.ENVIRONMENT)):
        test = missing(parent=(first,))
        assert by_ablation(test, [without()]) == test
    red_at_home = replace(missing(), side="head")
    assert by_ablation(red_at_home, [without()]) == red_at_home


def test_a_declared_exception_is_evidence_where_the_finding_declares_it() -> None:
    declared = Reading(Verdict.DECLARED_EXCEPTION, "KeyError", location="shop.py:2")
    assert by_ablation(missing(), [without(declared)]).proof


def test_hunks_are_asked_only_where_they_could_make_a_fix_pass() -> None:
    assert worth_ablating(Kind.FIX, True, False, [missing()]) == (ID,)
    proof = judge("test_a.py::test_p", (GREEN,), (OWN,))
    worthless = judge("test_a.py::test_v", (GREEN,), (GREEN,))
    assert worth_ablating(Kind.FIX, True, False, [missing(), proof]) == ()
    assert worth_ablating(Kind.FIX, True, False, [missing(), worthless]) == ()
    assert worth_ablating(Kind.FIX, True, False, [worthless]) == ()
    assert worth_ablating(Kind.FIX, False, True, [missing()]) == ()
    assert worth_ablating(Kind.FEATURE, True, False, [missing()]) == ()
    assert worth_ablating(Kind.FIX, True, False, [missing("test_a.py")]) == ()


def test_unpinned_hunks_fail_a_commit_only_where_they_are_required_to_be_pinned() -> None:
    made = Decision(PASS, (), "proved")
    assert with_hunks(made, ["shop.py:2"], required=False) == made
    assert with_hunks(made, [], required=True) == made
    assert with_hunks(made, ["shop.py:2"], required=True).result == FAIL
    doubt = Decision("cannot-judge", (), "environment")
    assert with_hunks(doubt, ["shop.py:2"], required=True) == doubt


# --- one set of hunks

OTHER = "test_a.py::test_b"
HEADS = {ID: (GREEN,), OTHER: (GREEN,)}
STATUSES = {
    "both pass": (GREEN, GREEN, Status.UNPINNED),
    "one asserts": (OWN, GREEN, Status.PINNED),
    "one asserts, the other's name is gone": (OWN, MISSING, Status.PINNED),
    "one asserts, the product is broken": (OWN, TORN, Status.INSEPARABLE),
    "the product is broken": (TORN, GREEN, Status.INSEPARABLE),
    "a name is gone": (MISSING, GREEN, Status.INSEPARABLE),
    "one asserts, one hangs": (OWN, Reading(Verdict.HANG, reason="did not end"), Status.PINNED),
    "one hangs": (Reading(Verdict.HANG, reason="did not end"), GREEN, Status.HANG),
    "one dies": (Reading(Verdict.CRASH, reason="died"), GREEN, Status.CRASH),
    "one raises": (Reading(Verdict.UNDECLARED_EXCEPTION, "ValueError", "no"), GREEN, Status.NOTICED),
    "one only looks": (Reading(Verdict.SUSPECT, "AssertionError"), GREEN, Status.NOTICED),
    "one could not run": (Reading(Verdict.ENVIRONMENT, reason="no pytest"), GREEN, Status.UNKNOWN),
    "one did not run": (Reading(Verdict.NOT_RUN, reason="was not collected"), GREEN, Status.UNKNOWN),
}


@pytest.mark.parametrize(("first", "second", "status"), STATUSES.values(), ids=STATUSES)
def test_the_status_of_a_hunk_follows_from_what_each_test_does_without_it(
    first: Reading, second: Reading, status: Status
) -> None:
    assert judged(HEADS, {ID: (first,), OTHER: (second,)}, PLAN).status is status


def test_an_assertion_is_no_evidence_while_a_name_that_is_gone_is_still_in_use() -> None:
    outcome = judged(HEADS, {ID: (OWN,), OTHER: (GREEN,)}, PLAN, likely=["go"])
    assert (outcome.status, outcome.names) == (Status.INSEPARABLE, frozenset({"go"}))
    assert judged(HEADS, {ID: (GREEN,), OTHER: (GREEN,)}, PLAN, likely=["go"]).status is Status.UNPINNED
    assert judged(HEADS, None, PLAN).status is Status.INSEPARABLE


def test_a_declared_hang_pins_and_a_race_is_met_as_often_as_it_is_declared() -> None:
    folder = "regressions/F-0007-x"
    id_ = f"{folder}/test_a.py::test_a"
    heads = {id_: (GREEN,)}
    hanging = replace(PLAN, expectations={folder: Expectation(hang=True)})
    assert judged(heads, {id_: (Reading(Verdict.HANG),)}, hanging).status is Status.PINNED
    racing = replace(PLAN, expectations={folder: Expectation(detects=(2, 4))})
    assert judged(heads, {id_: (OWN, GREEN, OWN, GREEN)}, racing).status is Status.PINNED
    assert judged(heads, {id_: (OWN, GREEN, GREEN, GREEN)}, racing).status is not Status.PINNED


BROKEN = {
    "no name": Reading(Verdict.UNDECLARED_EXCEPTION, "NameError", "name 'x' is not defined"),
    "no import": Reading(Verdict.UNDECLARED_EXCEPTION, "ImportError", "cannot import name 'x'"),
    "no attribute": Reading(Verdict.UNDECLARED_EXCEPTION, "AttributeError", "'Till' object has no attribute 'fee'"),
    "no such parameter": Reading(Verdict.FIXTURE_ERROR, "TypeError", "f() got an unexpected keyword argument 'x'"),
    "too few values": Reading(Verdict.UNDECLARED_EXCEPTION, "ValueError", "not enough values to unpack (expected 3)"),
    "no column": Reading(Verdict.UNDECLARED_EXCEPTION, "apsw.SQLError", "no such column: x"),
    "a missing name": MISSING,
}
BEHAVIOUR = {
    "none": Reading(Verdict.UNDECLARED_EXCEPTION, "AttributeError", "'NoneType' object has no attribute 'x'"),
    "types": Reading(Verdict.UNDECLARED_EXCEPTION, "TypeError", "unsupported operand type(s) for +: 'int' and 'str'"),
    "value": Reading(Verdict.UNDECLARED_EXCEPTION, "ValueError", "invalid literal for int()"),
    "assertion": replace(OWN, message="name 'x' is not defined"),
    "hang": Reading(Verdict.HANG),
    "passed": GREEN,
}


@pytest.mark.parametrize("found", BROKEN.values(), ids=BROKEN)
def test_code_that_does_not_hang_together_is_told(found: Reading) -> None:
    assert broken(found)


@pytest.mark.parametrize("found", BEHAVIOUR.values(), ids=BEHAVIOUR)
def test_code_that_does_the_wrong_thing_is_not_called_broken(found: Reading) -> None:
    assert not broken(found)


def test_the_names_that_a_broken_run_complains_of_lead_to_the_hunks_that_have_them() -> None:
    assert missing_names(BROKEN["no attribute"]) == {"Till", "fee"}
    assert missing_names(MISSING) == {"times", "shop"}
    assert "f" in missing_names(BROKEN["no such parameter"])


def test_the_limit_of_a_test_grows_with_what_it_takes_at_the_commit() -> None:
    assert limit_of({ID: (GREEN,)}) < limit_of({ID: (replace(GREEN, seconds=30.0),)})


# --- the table


def hunk(status: Status) -> HunkReport:
    cells = (Cell(ID, "passed", False),)
    return HunkReport("H1", "a.py", "a.py", "lines", (1, 1), (1, 1), status, "", cells=cells)


def test_one_unpinned_hunk_is_a_no_and_none_that_could_be_judged_is_a_doubt() -> None:
    def result(*states: Status) -> str:
        return Table(tuple(hunk(state) for state in states)).result

    assert result(Status.PINNED, Status.SKIPPED, Status.INSEPARABLE) == "pass"
    assert result(Status.PINNED, Status.UNPINNED) == "fail"
    assert result(*(state for state in Status if state not in (Status.PINNED, Status.UNPINNED))) == "cannot-judge"
    assert result() == "cannot-judge"
