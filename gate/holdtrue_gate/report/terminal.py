"""The terminal report: one line a test, then for what is no proof why, and what to do.

Lines are not folded: a terminal does that, and grep cannot.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from holdtrue_gate.report import rules
from holdtrue_gate.report.document import Data, red_run
from holdtrue_gate.report.remarks import change_of, hunk_name
from holdtrue_gate.report.text import first_line, printable, shortened

MAX_ID_COLUMNS = 64
NAMED = 3
SHOWN_EXCERPTS = 3
TOLD_CHARS = 100

_STYLES = {"pass": "bold green", "fail": "bold red", "cannot-judge": "bold yellow"}
_WORDS = {"pass": "PASS", "fail": "NO", "cannot-judge": "CANNOT JUDGE"}

# A line is its parts, each bare or with a style of rich.
Part = str | tuple[str, str]
Line = tuple[Part, ...]


def _mark(test: Data) -> tuple[str, str]:
    if test["proof"]:
        return "✔", "green"
    if test.get("blocks"):
        return "✘", "red"
    return ("?", "yellow") if test["verdict"] == "environment" else ("·", "cyan")


def _told(test: Data) -> str:
    said = ": ".join(part for part in (test["exception"], first_line(test.get("message"))) if part)
    return shortened(printable(said), TOLD_CHARS)


def _tests(commit: Data) -> Iterator[Line]:
    """Mark, verdict, node id and what it raised where, padded so that the lines of a commit align."""
    tests = commit["tests"]
    verdicts = max((len(test["verdict"]) for test in tests), default=0)
    # One very long id must not push every other line off the screen.
    ids = min(max((len(printable(test["id"])) for test in tests), default=0), MAX_ID_COLUMNS)
    for test in tests:
        mark, style = _mark(test)
        where = "  ".join(part for part in (printable(test["location"] or ""), _told(test)) if part)
        id_ = printable(test["id"])
        padded = id_.ljust(ids) if where else id_
        yield (
            "  ",
            (f"{mark} {test['verdict'].ljust(verdicts)}", style),
            f"  {padded}",
            (f"  {where}" * bool(where), "dim"),
        )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _sentences(commit: Data) -> Iterator[Line]:
    """Why each test is no proof, and what to do; tests that share a sentence share the line."""
    found: dict[str, list[str]] = {}
    for test in commit["tests"]:
        if not test["proof"]:
            sentence = f"{printable(test['reason'])}. {rules.advice(test, commit)}".strip()
            found.setdefault(sentence, []).append(printable(test["id"]))
    for sentence, ids in found.items():
        yield "  ", (_names(ids), "bold"), f": {sentence}"


def _excerpts(commit: Data) -> Iterator[Line]:
    """The source around the failures of the tests that block, with the line that failed pointed at."""
    blocking = [(test, run) for test in commit["tests"] if test.get("blocks") and (run := red_run(test)) is not None]
    shown = 0
    for test, run in blocking:
        lines = run.get("source") or []
        if not lines or shown == SHOWN_EXCERPTS:
            continue
        shown += 1
        width = len(str(lines[-1]["line"]))
        side = "at the commit" if run["side"] == "head" else "at the parent"
        yield ()
        yield "  ", (printable(run.get("location") or test["id"]), "bold"), (f"  {side}", "dim")
        for line in lines:
            text = printable(line["text"].expandtabs(4))
            number = str(line["line"]).rjust(width)
            if line["marked"]:
                yield ("    ❯ ", "bold red"), (number, "bold"), (" │ ", "dim"), (text, "bold")
            else:
                yield (f"      {number} │ ", "dim"), (text, "dim")


def _weakened(commit: Data) -> Iterator[Line]:
    for entry in commit["weakened"]:
        blocks = bool(entry.get("blocks"))
        mark, style = ("✘", "red") if blocks else ("↓", "yellow")
        why = f"reason given: {entry['reason']}" if entry.get("reason") else entry.get("note") or ""
        rest = [change_of(entry), entry.get("location") or "", why]
        told = "  ".join(printable(part) for part in rest if part)
        yield (
            "  ",
            (f"{mark} weakened: {printable(entry['kind'])}", style),
            f"  {printable(entry['id'])}",
            (f"  {told}", "dim"),
        )


def _hunks(commit: Data) -> Iterator[Line]:
    hunks = commit["hunks"]
    if not hunks:
        return
    judged = [hunk for hunk in hunks if hunk["status"] != "skipped"]
    pinned = sum(hunk["status"] == "pinned" for hunk in judged)
    style = "green" if pinned == len(judged) else "yellow"
    parts: list[Part] = ["  ", (f"{pinned} of {len(judged)} hunks pinned", style)]
    for status in sorted({hunk["status"] for hunk in judged} - {"pinned"}):
        names = [printable(hunk_name(hunk)) for hunk in judged if hunk["status"] == status]
        parts.append(f"; {printable(status)}: {_names(names)}")
    yield tuple(parts)


def _commit(commit: Data) -> Iterator[Line]:
    yield (commit["sha"][:10], "bold"), "  ", (commit["kind"], "magenta"), "  ", printable(commit["subject"])
    yield from _tests(commit)
    yield from _weakened(commit)
    yield from _hunks(commit)
    yield from _excerpts(commit)
    sentences = [*_sentences(commit)]
    if sentences:
        yield ()
        yield from sentences
    for problem in commit["problems"]:
        told = printable(f"{problem['message']}. {problem.get('hint', '')}".strip())
        yield "  ", (printable(problem["code"]), "bold yellow"), f": {told}"
    for note in commit.get("notes", ()):
        yield ((f"  note: {printable(note)}", "dim"),)
    why = ", ".join(printable(problem["code"]) for problem in commit["problems"]) or printable(commit["reason"])
    if commit["result"] == "fail":
        why = printable(commit["reason"])
    yield "  ", (_WORDS[commit["result"]], _STYLES[commit["result"]]), f"  {why}"
    yield ()


def _all(document: Data) -> Iterator[Line]:
    commits = document["commits"]
    for commit in commits:
        yield from _commit(commit)
    if not commits:
        yield ("no commits in this range",)
    if len(commits) > 1:
        counts = [(word, sum(c["result"] == result for c in commits)) for result, word in _WORDS.items()]
        told = ", ".join(f"{count} {word}" for word, count in counts if count)
        result = document["result"]
        yield (_WORDS[result], _STYLES[result]), f"  {len(commits)} commits: {told}"


def render(document: Data, *, width: int | None = None, colour: bool = False) -> str:
    """A document as text, with ANSI colours when asked."""
    # rich costs as much to import as git costs to run, so only this report pays for it.
    from rich.console import Console
    from rich.text import Text

    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width or 120,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
    )
    for line in _all(document):
        console.print(Text.assemble(*line), soft_wrap=True)
    return buffer.getvalue().rstrip("\n")
