"""The commands about the book of invariants: trace, book, show, sabotage, findings.

They parse options, ask the rooms, and print; no rule lives here. `COMMANDS` is what the command line adds.
"""

from __future__ import annotations

import datetime
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from holdtrue_gate import book, findings, sabotage, spec, trace, tracing
from holdtrue_gate.errors import EXIT_CANNOT_JUDGE, EXIT_NO, EXIT_PASS, CannotJudgeError, UsageError
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.project import Project

if TYPE_CHECKING:
    from rich.console import Console

Reports = tuple[tuple[str, Path], ...]

_EXIT = {"pass": EXIT_PASS, "fail": EXIT_NO, "cannot-judge": EXIT_CANNOT_JUDGE}
_MARKS = {"pass": "[green]pass[/]", "fail": "[red]fail[/]", "cannot-judge": "[yellow]cannot judge[/]"}
_REPORT_WIDTH = 120


@click.command("trace")
@click.option(
    "--run", "with_run", is_flag=True, help="Also run the properties and require that they reach the failpoints."
)
@click.option(
    "--stamp", "stamps", multiple=True, metavar="INV", help="Record that the text of INV was reviewed, and stop."
)
@directory_option
@json_option
@report_option
@guarded
def trace_command(with_run: bool, stamps: tuple[str, ...], directory: Path, as_json: bool, reports: Reports) -> None:
    """Check that specs, code and tests name each other."""
    project = Project.at(directory)
    specs = spec.load(project.root)
    if stamps:
        chosen = [spec.find(specs, id_) for id_ in stamps]
        for one in chosen:
            spec.stamp(project.root, one)
        data = {"schema": trace.SCHEMA, "stamped": [{"id": one.id, "sha256": one.fingerprint} for one in chosen]}
        _emit(data, lambda console: _print_stamps(console, chosen), as_json, reports)
        return
    with _interruptible():
        traced = tracing.run(project, specs, with_run=with_run)
    _emit(traced.as_dict(), lambda console: _print_trace(console, traced), as_json, reports)
    _exit(traced.trace.result)


@click.command("book")
@click.option("--check", is_flag=True, help=f"Write nothing; fail when {book.FILE} is not what the specs say.")
@directory_option
@json_option
@guarded
def book_command(check: bool, directory: Path, as_json: bool) -> None:
    """Write INVARIANTS.md from the specs."""
    project = Project.at(directory)
    fresh = book.render(spec.load(project.root), project.marks(), project.name)
    path = project.root / book.FILE
    on_disk = path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
    changed = fresh != on_disk
    if changed and not check:
        path.write_bytes(fresh.encode("utf-8"))
    result = "fail" if changed and check else "pass"
    difference = book.difference(on_disk, fresh) if changed else ""
    data = {
        "schema": "holdtrue.gate.book/1",
        "result": result,
        "file": book.FILE,
        "changed": changed,
        "diff": difference,
    }

    def show(console: Console) -> None:
        if result == "fail":
            console.print(difference, markup=False)
            console.print(f"{book.FILE} is stale; run `gate book`.", markup=False)
        else:
            console.print(f"{book.FILE}: {'written' if changed else 'is what the specs say'}.", markup=False)

    _emit(data, show, as_json, ())
    _exit(result)


@click.command("show")
@click.argument("invariant", metavar="INV")
@directory_option
@json_option
@guarded
def show_command(invariant: str, directory: Path, as_json: bool) -> None:
    """Show one invariant: the promise, who keeps it, who attacks it, which planted bugs are caught."""
    project = Project.at(directory)
    one = spec.find(spec.load(project.root), invariant)
    marks = project.marks()
    data = one.as_dict() | {
        "schema": "holdtrue.gate.show/1",
        "enforced_by": [trace.function_dict(name, marks) for name in one.enforced_by],
        "failpoints": [
            {"name": point, "places": [str(place) for place in marks.failpoints.get(point, [])]}
            for point in one.failpoints
        ],
    }
    _emit(data, lambda console: _print_spec(console, one, data), as_json, ())


@click.command("sabotage")
@click.argument("invariants", metavar="[INV]...", nargs=-1)
@click.option("--rev", "revision", metavar="REV", help="Judge this commit (default: the working tree, as it is now).")
@directory_option
@json_option
@report_option
@guarded
def sabotage_command(
    invariants: tuple[str, ...], revision: str | None, directory: Path, as_json: bool, reports: Reports
) -> None:
    """Plant each bug in a private copy and require that its tests catch it with an assertion of their own."""
    project = Project.at(directory)
    with _interruptible(), _progress_bar() as tell:
        outcomes = sabotage.run(project, invariants, revision=revision, progress=tell)
    _emit(sabotage.as_dict(outcomes), lambda console: _print_sabotage(console, outcomes), as_json, reports)
    _exit(sabotage.result(outcomes))


@click.command("findings")
@directory_option
@json_option
@guarded
def findings_command(directory: Path, as_json: bool) -> None:
    """List the findings of regressions/."""
    project = Project.at(directory)
    known = {one.id for one in spec.load(project.root)} if (project.root / spec.FOLDER).is_dir() else None
    found = findings.load(project.root, known)
    today = datetime.datetime.now(datetime.UTC).date()
    data = {"schema": "holdtrue.gate.findings/1", "findings": [finding.as_dict(today) for finding in found]}
    _emit(data, lambda console: _print_findings(console, found, today), as_json, ())


COMMANDS: list[click.Command] = [trace_command, book_command, show_command, sabotage_command, findings_command]


