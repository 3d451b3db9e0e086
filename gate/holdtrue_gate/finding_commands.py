"""The commands about findings: new, list, show, close, accept; `gate findings` is the list under its short name."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdtrue_gate import finding_folder, finding_history, finding_toml, findings, proof, spec
from holdtrue_gate import project as projects
from holdtrue_gate.errors import CannotJudgeError, UsageError
from holdtrue_gate.findings import Finding
from holdtrue_gate.lab import scratch
from holdtrue_gate.options import directory_option, guarded, json_option
from holdtrue_gate.output import emit, exit_with, interruptible, line, safe
from holdtrue_gate.project import Project
from holdtrue_gate.proof import Proof, State
from holdtrue_gate.repo import Repository
from holdtrue_gate.trace import selects

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = "holdtrue.gate.finding/1"
LIST_SCHEMA = "holdtrue.gate.findings/1"

_CATEGORIES = click.Choice(list(spec.CATEGORIES))
_SEVERITIES = click.Choice(list(spec.SEVERITIES))


def today() -> datetime.date:
    """The date in UTC, by which an acceptance expires."""
    return datetime.datetime.now(datetime.UTC).date()


@click.group("finding")
def finding_group() -> None:
    """Faults that were found: write one down, prove that it is fixed, or accept it for a while."""


# --- new


@finding_group.command("new")
@click.option("--title", required=True, metavar="TEXT", help="What is wrong, in one line.")
@click.option("--category", required=True, type=_CATEGORIES, help="What kind of harm it does.")
@click.option(
    "--severity", required=True, type=_SEVERITIES, help="A irreversible, B wrong result, C stall, D portability."
)
@click.option("--invariant", metavar="INV", help="The invariant that it breaks.")
@click.option(
    "--test",
    "tests",
    multiple=True,
    metavar="NAME|NODEID",
    help="A test that shows it already (a node id; may be given several times), or the name of the one to be written.",
)
@directory_option
@json_option
@guarded
def new_command(
    title: str,
    category: str,
    severity: str,
    invariant: str | None,
    tests: tuple[str, ...],
    directory: Path,
    as_json: bool,
) -> None:
    """Write down a finding: the next free number, its file, and a test that fails until it is written.

    The number is free in this folder and in the history of every branch and tag of this clone.
    """
    project = Project.at(directory)
    title = title.strip()
    if not title or any(not character.isprintable() for character in title):
        raise UsageError("bad-title", "--title must be one line of text", "Say in one sentence what is wrong.")
    known = _invariants(project)
    if invariant is not None:
        if known is None:
            raise UsageError("bad-invariant", f"this project has no {spec.FOLDER}/", "Leave --invariant out.")
        invariant = spec.find(spec.load(project.root), invariant).id
    function, nodes = _tests(project, tests)
    # Before anything is written: a book of findings that cannot be read takes no further one.
    findings.load(project.root, known)
    draft = finding_folder.Draft(title, category, severity, invariant, nodes, function)
    made = finding_folder.make(project.root, draft, _taken(directory))
    (finding,) = [one for one in findings.load(project.root, known) if one.id == made.id]
    data = {
        "schema": SCHEMA,
        "action": "new",
        "finding": finding.as_dict(today()),
        "files": list(made.files),
    }

    def show(console: Console) -> None:
        line(console, f"{made.id}: {safe(title)}")
        for file in made.files:
            line(console, f"  written  {file}")
        line(console, "Next:")
        if not nodes:
            line(console, f"  1. Write the test in {made.tests[0]}: red where the fault is.")
        else:
            line(console, f"  1. See {', '.join(made.tests)} fail where the fault is.")
        line(console, f"  2. Mend it in one commit with the test, with the trailer `Finding: {made.id}`.")
        line(console, f"  3. gate finding close {made.id}")

    emit(data, show, as_json)


def _tests(project: Project, given: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The name of the test to be written, or the tests that exist."""
    names = [one for one in given if "::" not in one and not one.endswith(".py")]
    nodes = tuple(dict.fromkeys(one for one in given if one not in names))
    if names and (len(given) > 1 or not names[0].isidentifier() or not names[0].startswith("test")):
        raise UsageError(
            "bad-test",
            f"--test {names[0]!r} is neither a node id nor the name of one test",
            "Give node ids such as tests/test_x.py::test_y, or one name such as test_an_empty_line_is_no_record.",
        )
    for node in nodes:
        if not spec.FILE_OR_NODE_ID.fits(node) or not (project.root / node.partition("::")[0]).is_file():
            raise UsageError("bad-test", f"--test {node!r}: there is no such file", "Write it relative to the project.")
    return (names[0] if names else None), nodes


