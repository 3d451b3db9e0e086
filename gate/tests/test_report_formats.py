"""Reports as pure functions of a document: each format is checked by its own rules, and tried on what it must refuse."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft202012Validator, ValidationError

from gate.tests import report_documents as documents
from gate.tests.report_documents import HOSTILE, commit, document, full, hostile, hunk, judged, weakened
from holdtrue_gate.errors import UsageError
from holdtrue_gate.report import document as reading
from holdtrue_gate.report import github, kinds, rules
from holdtrue_gate.verdict import Verdict

ALL = {"full": full, "hostile": hostile, "long": documents.long, "nothing": document}
each_document = pytest.mark.parametrize("made", ALL.values(), ids=ALL.keys())
each_kind = pytest.mark.parametrize("kind", kinds.KINDS)


def issues(kind: str, data: documents.Data) -> list[dict[str, Any]]:
    loaded = json.loads(kinds.render(kind, data))
    return loaded["runs"][0]["results"] if kind == "sarif" else loaded  # type: ignore[no-any-return]


# --- the document


@each_document
def test_documents_by_hand_are_of_the_schema(made: Any) -> None:
    reading.validate(made())


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(reading.schema())


def test_the_schema_knows_every_verdict_and_every_verdict_has_a_rule() -> None:
    names = {str(verdict) for verdict in Verdict}
    assert set(reading.schema()["$defs"]["verdict"]["enum"]) == names
    assert set(rules.VERDICTS) == names
    assert all(rule.advice for name, rule in rules.VERDICTS.items() if name not in documents_proofs())


def documents_proofs() -> set[str]:
    return {"own-assertion", "own-probabilistic", "declared-exception"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(schema="holdtrue.gate/2"), "$.schema"),
        (lambda d: d.pop("range"), "range"),
        (lambda d: d.update(result="maybe"), "$.result"),
        (lambda d: d.update(commits={}), "$.commits"),
        (lambda d: d["commits"][0].update(sha="<b>"), "$.commits[0].sha"),
        (lambda d: d["commits"][0]["tests"][0].update(verdict="proved"), "verdict"),
        (lambda d: d["commits"][0]["tests"][0].update(line="12"), "line"),
        (lambda d: d["commits"][0]["tests"][0].update(message=["a"]), "message"),
        (lambda d: d["commits"][0]["tests"][0]["runs"][0].update(side="left"), "side"),
        (lambda d: d["commits"][0]["tests"][0]["runs"][5]["source"][0].update(line=0), "line"),
        (lambda d: d["commits"][0]["hunks"][0].pop("status"), "status"),
        (lambda d: d["commits"][1]["weakened"][0].update(blocks="yes"), "blocks"),
    ],
)
def test_a_document_of_another_shape_is_refused_with_its_place(change: Any, words: str) -> None:
    data = full()
    change(data)
    with pytest.raises(UsageError) as raised:
        reading.read(json.dumps(data).encode())
    assert raised.value.code == "bad-document"
    assert words in raised.value.message
    assert len(raised.value.message) < 400


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b"[]", "no gate report"),
        (b"null", "no gate report"),
        (b'{"schema": "holdtrue.gate/1", "result": "usage", "error": {"code": "bad-revision"}}', "bad-revision"),
        (b'{"schema": "' + b"x" * 100_000 + b'"}', "no gate report"),
    ],
    ids=["empty", "not-text", "deep-list", "deep-object", "list", "null", "error", "huge-value"],
)
def test_what_is_no_document_is_a_short_usage_error(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        reading.read(data)
    assert raised.value.exit_code == 2
    assert len(raised.value.message) < 400


@each_kind
@each_document
def test_a_report_is_a_function_of_the_document_that_survives_storage(kind: str, made: Any) -> None:
    stored = reading.read(json.dumps(made()).encode())
    untouched = copy.deepcopy(stored)
    first = kinds.render(kind, stored)
    assert first == kinds.render(kind, made())
    assert stored == untouched
    first.encode("utf-8")


@each_kind
def test_a_document_without_the_newer_keys_still_renders(kind: str) -> None:
    data = full()
    for one in data["commits"]:
        one.pop("notes")
        for test in one["tests"]:
            for key in ("line", "blocks", "changed", "side", "symbol", "message"):
                test.pop(key)
            test["runs"] = [{"side": run["side"], "outcome": run["outcome"]} for run in test["runs"]]
        for part in one["hunks"]:
            for key in ("id", "head", "parent", "runs", "group", "digest", "reason", "tests"):
                part.pop(key)
        for entry in one["weakened"]:
            for key in ("before", "after", "location", "reason", "blocks"):
                entry.pop(key)
    assert "test_cart" in kinds.render(kind, reading.read(json.dumps(data).encode()))


@each_kind
@pytest.mark.parametrize("part", ["weakened", "unpinned", "no-tests"])
def test_every_format_tells_of_weakened_tests_hunks_and_problems(kind: str, part: str) -> None:
    assert part in kinds.render(kind, full())


def test_json_escapes_what_a_runner_would_take_for_a_command() -> None:
    text = kinds.render("json", hostile())
    assert "##[" not in text
    assert json.loads(text) == hostile()


# --- terminal


def test_the_terminal_shows_the_failing_line_of_what_blocks() -> None:
    test = judged("tests/test_a.py::test_a", "undeclared-exception", blocks=True, reason="raises what nobody declared")
    text = kinds.render("terminal", document(commit(test, result="fail")))
    assert "  tests/test_a.py:14  at the parent" in text
    assert "    ❯ 14 │     assert cart.total() == 55" in text
    assert "      13 │     cart = Cart(items=[Item(60)], discounts=[5])" in text


def test_the_terminal_has_a_line_for_each_weakened_test_and_one_for_the_hunks() -> None:
    lines = kinds.render("terminal", full()).splitlines()
    (told,) = [line for line in lines if "expectation-changed" in line]
    assert told.startswith("  ✘ weakened: expectation-changed  tests/test_cart.py::test_an_empty_cart_costs_nothing")
    assert "== 0 → == 5" in told
    (told,) = [line for line in lines if "hunks pinned" in line]
    assert told == "  1 of 3 hunks pinned; inseparable: shop/money.py:30-32; unpinned: shop/cart.py:20-22"


def test_the_terminal_obeys_nothing_of_untrusted_text() -> None:
    data = hostile()
    data["commits"][0]["subject"] += "[bold red]rich[/]"
    text = kinds.render("terminal", data)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold red]rich[/]" in text
    # Nothing of it begins a line of its own.
    assert not any(line.lstrip().startswith("::set-env") for line in text.splitlines())


# --- JUnit


def check_junit(text: str) -> None:
    """The rules of the JUnit schema of Apache Ant (JUnit.xsd): order of children, required attributes, counts."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    assert not root.attrib
    for number, suite in enumerate(root):
        assert suite.tag == "testsuite"
        required = {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "package", "id"}
        assert required <= set(suite.attrib) <= required | {"skipped"}
        assert suite.get("name")
        assert suite.get("id") == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
        tags = [child.tag for child in suite]
        cases = suite.findall("testcase")
        assert tags == ["properties", *["testcase"] * len(cases), "system-out", "system-err"]
        for entry in suite[0]:
            assert (entry.tag, set(entry.attrib), len(entry)) == ("property", {"name", "value"}, 0)
            assert entry.get("name", "").strip()
        for case in cases:
            assert set(case.attrib) == {"name", "classname", "time"}
            assert case.get("name", "").strip()
            assert [child.tag for child in case] in ([], ["skipped"], ["failure"], ["error"])
            for child in case:
                wanted = {"message"} if child.tag == "skipped" else {"message", "type"}
                assert set(child.attrib) == wanted
        assert int(suite.get("tests", "-1")) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "-1")) == sum(case.find(tag) is not None for case in cases)


