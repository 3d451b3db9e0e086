"""The commands that store and find. Each reads its arguments, calls `Memory` or a server, prints one answer and returns
the exit code.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from holdtrue import __version__
from holdtrue.cli import settings, transfer, upkeep
from holdtrue.cli.door import DEGRADED, DONE, Door, command, filter_options, here_option, holdtrue
from holdtrue.errors import InvalidInput

# The modules that bring further commands of the group with them.
__all__ = ["holdtrue", "settings", "transfer", "upkeep"]

_STDIN_LIMIT_BYTES = 1024 * 1024


@command
@click.argument("text")
@click.option("--user", metavar="NAME", default="", help="Whose memory this is.")
@click.option("--project", metavar="NAME", default="", help="The project it belongs to.")
@here_option
@click.option("--session", metavar="NAME", default="", help="The session it comes from.")
@click.option("--speaker", metavar="NAME", default="", help="Who said it.")
@click.option("--at", metavar="TIME", help="When it happened, as 2026-03-04T10:00; local unless it says otherwise.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="A label to filter by; repeat for more.")
@click.option("--metadata", metavar="JSON", help="Anything else, as a JSON object.")
@click.option("--source", metavar="NAME", help="Where it comes from: a file, a URL, a ticket.")
@click.option("--key", metavar="KEY", help="Makes a retry safe: the same key and text store nothing new.")
def add(door: Door, /, text: str, metadata: str | None, **fields: Any) -> int:
    """Store a memory. TEXT is the memory itself, or - to read it from standard input."""
    given = _text(text)
    details = None if metadata is None else _json(metadata)
    with door.memory() as memory:
        memory.warm()
        record = memory.add(given, metadata=details, **fields)
    printer = door.printer
    if door.as_json:
        told = {"created": record.created, "masked": record.masked, "degraded": list(record.degraded)}
        printer.document({**record.as_dict(), **told})
    elif record.created:
        printer.line(f"{printer.style('Stored', 'green')}  {record.id}")
    else:
        printer.line(f"{printer.style('Known already', 'yellow')}  {record.id}  (stored {record.sources} times)")
    printer.masked(record)
    printer.notices(record.degraded)
    return DEGRADED if record.degraded else DONE


@command
@click.argument("query")
@click.option("--limit", metavar="N", type=int, default=10, show_default=True, help="How many hits at most, up to 200.")
@filter_options
@here_option
@click.option("--as-of", "as_of", metavar="TIME", help="Answer with what was known at this time.")
@click.option("--explain", is_flag=True, help="Tell why each memory was found.")
@click.option(
    "--context",
    metavar="N",
    type=int,
    help="Print a block for a prompt instead, of at most N characters; N from 640 to 1,000,000.",
)
def search(door: Door, /, query: str, context: int | None, **filters: Any) -> int:
    """Find memories by meaning and by words, best first. QUERY is any text; no part of it is syntax."""
    from holdtrue.search import envelope

    if context is not None:
        if filters["explain"]:
            raise click.UsageError("--explain does not go with --context.")
        if not envelope.LEAST_BUDGET <= context <= envelope.GREATEST_BUDGET:
            allowed = f"{envelope.LEAST_BUDGET:,} to {envelope.GREATEST_BUDGET:,}"
            raise InvalidInput(f"--context is {context:,}; it must lie in {allowed}.", hint=f"Use {allowed}.")
    with door.existing(searching=True) as memory:
        hits = memory.search(query, **filters)
    printer = door.printer
    if context is not None:
        block = envelope.render(hits, budget_chars=context)
        if door.as_json:
            printer.document({"context": block, "degraded": list(hits.degraded)})
        elif block:
            printer.line(block)
    elif door.as_json:
        printer.document({"hits": [hit.as_dict() for hit in hits], "degraded": list(hits.degraded)})
    elif not hits:
        printer.line("Nothing found.")
    else:
        for number, hit in enumerate(hits, 1):
            printer.hit(number, hit)
    printer.notices(hits.degraded)
    return DEGRADED if hits.degraded else DONE


@command
@click.argument("id")
def get(door: Door, /, id: str) -> int:  # noqa: A002 - the word of the contract
    """Show one memory in full."""
    with door.existing() as memory:
        record = memory.get(id)
    if door.as_json:
        door.printer.document(record.as_dict())
    else:
        door.printer.record(record)
    return DONE


@command
@click.option("--limit", metavar="N", type=int, default=50, show_default=True, help="How many to show, up to 500.")
@click.option("--offset", metavar="N", type=int, default=0, show_default=True, help="How many to skip.")
@filter_options
@here_option
def list_command(door: Door, /, limit: int, offset: int, **filters: Any) -> int:
    """List memories, newest first."""
    with door.existing() as memory:
        page = memory.list(limit=limit, offset=offset, **filters)
    printer = door.printer
    if door.as_json:
        printer.document(page.as_dict())
        return DONE
    for record in page:
        printer.row(record)
    end = offset + len(page)
    more = f"; --offset {end} shows the next" if end < page.total and len(page) else ""
    printer.line(printer.style(f"{len(page)} of {page.total}{more}", "dim"))
    return DONE


@command
@click.argument("id")
@click.argument("text")
def update(door: Door, /, id: str, text: str) -> int:  # noqa: A002
    """Give a memory another text: TEXT, or - to read it from standard input."""
    given = _text(text)
    with door.existing(searching=True) as memory:
        record = memory.update(id, given)
    printer = door.printer
    if door.as_json:
        printer.document({**record.as_dict(), "masked": record.masked, "degraded": list(record.degraded)})
    else:
        printer.line(f"{printer.style('Updated', 'green')}  {record.id}  (revision {record.revision})")
    printer.masked(record)
    printer.notices(record.degraded)
    return DEGRADED if record.degraded else DONE


@command
@click.argument("id")
def forget(door: Door, /, id: str) -> int:  # noqa: A002
    """Remove a memory for good, its history and its bytes included."""
    with door.existing() as memory:
        receipt = memory.forget(id)
    printer = door.printer
    if door.as_json:
        printer.document(receipt.as_dict())
    elif receipt.erased:
        printer.line(f"{printer.style('Forgotten and erased', 'green')}  {receipt.id}")
    else:
        printer.line(f"{printer.style('Forgotten', 'green')}  {receipt.id}")
        printer.line(f"Its bytes are still there and wait for this: {'; '.join(receipt.waiting_for)}.")
    if receipt.remains and not door.as_json:
        from holdtrue.cli.output import one_line

        printer.line("These files may hold it too; remove them yourself if it must be gone from them:")
        for path in receipt.as_dict()["remains"]:
            printer.line(f"  {one_line(path)}")
    return DONE if receipt.erased else DEGRADED


@command
def status(door: Door, /) -> int:
    """Tell what the store holds and whether anything is degraded."""
    with door.existing(searching=True) as memory:
        answer = {**memory.status(), "version": __version__}
    printer = door.printer
    if door.as_json:
        printer.document(answer)
    else:
        from holdtrue.controls import one_line

        for name, value in answer.items():
            if name not in ("exists", "degraded"):
                printer.line(f"{printer.style(f'{name:<16}', 'dim')}  {one_line(str(value))}")
        well = not answer["degraded"]
        printer.line(printer.style("All is well." if well else "Degraded:", "green" if well else "yellow"))
        for sentence in answer["degraded"]:
            printer.line(f"  {one_line(sentence)}")
    return DEGRADED if answer["degraded"] else DONE


@command
@click.option("--http", metavar="ADDR", help="Serve streamable HTTP on HOST:PORT instead of standard input and output.")
@click.option("--allow-remote", is_flag=True, help="Accept an ADDR that other machines reach. There is no login.")
@click.option(
    "--allow-host", "allow_hosts", metavar="NAME", multiple=True, help="A Host header to accept besides ADDR's own."
)
def serve(door: Door, /, http: str | None, allow_remote: bool, allow_hosts: tuple[str, ...]) -> int:
    """Serve the memory to an MCP client, on standard input and output."""
    from holdtrue.config import Settings, store_folder

    store_folder(door.store, Settings.from_environment(warn=False))  # a malformed path is told before anything else
    if http is None:
        from holdtrue.mcp_server import serve_stdio

        if sys.stdin is not None and sys.stdin.isatty():
            click.echo("This speaks JSON-RPC to an MCP client, which starts it itself. Ctrl-D ends it.", err=True)
        serve_stdio(door.store)
    else:
        from holdtrue.mcp_server.http import serve_http

        def tell(url: str) -> None:
            if door.as_json:
                door.printer.document({"url": url})
            else:
                door.printer.line(f"Serving {url}")
            sys.stdout.flush()

        serve_http(door.store, http, allow_remote=allow_remote, allow_hosts=allow_hosts, on_listening=tell)
    return DONE


@command
@click.option(
    "--memories",
    metavar="N",
    type=click.IntRange(20, 2000),
    default=50,
    show_default=True,
    help="How many each of the four servers stores.",
)
def demo(door: Door, /, memories: int) -> int:
    """Show that it holds: four servers share a store, one is killed, nothing is lost."""
    from holdtrue.cli.demo import run_demo

    return run_demo(door.store, memories=memories, as_json=door.as_json)


def _text(argument: str) -> str:
    """The argument itself, or standard input for `-`, without the newline that ends it."""
    if argument != "-":
        return argument
    if sys.stdin is None:
        raise InvalidInput("Standard input is closed.", hint="Pass the text as an argument.")
    data = sys.stdin.buffer.read(_STDIN_LIMIT_BYTES)
    text = data.decode("utf-8", "replace")
    return text.removesuffix("\n").removesuffix("\r")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--metadata is not JSON: {error}.", hint="""Write '{"ticket": "POL-1"}'.""") from error
