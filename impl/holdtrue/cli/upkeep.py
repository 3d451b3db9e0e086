"""The command `doctor`: what is wrong with a store, and what can be made good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdtrue.cli.door import DEGRADED, DONE, Door, command

if TYPE_CHECKING:
    from holdtrue.cli.output import Printer
    from holdtrue.store.damage import SetAside
    from holdtrue.store.derived import Rebuilt
    from holdtrue.store.doctor import Diagnosis

DAMAGED = 3
_LOST_SHOWN = 5

_COLOURS = {"ok": "green", "degraded": "yellow", "damaged": "red", "unknown": "yellow"}


@command
@click.option(
    "--rebuild",
    metavar="[NAME]",
    is_flag=False,
    flag_value="all",
    help="Make derived data anew from the texts: words, vectors, pending or all.",
)
@click.option(
    "--set-aside",
    is_flag=True,
    help="Keep the bytes of a damaged store, begin a new one, bring over what can still be read.",
)
def doctor(door: Door, /, rebuild: str | None, set_aside: bool) -> int:
    """Examine the store, however damaged it is. Without an option nothing is changed.

    Exit codes: 0 sound, 4 degraded, 3 damaged; 1 when a store that is not damaged was to be set aside.
    """
    if rebuild is not None and set_aside:
        raise click.UsageError("--rebuild does not go with --set-aside: a new store is derived anew anyway.")
    from holdtrue.cli.progress import progress

    answer: dict[str, Any] = {}
    incomplete = False
    with door.existing() as memory:
        memory.warm()
        if set_aside:
            with progress("Bringing over", as_json=door.as_json) as advance:
                done = memory.set_aside(progress=advance)
            memory.embed_pending()
            answer["set_aside"] = done.as_dict()
            incomplete = not done.salvaged.complete
            if not door.as_json:
                _tell_set_aside(door.printer, done)
        elif rebuild is not None:
            with progress("Rebuilding", as_json=door.as_json) as advance:
                rebuilt = memory.rebuild([rebuild], progress=advance)
            answer["rebuilt"] = rebuilt.as_dict()
            if not door.as_json:
                _tell_rebuilt(door.printer, rebuilt)
        with progress("Examining", as_json=door.as_json) as advance:
            diagnosis = memory.doctor(progress=advance)
        answer = {"store": str(memory.path), **diagnosis.as_dict(), **answer}
    if door.as_json:
        door.printer.document(answer)
    else:
        _tell(door.printer, diagnosis)
    if diagnosis.state == "damaged":
        return DAMAGED
    return DEGRADED if diagnosis.state == "degraded" or incomplete else DONE


def _tell(printer: Printer, diagnosis: Diagnosis) -> None:
    from holdtrue.cli.output import visible

    width = max(len(check.name) for check in diagnosis.checks)
    for check in diagnosis.checks:
        state = printer.style(f"{check.state:<8}", _COLOURS[check.state])
        printer.line(f"{state}  {check.name:<{width}}  {visible(' '.join(check.says.split()))}")
        if check.advice:
            printer.line(printer.style(f"{'':8}  {'':<{width}}  {visible(check.advice)}", "dim"))
    whole = {"ok": "The store is sound.", "degraded": "The store is degraded.", "damaged": "The store is damaged."}
    printer.line(printer.style(whole[diagnosis.state], _COLOURS[diagnosis.state]))


def _tell_rebuilt(printer: Printer, rebuilt: Rebuilt) -> None:
    from holdtrue.cli.output import counted

    rest = [name for name in rebuilt.structures if name not in rebuilt.made_anew]
    done = [f"{', '.join(rest)} of {counted(rebuilt.memories, 'memory', 'memories')}"] if rest else []
    done += [f"made anew as a whole: {', '.join(rebuilt.made_anew)}"] if rebuilt.made_anew else []
    done += (
        [f"{counted(rebuilt.strays, 'entry', 'entries')} of memories that are gone removed"] if rebuilt.strays else []
    )
    if rebuilt.awaited:
        done.append(f"{rebuilt.vectors:,} of {counted(rebuilt.awaited, 'awaited vector', 'awaited vectors')} made")
    elif "vectors" in rebuilt.structures:
        done.append("no memory was waiting for a vector")
    printer.line(f"{printer.style('Rebuilt', 'green')}  {'; '.join(done)}")


def _tell_set_aside(printer: Printer, done: SetAside) -> None:
    from holdtrue.cli.output import counted, visible

    brought = done.salvaged
    printer.line(f"{printer.style('Set aside', 'yellow')}  {visible(done.kept)}")
    ids = counted(brought.tombstones, "id of a forgotten one", "ids of forgotten ones")
    printer.line(f"Brought over {counted(brought.memories, 'memory', 'memories')} and {ids}.")
    if brought.lost is None:
        printer.line("How many are lost nobody can tell: the list of them cannot be read either.")
    elif brought.lost:
        more = " ..." if brought.lost > len(brought.lost_ids[:_LOST_SHOWN]) else ""
        ids = ", ".join(map(visible, brought.lost_ids[:_LOST_SHOWN]))
        printer.line(f"{counted(brought.lost, 'memory', 'memories')} could not be read: {ids}{more}")
    if brought.incomplete:
        printer.line(f"Parts could not be read: {', '.join(brought.incomplete)}.")