@each_document
def test_junit_is_of_the_strict_schema(made: Any) -> None:
    check_junit(kinds.render("junit", made()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('hostname="localhost" ', ""),
        ("<testcase ", '<testcase file="x" '),
        ("<properties>", "<system-out /><properties>"),
        ("</testsuite>", "<properties /></testsuite>"),
        ('tests="6"', 'tests="7"'),
        ('errors="1"', 'errors="0"'),
        ("1970-01-01T", "yesterday "),
        ("</testcase>", '<error message="a" type="b" /></testcase>'),
        (' type="vacuous"', ""),
    ],
)
def test_the_check_of_junit_refuses_what_the_schema_refuses(old: str, new: str) -> None:
    text = kinds.render("junit", full())
    assert old in text
    with pytest.raises(AssertionError):
        check_junit(text.replace(old, new, 1))


def outcomes(data: documents.Data) -> dict[str, str]:
    root = ET.fromstring(kinds.render("junit", data))
    return {case.get("name", ""): case[0].tag if len(case) else "passed" for case in root.iter("testcase")}


def test_junit_fails_what_blocks_errs_where_nothing_is_known_and_skips_what_did_not_run() -> None:
    found = outcomes(
        document(
            commit(
                judged("t.py::test_proof"),
                judged("t.py::test_blocks", "vacuous", blocks=True),
                judged("t.py::test_beside", "vacuous"),
                judged("t.py::test_doubt", "environment"),
                judged("t.py::test_skipped", "not-run"),
                judged("t.py::test_skipped_and_blocks", "not-run", blocks=True),
                result="fail",
                weakened=[weakened(id="t.py::test_weak"), weakened(id="t.py::test_told", blocks=False)],
            )
        )
    )
    assert found == {
        "test_proof": "passed",
        "test_blocks": "failure",
        "test_beside": "passed",
        "test_doubt": "error",
        "test_skipped": "skipped",
        "test_skipped_and_blocks": "failure",
        "test_weak (expectation-changed)": "failure",
        "test_told (expectation-changed)": "passed",
    }


