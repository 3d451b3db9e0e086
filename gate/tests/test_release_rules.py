"""The rules of a release: what stops it, what is only told, and in which order. Nothing here runs a program."""

from __future__ import annotations

import datetime
import hashlib
import json
from dataclasses import replace

import pytest

from holdtrue_gate import release as rules
from holdtrue_gate.errors import ConfigError
from holdtrue_gate.findings import Finding
from holdtrue_gate.project import Collected
from holdtrue_gate.proof import JudgedCommit, JudgedTest, Proof, State, best
from holdtrue_gate.proof import judge as judge_proof
from holdtrue_gate.release import Evidence, PlantedBug, Reason, Release, TagState, Wheel
from holdtrue_gate.release_policy import Block, Policy, parse
from holdtrue_gate.report import intoto
from holdtrue_gate.spec import CATEGORIES, SEVERITIES, Sabotage, Spec
from holdtrue_gate.trace import Remark, Trace

TODAY = datetime.date(2030, 6, 15)
SHA = "a" * 40
TEST = "regressions/F-0007-x/test_x.py::test_x"
FINDING = Finding(
    id="F-0007",
    title="an update keeps the old vector",
    category="data",
    severity="B",
    invariant=None,
    status="fixed",
    reason=None,
    expiry=None,
    tests=(TEST,),
    expected_at_parent=("assertion",),
    detects=None,
    file="regressions/F-0007-x/finding.toml",
)
OPEN = replace(FINDING, status="open")
ACCEPTED = replace(FINDING, status="accepted", reason="nobody has it", expiry=TODAY)
SPEC = Spec(
    id="INV-001",
    slug="no-oversell",
    category="data",
    severity="A",
    statement="s",
    violated_by="v",
    crash_model="none",
    enforced_by=("shop:take",),
    properties=("properties/test_a.py::test_a",),
    failpoints=(),
    sabotage=(Sabotage("no-look", "invariants/sabotage/x.patch", ("properties/test_a.py",)),),
    reviewed_sha256=None,
    file="invariants/INV-001-no-oversell.toml",
)


def said(reasons: list[Reason]) -> list[tuple[str, str]]:
    return [(reason.code, reason.outcome) for reason in reasons]


def release(*reasons: Reason, checks: tuple[str, ...] = ("work tree",), **more: object) -> Release:
    made = Release(
        project="shop",
        version="1.2.3",
        commit=SHA,
        tree_sha256="b" * 64,
        tag=None,
        policy=Policy(),
        checks=checks,
        reasons=rules.ordered(reasons),
    )
    return replace(made, **more)  # type: ignore[arg-type]


# --- open and accepted findings


