"""The commands that carry a store elsewhere and back: `export`, `import`, `backup`, `restore`."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, TextIO

import click

from holdtrue.cli.door import DEGRADED, DONE, Door, command
from holdtrue.errors import InvalidInput

if TYPE_CHECKING:
    from holdtrue.store.importing import Imported

REFUSED = 1


@command
@click.argument("path", required=False)
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="How many backups to keep in the store's folder.",
)
@click.option("--force", is_flag=True, help="Replace the file at PATH if there is one.")
def backup(door: Door, /, path: str | None, keep: int, force: bool) -> int:
    """Copy the store to one file, while others use it. PATH is that file; without one it goes to the store's `backups`."""
    from holdtrue.cli.output import counted, visible
    from holdtrue.cli.progress import progress
    from holdtrue.records import shown_path

    if path == "-":
        raise click.UsageError("A backup is a file; `holdtrue export -` writes to standard output.")
    with door.existing() as memory, progress("Copying", as_json=door.as_json) as advance:
        receipt = memory.backup(path, replace=force, keep=keep, progress=advance)
    printer = door.printer
    if door.as_json:
        printer.document(receipt.as_dict())
    else:
        printer.line(f"{printer.style('Backed up and checked', 'green')}  {visible(shown_path(receipt.path))}")
        memories = counted(receipt.memories, "memory", "memories")
        printer.line(f"{memories}, {receipt.bytes:,} bytes, {receipt.seconds:.1f} s")
        for removed in receipt.removed:
            printer.line(printer.style(f"Removed the older {visible(shown_path(removed))}", "dim"))
    if not receipt.recorded:
        printer.notices(["The store cannot be written, so a later forget cannot name this file."])
    return DONE if receipt.recorded else DEGRADED


@command
@click.argument("path")
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can be asked.")
@click.option("--no-backup", is_flag=True, help="Do not keep the present state as a backup.")
def restore(door: Door, /, path: str, yes: bool, no_backup: bool) -> int:
    """Put the state of a backup in the place of the store's. PATH is a file that `holdtrue backup` made."""
    from holdtrue.cli.output import counted, is_terminal, visible
    from holdtrue.cli.progress import progress
    from holdtrue.records import shown_path
    from holdtrue.store.backup import given_path
    from holdtrue.store.restore import check_given

    with door.memory() as memory:
        check_given(memory.path, given_path(path))  # nobody is asked about a file that cannot be restored
        if not yes:
            if not is_terminal(sys.stdin):
                raise click.UsageError("Restoring replaces the whole store: pass --yes to confirm it.")
            kept = "Its present state is not kept." if no_backup else "Its present state is kept as a backup."
            question = (
                f"Replace the store at {visible(shown_path(str(memory.path)))} by {visible(shown_path(path))}? {kept}"
            )
            if not click.confirm(question, err=True):
                door.printer.line("Nothing was changed.")
                return REFUSED
        with progress("Restoring", as_json=door.as_json) as advance:
            receipt = memory.restore(path, backup=not no_backup, progress=advance)
    printer = door.printer
    if door.as_json:
        printer.document(receipt.as_dict())
    else:
        printer.line(
            f"{printer.style('Restored', 'green')}  {visible(shown_path(receipt.path))}  ({receipt.seconds:.1f} s)"
        )
        forgotten = f"; {receipt.kept_forgotten:,} of the backup stay forgotten" if receipt.kept_forgotten else ""
        printer.line(f"The store holds {counted(receipt.memories, 'memory', 'memories')}{forgotten}.")
        if receipt.set_aside is not None:
            printer.line(
                f"The store before was damaged and did not open; its bytes are kept in {visible(receipt.set_aside.kept)}"
            )
        if receipt.backup is not None:
            before = "What could be read of it" if receipt.set_aside is not None else "The state before"
            printer.line(f"{before} is kept in {visible(shown_path(receipt.backup))}")
        for removed in receipt.removed:
            printer.line(printer.style(f"Removed the older {visible(shown_path(removed))}", "dim"))
    degraded = []
    if receipt.backup_findings:
        degraded.append(f"The state before was damaged, and so is its backup: {'; '.join(receipt.backup_findings)}.")
    if receipt.set_aside is not None and not receipt.set_aside.salvaged.complete:
        degraded.append(
            "Not all of the damaged store could be read; what could not is only in the bytes that are kept."
        )
    printer.notices(degraded)
    return DEGRADED if degraded else DONE


