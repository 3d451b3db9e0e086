"""What every command shares: the group, `--store` and `--json`, the store it opens, the form of its answer.

Only click is imported here: what a command needs, it imports itself, so that `--help` and a search start fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from holdtrue import __version__
from holdtrue.errors import InvalidInput, StoreMissing

if TYPE_CHECKING:
    import logging

    from holdtrue.cli.output import Printer
    from holdtrue.memory import Memory

DONE = 0
DEGRADED = 4

Command = Callable[..., int]


@dataclass(frozen=True)
class Door:
    """What every command shares: which store, and in which form it answers."""

    store: str | None
    as_json: bool

    @functools.cached_property
    def printer(self) -> Printer:
        from holdtrue.cli.output import Printer

        return Printer(as_json=self.as_json)

    def memory(self) -> Memory:
        import logging

        from holdtrue.memory import Memory

        logging.getLogger("holdtrue.config").addHandler(_warnings())  # tells which setting is not understood
        return Memory(self.store)

    @contextmanager
    def existing(self, *, searching: bool = False) -> Iterator[Memory]:
        """A store that is there. Raises `StoreMissing`, and makes nothing."""
        with self.memory() as memory:
            if not memory.exists():
                raise StoreMissing(f"There is no store at {memory.path}.")
            if searching:
                memory.warm()  # the model loads while the store is opened
            yield memory


@functools.cache
def _warnings() -> logging.Handler:
    """Writes warnings as every other line on standard error is written."""
    import logging
    import sys

    from holdtrue.cli.output import one_line, write

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            write(sys.stderr, f"holdtrue: {one_line(record.getMessage())}\n")

    return Lines(logging.WARNING)


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    store = click.option("--store", metavar="PATH", help="The folder of the store. [default: HOLDTRUE_HOME]")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    return store(as_json(function))


def command(function: Command) -> Command:
    """A command of `holdtrue` that takes `--store` and `--json`, on either side of its name."""
    return command_of(holdtrue)(function)


def command_of(group: click.Group) -> Callable[[Command], Command]:
    """As `command`, for a group within `holdtrue`."""

    def register(function: Command) -> Command:
        @click.pass_context
        @functools.wraps(function)
        def run(context: click.Context, /, store: str | None, as_json: bool, **arguments: Any) -> int:
            return function(inner_door(context, store, as_json), **arguments)

        name = function.__name__.removesuffix("_command")
        return group.command(name, help=function.__doc__)(common(run))

    return register


def inner_door(context: click.Context, store: str | None, as_json: bool) -> Door:
    """The door of a command or a group: what is said beside its own name goes before what was said outside."""
    outer: Door = context.obj
    return Door(outer.store if store is None else store, as_json or outer.as_json)


def here_option(function: Command) -> Command:
    """`--here`: as `--project`, with the project that the current folder belongs to."""

    @functools.wraps(function)
    def run(door: Door, /, here: bool, project: str | None, **arguments: Any) -> int:
        if here:
            context = click.get_current_context()
            if context.get_parameter_source("project") is not click.core.ParameterSource.DEFAULT:
                raise click.UsageError("--here does not go with --project.")
            project = _project_here()
        return function(door, project=project, **arguments)

    return click.option("--here", is_flag=True, help="As --project, with the project of the current folder.")(run)


def _project_here() -> str:
    from holdtrue.project import project_of

    project = project_of()
    if not project:
        raise InvalidInput(
            "The current folder is gone, so it has no project.", hint="Change to another, or use --project."
        )
    return project


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--until", metavar="TIME", help="Only memories before this time."),
        click.option(
            "--since", metavar="TIME", help="Only memories at or after this time, as 2026-03-04 or with a time."
        ),
        click.option(
            "--tag", "tags", metavar="TAG", multiple=True, help="Only memories with this tag; repeat for more."
        ),
        click.option("--session", metavar="NAME", help="Only memories of this session."),
        click.option("--project", metavar="NAME", help="Only memories of this project."),
        click.option("--user", metavar="NAME", help="Only memories of this user."),
    ):
        function = option(function)
    return function


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="holdtrue")
@common
@click.pass_context
def holdtrue(context: click.Context, store: str | None, as_json: bool) -> None:
    """An agent's memory that holds.

    The store is a folder: --store, else HOLDTRUE_HOME, else the data folder of this user. Exit codes: 0 done, 1 refused
    or not found, 2 usage, 3 store unavailable, 4 done but degraded (see `holdtrue status`).
    """
    context.obj = Door(store, as_json)