@pytest.mark.parametrize(("result", "outcome"), [("fail", "failure"), ("cannot-judge", "error")])
def test_a_commit_that_does_not_pass_is_never_a_green_suite(result: str, outcome: str) -> None:
    found = outcomes(document(commit(judged("t.py::test_a"), result=result, reason="a fix needs a test")))
    assert found == {"test_a": "passed", "commit": outcome}


def test_junit_names_classes_and_tests_as_reporters_expect_them() -> None:
    ids = ["a/test_b.py::TestX::TestY::test_z[p::q]", "a/test_b.py", "doc/guide.md::guide.md"]
    root = ET.fromstring(kinds.render("junit", document(commit(*map(judged, ids)))))
    assert [(case.get("classname"), case.get("name")) for case in root.iter("testcase")] == [
        ("a.test_b.TestX.TestY", "test_z[p::q]"),
        ("a.test_b", "a.test_b"),
        ("doc.guide.md", "guide.md"),
    ]


def test_junit_carries_the_frame_and_the_output_of_a_failure() -> None:
    test = judged("t.py::test_a", "undeclared-exception", blocks=True)
    root = ET.fromstring(kinds.render("junit", document(commit(test, result="fail"))))
    told = root.findtext(".//failure") or ""
    assert "> 14 |     assert cart.total() == 55" in told
    assert "discount: 5.00" in told


# --- SARIF