def _taken(directory: Path) -> set[int]:
    """Numbers that any commit of this clone has used, in a folder or in a trailer."""
    try:
        repository = Repository(directory)
    except UsageError as error:
        if error.code == "no-repository":
            return set()
        raise
    with repository:
        everywhere = finding_history.EVERYWHERE
        ids = set(finding_history.folders(repository, everywhere))
        for mention in finding_history.mentions(repository, everywhere):
            ids |= mention.findings
    return {finding_history.number(id_) for id_ in ids}


# --- list and show


def _list(
    directory: Path, as_json: bool, only_open: bool, categories: tuple[str, ...], severities: tuple[str, ...]
) -> None:
    project = Project.at(directory)
    now = today()
    found = [
        one
        for one in findings.load(project.root, _invariants(project))
        if (not only_open or one.status == "open" or one.is_expired(now))
        and (not categories or one.category in categories)
        and (not severities or one.severity in severities)
    ]
    data = {"schema": LIST_SCHEMA, "findings": [one.as_dict(now) for one in found]}
    emit(data, lambda console: _print_list(console, found, now), as_json)


def _filters(function: Any) -> Any:
    for option in (
        click.option("--severity", "severities", multiple=True, type=_SEVERITIES, help="Only these severities."),
        click.option("--category", "categories", multiple=True, type=_CATEGORIES, help="Only these categories."),
        click.option("--open", "only_open", is_flag=True, help="Only open ones, and accepted ones past their expiry."),
    ):
        function = option(function)
    return function


@finding_group.command("list")
@_filters
@directory_option
@json_option
@guarded
def list_command(
    only_open: bool, categories: tuple[str, ...], severities: tuple[str, ...], directory: Path, as_json: bool
) -> None:
    """List the findings of regressions/."""
    _list(directory, as_json, only_open, categories, severities)


@click.command("findings")
@_filters
@directory_option
@json_option
@guarded
def findings_command(
    only_open: bool, categories: tuple[str, ...], severities: tuple[str, ...], directory: Path, as_json: bool
) -> None:
    """List the findings of regressions/; the same as `gate finding list`."""
    _list(directory, as_json, only_open, categories, severities)


@finding_group.command("show")
@click.argument("id_", metavar="ID")
@directory_option
@json_option
@guarded
def show_command(id_: str, directory: Path, as_json: bool) -> None:
    """Show one finding, and the commits that name it."""
    project = Project.at(directory)
    finding = _find(project, id_)
    commits = _commits(directory, finding.id)
    now = today()
    data = {"schema": SCHEMA, "action": "show", "finding": finding.as_dict(now), "commits": commits}

    def show(console: Console) -> None:
        line(console, f"{finding.id}: {safe(finding.title)}", style="bold")
        line(console, f"  {_status(finding, now)}, {finding.category}, severity {finding.severity}")
        line(console, f"  category {finding.category}: {spec.CATEGORIES[finding.category]}")
        line(console, f"  severity {finding.severity}: {spec.SEVERITIES[finding.severity]}")
        if finding.invariant:
            line(console, f"  breaks {finding.invariant}")
        if finding.reason:
            line(console, f"  reason: {safe(finding.reason)}")
        line(console, f"  fails without its fix by: {safe(', '.join(finding.expected_at_parent))}")
        if finding.detects:
            line(console, f"  in at least {finding.detects} runs")
        for test in finding.tests or ("no test yet",):
            line(console, f"  test    {safe(test)}")
        for sha in commits or ["none has its trailer"]:
            line(console, f"  commit  {sha}")
        line(console, f"  file    {safe(finding.file)}")

    emit(data, show, as_json)


