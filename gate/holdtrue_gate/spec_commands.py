"""The commands about the book of invariants: trace, book, show, sabotage.

They parse options, ask the rooms, and print; no rule lives here. `COMMANDS` is what the command line adds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdtrue_gate import book, sabotage, spec, trace, tracing
from holdtrue_gate.errors import UsageError
from holdtrue_gate.options import directory_option, guarded, json_option, report_option
from holdtrue_gate.output import MARKS, Reports, emit, exit_with, interruptible, line
from holdtrue_gate.project import Project
from holdtrue_gate.treedigest import Subject

if TYPE_CHECKING:
    from rich.console import Console


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
        emit(data, lambda console: _print_stamps(console, chosen), as_json, reports)
        return
    with interruptible():
        traced = tracing.run(project, specs, with_run=with_run)
    emit(traced.as_dict(), lambda console: _print_trace(console, traced), as_json, reports)
    exit_with(traced.trace.result)


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

    emit(data, show, as_json, ())
    exit_with(result)


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
    emit(data, lambda console: _print_spec(console, one, data), as_json, ())


@click.command("sabotage")
@click.argument("invariants", metavar="[INV]...", nargs=-1)
@click.option("--rev", "revision", metavar="REV", help="Judge this commit (default: the working tree, as it is now).")
@click.option("--sample", "sample", is_flag=True, help="Try one planted bug of each invariant, chosen by the commit.")
@click.option("--seed", "seed", type=int, metavar="N", help="Choose the sample by this number instead.")
@click.option(
    "-j",
    "--jobs",
    "jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Planted bugs at a time.",
)
@directory_option
@json_option
@report_option
@guarded
def sabotage_command(
    invariants: tuple[str, ...],
    revision: str | None,
    sample: bool,
    seed: int | None,
    jobs: int,
    directory: Path,
    as_json: bool,
    reports: Reports,
) -> None:
    """Plant each bug in a private copy and require that its tests catch it with an assertion of their own.

    With --sample one bug of each invariant is planted, another one for another commit; the seed that repeats the choice
    is told. A release needs all of them.
    """
    if seed is not None and not sample:
        raise UsageError("no-sample", "--seed chooses a sample, and there is none", "Add --sample.")
    wanted = sabotage.Sample(str(seed) if seed is not None else "") if sample else None
    project = Project.at(directory)
    with interruptible(), _progress_bar() as tell:
        subjects: list[Subject] = []
        samples: list[sabotage.Sample] = []
        outcomes = sabotage.run(
            project,
            invariants,
            revision=revision,
            progress=tell,
            seen=subjects.append,
            sample=wanted,
            sampled=samples.append,
            jobs=jobs,
        )
    taken = samples[0] if samples else None
    data = sabotage.as_dict(outcomes, subjects[0], taken)
    emit(data, lambda console: _print_sabotage(console, outcomes, taken), as_json, reports)
    exit_with(sabotage.result(outcomes))


COMMANDS: list[click.Command] = [trace_command, book_command, show_command, sabotage_command]


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


def _print_stamps(console: Console, chosen: list[spec.Spec]) -> None:
    for one in chosen:
        line(console, f"{one.id}: stamped as reviewed ({one.fingerprint[:12]}).")


def _print_trace(console: Console, traced: tracing.Traced) -> None:
    found = traced.trace
    for heading, remarks in (("problem", found.problems), ("unknown", found.unknown), ("warning", found.warnings)):
        for remark in remarks:
            about = f" {remark.invariant}" if remark.invariant else ""
            line(console, f"{heading}: {remark.code}{about}: {remark.message}")
    line(console, traced.summary)
    console.print(f"gate trace: {MARKS[found.result]}")


def _print_sabotage(console: Console, outcomes: list[sabotage.Outcome], sample: sabotage.Sample | None = None) -> None:
    from rich.table import Table
    from rich.text import Text

    if not outcomes:
        line(console, "No bug is planted here: add a [[sabotage]] to the spec.")
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
    if sample is not None:
        line(console, f"A sample: {len(outcomes)} of {sample.of} planted bugs, by the seed {sample.seed}.")
    caught = sum(outcome.status == sabotage.CAUGHT for outcome in outcomes)
    console.print(f"gate sabotage: {MARKS[sabotage.result(outcomes)]}, {caught} of {len(outcomes)} caught")


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
            line(console, f"  {entry}")

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
