"""The server as the SDK's own client sees it; the client checks every answer against the tool's output schema."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

from impl.tests.serverprocess import environment

LIMIT_S = 90.0


@asynccontextmanager
async def connected(store: Path) -> AsyncIterator[ClientSession]:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "holdtrue", "serve", "--store", str(store)], env=environment()
    )
    with (store.parent / "server.log").open("a") as log:
        async with stdio_client(parameters, errlog=log) as streams, ClientSession(*streams) as session:
            await session.initialize()
            yield session


async def call(session: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await session.call_tool(tool, arguments, read_timeout_seconds=LIMIT_S)
    assert not result.is_error, result
    return result.structured_content


def test_two_servers_share_one_store_and_each_tool_answers_by_its_schema(tmp_path: Path) -> None:
    servers, each = 2, 5
    seen: dict[int, list[str]] = {}

    async def one(number: int, stored: list[anyio.Event], looked: list[anyio.Event]) -> None:
        async with connected(tmp_path / "store") as session:
            for n in range(each):
                await call(session, "memory_store", text=f"server {number} keeps fact {n}", tags=[f"s{number}"])
            stored[number].set()
            for event in stored:
                await event.wait()
            page = await call(session, "memory_list", limit=500)
            seen[number] = sorted(memory["text"] for memory in page["memories"])
            other = (number + 1) % servers
            found = await call(session, "memory_search", query=f"fact 3 of server {other}", tags=[f"s{other}"], limit=5)
            assert f"server {other} keeps fact 3" in [hit["text"] for hit in found["hits"]]
            looked[number].set()
            for event in looked:
                await event.wait()
            if number == 0:
                await every_tool(session)

    async def every_tool(session: ClientSession) -> None:
        first = (await call(session, "memory_list", limit=1))["memories"][0]
        assert await call(session, "memory_get", id=first["id"]) == first
        changed = await call(session, "memory_update", id=first["id"], text="changed by the client")
        assert changed["text"] == "changed by the client"
        assert (await call(session, "memory_forget", id=first["id"]))["forgotten"] is True
        assert (await call(session, "memory_status"))["memories"] == servers * each - 1
        refused = await session.call_tool("memory_get", {"id": first["id"]})
        assert refused.is_error
        assert refused.content[0].text.startswith('{"code": "NOT_FOUND"')

    async def main() -> None:
        stored, looked = ([anyio.Event() for _ in range(servers)] for _ in range(2))
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as tasks:
                for number in range(servers):
                    tasks.start_soon(one, number, stored, looked)

    anyio.run(main)
    everything = sorted(f"server {number} keeps fact {n}" for number in range(servers) for n in range(each))
    assert seen == dict.fromkeys(range(servers), everything)