# --- close and accept


@finding_group.command("close")
@click.argument("id_", metavar="ID")
@click.option(
    "--proof-commit", metavar="REV", help="The commit that fixes it (default: those with its `Finding:` trailer)."
)
@directory_option
@json_option
@guarded
def close_command(id_: str, proof_commit: str | None, directory: Path, as_json: bool) -> None:
    """Set a finding to fixed, when it is proved.

    Its tests must exist, and `gate check` of the commit that carries the trailer `Finding: ID` must pass with one of them
    as proof. Otherwise nothing is written, and the answer says what is missing.
    """
    project = Project.at(directory)
    finding = _find(project, id_)
    with interruptible():
        why = _missing_tests(project, finding)
        answer = None if why else _proof(directory, finding, proof_commit)
    changed = answer is not None and answer.state is State.PROVED and finding.status != "fixed"
    if changed:
        # What an acceptance says is about living with the fault, and ends with it.
        gone = ("reason", "expiry") if finding.status == "accepted" else ()
        _write(project, finding, {"status": "fixed"}, gone)
    finding = _find(project, finding.id)
    result = "fail"
    if answer is not None:
        result = {State.PROVED: "pass", State.CANNOT_JUDGE: "cannot-judge"}.get(answer.state, "fail")
        why = answer.why
    notes = _close_notes(directory, finding, answer)
    data = {
        "schema": SCHEMA,
        "action": "close",
        "result": result,
        "changed": changed,
        "why": why,
        "notes": notes,
        "proof": answer.as_dict() if answer else None,
        "finding": finding.as_dict(today()),
    }

    def show(console: Console) -> None:
        if result == "pass" and answer is not None:
            word = "fixed" if changed else "fixed already"
            line(console, f"{finding.id}: {word}, proved by {(answer.commit or '')[:10]}")
        else:
            line(console, f"{finding.id}: stays {finding.status}: {safe(why)}")
        for note in notes:
            line(console, f"  {safe(note)}")

    emit(data, show, as_json)
    exit_with(result)


def _close_notes(directory: Path, finding: Finding, answer: Proof | None) -> list[str]:
    if answer is None:
        return ["Write the test, name it in `tests`, and bring it in the commit of the fix."]
    if answer.state is not State.PROVED:
        if answer.commit is None:
            return [
                f"Commit the fix with its test and the trailer `Finding: {finding.id}`, or give --proof-commit REV."
            ]
        return [f"gate check {answer.commit[:10]} says more."]
    if answer.commit not in _commits(directory, finding.id):
        return [
            f"{(answer.commit or '')[:10]} has no trailer `Finding: {finding.id}` in the history of HEAD: "
            "`gate release` looks for the proof there."
        ]
    return []


@finding_group.command("accept")
@click.argument("id_", metavar="ID")
@click.option("--reason", required=True, metavar="TEXT", help="Why it may stay for now.")
@click.option(
    "--expiry",
    required=True,
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Its last day, for example 2030-12-31; after it the finding is open again.",
)
@directory_option
@json_option
@guarded
def accept_command(id_: str, reason: str, expiry: datetime.datetime, directory: Path, as_json: bool) -> None:
    """Accept an open finding until a day, with a reason."""
    project = Project.at(directory)
    finding = _find(project, id_)
    day, now = expiry.date(), today()
    if finding.status == "fixed":
        raise UsageError("finding-fixed", f"{finding.id} is fixed", "If it came back, set its status to open first.")
    if day < now:
        raise UsageError("bad-expiry", f"--expiry {day} is in the past", "Choose the day on which to look again.")
    if not reason.strip():
        raise UsageError("bad-reason", "--reason is empty", "Say why it may stay for now.")
    _write(project, finding, {"status": "accepted", "reason": reason.strip(), "expiry": day}, ())
    finding = _find(project, finding.id)
    data = {"schema": SCHEMA, "action": "accept", "finding": finding.as_dict(now)}
    emit(data, lambda console: line(console, f"{finding.id}: accepted through {day}: {safe(reason)}"), as_json)