@command
@click.argument("path")
@click.option("--force", is_flag=True, help="Replace the file at PATH if there is one.")
@click.option("--vectors", is_flag=True, help="Write the vectors too: larger, and none has to be made again.")
def export(door: Door, /, path: str, force: bool, vectors: bool) -> int:
    """Write every memory, with its history, as JSON Lines. PATH is a file to be made, or - for standard output."""
    from holdtrue.cli.output import counted, is_terminal, visible
    from holdtrue.cli.progress import progress
    from holdtrue.records import shown_path

    streaming = path == "-"
    if streaming and door.as_json:
        raise click.UsageError("--json does not go with -: standard output holds the export itself.")
    target: BinaryIO | str = _binary(sys.stdout) if streaming else path
    shown = not (streaming and is_terminal(sys.stdout))
    with door.existing() as memory, progress("Exporting", as_json=door.as_json, shown=shown) as advance:
        receipt = memory.export(target, replace=force, vectors=vectors, progress=advance)
    printer = door.printer
    if door.as_json:
        printer.document(receipt.as_dict())
    elif not streaming:
        printer.line(f"{printer.style('Exported', 'green')}  {visible(shown_path(str(receipt.path)))}")
        printer.line(
            f"{counted(receipt.memories, 'memory', 'memories')}, "
            f"{counted(receipt.tombstones, 'forgotten id', 'forgotten ids')}, {receipt.bytes:,} bytes, "
            f"{receipt.seconds:.1f} s"
        )
    if streaming or receipt.recorded:
        return DONE
    printer.notices(["The store cannot be written, so a later forget cannot name this file."])
    return DEGRADED


@command
@click.argument("path")
def import_command(door: Door, /, path: str) -> int:
    """Take in the memories of a file. PATH is what `holdtrue export` wrote, lines of {"text": ...}, the memory file of the
    MCP reference server, or - for standard input. Importing a file twice changes nothing the second time.
    """
    from holdtrue.cli.progress import progress

    source: BinaryIO | str = _binary(sys.stdin) if path == "-" else path
    with door.memory() as memory, _few_collections(), progress("Importing", as_json=door.as_json) as advance:
        memory.warm()
        receipt = memory.import_(source, progress=advance)
    printer = door.printer
    if door.as_json:
        printer.document(receipt.as_dict())
    else:
        _tell_import(door, receipt)
    if receipt.bad_count or receipt.conflict_count or not receipt.complete:
        return REFUSED
    return DEGRADED if receipt.degraded else DONE


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """An import makes millions of objects that live for a batch, and hardly a cycle among them: look for those seldom."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _tell_import(door: Door, receipt: Imported) -> None:
    from holdtrue.cli.output import counted, write
    from holdtrue.controls import one_line
    from holdtrue.records import shown_path

    printer = door.printer
    printer.line(f"{printer.style('Imported', 'green')}  {counted(receipt.added, 'memory', 'memories')}")
    for count, one, many in (
        (receipt.updated, "went on where the one here ended", "went on where the ones here ended"),
        (receipt.known, "was here already", "were here already"),
        (receipt.merged, "has a text that another memory here has", "have a text that another memory here has"),
        (receipt.forgotten, "was forgotten here and stays so", "were forgotten here and stay so"),
        (receipt.removed, "was here and is forgotten now", "were here and are forgotten now"),
    ):
        if count:
            printer.line(counted(count, one, many))
    if not receipt.erased:
        printer.line(
            f"Bytes of what is forgotten now are still there and wait for this: {'; '.join(receipt.waiting_for)}."
        )
    if receipt.remains:
        printer.line("These files may hold what is forgotten now; remove them yourself if it must be gone from them:")
        for path in receipt.remains:
            printer.line(f"  {one_line(shown_path(path))}")
    for kind, shown, count in (
        ("conflict", receipt.conflicts, receipt.conflict_count),
        ("not imported", receipt.bad, receipt.bad_count),
    ):
        for told in shown:
            write(sys.stderr, f"holdtrue: line {told.line}: {kind}: {one_line(told.reason)}\n")
        if count > len(shown):
            write(sys.stderr, f"holdtrue: {count - len(shown):,} more like that\n")
    if not receipt.complete:
        write(sys.stderr, "holdtrue: the file is cut: what stood behind its last line is not in it\n")
    printer.notices(receipt.degraded)


def _binary(stream: TextIO | None) -> BinaryIO:
    """The bytes of a standard stream. Raises `InvalidInput` where it was closed before this process began."""
    if stream is None:
        raise InvalidInput("That standard stream is closed.", hint="Name a file instead of -.")
    return stream.buffer
