"""Runs the benchmarks and prints their figures: `make bench`, or `python -m impl.benchmarks.run --help`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from impl.benchmarks import backups, held_writer, killed_server, large_store, retrieval, saturation, start_up, transfer
from impl.benchmarks.figures import Report, dump


@click.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(["saturation", "backups", "held", "killed", "start", "large", "transfer", "retrieval"]),
)
@click.option("--quick", is_flag=True, help="A tenth of the time: to see that it runs, not to quote.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout; progress goes to stderr.")
@click.option(
    "--locomo", type=click.Path(exists=True, path_type=Path), help="locomo10.json, for the retrieval figures."
)
def main(only: tuple[str, ...], quick: bool, as_json: bool, locomo: Path | None) -> None:
    """Measure figures as ratios of one run. Exits with 1 when a target was missed."""

    def say(text: str) -> None:
        print(f"    {text}", file=sys.stderr, flush=True)

    seconds = 10.0 if quick else 60.0
    memories = 1_000 if quick else 10_000
    holds_s = (2.0,) if quick else (25.0, 40.0)
    benchmarks: dict[str, Callable[[], list[Report]]] = {
        "start": lambda: [start_up.measure(rounds=3 if quick else 15, memories=memories, progress=say)],
        "saturation": lambda: [saturation.measure(seconds=seconds, memories=memories, progress=say)],
        "backups": lambda: [backups.measure(seconds=seconds, memories=memories, progress=say)],
        "held": lambda: held_writer.measure(memories=memories, holds_s=holds_s, progress=say),
        "killed": lambda: [killed_server.measure(seconds=seconds, progress=say)],
        "large": lambda: [large_store.measure(memories=10 * memories, progress=say)],
        "transfer": lambda: [transfer.measure(memories=10 * memories, progress=say)],
    }
    if locomo is not None:
        benchmarks["retrieval"] = lambda: [retrieval.measure(locomo, progress=say)]
    reports: list[Report] = []
    for name, benchmark in benchmarks.items():
        if only and name not in only:
            continue
        say(name)
        for report in benchmark():
            reports.append(report)
            if not as_json:
                print(report.text(), flush=True)
    if as_json:
        print(dump(reports))
    missed = [figure.name for report in reports for figure in report.figures if figure.reached is False]
    if missed:
        say(f"missed: {json.dumps(missed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