# --- parts


def _invariants(project: Project) -> set[str] | None:
    """The ids of the specs; None when the project has no book."""
    if not (project.root / spec.FOLDER).is_dir():
        return None
    return {one.id for one in spec.load(project.root)}


def _find(project: Project, id_: str) -> Finding:
    found = findings.load(project.root, _invariants(project))
    for finding in found:
        if finding.id == id_.upper():
            return finding
    known = f"there are {found[0].id} to {found[-1].id}" if found else "there is none"
    raise UsageError("no-finding", f"{id_!r} is no finding of this project", f"`gate findings` lists them: {known}.")


def _write(
    project: Project, finding: Finding, changes: dict[str, finding_toml.Value], removals: tuple[str, ...]
) -> None:
    finding_toml.write(project.root / finding.file, changes, removals)


def _commits(directory: Path, id_: str) -> list[str]:
    """The commits of HEAD's history that name the finding in their trailer, newest first; none outside of git."""
    try:
        with Repository(directory) as repository:
            repository.resolve("HEAD")
            return [m.sha for m in finding_history.mentions(repository) if id_ in m.findings]
    except UsageError as error:
        if error.code in ("no-repository", "bad-revision"):
            return []
        raise


def _missing_tests(project: Project, finding: Finding) -> str:
    """Why the finding's tests cannot be its proof today; "" when pytest collects all of them."""
    if not finding.tests:
        return "it names no test"
    with scratch() as folder:
        collected = projects.collect(project.job(project.root, folder, finding.tests))
    gone = [test for test in finding.tests if not any(selects(test, node) for node in collected.nodes)]
    if not gone:
        return ""
    if collected.failure or collected.broken:
        told = collected.failure or "; ".join(f"{what}: {why}" for what, why in collected.broken.items())
        raise CannotJudgeError("collection-broke", f"its tests cannot be collected: {safe(told)}")
    return f"pytest does not collect {', '.join(gone)}"


def _proof(directory: Path, finding: Finding, revision: str | None) -> Proof:
    # Imported here: the machinery of processes costs every other command a few hundredths of a second.
    from holdtrue_gate import proving

    with Repository(directory) as repository:
        complete = not repository.is_shallow
        if revision is not None:
            shas = [repository.resolve(revision)]
        else:
            shas = [m.sha for m in finding_history.mentions(repository) if finding.id in m.findings]
    found = []
    for sha in shas:
        found.append(proof.judge(finding.id, finding.tests, proving.carry_out(proving.ProofJob(directory, sha))))
        if found[-1].state is State.PROVED:
            break
    return proof.best(finding.id, found, complete=complete or revision is not None)


def _status(finding: Finding, now: datetime.date) -> str:
    if finding.expiry is None or finding.status != "accepted":
        return finding.status
    return "expired" if finding.is_expired(now) else f"accepted until {finding.expiry}"


def _print_list(console: Console, found: list[Finding], now: datetime.date) -> None:
    from rich.table import Table
    from rich.text import Text

    if not found:
        line(console, "No findings.")
        return
    table = Table("id", "status", "category", "severity", "invariant", "title")
    for finding in found:
        row = [
            finding.id,
            _status(finding, now),
            finding.category,
            finding.severity,
            finding.invariant or "",
            safe(finding.title),
        ]
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


COMMANDS: list[click.Command] = [finding_group, findings_command]
