"""Reports for GitHub Actions: workflow commands that annotate the change, and a summary of the step in Markdown.

GitHub drops annotations past ten of a kind in a step without a word, so the ten worst are shown and the rest is counted.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from holdtrue_gate.report import remarks, rules
from holdtrue_gate.report.document import Data
from holdtrue_gate.report.remarks import Level, Remark, change_of, hunk_name
from holdtrue_gate.report.text import first_line, printable, shortened

ANNOTATIONS = 10
# The limit of one step's summary is 1 MiB; past it GitHub shows nothing at all of it.
SUMMARY_LIMIT_BYTES = 1024 * 1024
_RESERVE_BYTES = 4096

_COMMANDS = {Level.NOTE: "notice", Level.WARNING: "warning", Level.DOUBT: "error", Level.BLOCKS: "error"}
_WORDS = {"pass": "✅ PASS", "fail": "❌ NO", "cannot-judge": "❔ CANNOT JUDGE"}


# --- annotations


def escape_data(text: str) -> str:
    """The message of a workflow command: what would end its line is written as %XX."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """A property of a workflow command: also what would end the property."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _annotation(remark: Remark) -> str:
    properties = []
    if remark.file:
        properties.append(f"file={escape_property(_shown(remark.file))}")
        properties.append(f"line={max(remark.line or 1, 1)}")
        if remark.last_line is not None and remark.line is not None and remark.last_line > remark.line >= 1:
            properties.append(f"endLine={remark.last_line}")
    properties.append(f"title={escape_property(_shown(f'gate: {remark.rule.title} ({remark.rule.id})'))}")
    return f"::{_COMMANDS[remark.level]} {','.join(properties)}::{escape_data(_shown(remark.message))}"


def _shown(text: str) -> str:
    # The older form of a command, `##[name]`, is seen anywhere in a line.
    return printable(text).replace("##[", "#\u200b#[")


def render(document: Data) -> str:
    """A document as workflow commands, one a line, worst first; of more than ten the rest is counted in one more."""
    found = remarks.worst_first(remarks.of(document))
    lines = [_annotation(remark) for remark in found[:ANNOTATIONS]]
    if len(found) > ANNOTATIONS:
        lines.append(f"::notice title=gate::{len(found) - ANNOTATIONS} more: see the summary of this step")
    return "\n".join(lines)


# --- summary


def escape_markdown(text: str) -> str:
    """Text that Markdown, HTML and tables show as it is: every sign but a few plain ones is a character reference."""
    return "".join(
        character if character.isalnum() or character in " -" else f"&#{ord(character)};"
        for character in printable(text)
    )


def _code(text: str) -> str:
    return f"<code>{escape_markdown(text)}</code>"


def _mark(test: Data) -> str:
    return "✅" if test["proof"] else "❌" if test.get("blocks") else "❔" if test["verdict"] == "environment" else "➖"


def _table(commit: Data) -> list[str]:
    rows = ["", "| | verdict | test | where | what |", "|---|---|---|---|---|"]
    for test in commit["tests"]:
        said = ": ".join(part for part in (test["exception"], first_line(test.get("message"))) if part)
        told = f"{test['reason']}. {rules.advice(test, commit)}" if not test["proof"] else said
        cells = [
            _mark(test),
            _code(test["verdict"]),
            _code(shortened(test["id"], 300)),
            _code(shortened(test["location"], 200)) if test["location"] else "",
            escape_markdown(shortened(told, 300)),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows if commit["tests"] else []


def _lists(commit: Data) -> list[str]:
    lines = []
    for problem in commit["problems"]:
        told = f"{problem['message']}. {problem.get('hint') or ''}".strip()
        lines.append(f"- ❔ {_code(problem['code'])} {escape_markdown(shortened(told, 600))}")
    for entry in commit["weakened"]:
        mark = "❌" if entry.get("blocks") else "⬇️"
        told = ". ".join(part for part in (change_of(entry), entry.get("note"), entry.get("reason")) if part)
        names = f"{_code(entry['kind'])} {_code(shortened(entry['id'], 300))}"
        lines.append(f"- {mark} weakened {names} {escape_markdown(shortened(told, 400))}")
    for hunk in commit["hunks"]:
        mark = {"pinned": "📌", "unpinned": "⚠️"}.get(hunk["status"], "➖")
        lines.append(
            f"- {mark} {_code(hunk['status'])} {_code(hunk_name(hunk))} {escape_markdown(hunk.get('reason') or '')}"
        )
    lines += [f"- {escape_markdown(note)}" for note in commit.get("notes", ())]
    return ["", *lines] if lines else []


def _section(commit: Data) -> str:
    subject = escape_markdown(shortened(commit["subject"], 200))
    heading = f"### {_WORDS[commit['result']]} {_code(commit['sha'][:10])} {subject}"
    return "\n".join([heading, "", escape_markdown(commit["reason"]), *_table(commit), *_lists(commit), "", ""])


def summary(document: Data, limit_bytes: int = SUMMARY_LIMIT_BYTES) -> str:
    """A document as Markdown of at most `limit_bytes` in UTF-8. What does not fit is left out commit by commit, passes
    first, and counted."""
    commits = document["commits"]
    asked = escape_markdown(shortened(document["range"], 200))
    head = f"## gate: {_WORDS[document['result']]}\n\n{asked}, {len(commits)} commits\n\n"
    room = limit_bytes - _RESERVE_BYTES - len(head.encode())
    order = sorted(range(len(commits)), key=lambda number: (commits[number]["result"] == "pass", number))
    kept: dict[int, str] = {}
    for number in order:
        section = _section(commits[number])
        size = len(section.encode())
        if size > room:
            section = _cut(section, room)
            size = len(section.encode())
            if not section:
                continue
        kept[number] = section
        room -= size
    left = len(commits) - len(kept)
    tail = f"{left} more commits do not fit here: see the report of this run.\n" if left else ""
    return head + "".join(kept[number] for number in sorted(kept)) + tail


def _cut(section: str, room: int) -> str:
    """Whole lines of a section that fit, and how many did not."""
    lines, kept = section.rstrip("\n").split("\n"), []
    room -= 100
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    if len(kept) < 3:
        return ""
    return "\n".join(kept) + f"\n\n{len(lines) - len(kept)} more lines do not fit here.\n\n"


# --- on a runner


def on_runner(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a step of GitHub Actions."""
    return variables.get("GITHUB_ACTIONS") == "true"


def quieted(text: str) -> str:
    """Text for the log of a runner that obeys nothing in it: a name in it could be written like a command."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text}\n::{token}::"


def add_summary(document: Data, variables: Mapping[str, str] = os.environ) -> None:
    """Appends the summary to the file of the step, within what is left of its limit. A file that cannot be written is
    no reason to lose the verdict."""
    name = variables.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    try:
        used = path.stat().st_size if path.exists() else 0
        text = summary(document, max(SUMMARY_LIMIT_BYTES - used, 0))
        if used + len(text.encode()) <= SUMMARY_LIMIT_BYTES:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
    except OSError:
        return