@pytest.mark.parametrize("category", CATEGORIES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_open_data_trust_and_concurrency_findings_stop_a_release_and_others_are_told(
    category: str, severity: str
) -> None:
    (reason,) = rules.status_reasons([replace(OPEN, category=category, severity=severity)], Policy(), TODAY)
    blocked = category in ("data", "trust", "concurrency")
    assert (reason.code, reason.outcome) == ("open-finding", "fail" if blocked else "warn")
    assert "an update keeps the old vector" in reason.message


def test_a_policy_says_itself_which_open_findings_stop_a_release() -> None:
    policy = Policy(block=(Block(("resource",), ("A", "B")),))
    outcomes = [
        rules.status_reasons([replace(OPEN, category=category, severity=severity)], policy, TODAY)[0].outcome
        for category, severity in (("resource", "B"), ("resource", "C"), ("data", "A"))
    ]
    assert outcomes == ["fail", "warn", "warn"]


def test_an_acceptance_holds_through_its_last_day_and_stops_the_release_after_it() -> None:
    assert said(rules.status_reasons([ACCEPTED], Policy(), TODAY)) == [("accepted-finding", "warn")]
    tomorrow = TODAY + datetime.timedelta(days=1)
    assert said(rules.status_reasons([ACCEPTED], Policy(), tomorrow)) == [("expired-acceptance", "fail")]


def test_an_expired_acceptance_stops_the_release_whatever_its_category() -> None:
    expired = replace(ACCEPTED, category="compatibility", severity="D", expiry=datetime.date(2020, 1, 1))
    assert said(rules.status_reasons([expired], Policy(), TODAY)) == [("expired-acceptance", "fail")]


def test_a_fixed_finding_is_no_matter_of_status() -> None:
    assert rules.status_reasons([FINDING], Policy(), TODAY) == []


# --- proofs


def judged(result: str, *tests: JudgedTest, reason: str = "why", **named: tuple[str, ...]) -> JudgedCommit:
    return JudgedCommit(SHA, result, reason, tests, {key.replace("_", "-"): value for key, value in named.items()})


PROOF = JudgedTest(TEST, "own-assertion", is_proof=True)
SUSPECT = JudgedTest(TEST, "suspect", is_proof=False, reason="it reads product source")


def test_a_passing_commit_with_the_findings_own_test_as_proof_proves_it() -> None:
    proof = judge_proof("F-0007", (TEST,), judged("pass", PROOF))
    assert (proof.state, proof.commit, proof.why) == (State.PROVED, SHA, "")


def test_a_parameter_of_the_findings_test_is_its_test() -> None:
    one = JudgedTest(f"{TEST}[3]", "own-assertion", is_proof=True)
    assert judge_proof("F-0007", (TEST,), judged("pass", one)).state is State.PROVED


def test_a_passing_commit_proves_nothing_by_the_test_of_another_finding() -> None:
    other = JudgedTest("regressions/F-0008-y/test_y.py::test_y", "own-assertion", is_proof=True)
    proof = judge_proof("F-0007", (TEST,), judged("pass", other))
    assert proof.state is State.NOT_PROVED
    assert "none of its tests is new in its commit" in proof.why


def test_a_passing_commit_in_which_the_findings_test_is_no_proof_does_not_prove_it() -> None:
    other = JudgedTest("tests/test_z.py::test_z", "own-assertion", is_proof=True)
    vacuous = JudgedTest(TEST, "vacuous", is_proof=False)
    proof = judge_proof("F-0007", (TEST,), judged("pass", other, vacuous))
    assert proof.state is State.NOT_PROVED
    assert f"{TEST} is vacuous" in proof.why


def test_a_commit_that_does_not_pass_proves_nothing_and_the_test_says_why() -> None:
    proof = judge_proof("F-0007", (TEST,), judged("fail", SUSPECT, reason="1 new test is not acceptable"))
    assert proof.state is State.NOT_PROVED
    assert "suspect (it reads product source)" in proof.why
    # A proof beside what makes the commit fail does not save it.
    assert judge_proof("F-0007", (TEST,), judged("fail", PROOF)).state is State.NOT_PROVED


def test_a_commit_that_cannot_be_judged_is_a_doubt() -> None:
    assert judge_proof("F-0007", (TEST,), judged("cannot-judge", PROOF)).state is State.CANNOT_JUDGE


def test_a_test_that_was_renamed_since_is_known_by_the_name_that_the_commit_gave_it() -> None:
    today = ("regressions/F-0007-x/test_renamed.py",)
    assert judge_proof("F-0007", today, judged("pass", PROOF)).state is State.NOT_PROVED
    assert judge_proof("F-0007", today, judged("pass", PROOF, F_0007=(TEST,))).state is State.PROVED


def test_one_proof_is_enough_and_a_doubt_outweighs_a_no() -> None:
    no, doubt, yes = (Proof("F-0007", state) for state in (State.NOT_PROVED, State.CANNOT_JUDGE, State.PROVED))
    assert best("F-0007", [no, doubt, yes], complete=True) is yes
    assert best("F-0007", [no, doubt], complete=True) is doubt
    assert best("F-0007", [no], complete=True) is no


def test_without_a_commit_there_is_no_proof_and_in_a_shallow_clone_nobody_knows() -> None:
    assert best("F-0007", [], complete=True).state is State.NOT_PROVED
    assert "no commit has the trailer" in best("F-0007", [], complete=True).why
    assert best("F-0007", [], complete=False).state is State.CANNOT_JUDGE
    assert best("F-0007", [Proof("F-0007", State.NOT_PROVED)], complete=False).state is State.CANNOT_JUDGE


@pytest.mark.parametrize(
    ("state", "outcome"), [(State.NOT_PROVED, "fail"), (State.CANNOT_JUDGE, "cannot-judge"), (State.PROVED, None)]
)
def test_a_fixed_finding_needs_a_proof(state: State, outcome: str | None) -> None:
    reasons = rules.proof_reasons([FINDING, OPEN], {"F-0007": Proof("F-0007", state, "why", SHA)})
    assert said(reasons) == ([] if outcome is None else [("not-proved", outcome)])


def test_a_proof_that_nobody_looked_for_is_a_doubt() -> None:
    assert said(rules.proof_reasons([FINDING], {})) == [("not-proved", "cannot-judge")]


def test_the_test_of_a_fixed_finding_must_still_be_collected() -> None:
    assert rules.test_reasons([FINDING], Collected((TEST,))) == []
    assert rules.test_reasons([FINDING], Collected((f"{TEST}[1]",))) == []
    assert said(rules.test_reasons([FINDING], Collected((f"{TEST}_too",)))) == [("test-gone", "fail")]
    assert rules.test_reasons([OPEN, ACCEPTED], Collected()) == []


def test_a_test_that_cannot_be_imported_is_a_doubt_and_another_broken_file_does_not_hide_a_missing_test() -> None:
    doubt = [("test-not-collected", "cannot-judge")]
    assert said(rules.test_reasons([FINDING], Collected(failure="pytest ended"))) == doubt
    broken = {"regressions/F-0007-x/test_x.py": "No module named shop"}
    assert said(rules.test_reasons([FINDING], Collected(broken=broken))) == doubt
    assert said(rules.test_reasons([FINDING], Collected(broken={"regressions/conftest.py": "no"}))) == doubt
    elsewhere = {"tests/test_other.py": "No module named shop"}
    assert said(rules.test_reasons([FINDING], Collected(broken=elsewhere))) == [("test-gone", "fail")]


def test_a_finding_is_not_closed_by_deleting_it() -> None:
    def reasons(policy: Policy, named: set[str], folders: set[str]) -> list[tuple[str, str]]:
        return said(rules.history_reasons([FINDING], named, folders, policy))

    assert reasons(Policy(), {"F-0007"}, {"F-0007"}) == []
    assert reasons(Policy(), {"F-0008"}, set()) == [("finding-gone", "fail")]
    assert reasons(Policy(), set(), {"F-0008"}) == [("finding-gone", "fail")]
    assert reasons(Policy(withdrawn=("F-0008",)), {"F-0008"}, {"F-0008"}) == []


# --- invariants


def test_every_problem_of_the_trace_stops_a_release_and_what_is_unknown_is_a_doubt() -> None:
    trace = Trace(
        problems=[Remark("no-enforcer", "name the function.", "INV-001"), Remark("unreadable-mark", "not UTF-8.")],
        unknown=[Remark("collection-broke", "pytest ended.")],
        warnings=[Remark("never-reviewed", "stamp it.", "INV-001"), Remark("unused-failpoint", "no spec.")],
    )
    reasons = rules.trace_reasons(trace)
    assert said(reasons) == [
        ("trace:no-enforcer", "fail"),
        ("trace:unreadable-mark", "fail"),
        ("trace:collection-broke", "cannot-judge"),
        ("trace:never-reviewed", "warn"),
    ]
    assert [reason.check for reason in reasons] == ["invariant INV-001", "trace", "trace", "invariant INV-001"]
    assert rules.trace_reasons(Trace()) == []


@pytest.mark.parametrize(
    ("bugs", "expected"),
    [
        ([PlantedBug("INV-001", "no-look", "caught")], []),
        ([PlantedBug("INV-001", "no-look", "not-caught", "it passes")], [("sabotage-not-caught", "fail")]),
        ([PlantedBug("INV-001", "no-look", "cannot-judge", "red")], [("sabotage-not-caught", "cannot-judge")]),
        ([], [("sabotage-not-caught", "cannot-judge")]),
        ([PlantedBug("INV-002", "no-look", "caught")], [("sabotage-not-caught", "cannot-judge")]),
        ([PlantedBug("INV-001", "no-look", "something new")], [("sabotage-not-caught", "cannot-judge")]),
    ],
)
def test_every_planted_bug_must_have_been_tried_and_caught(
    bugs: list[PlantedBug], expected: list[tuple[str, str]]
) -> None:
    assert said(rules.sabotage_reasons([SPEC], bugs)) == expected


# --- tree, tag and wheel


def test_a_work_tree_that_is_not_the_commit_stops_a_release() -> None:
    assert rules.tree_reasons([]) == []
    (reason,) = rules.tree_reasons([f"f{n}" for n in range(7)])
    assert (reason.code, reason.outcome) == ("dirty-tree", "fail")
    assert "f0, f1, f2, f3, f4 and 2 more" in reason.message


TAG = TagState("v1.2.3", None, SHA, "1.2.3", None, "CHANGELOG.md", "# Changes\n\n## 1.2.3 (2030-06-15)\n")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"at": SHA}, []),
        ({"at": "b" * 40}, [("tag:elsewhere", "fail")]),
        ({"at": ""}, [("tag:elsewhere", "fail")]),
        ({"tag": "v1.2.4"}, [("tag:version", "fail")]),
        ({"tag": "1.2.3"}, [("tag:version", "fail")]),
        ({"version": None}, [("tag:no-version", "cannot-judge")]),
        ({"version": None, "wheel_version": "1.2.3"}, []),
        ({"version": None, "wheel_version": "1.2.4"}, [("tag:version", "fail"), ("tag:changelog", "fail")]),
        ({"changelog": "## 1.2.30\n## 1.2.3rc1\n## 11.2.3\n1.2.3 is out\n"}, [("tag:changelog", "fail")]),
        ({"changelog": "## 1.2.3 (unreleased)\n"}, [("tag:unreleased", "fail")]),
        ({"changelog": "## [v1.2.3] - 2030-06-15\n"}, []),
        ({"changelog": "1.2.3\n=====\n"}, []),
        ({"changelog": "```\n## 1.2.3\n```\n"}, [("tag:changelog", "fail")]),
        ({"changelog": None}, [("tag:no-changelog", "warn")]),
    ],
)
def test_a_tag_must_be_free_and_say_the_version_that_the_changelog_says(
    changes: dict[str, str | None], expected: list[tuple[str, str]]
) -> None:
    assert said(rules.tag_reasons(replace(TAG, **changes), Policy())) == expected  # type: ignore[arg-type]


