"""Every rule of the verdicts, and their order, on hand-made runs: no process is started here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from holdtrue_gate.journal import Frame, NodeRun, Owner, Phase, Raised, RunRecord
from holdtrue_gate.patterns import PathRules
from holdtrue_gate.verdict import (
    Expectation,
    Layout,
    Looks,
    Reading,
    Verdict,
    classify_red,
    judge,
    read_exception,
    read_run,
    wilson_low,
)

ID = "tests/test_a.py::test_x"
LAYOUT = Layout(
    PathRules(("tests",)),
    PathRules(("pkg/oracle.py",)),
    frozenset({"pkg", "pkg.core"}),
    frozenset({"new", "limit", "version_no", "--fresh", "pkg/data.json"}),
)
TEST = Frame("tests/test_a.py", 7, "test_x")
PRODUCT = Frame("pkg/core.py", 3, "go")
ORACLE = Frame("pkg/oracle.py", 5, "check")
LIBRARY = Frame("/usr/lib/python3/unittest/case.py", 700, "fail", inside=False)
HIDDEN = Frame("tests/helper.py", 9, "helper", hidden=True)


def raised(kind: str, message: str = "", *frames: Frame, **more: object) -> Raised:
    bases = {
        "ModuleNotFoundError": ("builtins.ImportError",),
        "Failed": ("_pytest.outcomes.OutcomeException",),
        "pkg.errors.Broken": ("builtins.AssertionError",),
        "unittest.case.Own": ("builtins.AssertionError",),
        "DeprecationWarning": ("builtins.Warning",),
    }
    name = kind if "." in kind else f"builtins.{kind}"
    return Raised(name, (name, *bases.get(kind, ())), message, frames=frames or (TEST,), **more)  # type: ignore[arg-type]


def run_of(*phases: Phase, **more: object) -> RunRecord:
    failed = any(phase.outcome == "failed" for phase in phases)
    record = RunRecord(
        started=True,
        session=True,
        collected=[ID],
        collection_done=True,
        session_exit=1 if failed else 0,
        returncode=1 if failed else 0,
    )
    record.nodes[ID] = NodeRun(ID, list(phases), finished=True)
    for name, value in more.items():
        setattr(record, name, value)
    return record


def red(exception: Raised, when: str = "call", **more: object) -> RunRecord:
    return run_of(
        Phase("setup", "passed"), Phase(when, "failed", raised=exception), Phase("teardown", "passed"), **more
    )


GREEN = run_of(Phase("setup", "passed"), Phase("call", "passed"), Phase("teardown", "passed"))
ASSERTION = raised("AssertionError", "assert 1 == 2")
MODULE = Owner("module", "pkg.core", "pkg.core", "pkg/core.py")

EXCEPTIONS = [
    ("an assertion in the test", ASSERTION, "call", Verdict.OWN_ASSERTION),
    ("a subclass of AssertionError in the test", raised("unittest.case.Own", "", TEST), "call", Verdict.OWN_ASSERTION),
    (
        "pytest.raises that did not raise",
        raised("Failed", "DID NOT RAISE", TEST, LIBRARY),
        "call",
        Verdict.OWN_ASSERTION,
    ),
    ("an assertion helper of a library", raised("AssertionError", "", TEST, LIBRARY), "call", Verdict.OWN_ASSERTION),
    ("a helper that hides its frame", raised("AssertionError", "", TEST, HIDDEN), "call", Verdict.OWN_ASSERTION),
    ("an assertion in teardown by the test side", ASSERTION, "teardown", Verdict.OWN_ASSERTION),
    ("an assertion of a registered oracle", raised("AssertionError", "", TEST, ORACLE), "call", Verdict.OWN_ASSERTION),
    ("a registered oracle in setup", raised("AssertionError", "", TEST, ORACLE), "setup", Verdict.OWN_ASSERTION),
    ("an assertion in a fixture", ASSERTION, "setup", Verdict.FIXTURE_ERROR),
    (
        "an assertion in setUp",
        raised("AssertionError", "", Frame("tests/test_a.py", 4, "setUp")),
        "call",
        Verdict.FIXTURE_ERROR,
    ),
    ("an assertion in the product", raised("AssertionError", "", TEST, PRODUCT), "call", Verdict.PRODUCT_ASSERTION),
    (
        "an assertion in the product in teardown",
        raised("AssertionError", "", PRODUCT),
        "teardown",
        Verdict.PRODUCT_ASSERTION,
    ),
    ("an assertion no frame of ours saw", raised("AssertionError", "", LIBRARY), "call", Verdict.UNDECLARED_EXCEPTION),
    (
        "a worker's assertion in the product, re-raised in the test",
        raised("AssertionError", "", TEST, cause=raised("RemoteTraceback", "", LIBRARY, remote=(TEST, PRODUCT))),
        "call",
        Verdict.PRODUCT_ASSERTION,
    ),
    (
        "a worker's assertion in the test's own worker function",
        raised(
            "AssertionError", "", TEST, LIBRARY, cause=raised("RemoteTraceback", "", LIBRARY, remote=(LIBRARY, TEST))
        ),
        "call",
        Verdict.OWN_ASSERTION,
    ),
    (
        "a missing module of the product",
        raised("ModuleNotFoundError", "", name="pkg.extra"),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "a missing name of the product",
        raised("ImportError", "", name="pkg.core", name_from="new"),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "a missing name before Python 3.12",
        raised("ImportError", "cannot import name 'new' from 'pkg.core'", name="pkg.core"),
        "collect",
        Verdict.MISSING_API,
    ),
    (
        "a missing library",
        raised("ModuleNotFoundError", "No module named 'yaml'", name="yaml"),
        "call",
        Verdict.ENVIRONMENT,
    ),
    (
        "an ImportError raised by hand",
        raised("ImportError", "no plugin", TEST, PRODUCT),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "a missing API behind pytest.fail",
        raised("Failed", "helper missing", TEST, context=raised("ImportError", "", name="pkg", name_from="new")),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "a library's absence that the test handled",
        raised("AssertionError", "", TEST, context=raised("ModuleNotFoundError", "", name="yaml")),
        "call",
        Verdict.OWN_ASSERTION,
    ),
    (
        "pytest's wrapper around a failed import",
        raised(
            "_pytest.nodes.Collector.CollectError",
            "",
            LIBRARY,
            cause=raised("ImportError", "", name="pkg", name_from="new"),
        ),
        "collect",
        Verdict.MISSING_API,
    ),
    (
        "a missing library while collecting",
        raised(
            "_pytest.nodes.Collector.CollectError", "", LIBRARY, cause=raised("ModuleNotFoundError", "", name="yaml")
        ),
        "collect",
        Verdict.ENVIRONMENT,
    ),
    (
        "an attribute the module lacks",
        raised("AttributeError", "", TEST, name="new", owner=MODULE),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "an attribute missing inside the product",
        raised("AttributeError", "", TEST, PRODUCT, name="x", owner=MODULE),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "None has no such attribute",
        raised("AttributeError", "", TEST, name="x", owner=Owner("none", "builtins", "None")),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "a dict has no such attribute",
        raised("AttributeError", "", TEST, name="x", owner=Owner("instance", "builtins", "dict")),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "monkeypatch finds nothing to replace",
        raised(
            "AttributeError",
            "<module> has no attribute 'new'",
            TEST,
            Frame("/lib/_pytest/monkeypatch.py", 9, "setattr", inside=False),
        ),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "a parameter the parent lacks",
        raised("TypeError", "go() got an unexpected keyword argument 'limit'", TEST),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "an argument too many",
        raised("TypeError", "go() takes 1 positional argument but 2 were given", TEST),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "a wrong call inside the product",
        raised("TypeError", "go() missing 1 required argument", TEST, PRODUCT),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "a type error of behaviour",
        raised("TypeError", "unsupported operand type(s)", TEST),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    ("a name the commit adds", raised("NameError", "", TEST, name="new"), "call", Verdict.MISSING_API),
    ("another unknown name", raised("NameError", "", TEST, name="tpyo"), "call", Verdict.UNDECLARED_EXCEPTION),
    (
        "a column the commit adds",
        raised("sqlite3.OperationalError", "no such column: m.version_no", TEST, PRODUCT),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "a column nobody adds",
        raised("sqlite3.OperationalError", "no such column: zzz", TEST, PRODUCT),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "a file the commit adds",
        raised("FileNotFoundError", "", TEST, name="pkg/data.json"),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "another missing file",
        raised("FileNotFoundError", "", TEST, name="x.json"),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    ("an exit for an unknown option", raised("SystemExit", "2", TEST, PRODUCT, code=2), "call", Verdict.MISSING_API),
    ("another exit", raised("SystemExit", "3", TEST, PRODUCT, code=3), "call", Verdict.UNDECLARED_EXCEPTION),
    (
        "hypothesis finds the test flaky",
        raised("hypothesis.errors.FlakyFailure", "", members=(ASSERTION,)),
        "call",
        Verdict.FLAKY,
    ),
    ("hypothesis cannot run the test", raised("hypothesis.errors.InvalidArgument", ""), "call", Verdict.FIXTURE_ERROR),
    (
        "pytest-timeout ends the test",
        raised(
            "Failed",
            "Timeout (>1.0s) from pytest-timeout.",
            TEST,
            Frame("/lib/pytest_timeout.py", 5, "handler", inside=False),
        ),
        "call",
        Verdict.HANG,
    ),
    ("a declared exception", raised("pkg.errors.Locked", "", TEST, PRODUCT), "call", Verdict.DECLARED_EXCEPTION),
    ("a declared builtin by its short name", raised("KeyError", "", TEST, PRODUCT), "call", Verdict.DECLARED_EXCEPTION),
    (
        "a declared assertion in the product",
        raised("pkg.errors.Broken", "", TEST, PRODUCT),
        "call",
        Verdict.DECLARED_EXCEPTION,
    ),
    ("any other exception", raised("ValueError", "", TEST, PRODUCT), "call", Verdict.UNDECLARED_EXCEPTION),
    ("an exception in setup", raised("ValueError", "", TEST), "setup", Verdict.FIXTURE_ERROR),
    ("an exception in teardown", raised("ValueError", "", TEST), "teardown", Verdict.FIXTURE_ERROR),
    ("an exception at import", raised("ValueError", "", TEST, PRODUCT), "collect", Verdict.UNDECLARED_EXCEPTION),
    ("an assertion at import", ASSERTION, "collect", Verdict.UNDECLARED_EXCEPTION),
    (
        "a library's warning at import",
        raised("DeprecationWarning", "", PRODUCT, LIBRARY),
        "collect",
        Verdict.ENVIRONMENT,
    ),
    (
        "the product's warning at import",
        raised("DeprecationWarning", "", PRODUCT),
        "collect",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "a library's warning in a test",
        raised("DeprecationWarning", "", TEST, LIBRARY),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
    (
        "a group of own assertions",
        raised("ExceptionGroup", "", members=(ASSERTION, ASSERTION)),
        "call",
        Verdict.OWN_ASSERTION,
    ),
    (
        "a group is as weak as its weakest leaf",
        raised("ExceptionGroup", "", members=(ASSERTION, raised("ImportError", "", name="pkg", name_from="new"))),
        "call",
        Verdict.MISSING_API,
    ),
    (
        "a group in a group",
        raised(
            "ExceptionGroup",
            "",
            members=(ASSERTION, raised("ExceptionGroup", "", members=(raised("ValueError", "", PRODUCT),))),
        ),
        "call",
        Verdict.UNDECLARED_EXCEPTION,
    ),
]
DECLARED = Expectation(frozenset({"pkg.errors.Locked", "KeyError", "pkg.errors.Broken"}))


@pytest.mark.parametrize(
    ("exception", "phase", "expected"), [case[1:] for case in EXCEPTIONS], ids=[case[0] for case in EXCEPTIONS]
)
def test_an_exception_gets_the_verdict_of_its_kind_and_frame(exception: Raised, phase: str, expected: Verdict) -> None:
    assert (
        read_exception(exception, phase, LAYOUT, DECLARED, Looks(literals=frozenset({"--fresh"}))).verdict is expected
    )


def test_the_location_is_the_last_frame_of_the_project() -> None:
    assert (
        read_exception(raised("AssertionError", "", TEST, HIDDEN, LIBRARY), "call", LAYOUT).location
        == "tests/test_a.py:7"
    )


def open_run(**more: object) -> RunRecord:
    record = RunRecord(started=True, session=True, collected=[ID], collection_done=True, open_node=ID, returncode=-11)
    record.nodes[ID] = NodeRun(ID, [Phase("setup", "passed")], entered="call")
    for name, value in more.items():
        setattr(record, name, value)
    return record


def empty_run(**more: object) -> RunRecord:
    record = RunRecord(started=True, session=True, collection_done=True, session_exit=5, returncode=5)
    for name, value in more.items():
        setattr(record, name, value)
    return record


NEW_IMPORT = raised("ImportError", "", name="pkg", name_from="new")
SKIPPED = Phase("setup", "skipped", skip="later")
RUNS = [
    ("a green run", GREEN, Verdict.VACUOUS),
    ("a run that our limit ended", open_run(timed_out=True, ended_for="did not end within 5 s"), Verdict.HANG),
    ("a run that a signal ended", open_run(), Verdict.CRASH),
    ("a run that os._exit(0) ended", open_run(returncode=0), Verdict.CRASH),
    ("a session that the test ended", open_run(session_exit=0, returncode=0), Verdict.CRASH),
    ("no journal at all", RunRecord(returncode=1), Verdict.ENVIRONMENT),
    ("an end before collection was done", RunRecord(started=True, session=True, returncode=-9), Verdict.ENVIRONMENT),
    ("a limit while collecting", RunRecord(started=True, timed_out=True), Verdict.ENVIRONMENT),
    ("an internal error of pytest", run_of(Phase("call", "passed"), session_exit=3), Verdict.ENVIRONMENT),
    ("a failure that the exit status denies", red(ASSERTION, session_exit=0), Verdict.ENVIRONMENT),
    ("an exit status without a failure", run_of(Phase("call", "passed"), session_exit=1), Verdict.ENVIRONMENT),
    ("a process that exits 0 after a told failure", red(ASSERTION, returncode=0), Verdict.OWN_ASSERTION),
    ("code from another place", red(ASSERTION, foreign={"pkg": "/elsewhere/pkg.py"}), Verdict.ENVIRONMENT),
    ("a skip", run_of(SKIPPED), Verdict.NOT_RUN),
    ("an expected failure", run_of(Phase("call", "skipped", xfail="known")), Verdict.NOT_RUN),
    ("an unexpected pass", run_of(Phase("call", "passed", xfail="")), Verdict.NOT_RUN),
    ("a strict unexpected pass", run_of(Phase("call", "failed", detail="[XPASS(strict)] known")), Verdict.NOT_RUN),
    ("a skipped file", empty_run(collect_skips={"tests/test_a.py": "later"}), Verdict.NOT_RUN),
    ("nothing collected", empty_run(), Verdict.NOT_RUN),
    ("collected and never begun", empty_run(collected=[ID], session_exit=0), Verdict.NOT_RUN),
    (
        "its file could not be imported",
        empty_run(collect_errors={"tests/test_a.py": NEW_IMPORT}, session_exit=1),
        Verdict.MISSING_API,
    ),
    (
        "its conftest could not be imported",
        RunRecord(started=True, collect_errors={"tests/conftest.py": NEW_IMPORT}),
        Verdict.MISSING_API,
    ),
    (
        "an error without an exception",
        empty_run(collect_errors={"tests/test_a.py": None}, session_exit=1),
        Verdict.ENVIRONMENT,
    ),
    ("a green call and a red teardown", red(raised("ValueError", ""), "teardown"), Verdict.FIXTURE_ERROR),
    (
        "a failed subtest and its summary",
        run_of(Phase("call", "failed", raised=ASSERTION), Phase("call", "failed", detail="contains 1 failed subtest")),
        Verdict.OWN_ASSERTION,
    ),
]


@pytest.mark.parametrize(("record", "expected"), [case[1:] for case in RUNS], ids=[case[0] for case in RUNS])
def test_a_run_gets_the_verdict_of_its_process_and_reports(record: RunRecord, expected: Verdict) -> None:
    assert read_run(record, ID, LAYOUT).verdict is expected


# Each record offers what an earlier rule and a later rule both look for; the earlier one must speak.
ORDER = [
    ("a hang comes before foreign code", open_run(timed_out=True, foreign={"pkg": "/x"}), Verdict.HANG),
    ("a crash comes before foreign code", open_run(foreign={"pkg": "/x"}), Verdict.CRASH),
    ("foreign code comes before a skip", run_of(SKIPPED, foreign={"pkg": "/x"}), Verdict.ENVIRONMENT),
    ("foreign code comes before a missing API", red(NEW_IMPORT, foreign={"pkg": "/x"}), Verdict.ENVIRONMENT),
    (
        "an xfail comes before its assertion",
        run_of(Phase("call", "failed", raised=ASSERTION, xfail="known")),
        Verdict.NOT_RUN,
    ),
    (
        "a missing API comes before an assertion",
        red(replace(ASSERTION, context=NEW_IMPORT)),
        Verdict.MISSING_API,
    ),
    ("a missing API comes before a fixture error", red(NEW_IMPORT, "setup"), Verdict.MISSING_API),
    ("an assertion comes before its declaration", red(raised("AssertionError", "", TEST)), Verdict.OWN_ASSERTION),
    (
        "a declared exception comes before a fixture error",
        red(raised("KeyError", ""), "setup"),
        Verdict.DECLARED_EXCEPTION,
    ),
]
ORDER_DECLARED = Expectation(frozenset({"KeyError", "AssertionError"}))


@pytest.mark.parametrize(("record", "expected"), [case[1:] for case in ORDER], ids=[case[0] for case in ORDER])
def test_the_first_rule_that_matches_speaks(record: RunRecord, expected: Verdict) -> None:
    assert read_run(record, ID, LAYOUT, ORDER_DECLARED).verdict is expected


@pytest.mark.parametrize(
    ("looks", "reads"),
    [
        (Looks(existence=frozenset({"new"})), []),
        (Looks(assertions=((6, 8, frozenset({"--fresh"})),)), []),
        (Looks(), ["pkg/core.py"]),
    ],
    ids=["hasattr of a new name", "a new option in the failing assertion", "product source was read"],
)
def test_an_own_assertion_that_only_looks_is_suspect(looks: Looks, reads: list[str]) -> None:
    record = red(ASSERTION)
    record.nodes[ID].reads.extend(reads)
    assert read_run(record, ID, LAYOUT, looks=looks).verdict is Verdict.SUSPECT


def test_looking_elsewhere_is_not_suspect() -> None:
    record = red(ASSERTION)
    record.nodes[ID].reads.append("tests/data.py")
    looks = Looks(existence=frozenset({"old"}), assertions=((40, 41, frozenset({"--fresh"})),))
    assert read_run(record, ID, LAYOUT, looks=looks).verdict is Verdict.OWN_ASSERTION


def test_classify_red_tells_class_phase_and_place() -> None:
    reading = classify_red(red(ASSERTION).nodes[ID], LAYOUT)
    assert (reading.verdict, reading.exception, reading.phase, reading.location) == (
        Verdict.OWN_ASSERTION,
        "AssertionError",
        "call",
        "tests/test_a.py:7",
    )


OK = Reading(Verdict.VACUOUS)
OWN = Reading(Verdict.OWN_ASSERTION)
HANG = Reading(Verdict.HANG)
CRASH = Reading(Verdict.CRASH)
ENVIRONMENT = Reading(Verdict.ENVIRONMENT)
MISSING = Reading(Verdict.MISSING_API)
NOT_RUN = Reading(Verdict.NOT_RUN)
RACE = Expectation(detects=(2, 4))

SUMS = [
    ("the same own assertion each time", [OK] * 3, [OWN] * 3, Expectation(), Verdict.OWN_ASSERTION, True),
    (
        "a declared exception each time",
        [OK],
        [Reading(Verdict.DECLARED_EXCEPTION)],
        Expectation(),
        Verdict.DECLARED_EXCEPTION,
        True,
    ),
    ("green each time", [OK] * 3, [OK] * 3, Expectation(), Verdict.VACUOUS, False),
    ("red at the head", [OWN] * 3, [OWN] * 3, Expectation(), Verdict.HEAD_RED, False),
    ("sometimes red at the head", [OK, OWN, OK], [OWN] * 3, Expectation(), Verdict.FLAKY, False),
    ("skipped at the head", [NOT_RUN] * 3, [OWN] * 3, Expectation(), Verdict.NOT_RUN, False),
    ("never collected at the head", [], [OWN] * 3, Expectation(), Verdict.NOT_RUN, False),
    ("no environment at the head", [ENVIRONMENT], [OWN] * 3, Expectation(), Verdict.ENVIRONMENT, False),
    ("not run at the parent", [OK], [], Expectation(), Verdict.NOT_RUN, False),
    (
        "one doubtful environment among proofs",
        [OK] * 3,
        [OWN, OWN, ENVIRONMENT],
        Expectation(),
        Verdict.ENVIRONMENT,
        False,
    ),
    ("sometimes red at the parent", [OK] * 3, [OWN, OK, OWN], Expectation(), Verdict.FLAKY, False),
    ("different reds", [OK] * 3, [OWN, MISSING, OWN], Expectation(), Verdict.FLAKY, False),
    ("a race that reaches its rate", [OK] * 4, [OWN, OK, OWN, OK], RACE, Verdict.OWN_PROBABILISTIC, True),
    ("a race that misses its rate", [OK] * 4, [OWN, OK, OK, OK], RACE, Verdict.FLAKY, False),
    ("a race that is always caught", [OK] * 4, [OWN] * 4, RACE, Verdict.OWN_ASSERTION, True),
    ("a race that is never caught", [OK] * 4, [OK] * 4, RACE, Verdict.VACUOUS, False),
    ("a race with another red", [OK] * 4, [OWN, OWN, CRASH, OK], RACE, Verdict.FLAKY, False),
    ("a hang", [OK], [HANG], Expectation(), Verdict.HANG, False),
    ("a declared hang", [OK], [HANG], Expectation(hang=True), Verdict.HANG, True),
    ("a crash", [OK], [CRASH], Expectation(), Verdict.CRASH, False),
    ("a declared crash", [OK], [CRASH], Expectation(crash=True), Verdict.CRASH, True),
    ("a declared hang that crashes", [OK], [CRASH], Expectation(hang=True), Verdict.CRASH, False),
    ("a missing API", [OK], [MISSING], Expectation(), Verdict.MISSING_API, False),
]


@pytest.mark.parametrize(
    ("head", "parent", "expected", "verdict", "proof"), [case[1:] for case in SUMS], ids=[case[0] for case in SUMS]
)
def test_runs_add_up_to_one_verdict(
    head: list[Reading], parent: list[Reading], expected: Expectation, verdict: Verdict, proof: bool
) -> None:
    judged = judge(ID, head, parent, expected)
    assert (judged.verdict, judged.proof) == (verdict, proof)


@pytest.mark.parametrize("verdict", list(Verdict), ids=str)
def test_every_verdict_has_a_rule_that_gives_it(verdict: Verdict) -> None:
    given = (
        {case[3] for case in EXCEPTIONS}
        | {case[2] for case in (*RUNS, *ORDER)}
        | {case[4] for case in SUMS}
        | {Verdict.SUSPECT}
    )
    assert verdict in given


def test_the_wilson_interval_agrees_with_published_values() -> None:
    # Brown, Cai and DasGupta (2001) give 0.2366 for 5 of 10 and 0 for 0 of n.
    assert wilson_low(5, 10) == pytest.approx(0.2366, abs=1e-4)
    assert wilson_low(0, 10) == 0
    assert wilson_low(0, 0) == 0


# --- pairs of rules: what the earlier and the later rule look for, at once


@dataclass(frozen=True)
class Sign:
    """What one rule looks for. Two signs with another value for the same thing cannot be there at once."""

    verdict: Verdict
    bases: tuple[str, ...] = ()
    told: Mapping[str, object] = field(default_factory=dict)
    frames: tuple[Frame, ...] | None = None
    record: Mapping[str, object] = field(default_factory=dict)
    node: str | None = None
    phase: str | None = None
    xfail: str | None = None
    looks: Looks | None = None
    declared: bool | None = None


IMPORT = ("builtins.ImportError",)
TIMEOUT_FRAME = Frame("/lib/pytest_timeout.py", 5, "handler", inside=False)
BINDING = {"message": "go() got an unexpected keyword argument 'limit'"}
COLUMN = {"message": "no such column: version_no", "type": "sqlite3.OperationalError"}
LOOKING = Looks(existence=frozenset({"new"}))

# In the order in which the rules speak: of two signs, the one that stands first here decides.
SIGNS = {
    "hang": Sign(Verdict.HANG, record={"timed_out": True, "session_exit": None}, node="open"),
    "crash": Sign(Verdict.CRASH, record={"returncode": -11, "session_exit": None}, node="open"),
    "reports and status disagree": Sign(Verdict.ENVIRONMENT, record={"session_exit": 0}),
    "internal error": Sign(Verdict.ENVIRONMENT, record={"session_exit": 3}),
    "foreign code": Sign(Verdict.ENVIRONMENT, record={"foreign": {"pkg": "/x"}}),
    "xfail": Sign(Verdict.NOT_RUN, xfail="known", node="done"),
    "hypothesis is flaky": Sign(Verdict.FLAKY, told={"type": "hypothesis.errors.FlakyFailure"}),
    "hypothesis cannot run": Sign(Verdict.FIXTURE_ERROR, told={"type": "hypothesis.errors.InvalidArgument"}),
    "pytest-timeout": Sign(Verdict.HANG, ("_pytest.outcomes.OutcomeException",), frames=(TEST, TIMEOUT_FRAME)),
    "group": Sign(
        Verdict.MISSING_API, told={"members": (raised("ImportError", "", TEST, name="pkg", name_from="leaf"),)}
    ),
    "missing import": Sign(Verdict.MISSING_API, IMPORT, {"name": "pkg.core", "name_from": "new"}),
    "missing library": Sign(Verdict.ENVIRONMENT, IMPORT, {"name": "yaml", "name_from": None}),
    "missing attribute": Sign(
        Verdict.MISSING_API, ("builtins.AttributeError",), {"owner": MODULE, "name": "own"}, (TEST,)
    ),
    "missing parameter": Sign(Verdict.MISSING_API, ("builtins.TypeError",), BINDING, (TEST,)),
    "missing name": Sign(Verdict.MISSING_API, ("builtins.NameError",), {"name": "new"}),
    "missing file": Sign(Verdict.MISSING_API, ("builtins.FileNotFoundError",), {"name": "pkg/data.json"}),
    "missing column": Sign(Verdict.MISSING_API, told=COLUMN),
    "missing option": Sign(
        Verdict.MISSING_API, ("builtins.SystemExit",), {"code": 2}, looks=Looks(literals=frozenset({"--fresh"}))
    ),
    "declared": Sign(Verdict.DECLARED_EXCEPTION, declared=True),
    "at import": Sign(Verdict.UNDECLARED_EXCEPTION, node="absent", phase="collect"),
    "in setup": Sign(Verdict.FIXTURE_ERROR, node="done", phase="setup"),
    "suspect": Sign(Verdict.SUSPECT, ("builtins.AssertionError",), frames=(TEST,), looks=LOOKING, phase="call"),
    "own assertion": Sign(Verdict.OWN_ASSERTION, ("builtins.AssertionError",), frames=(TEST,)),
    "product assertion": Sign(Verdict.PRODUCT_ASSERTION, ("builtins.AssertionError",), frames=(TEST, PRODUCT)),
    "in teardown": Sign(Verdict.FIXTURE_ERROR, node="done", phase="teardown"),
    "any exception": Sign(Verdict.UNDECLARED_EXCEPTION),
}
# An own assertion needs no declaration, so it speaks before one; at import and in setup it is not the test's own.
FIRST = {("declared", "own assertion"): "own assertion", ("declared", "suspect"): "suspect"}


def together(*signs: Sign) -> dict[str, object] | None:
    """The values of all signs, or None when two of them cannot hold at once."""
    values: dict[str, object] = {}
    for sign in signs:
        single = {name: getattr(sign, name) for name in ("frames", "node", "phase", "xfail", "looks", "declared")}
        parts = {f"told {key}": value for key, value in sign.told.items()}
        parts |= {f"record {key}": value for key, value in sign.record.items()}
        for key, value in {**{k: v for k, v in single.items() if v is not None}, **parts}.items():
            if values.setdefault(key, value) != value:
                return None
    values["bases"] = tuple(base for sign in signs for base in sign.bases)
    return values


def reading_of(values: dict[str, object]) -> Reading:
    told = {key.removeprefix("told "): value for key, value in values.items() if key.startswith("told ")}
    kind = str(told.pop("type", "pkg.errors.Locked"))
    exception = replace(raised(kind, ""), mro=(kind, *values["bases"]), **told)  # type: ignore[misc, arg-type]
    exception = replace(exception, frames=values.get("frames", (TEST,)))  # type: ignore[arg-type]
    expected = Expectation(frozenset({kind})) if values.get("declared") else Expectation()
    phase, node = str(values.get("phase", "call")), values.get("node", "done")
    record = red(exception, phase)
    record.nodes[ID].phases[1] = replace(record.nodes[ID].phases[1], xfail=values.get("xfail"))  # type: ignore[arg-type]
    if node == "open":
        record.nodes[ID].finished = False
        record.open_node = ID
    elif node == "absent":
        record.nodes.clear()
        record.collect_errors["tests/test_a.py"] = exception
    for key, value in values.items():
        if key.startswith("record "):
            setattr(record, key.removeprefix("record "), value)
    return read_run(record, ID, LAYOUT, expected, values.get("looks", Looks()))  # type: ignore[arg-type]


PAIRS = [
    (first, second)
    for number, first in enumerate(SIGNS)
    for second in list(SIGNS)[number + 1 :]
    if together(SIGNS[first], SIGNS[second]) is not None
]


@pytest.mark.parametrize("name", list(SIGNS))
def test_a_rule_speaks_when_only_its_sign_is_there(name: str) -> None:
    values = together(SIGNS[name])
    assert values is not None
    assert reading_of(values).verdict is SIGNS[name].verdict


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_rules_that_could_speak_the_earlier_one_does(first: str, second: str) -> None:
    both = together(SIGNS[first], SIGNS[second])
    alone = together(SIGNS[FIRST.get((first, second), first)])
    assert both is not None
    assert alone is not None
    found, wanted = reading_of(both), reading_of(alone)
    assert (found.verdict, found.symbol) == (wanted.verdict, wanted.symbol)


def test_every_rule_is_in_a_pair_and_the_table_is_as_large_as_it_was_meant() -> None:
    assert {name for pair in PAIRS for name in pair} == set(SIGNS)
    assert len(PAIRS) > 200


# --- runs of one test


BAD_HEADS = [
    ([OK, ENVIRONMENT, OWN], Verdict.ENVIRONMENT),
    ([NOT_RUN, NOT_RUN], Verdict.NOT_RUN),
    ([], Verdict.NOT_RUN),
    ([OK, NOT_RUN], Verdict.FLAKY),
    ([OK, OWN], Verdict.FLAKY),
    ([OWN, OWN], Verdict.HEAD_RED),
    ([HANG], Verdict.HEAD_RED),
    ([NOT_RUN, OWN], Verdict.FLAKY),
]


@pytest.mark.parametrize("parent", [[], [OWN], [OK], [ENVIRONMENT], [HANG], [OWN, OK]], ids=str)
@pytest.mark.parametrize(("head", "verdict"), BAD_HEADS)
def test_what_the_commit_says_of_itself_comes_before_all_that_the_parent_says(
    head: list[Reading], verdict: Verdict, parent: list[Reading]
) -> None:
    for expected in (Expectation(), Expectation(hang=True, crash=True), RACE):
        judged = judge(ID, head, parent, expected)
        assert (judged.verdict, judged.proof, judged.side) == (verdict, False, "head")


KINDS = [verdict for verdict in Verdict if verdict not in (Verdict.HEAD_RED, Verdict.OWN_PROBABILISTIC)]


@pytest.mark.parametrize("one", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_two_runs_that_differ_are_never_better_than_flaky(one: Verdict, other: Verdict) -> None:
    judged = judge(ID, [OK], [Reading(one), Reading(other)])
    if one is other:
        assert judged.verdict is one
    else:
        expected = Verdict.ENVIRONMENT if Verdict.ENVIRONMENT in (one, other) else Verdict.FLAKY
        assert (judged.verdict, judged.proof) == (expected, False)


WEAKEST_FIRST = [
    (Verdict.ENVIRONMENT, raised("ModuleNotFoundError", "", name="yaml")),
    (Verdict.FLAKY, raised("hypothesis.errors.Flaky")),
    (Verdict.HANG, raised("Failed", "Timeout from pytest-timeout.", TEST, TIMEOUT_FRAME)),
    (Verdict.MISSING_API, NEW_IMPORT),
    (Verdict.FIXTURE_ERROR, raised("hypothesis.errors.InvalidArgument")),
    (Verdict.PRODUCT_ASSERTION, raised("AssertionError", "", TEST, PRODUCT)),
    (Verdict.UNDECLARED_EXCEPTION, raised("ValueError")),
    (Verdict.DECLARED_EXCEPTION, raised("pkg.errors.Locked")),
    (Verdict.OWN_ASSERTION, ASSERTION),
]


@pytest.mark.parametrize("strong", range(len(WEAKEST_FIRST)))
@pytest.mark.parametrize("weak", range(len(WEAKEST_FIRST)))
def test_of_two_failures_in_one_run_the_weaker_evidence_speaks(weak: int, strong: int) -> None:
    verdict = WEAKEST_FIRST[min(weak, strong)][0]
    first, second = WEAKEST_FIRST[weak][1], WEAKEST_FIRST[strong][1]
    phases = run_of(Phase("call", "failed", raised=first), Phase("call", "failed", raised=second))
    assert read_run(phases, ID, LAYOUT, DECLARED).verdict is verdict
    group = raised("ExceptionGroup", "", members=(first, second))
    assert read_exception(group, "call", LAYOUT, DECLARED).verdict is verdict


# --- what was learned from commits


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        (raised("ImportError", "", TEST, PRODUCT, name="pkg.tpyo"), Verdict.UNDECLARED_EXCEPTION),
        (raised("ImportError", "", TEST, PRODUCT, name="pkg.core", name_from="new"), Verdict.MISSING_API),
        (raised("ModuleNotFoundError", "", TEST, PRODUCT, name="yaml"), Verdict.ENVIRONMENT),
        (raised("AttributeError", "module 'pkg' has no attribute 'new'", TEST), Verdict.MISSING_API),
        (raised("AttributeError", "module 'pkg' has no attribute 'old'", TEST), Verdict.UNDECLARED_EXCEPTION),
        (
            raised(
                "AttributeError",
                "module 'pkg' has no attribute 'new'",
                TEST,
                Frame("pkg/__init__.py", 2, "__getattr__"),
            ),
            Verdict.MISSING_API,
        ),
        (
            raised("TypeError", "go() got an unexpected keyword argument 'limit'", TEST, PRODUCT),
            Verdict.MISSING_API,
        ),
        (raised("doctest.DocTestFailure", "", Frame("pkg/core.py", 4, "go", doctest=True)), Verdict.OWN_ASSERTION),
        (
            raised("ExceptionGroup", "", TEST, members=(replace(ASSERTION, frames=()),)),
            Verdict.OWN_ASSERTION,
        ),
    ],
    ids=[
        "an import of the product that nobody brings",
        "an import of the product that the commit brings",
        "an import of the product of a missing library",
        "an attribute known by its words",
        "an attribute that nobody brings",
        "a module's __getattr__",
        "a wrapper of the product",
        "an example of a docstring",
        "a member of a group that nobody raised",
    ],
)
def test_an_exception_is_read_by_where_it_comes_from(exception: Raised, expected: Verdict) -> None:
    assert read_exception(exception, "call", LAYOUT).verdict is expected


def test_an_expected_failure_of_unittest_that_passes_has_not_run() -> None:
    assert read_run(red(raised("Failed", "Unexpected success", LIBRARY)), ID, LAYOUT).verdict is Verdict.NOT_RUN
    assert read_run(red(raised("Failed", "Unexpected success", TEST)), ID, LAYOUT).verdict is Verdict.OWN_ASSERTION


def test_a_skipped_subtest_does_not_skip_its_test() -> None:
    record = run_of(Phase("setup", "passed"), Phase("call", "skipped", skip="later"), Phase("call", "passed"))
    assert read_run(record, ID, LAYOUT).verdict is Verdict.VACUOUS


@pytest.mark.parametrize(("reader", "expected"), [("pkg/core.py", "own-assertion"), ("tests/a.py", "suspect")])
def test_only_the_test_s_own_reading_of_product_source_is_suspect(reader: str, expected: str) -> None:
    record = red(ASSERTION)
    record.nodes[ID].reads.append("pkg/probe.py")
    record.nodes[ID].readers["pkg/probe.py"] = reader
    assert read_run(record, ID, LAYOUT).verdict == expected


@pytest.mark.parametrize(
    ("layout", "looks"),
    [
        (LAYOUT, Looks(assertions=((6, 8, frozenset({".returncode"})),), literals=frozenset({"--fresh"}))),
        (
            replace(LAYOUT, versions=frozenset({"__version__"})),
            Looks(assertions=((6, 8, frozenset({".__version__"})),)),
        ),
    ],
    ids=["the status of a run with a new option", "a version that is counted up"],
)
def test_an_assertion_that_says_only_what_is_new_is_suspect(layout: Layout, looks: Looks) -> None:
    assert read_run(red(ASSERTION), ID, layout, looks=looks).verdict is Verdict.SUSPECT
    elsewhere = replace(ASSERTION, frames=(Frame("tests/helper.py", 7, "run"),))
    assert read_run(red(elsewhere), ID, layout, looks=looks).verdict is Verdict.OWN_ASSERTION


@pytest.mark.parametrize(
    ("module", "ours"),
    [("pkg.core.x", True), ("space", True), ("space.one.x", True), ("space.two", False), ("pkgs", False)],
)
def test_a_namespace_belongs_to_the_repository_as_far_as_its_own_portions_go(module: str, ours: bool) -> None:
    assert replace(LAYOUT, first_party=frozenset({"pkg", "space.one"})).is_first_party(module) is ours