# The part of the schema of SARIF 2.1.0 (OASIS, errata 01) that a log of ours can touch; nothing else is let through.
_TEXT = {"type": "string"}
_MESSAGE = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": _TEXT, "markdown": _TEXT},
    "additionalProperties": False,
}
_ARTIFACT = {
    "type": "object",
    "required": ["uri"],
    "properties": {
        "uri": {"type": "string", "pattern": r"^(?:[A-Za-z0-9._~!$&'()*+,;=@/-]|%[0-9A-F]{2})+$"},
        "uriBaseId": _TEXT,
    },
    "additionalProperties": False,
}
_REGION = {
    "type": "object",
    "properties": {"startLine": {"type": "integer", "minimum": 1}, "endLine": {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
_DESCRIPTOR = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "name": _TEXT,
        "shortDescription": _MESSAGE,
        "fullDescription": _MESSAGE,
        "help": _MESSAGE,
        "properties": {
            "type": "object",
            "properties": {"tags": {"type": "array", "uniqueItems": True, "items": _TEXT}},
        },
    },
    "additionalProperties": False,
}
_RESULT = {
    "type": "object",
    "required": ["message"],
    "properties": {
        "ruleId": _TEXT,
        "ruleIndex": {"type": "integer", "minimum": -1},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": _MESSAGE,
        "locations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "physicalLocation": {
                        "type": "object",
                        "required": ["artifactLocation"],
                        "properties": {"artifactLocation": _ARTIFACT, "region": _REGION},
                        "additionalProperties": False,
                    }
                },
                "additionalProperties": False,
            },
        },
        "partialFingerprints": {"type": "object", "additionalProperties": _TEXT},
        "properties": {"type": "object"},
    },
    "additionalProperties": False,
}
SARIF = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": _TEXT,
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "name": _TEXT,
                                    "version": _TEXT,
                                    "rules": {"type": "array", "uniqueItems": True, "items": _DESCRIPTOR},
                                },
                                "additionalProperties": False,
                            }
                        },
                        "additionalProperties": False,
                    },
                    "automationDetails": {
                        "type": "object",
                        "properties": {"id": _TEXT},
                        "additionalProperties": False,
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "originalUriBaseIds": {
                        "type": "object",
                        "additionalProperties": {"type": "object", "properties": {"description": _MESSAGE}},
                    },
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "properties": {"executionSuccessful": {"type": "boolean"}},
                            "additionalProperties": False,
                        },
                    },
                    "results": {"type": "array", "items": _RESULT},
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}


def check_sarif(log: Any) -> None:
    """The schema, and what it cannot say: indices point at their rules, ids and fingerprints are there once."""
    Draft202012Validator(SARIF).validate(log)
    (run,) = log["runs"]
    known = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(known) == len(set(known))
    for result in run["results"]:
        assert known[result["ruleIndex"]] == result["ruleId"]
        # What code scanning asks for beyond the schema.
        assert result["locations"]
    prints = [result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]]
    assert len(prints) == len(set(prints))


@each_document
def test_sarif_is_of_the_schema(made: Any) -> None:
    check_sarif(json.loads(kinds.render("sarif", made())))


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.update(version="2.0.0"),
        lambda log: log["runs"][0].pop("tool"),
        lambda log: log["runs"][0]["results"][0].pop("message"),
        lambda log: log["runs"][0]["results"][0].update(level="fatal"),
        lambda log: log["runs"][0]["results"][0].update(line=3),
        lambda log: log["runs"][0]["results"][0].update(ruleIndex=0),
        lambda log: log["runs"][0]["results"][0]["locations"].clear(),
        lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"].update(startLine=0),
        lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"].update(
            uri="a b"
        ),
        lambda log: log["runs"][0]["results"].append(log["runs"][0]["results"][0]),
    ],
)
def test_the_check_of_sarif_refuses_a_log_that_is_not_right(change: Any) -> None:
    log = json.loads(kinds.render("sarif", full()))
    change(log)
    with pytest.raises((ValidationError, AssertionError)):
        check_sarif(log)