def test_a_changelog_that_the_policy_names_must_be_there() -> None:
    missing = replace(TAG, changelog=None)
    assert said(rules.tag_reasons(missing, Policy(changelog="NEWS.md"))) == [("tag:no-changelog", "fail")]


def test_the_prefix_of_tags_is_the_projects_choice() -> None:
    assert rules.tag_reasons(replace(TAG, tag="shop-1.2.3"), Policy(tag_prefix="shop-")) == []
    assert rules.tag_reasons(replace(TAG, tag="1.2.3"), Policy(tag_prefix="")) == []


WHEEL = Wheel("shop-1.2.3-py3-none-any.whl", "c" * 64, "1.2.3")


@pytest.mark.parametrize(
    ("name", "version", "members", "expected"),
    [
        ("shop", "1.2.3", {"shop/a.py": "1"}, []),
        ("Shop", None, {"shop/a.py": "1", "shop-1.2.3.dist-info/RECORD": "9"}, []),
        ("other", "1.2.3", {"shop/a.py": "1"}, [("foreign-wheel:name", "fail")]),
        ("shop", "1.2.4", {"shop/a.py": "1"}, [("foreign-wheel:version", "fail")]),
        ("shop", "1.2.3", {"shop/a.py": "2"}, [("foreign-wheel:source", "fail")]),
        ("shop", "1.2.3", {"shop/_version.py": "7"}, [("foreign-wheel:unknown-files", "warn")]),
    ],
)
def test_a_wheel_must_be_of_this_project_this_version_and_this_source(
    name: str, version: str | None, members: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    files = {"src/shop/a.py": "1", "tests/b.py": "2"}
    assert said(rules.wheel_reasons(WHEEL, name, "shop", version, members, files)) == expected


# --- all of them together


def no(code: str, check: str = "x", severity: str = "", outcome: str = "fail") -> Reason:
    return Reason(check, code, outcome, "m", "", severity)


def test_reasons_come_worst_first() -> None:
    worst_first = [
        no("open-finding", "finding F-0010", "A"),
        no("open-finding", "finding F-0002", "B"),
        no("open-finding", "finding F-0010", "B"),
        no("expired-acceptance", "finding F-0001", "D"),
        no("not-proved", "finding F-0001", "A"),
        no("sabotage-not-caught", "invariant INV-001", "A"),
        no("trace:no-enforcer", "invariant INV-001"),
        no("dirty-tree"),
        no("tag:version"),
        no("not-proved", "finding F-0001", "A", "cannot-judge"),
        no("accepted-finding", "finding F-0001", "A", "warn"),
    ]
    assert list(rules.ordered(reversed(worst_first))) == worst_first
    assert list(rules.ordered([*worst_first, *worst_first])) == worst_first


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], "pass"),
        (["warn"], "pass"),
        (["cannot-judge", "warn"], "cannot-judge"),
        (["cannot-judge", "fail"], "fail"),
    ],
)
def test_a_no_outweighs_a_doubt_and_a_doubt_outweighs_every_pass(outcomes: list[str], expected: str) -> None:
    assert release(*(no("trace:x", outcome=outcome) for outcome in outcomes)).result == expected