def _emit(data: dict[str, Any], show: Callable[[Console], None], as_json: bool, reports: Reports) -> None:
    """Print the answer for a person or a program, and write the reports that were asked for."""
    document = json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True)
    if as_json:
        click.echo(document)
    else:
        show(_console())
    for kind, path in reports:
        try:
            with path.open("w", encoding="utf-8") as file:
                if kind == "json":
                    file.write(document + "\n")
                else:
                    show(_console(file))
        except OSError as error:
            raise UsageError(
                "report-unwritable", f"the report {path} cannot be written: {error.strerror}", "Choose another file."
            ) from error


def _console(file: Any = None) -> Console:
    # Rich costs a tenth of a second to import, which `--json` and `--help` do not have to pay.
    from rich.console import Console

    width = _REPORT_WIDTH if file is not None or not sys.stdout.isatty() else None
    return Console(file=file, width=width, highlight=False, soft_wrap=False, emoji=False)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the replays and remove the copies, and are no answer about the project."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        raise CannotJudgeError("interrupted", "it was interrupted, so nothing is known", "Run it again.") from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress_bar() -> Iterator[Callable[[sabotage.Progress], None]]:
    """A progress bar on a terminal's stderr; elsewhere silence."""
    if not sys.stderr.isatty():
        yield lambda _now: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda now: bar.update(task, description=now.message, completed=now.step, total=now.steps)


def _exit(result: str) -> None:
    if _EXIT[result] != EXIT_PASS:
        raise click.exceptions.Exit(_EXIT[result])


def _line(console: Console, text: str) -> None:
    """One line exactly as it is: not wrapped, so that it can be searched, and with no markup read into it."""
    console.print(text, markup=False, soft_wrap=True)


def _print_stamps(console: Console, chosen: list[spec.Spec]) -> None:
    for one in chosen:
        _line(console, f"{one.id}: stamped as reviewed ({one.fingerprint[:12]}).")


def _print_trace(console: Console, traced: tracing.Traced) -> None:
    found = traced.trace
    for heading, remarks in (("problem", found.problems), ("unknown", found.unknown), ("warning", found.warnings)):
        for remark in remarks:
            about = f" {remark.invariant}" if remark.invariant else ""
            _line(console, f"{heading}: {remark.code}{about}: {remark.message}")
    _line(console, traced.summary)
    console.print(f"gate trace: {_MARKS[found.result]}")


def _print_sabotage(console: Console, outcomes: list[sabotage.Outcome]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not outcomes:
        _line(console, "No bug is planted here: add a [[sabotage]] to the spec.")
    else:
        table = Table("INV", "planted bug", "caught by", "s")
        table.columns[2].overflow = "fold"
        table.columns[3].justify = "right"
        for outcome in outcomes:
            lines = [f"{catch.node}\n  {catch.exception} at {catch.location}" for catch in outcome.catches]
            if outcome.status != sabotage.CAUGHT:
                lines.append(f"{outcome.status.replace('-', ' ').upper()}: {outcome.why}")
            table.add_row(outcome.invariant, outcome.bug, Text("\n".join(lines)), f"{outcome.seconds:.1f}")
        console.print(table)
    caught = sum(outcome.status == sabotage.CAUGHT for outcome in outcomes)
    console.print(f"gate sabotage: {_MARKS[sabotage.result(outcomes)]}, {caught} of {len(outcomes)} caught")


def _print_findings(console: Console, found: list[findings.Finding], today: datetime.date) -> None:
    from rich.table import Table
    from rich.text import Text

    if not found:
        _line(console, "No findings.")
        return
    table = Table("id", "status", "category", "severity", "invariant", "title")
    for finding in found:
        status = finding.status
        if finding.expiry is not None:
            status = "expired" if finding.is_expired(today) else f"accepted until {finding.expiry}"
        row = [finding.id, status, finding.category, finding.severity, finding.invariant or "", finding.title]
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _print_spec(console: Console, one: spec.Spec, data: dict[str, Any]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    def heading(text: str) -> None:
        console.print()
        console.print(Text(text, style="bold"))

    def prose(text: str) -> None:
        console.print(Padding(Text(" ".join(text.split())), (0, 0, 0, 2)))

    def lines(entries: list[str]) -> None:
        for entry in entries or ["nothing yet"]:
            _line(console, f"  {entry}")

    console.print(Text(f"{one.id}: {one.name}", style="bold cyan"))
    prose(one.statement)
    heading("What would break it")
    prose(one.violated_by)
    heading("How bad, and under which faults")
    lines(
        [
            f"category {one.category}: {spec.CATEGORIES[one.category]}",
            f"severity {one.severity}: {spec.SEVERITIES[one.severity]}",
            f"crash model {one.crash_model}: {spec.CRASH_MODELS[one.crash_model]}",
        ]
    )
    heading("Kept by")
    lines(
        [
            f"{entry['function']}  {entry['file']}:{entry['line']}"
            if entry["file"]
            else f"{entry['function']}  NOT FOUND"
            for entry in data["enforced_by"]
        ]
    )
    heading("Attacked by")
    lines(list(one.properties))
    if one.failpoints:
        heading("Struck at")
        lines([f"{entry['name']}  {', '.join(entry['places']) or 'NOT FOUND'}" for entry in data["failpoints"]])
    heading("Planted bugs that the tests must catch")
    lines([f"{bug.name}  {bug.patch}, caught by {', '.join(bug.caught_by)}" for bug in one.sabotage])
    heading("Review")
    lines([{"never": "never stamped", "stale": "the text changed after it", "current": "of this text"}[one.review]])
    heading("Try it")
    lines([f"pytest {' '.join(one.properties)}", f"gate sabotage {one.id}"])
