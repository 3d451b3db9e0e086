"""The JUnit report: a suite a commit, a case a test.

`failure`: the gate says no because of it. `error`: it could not be judged. `skipped`: it did not run, and nothing depends
on it. What a commit as a whole or a weakened test is accused of is a case too, so that a red commit is never a green suite.

The format is the schema of Apache Ant's JUnit task, which is stricter than what Jenkins and GitLab read: properties belong
to the suite alone, a case has at most one child, and durations, host and time are required. They would change with every
run, so they are 0, localhost and the epoch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from holdtrue_gate.report import rules
from holdtrue_gate.report.document import Data, red_run
from holdtrue_gate.report.remarks import change_of, hunk_name
from holdtrue_gate.report.text import first_line, printable, shortened

TIMESTAMP = "1970-01-01T00:00:00"
HOST = "localhost"
MESSAGE_CHARS = 1000

# XML 1.0, section 2.2: what no escape can carry; `printable` leaves none but the non-characters.
_NO_XML = re.compile("[\ufffe\uffff]")


@dataclass(frozen=True)
class _Case:
    classname: str
    name: str
    outcome: str = "passed"
    type: str = ""
    message: str = ""
    detail: str = ""


def _safe(text: str, *, lines: bool = False) -> str:
    return _NO_XML.sub("\ufffd", printable(text, lines=lines))


def _names(id_: str) -> tuple[str, str]:
    """Class and name as test reporters expect them: `a/test_b.py::TestX::test_y[1]` is `a.test_b.TestX`, `test_y[1]`."""
    file, _, rest = id_.partition("::")
    # Values of parameters may hold colons.
    plain, bracket, values = rest.partition("[")
    outer, _, name = plain.rpartition("::")
    module = file.removesuffix(".py").replace("/", ".")
    classname = ".".join([module, *(outer.split("::") if outer else [])])
    return classname, f"{name}{bracket}{values}" or module


def _detail(test: Data, commit: Data) -> str:
    parts = [f"{test['reason']}. {rules.advice(test, commit)}".strip()]
    run = red_run(test)
    if run is not None:
        if run.get("location"):
            parts.append(f"{run['location']} ({run['side']})")
        width = len(str(run["source"][-1]["line"])) if run.get("source") else 0
        excerpt = [
            f"{'>' if line['marked'] else ' '} {str(line['line']).rjust(width)} | {line['text']}"
            for line in run.get("source") or []
        ]
        if excerpt:
            parts.append("\n".join(excerpt))
        if run.get("message"):
            parts.append(f"{run['exception'] or ''}: {run['message']}".removeprefix(": "))
        if run.get("output"):
            parts.append(run["output"])
    return "\n\n".join(parts)


def _test(test: Data, commit: Data) -> _Case:
    classname, name = _names(test["id"])
    verdict = test["verdict"]
    said = ": ".join(part for part in (test["exception"], first_line(test.get("message"))) if part)
    message = f"{verdict}: {test['reason']}" + (f" ({said})" if said else "")
    if test.get("blocks"):
        outcome = "failure"
    elif verdict == "environment":
        outcome = "error"
    elif verdict == "not-run":
        outcome = "skipped"
    else:
        return _Case(classname, name)
    return _Case(classname, name, outcome, verdict, message, _detail(test, commit))


def _weakened(entry: Data) -> _Case:
    classname, name = _names(entry["id"])
    name = f"{name} ({entry['kind']})"
    if not entry.get("blocks"):
        return _Case(f"weakened.{classname}", name)
    rule = rules.weakened_rule(entry["kind"])
    message = ". ".join(part for part in (rule.title, change_of(entry), entry.get("note")) if part)
    return _Case(f"weakened.{classname}", name, "failure", rule.id, message, rule.advice)


def _hunk(hunk: Data) -> _Case:
    classname, name = (
        f"hunk.{hunk['file'].removesuffix('.py').replace('/', '.')}",
        f"{hunk_name(hunk)} {hunk['status']}",
    )
    if hunk.get("blocks"):
        rule = rules.HUNKS.get(hunk["status"], rules.UNPINNED)
        return _Case(classname, name, "failure", rule.id, rule.means, hunk.get("reason") or rule.advice)
    if hunk["status"] == "skipped":
        return _Case(classname, name, "skipped", "skipped", hunk.get("reason") or "nothing to judge")
    return _Case(classname, name)


def _cases(commit: Data) -> list[_Case]:
    cases = [_test(test, commit) for test in commit["tests"]]
    cases += [_weakened(entry) for entry in commit["weakened"]]
    cases += [_hunk(hunk) for hunk in commit["hunks"]]
    for problem in commit["problems"]:
        hint = problem.get("hint") or rules.problem_rule(problem["code"]).advice
        cases.append(_Case("gate", problem["code"], "error", problem["code"], problem["message"], hint))
    wanted = {"fail": "failure", "cannot-judge": "error"}.get(commit["result"])
    if wanted is not None and all(case.outcome != wanted for case in cases):
        cases.append(_Case("gate", "commit", wanted, commit["result"], commit["reason"]))
    return cases


def _suite(number: int, commit: Data) -> ET.Element:
    cases = _cases(commit)
    counts = {kind: sum(case.outcome == kind for case in cases) for kind in ("failure", "error", "skipped")}
    suite = ET.Element(
        "testsuite",
        {
            "name": _safe(shortened(f"{commit['sha'][:10]} {commit['subject']}", 200)),
            "package": commit["sha"][:10],
            "id": str(number),
            "hostname": HOST,
            "timestamp": TIMESTAMP,
            "tests": str(len(cases)),
            "failures": str(counts["failure"]),
            "errors": str(counts["error"]),
            "skipped": str(counts["skipped"]),
            "time": "0",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name in ("sha", "parent", "kind", "result", "reason"):
        ET.SubElement(properties, "property", {"name": name, "value": _safe(commit[name] or "")})
    for test in commit["tests"]:
        ET.SubElement(properties, "property", {"name": f"verdict {_safe(test['id'])}", "value": test["verdict"]})
    for case in cases:
        node = ET.SubElement(
            suite,
            "testcase",
            # A name of blanks alone would be none.
            {"classname": _safe(case.classname), "name": _safe(case.name).strip() or "?", "time": "0"},
        )
        if case.outcome != "passed":
            said = {"message": _safe(shortened(case.message, MESSAGE_CHARS))}
            if case.outcome != "skipped":
                said["type"] = _safe(case.type)
            child = ET.SubElement(node, case.outcome, said)
            child.text = _safe(case.detail, lines=True)
    ET.SubElement(suite, "system-out").text = _safe("\n".join(commit.get("notes", ())), lines=True)
    ET.SubElement(suite, "system-err")
    return suite


def render(document: Data) -> str:
    """A document as JUnit XML."""
    root = ET.Element("testsuites")
    root.extend(_suite(number, commit) for number, commit in enumerate(document["commits"]))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")