def test_the_report_has_the_promised_shape_and_the_same_bytes_each_time() -> None:
    made = release(
        no("open-finding", "finding F-0007"),
        checks=("finding F-0007", "work tree"),
        findings=(OPEN,),
        proofs={"F-0007": Proof("F-0007", State.PROVED, "", SHA, (PROOF,))},
        wheel=WHEEL,
    ).as_dict()
    assert json.dumps(made) == json.dumps(json.loads(json.dumps(made)))
    assert (made["schema"], made["result"]) == ("holdtrue.gate.release/1", "fail")
    assert made["checks"] == [
        {"name": "finding F-0007", "outcome": "fail"},
        {"name": "work tree", "outcome": "pass"},
    ]


# --- the policy's file


def policy_of(text: str) -> Policy:
    return parse(text.encode())


def test_without_a_table_the_policy_is_the_documented_one() -> None:
    assert parse(None) == policy_of("[tool.gate]\nruns = 3\n") == Policy()
    assert Policy().block == (Block(("data", "trust", "concurrency")),)


def test_the_policy_reads_words_and_lists_and_what_is_left_out_means_all() -> None:
    policy = policy_of(
        '[tool.gate.release]\ntag_prefix = ""\nchangelog = "NEWS.md"\nwithdrawn = ["F-0009"]\n'
        '[[tool.gate.release.block]]\ncategory = "data"\n'
        '[[tool.gate.release.block]]\nseverity = ["A", "B"]\n'
    )
    assert policy == Policy((Block(("data",)), Block(severities=("A", "B"))), ("F-0009",), "", "NEWS.md")


