"""Remarks: what a document has to say beside its proofs, each with a rule, a level and a place. Formats that list issues
(SARIF, annotations, code quality) are projections of these."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from holdtrue_gate.report import rules
from holdtrue_gate.report.document import Data, file_of, in_repository, place, span, spoken
from holdtrue_gate.report.rules import Rule
from holdtrue_gate.report.text import first_line, printable, shortened

MESSAGE_CHARS = 600


class Level(IntEnum):
    """How bad a remark is; the larger the worse. `BLOCKS`: the gate says no. `DOUBT`: it cannot judge."""

    NOTE = 0
    WARNING = 1
    DOUBT = 2
    BLOCKS = 3


@dataclass(frozen=True)
class Remark:
    """One thing to tell. `file` is empty when there is none in the repository; `fingerprint` survives edits above it."""

    rule: Rule
    level: Level
    subject: str
    message: str
    file: str
    line: int | None
    last_line: int | None
    fingerprint: str
    sha: str


def _fingerprint(rule: Rule, *parts: str) -> str:
    return hashlib.sha256("\0".join((rule.id, *parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _where(file: str, line: int | None) -> tuple[str, int | None]:
    return (file, line) if in_repository(file) else ("", None)


def _test(test: Data, commit: Data) -> Remark:
    rule = rules.VERDICTS[test["verdict"]]
    level = Level.BLOCKS if test.get("blocks") else Level.DOUBT if test["verdict"] == "environment" else Level.NOTE
    told = [f"{test['id']}: {test['reason']}"]
    said = ": ".join(part for part in (test["exception"], first_line(test.get("message"))) if part)
    if said:
        told.append(shortened(said, 200))
    told.append(rules.advice(test, commit))
    file, line = place(test["location"])
    if file != file_of(test["id"]) or line is None:
        # A reader looks for the test; a frame in a helper or in the product is in the message of the other formats.
        file, line = file_of(test["id"]), test.get("line")
    file, line = _where(file, line)
    return Remark(
        rule,
        level,
        test["id"],
        _message(told),
        file,
        line,
        line,
        _fingerprint(rule, test["id"]),
        commit["sha"],
    )


def _message(sentences: Iterable[str]) -> str:
    told = " ".join(_sentence(sentence) for sentence in sentences if sentence)
    return shortened(printable(told), MESSAGE_CHARS)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _weakened(entry: Data, commit: Data) -> Remark:
    rule = rules.weakened_rule(entry["kind"])
    blocks = bool(entry.get("blocks"))
    told = [f"{entry['id']}: {entry['kind']}", change_of(entry), spoken(entry.get("note")), spoken(entry.get("reason"))]
    file, line = place(entry.get("location"))
    file, line = _where(file or file_of(entry["id"]), line)
    return Remark(
        rule,
        Level.BLOCKS if blocks else Level.WARNING,
        entry["id"],
        _message([*told, rule.advice if blocks else ""]),
        file,
        line,
        line,
        _fingerprint(rule, entry["id"], spoken(entry.get("before")), spoken(entry.get("after"))),
        commit["sha"],
    )


def change_of(entry: Data) -> str:
    """What a weakening changed, `before → after`, or an empty string."""
    before, after = spoken(entry.get("before")), spoken(entry.get("after"))
    if not before and not after:
        return ""
    return f"{shortened(before or 'nothing', 120)} → {shortened(after or 'nothing', 120)}"


def _hunk(hunk: Data, commit: Data) -> Remark | None:
    rule = rules.HUNKS.get(hunk["status"])
    blocks = bool(hunk.get("blocks"))
    if rule is None and not blocks:
        return None
    rule = rule or Rule(f"hunk/{hunk['status']}", hunk["status"], "A part of the change blocks the commit.")
    lines = span(hunk.get("head"))
    file, line = _where(hunk["file"], lines[0] if lines else None)
    last = line + max(lines[1] - 1, 0) if line is not None and lines else line
    level = Level.BLOCKS if blocks else Level.WARNING if rule is rules.UNPINNED else Level.NOTE
    told = [f"{hunk_name(hunk)}: {rule.means}", spoken(hunk.get("reason")), rule.advice]
    body = spoken(hunk.get("digest") or hunk.get("body"))
    return Remark(
        rule,
        level,
        hunk_name(hunk),
        _message(told),
        file,
        line,
        last,
        _fingerprint(rule, hunk["file"], body),
        commit["sha"],
    )


def hunk_name(hunk: Data) -> str:
    """A hunk as a person finds it: `shop.py:10-12`."""
    lines = span(hunk.get("head"))
    if lines is None or lines[0] < 1:
        return str(hunk["file"])
    last = lines[0] + max(lines[1] - 1, 0)
    return f"{hunk['file']}:{lines[0]}" + (f"-{last}" if last > lines[0] else "")


def _problem(problem: Data, commit: Data) -> Remark:
    rule = rules.problem_rule(problem["code"])
    told = [f"{commit['sha'][:10]} ({commit['subject']}): {problem['message']}", problem.get("hint") or ""]
    # Without the commit's id: a rebase changes it, and the problem stays the same.
    return Remark(
        rule,
        Level.DOUBT,
        commit["subject"],
        _message(told),
        "",
        None,
        None,
        _fingerprint(rule, commit["subject"]),
        commit["sha"],
    )


def of_commit(commit: Data) -> list[Remark]:
    """The remarks of one commit, in the order of the document."""
    found = [_problem(problem, commit) for problem in commit["problems"]]
    found += [_test(test, commit) for test in commit["tests"] if not test["proof"]]
    found += [_weakened(entry, commit) for entry in commit["weakened"]]
    found += [remark for hunk in commit["hunks"] if (remark := _hunk(hunk, commit)) is not None]
    if commit["result"] != "pass" and not any(remark.level >= Level.DOUBT for remark in found):
        rule = rules.GATE
        level = Level.BLOCKS if commit["result"] == "fail" else Level.DOUBT
        told = [f"{commit['sha'][:10]} ({commit['subject']}): {commit['reason']}", rule.advice]
        found.append(
            Remark(
                rule,
                level,
                commit["subject"],
                _message(told),
                "",
                None,
                None,
                _fingerprint(rule, commit["subject"], commit["reason"]),
                commit["sha"],
            )
        )
    return found


def of(document: Data) -> list[Remark]:
    """All remarks, in the order of the document; a fingerprint that occurs again gets a number, so that each is shown."""
    found = []
    seen: Counter[str] = Counter()
    for commit in document["commits"]:
        for remark in of_commit(commit):
            seen[remark.fingerprint] += 1
            times = seen[remark.fingerprint]
            found.append(remark if times == 1 else _numbered(remark, times))
    return found


def _numbered(remark: Remark, times: int) -> Remark:
    return replace(remark, fingerprint=_fingerprint(remark.rule, remark.fingerprint, str(times)))


def worst_first(remarks: Iterable[Remark]) -> list[Remark]:
    """The same remarks, blocking ones first, else in their order."""
    return sorted(remarks, key=lambda remark: -remark.level)