def test_sarif_has_a_rule_with_help_for_every_verdict_and_problem() -> None:
    log = json.loads(kinds.render("sarif", full()))
    found = {rule["id"]: rule for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    wanted = {*map(str, Verdict), "no-parent", "history-missing", "no-tests", "overlay-failed", "unpinned-hunk"}
    assert wanted | {"weakened/expectation-changed", "weakened/deleted"} <= set(found)
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in found.values())


def test_sarif_points_at_the_line_of_the_test_or_of_the_hunk() -> None:
    found = {result["ruleId"]: result["locations"][0]["physicalLocation"] for result in issues("sarif", full())}
    assert found["vacuous"]["artifactLocation"]["uri"] == "tests/test_words.py"
    assert found["vacuous"]["region"] == {"startLine": 12}
    assert found["missing-api"]["region"] == {"startLine": 14}
    assert found["unpinned-hunk"]["artifactLocation"]["uri"] == "shop/cart.py"
    assert found["unpinned-hunk"]["region"] == {"startLine": 20, "endLine": 22}


@pytest.mark.parametrize("file", ["/etc/passwd", "../up.py", "a/../../up.py", "C:\\x.py"])
def test_no_issue_points_outside_the_repository(file: str) -> None:
    data = document(commit(judged(f"{file}::test_a", "vacuous", blocks=True), result="fail"))
    (result,) = issues("sarif", data)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "no-file"
    (issue,) = issues("gitlab", data)
    assert issue["location"]["path"] == "."
    assert "file=" not in kinds.render("github", data)


def moved(data: documents.Data, lines: int) -> documents.Data:
    """The same document with everything further down."""
    data = copy.deepcopy(data)
    for one in data["commits"]:
        one["sha"] = one["sha"][::-1]
        for test in one["tests"]:
            test["line"] += lines
            if test["location"]:
                file, line = test["location"].split(":")
                test["location"] = f"{file}:{int(line) + lines}"
        for part in one["hunks"]:
            part["head"][0] += lines
    return data


@pytest.mark.parametrize("kind", ["sarif", "gitlab"])
def test_fingerprints_survive_an_edit_above_and_a_rebase_and_tell_tests_apart(kind: str) -> None:
    def prints(data: documents.Data) -> list[str]:
        return [
            issue["fingerprint"] if kind == "gitlab" else issue["partialFingerprints"]["primaryLocationLineHash"]
            for issue in issues(kind, data)
        ]

    before = prints(full())
    assert prints(moved(full(), 40)) == before
    assert len(set(before)) == len(before)
    other = full()
    other["commits"][1]["tests"][0]["id"] += "_other"
    assert len(set(prints(other)) ^ set(before)) == 2
    other = full()
    other["commits"][0]["hunks"][1]["digest"] = "another body"
    assert len(set(prints(other)) ^ set(before)) == 2


@pytest.mark.parametrize("kind", ["sarif", "gitlab"])
def test_the_same_thing_twice_is_shown_twice(kind: str) -> None:
    one = commit(judged("t.py::test_a", "vacuous", blocks=True), result="fail")
    assert len(issues(kind, document(one, one))) == 2
    check_sarif(json.loads(kinds.render("sarif", document(one, one))))


# --- GitLab


@each_document
def test_code_quality_has_the_fields_that_gitlab_reads(made: Any) -> None:
    found = issues("gitlab", made())
    for issue in found:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["description"]
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["location"]["lines"]["begin"] >= 1
        assert not issue["location"]["path"].startswith("/")
    assert len({issue["fingerprint"] for issue in found}) == len(found)


def test_code_quality_is_worst_first() -> None:
    order = ["blocker", "critical", "major", "minor", "info"]
    found = [order.index(issue["severity"]) for issue in issues("gitlab", full())]
    assert found == sorted(found)
    assert found[0] == 0


def test_a_proof_is_no_issue() -> None:
    data = document(commit(judged("t.py::test_a")))
    assert issues("gitlab", data) == issues("sarif", data) == []
    assert kinds.render("github", data) == ""


# --- GitHub

COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-zA-Z]+=[^:,\r\n]*,?)*)::(.*)")


@each_document
def test_every_annotation_is_one_command_on_one_line(made: Any) -> None:
    text = kinds.render("github", made())
    for line in text.split("\n") if text else []:
        match = COMMAND.fullmatch(line)
        assert match, line
        assert "##[" not in line
        assert set(re.findall(r"(?:^|,)([a-zA-Z]+)=", match[2])) <= {"file", "line", "endLine", "title"}


def test_what_would_end_a_command_is_escaped() -> None:
    assert github.escape_data("50% a:b,c\r\nd") == "50%25 a:b,c%0D%0Ad"
    assert github.escape_property("50% a:b,c\r\nd") == "50%25 a%3Ab%2Cc%0D%0Ad"
    # Escaped text cannot be escaped back into a command.
    assert github.escape_data("%0A::error::x") == "%250A::error::x"


def test_the_worst_ten_are_annotated_and_the_rest_is_counted() -> None:
    tests = [judged(f"t.py::test_{n}", "missing-api") for n in range(12)]
    tests += [judged(f"t.py::test_bad_{n}", "vacuous", blocks=True) for n in range(4)]
    lines = kinds.render("github", document(commit(*tests, result="fail"))).split("\n")
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 4 + ["::notice"] * 7
    assert lines[-1] == "::notice title=gate::6 more: see the summary of this step"


def test_the_summary_has_a_table_and_shows_untrusted_text_as_it_is() -> None:
    text = github.summary(hostile())
    for sign in ("<script", "<img", "**bold", "[link]", "`code`", "{{7*7}}", "\x1b", "\x00"):
        assert sign not in text
    rows = [line for line in text.split("\n") if line.startswith("| ❌")]
    assert [row.count("|") for row in rows] == [6]
    assert "&#60;script&#62;" in text


def test_the_summary_stays_within_its_limit_and_says_what_is_missing() -> None:
    tests = [judged(f"t.py::test_{n}{HOSTILE}", "missing-api") for n in range(8)]
    many = document(*[commit(*tests, result="fail") for _ in range(80)])
    text = github.summary(many, 300_000)
    assert 270_000 < len(text.encode()) <= 300_000
    assert re.search(r"\d+ more commits do not fit here", text)
    assert len(github.summary(many).encode()) <= 1024 * 1024
    one = document(commit(*[judged(f"t.py::test_{n}{HOSTILE}") for n in range(300)]))
    text = github.summary(one, 20_000)
    assert len(text.encode()) <= 20_000
    assert re.search(r"\d+ more lines do not fit here", text)


def test_in_a_full_summary_passes_give_way_first() -> None:
    passing = [commit(*[judged(f"t.py::test_{n}") for n in range(60)]) for _ in range(9)]
    failing = commit(judged("t.py::test_bad", "vacuous", blocks=True), result="fail", subject="the bad one")
    text = github.summary(document(*passing, failing), 40_000)
    assert "the bad one" in text
    assert "do not fit here" in text


def test_a_summary_is_added_to_what_is_there_and_never_past_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    github.add_summary(full(), {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.read_text().startswith("before\n## gate: ❌ NO")
    path.write_bytes(b"x" * (github.SUMMARY_LIMIT_BYTES - 5000))
    github.add_summary(documents.long(), {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.stat().st_size <= github.SUMMARY_LIMIT_BYTES
    github.add_summary(full(), {"GITHUB_STEP_SUMMARY": str(tmp_path / "no" / "folder")})
    github.add_summary(full(), {})


def test_a_hunk_that_is_not_pinned_is_a_warning_at_its_lines() -> None:
    data = document(commit(judged("t.py::test_a"), hunks=[hunk(1), hunk(2, "unpinned"), hunk(3, "skipped")]))
    (line,) = kinds.render("github", data).split("\n")
    assert line.startswith("::warning file=shop/cart.py,line=20,endLine=22,")
