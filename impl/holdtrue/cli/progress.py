"""Progress of long work: a bar on a terminal's stderr, nothing where it is piped or JSON was asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdtrue.cli.output import is_terminal

Advance = Callable[[int, int | None], None]


@contextmanager
def progress(label: str, *, as_json: bool = False, shown: bool = True) -> Iterator[Advance]:
    """A function to call with what is done so far and with the total (None while it is not known yet).

    `shown` is False where the answer itself goes to the terminal meanwhile: a bar would be drawn into it.
    """
    if as_json or not shown or not is_terminal(sys.stderr):
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=None)

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


def _silent(done: int, total: int | None) -> None:
    pass