def test_an_empty_list_blocks_nothing() -> None:
    assert policy_of("[tool.gate.release]\nblock = []\n").block == ()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("blok = []", "did you mean `block`?"),
        ('block = ["data"]', "write tables [[block]]"),
        ('block = [{category = "dta"}]', "write one of data, trust"),
        ('block = [{severity = ["A", "E"]}]', "write one of A, B, C, D"),
        ('block = [{sevrity = "A"}]', "did you mean `severity`?"),
        ("block = [{category = []}]", "`category` is empty"),
        ("tag_prefix = 3", "`tag_prefix` is a number"),
        ('tag_prefix = "a b"', "write what stands before the version"),
        ('changelog = "../x"', "relative to the project"),
        ('withdrawn = ["7"]', "write F- and four digits"),
    ],
)
def test_a_key_or_value_that_means_nothing_is_an_error_that_says_what_to_write(table: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy_of(f"[tool.gate.release]\n{table}\n")
    assert told in caught.value.message
    assert caught.value.exit_code == 2


def test_a_table_whose_name_is_nearly_release_is_no_policy_that_nobody_reads() -> None:
    with pytest.raises(ConfigError) as caught:
        policy_of("[tool.gate.relase]\nblock = []\n")
    assert "[tool.gate.release]" in caught.value.hint
    assert policy_of("[tool.gate.mutants]\nx = 1\n") == Policy()


# --- the statement


REPORT = b'{"schema": "holdtrue.gate.release/1"}\n'


def test_the_statement_is_an_in_toto_test_result_about_the_commit_and_the_wheel() -> None:
    made = release(
        no("accepted-finding", "finding F-0007", outcome="warn"),
        checks=("work tree", "finding F-0007"),
        wheel=WHEEL,
        sabotage_report=Evidence("sabotage.json", "d" * 64),
        settings=Evidence("pyproject.toml", "e" * 64),
    )
    statement = json.loads(intoto.render(made, REPORT, "https://ci.example.org/7"))
    assert set(statement) == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["subject"] == [
        {"name": "shop", "digest": {"gitCommit": SHA}},
        {"name": "shop-1.2.3-py3-none-any.whl", "digest": {"sha256": "c" * 64}},
    ]
    predicate = statement["predicate"]
    assert predicate["configuration"] == [
        {
            "name": "gate-release.json",
            "digest": {"sha256": hashlib.sha256(REPORT).hexdigest()},
            "mediaType": "application/json",
        },
        {"name": "pyproject.toml", "digest": {"sha256": "e" * 64}},
        {"name": "sabotage.json", "digest": {"sha256": "d" * 64}},
    ]
    assert predicate["url"] == "https://ci.example.org/7"
    assert (predicate["passedTests"], predicate["warnedTests"], predicate["failedTests"]) == (
        ["work tree"],
        ["finding F-0007"],
        [],
    )


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [([], "PASSED"), (["warn"], "WARNED"), (["fail"], "FAILED"), (["cannot-judge"], "FAILED")],
)
def test_the_statement_calls_a_doubt_failed(outcomes: list[str], expected: str) -> None:
    made = release(*(no("trace:x", "work tree", outcome=outcome) for outcome in outcomes))
    predicate = json.loads(intoto.render(made, REPORT))["predicate"]
    assert predicate["result"] == expected
    assert ("work tree" in predicate["failedTests"]) == (expected == "FAILED")
    assert "url" not in predicate


def test_the_statement_has_the_same_bytes_for_the_same_release() -> None:
    assert intoto.render(release(), REPORT) == intoto.render(release(), REPORT)
    assert intoto.render(release(), REPORT) != intoto.render(release(), REPORT + b"\n")
