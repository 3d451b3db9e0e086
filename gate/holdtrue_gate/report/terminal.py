"""The terminal report: one line a test, then one sentence for each that is no proof: why, and what to do."""

from __future__ import annotations

import io
from pathlib import Path

from holdtrue_gate import decision
from holdtrue_gate.check import CheckReport, CommitReport
from holdtrue_gate.plan import Kind
from holdtrue_gate.verdict import Judgement, Verdict

ADVICE = {
    Verdict.MISSING_API: "It shows that something is new, not that something was wrong: test what the parent has too.",
    Verdict.VACUOUS: "It does not notice the change: make it assert what was wrong before.",
    Verdict.UNDECLARED_EXCEPTION: "Assert the outcome, or declare the exception as expected_at_parent in the finding.",
    Verdict.PRODUCT_ASSERTION: "The product stopped it, not the test: assert the outcome, or declare the exception.",
    Verdict.FIXTURE_ERROR: "The test never got to speak: make its fixtures work on the parent.",
    Verdict.HANG: 'Give the wait a deadline and assert on it, or declare expected_at_parent = "hang" in the finding.',
    Verdict.CRASH: 'Run what dies in a child and assert on its exit, or declare expected_at_parent = "crash".',
    Verdict.NOT_RUN: "A test that does not run proves nothing: take the skip, the xfail or the condition away.",
    Verdict.FLAKY: 'Make it deterministic, or, for a race, declare detects = "k/n" in the finding.',
    Verdict.SUSPECT: "It would pass with an empty change of that name: assert what the code does.",
    Verdict.HEAD_RED: "The test must be green with the change first.",
    Verdict.ENVIRONMENT: "Nothing is said about the test: mend the environment, or choose one with --python.",
}

MAX_ID_COLUMNS = 64
NAMED_TESTS = 3

_STYLES = {decision.PASS: "bold green", decision.FAIL: "bold red", decision.CANNOT_JUDGE: "bold yellow"}
_WORDS = {decision.PASS: "PASS", decision.FAIL: "NO", decision.CANNOT_JUDGE: "CANNOT JUDGE"}


def _mark(test: Judgement, commit: CommitReport) -> tuple[str, str]:
    if test.proof:
        return "✔", "green"
    if test.id in commit.blocking:
        return "✘", "red"
    return ("?", "yellow") if test.verdict is Verdict.ENVIRONMENT else ("·", "cyan")


def _told(test: Judgement) -> str:
    first = test.message.strip().splitlines()[0] if test.message.strip() else ""
    first = safe(first)
    told = test.exception or ""
    if first:
        told += f": {first}" if told else first
    return told if len(told) <= 100 else told[:99] + "…"


def safe(text: str) -> str:
    """Text of the code under test without what a terminal would obey: control characters and lone surrogates."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def _advice(test: Judgement, commit: CommitReport) -> str:
    if test.id not in commit.blocking and commit.result == decision.PASS:
        if commit.kind is Kind.FEATURE and test.verdict is Verdict.MISSING_API:
            return "New surface: fine for a feature."
        if test.verdict is Verdict.VACUOUS and commit.reason.startswith("no product change"):
            return "There is no product change that it could notice."
        if test.verdict is Verdict.VACUOUS and commit.kind is Kind.FIX:
            return "Fine beside a proof."
        if test.verdict is Verdict.MISSING_API and commit.kind is Kind.FIX:
            return "New surface: no proof, and fine beside one."
    return ADVICE.get(test.verdict, "")


def _sentences(commit: CommitReport) -> list[tuple[list[str], str]]:
    """Why each test is no proof, and what to do; tests that share a sentence share the line."""
    found: dict[str, list[str]] = {}
    for test in commit.tests:
        if not test.proof:
            found.setdefault(f"{safe(test.reason)}. {_advice(test, commit)}".strip(), []).append(safe(test.id))
    return [(ids, sentence) for sentence, ids in found.items()]


def _columns(commit: CommitReport) -> list[tuple[str, str, str, str, str]]:
    """Mark, style, verdict, node id and what it raised where, padded so that the lines of a commit align."""
    verdicts = max((len(test.verdict) for test in commit.tests), default=0)
    # One very long id must not push every other line off the screen.
    ids = min(max((len(safe(test.id)) for test in commit.tests), default=0), MAX_ID_COLUMNS)
    rows = []
    for test in commit.tests:
        mark, style = _mark(test, commit)
        where = "  ".join(part for part in (safe(test.location or ""), _told(test)) if part)
        rows.append(
            (
                mark,
                style,
                str(test.verdict).ljust(verdicts),
                safe(test.id).ljust(ids) if where else safe(test.id),
                where,
            )
        )
    return rows


def render(report: CheckReport, *, width: int | None = None, colour: bool = False) -> str:
    """The report as text, with ANSI colours when asked. Lines are not folded: a terminal does that, and grep cannot."""
    # rich costs as much to import as git costs to run, so only a report pays for it.
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

    def say(*parts: str | tuple[str, str]) -> None:
        console.print(Text.assemble(*parts), soft_wrap=True)

    for commit in report.commits:
        say((commit.sha[:10], "bold"), "  ", (str(commit.kind), "magenta"), "  ", safe(commit.subject))
        for mark, style, verdict, id_, where in _columns(commit):
            say("  ", (f"{mark} {verdict}", style), f"  {id_}", (f"  {where}" if where else "", "dim"))
        sentences = _sentences(commit)
        if sentences:
            console.print()
        for ids, sentence in sentences:
            more = f" and {len(ids) - NAMED_TESTS} more" if len(ids) > NAMED_TESTS else ""
            say("  ", (", ".join(ids[:NAMED_TESTS]) + more, "bold"), f": {sentence}")
        for problem in commit.problems:
            say("  ", (problem.code, "bold yellow"), f": {safe(problem.message)}. ", problem.hint)
        for note in commit.notes:
            say(("  note: " + note, "dim"))
        say(
            "  ",
            (_WORDS[commit.result], _STYLES[commit.result]),
            f"  {', '.join(p.code for p in commit.problems) or safe(commit.reason)}",
        )
        console.print()
    if not report.commits:
        console.print("no commits in this range")
    if len(report.commits) > 1:
        counts = [(word, sum(c.result == result for c in report.commits)) for result, word in _WORDS.items()]
        told = ", ".join(f"{count} {word}" for word, count in counts if count)
        say((_WORDS[report.result], _STYLES[report.result]), f"  {len(report.commits)} commits: {told}")
    return buffer.getvalue().rstrip("\n")


def write(report: CheckReport, path: Path) -> None:
    """The report without colours, as a file."""
    path.write_text(render(report) + "\n", encoding="utf-8")
