"""The command line `holdtrue`: its entry point, its exit codes and how it fails.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused or not found |
| 2 | usage |
| 3 | store unavailable or corrupt, with what to do |
| 4 | degraded: done, but see `holdtrue status` |

An expected failure is a message and a hint on stderr, with `--json` one object `{"error": {...}}` on stdout; never a
traceback.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from holdtrue.errors import HoldTrueError

if TYPE_CHECKING:
    import click

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command of this process and end it."""
    leave(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command. Returns its exit code; whatever goes wrong is printed."""
    import click
    from click.exceptions import NoArgsIsHelpError

    from holdtrue.cli.commands import holdtrue

    as_json = "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)
    try:
        code = holdtrue.main(args=list(arguments), prog_name="holdtrue", standalone_mode=False)
        _flush()
    except (BrokenPipeError, SystemExit):  # click itself turns a broken pipe into SystemExit(1)
        return _drop_output()
    except NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        problem = {"code": "USAGE", "message": error.format_message(), "hint": _usage_hint(error)}
        return _fail(problem, error.exit_code, as_json)
    except HoldTrueError as error:
        return _fail(error.as_dict(), error.exit_code, as_json)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: one line, no traceback
        return _fail(_unexpected(error), 1, as_json)
    return code if isinstance(code, int) else 0


def leave(code: int) -> NoReturn:
    """End the process at once: the interpreter's own way out waits for threads and takes as long as a search."""
    try:
        _flush()
    except BrokenPipeError:
        _drop_output()
    except OSError:
        code = code or 1
    os._exit(code)


def _fail(problem: dict[str, Any], code: int, as_json: bool) -> int:
    from holdtrue.cli.output import to_json, visible, write
    from holdtrue.masking import mask_values

    problem = mask_values(problem)  # a usage error repeats the arguments, an unexpected one anything
    try:
        if as_json:
            write(sys.stdout, to_json({"error": problem}) + "\n")
        else:
            write(sys.stderr, f"holdtrue: {visible(problem['message'])}\n")
            if problem["hint"]:
                write(sys.stderr, f"{visible(problem['hint'])}\n")
        _flush()
    except BrokenPipeError:
        _drop_output()
    except (HoldTrueError, OSError):
        # The stream it was to go to takes nothing; the other one may.
        with contextlib.suppress(HoldTrueError, OSError):
            write(sys.stderr, f"holdtrue: {visible(problem['message'])}\n")
        _drop_output()
    return code


def _usage_hint(error: click.ClickException) -> str:
    import click

    context = getattr(error, "ctx", None)
    hint = f"Try: {context.command_path if context else 'holdtrue'} --help"
    if isinstance(error, click.NoSuchOption) and context is not None and context.parent is not None:
        hint += f"; a text that begins with a dash goes after --, as in: {context.command_path} -- -webhook"
    return hint


def _unexpected(error: Exception) -> dict[str, Any]:
    if os.environ.get("HOLDTRUE_DEBUG"):
        from holdtrue.cli.output import visible, write
        from holdtrue.logs import traceback_text

        write(sys.stderr, visible(traceback_text(error)) + "\n")
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f" at {Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else ""
    return {
        "code": "INTERNAL_ERROR",
        "message": f"Unexpected {type(error).__name__}{place}: {error}",
        "hint": "This is a defect. Run the command again with HOLDTRUE_DEBUG=1 and report what it prints.",
    }


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _drop_output() -> int:
    """The reader of a pipe has left, as `head` does: that is no error, and nobody is there to be told."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
    return 0
