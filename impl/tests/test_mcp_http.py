"""The server over HTTP: on loopback, guarded against pages that reach for it, and ended by a signal."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from holdtrue.errors import InvalidInput
from holdtrue.mcp_server.http import is_loopback, parse_address
from impl.tests.serverprocess import HANDSHAKE, environment, holdtrue


def test_addresses_are_host_and_port_and_default_to_loopback() -> None:
    assert parse_address("8765") == parse_address(":8765") == parse_address("127.0.0.1:8765") == ("127.0.0.1", 8765)
    assert parse_address("[::1]:1") == ("::1", 1)
    for bad in ("", "127.0.0.1", "a:b", "localhost:", "localhost:99999", "localhost:-1", "h:8²"):
        with pytest.raises(InvalidInput):
            parse_address(bad)
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "LOCALHOST")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.2", "localhost.evil.example", "")] == [False] * 5


def test_an_address_that_others_reach_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    for address, code, exit_code in (("0.0.0.0:0", "ADDRESS_REFUSED", 2), ("nonsense", "INVALID_INPUT", 2)):
        done = holdtrue("serve", "--http", address, "--json", "--store", str(tmp_path / "store"))
        assert json.loads(done.stdout)["error"]["code"] == code
        assert done.returncode == exit_code
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = holdtrue("serve", "--http", f"127.0.0.1:{taken.getsockname()[1]}", "--json")
        assert json.loads(done.stdout)["error"]["code"] == "ADDRESS_UNAVAILABLE"
        assert done.returncode == 1
    assert not (tmp_path / "store").exists()


def test_a_client_stores_and_finds_over_http_and_a_foreign_host_or_page_does_not(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "holdtrue", "serve", "--http", "127.0.0.1:0", "--store", str(tmp_path / "store")],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    try:
        url = server.stdout.readline().removeprefix("Serving ").strip()
        assert url.startswith("http://127.0.0.1:")
        for header, value, status in (("Host", "memory.evil.example", 421), ("Origin", "http://evil.example", 403)):
            assert posted(url, {header: value}) == status
        assert posted(url, {"Origin": "http://localhost:5173"}) == 200

        ended: list[int] = []

        async def talk() -> None:
            with anyio.fail_after(40):
                async with (
                    streamable_http_client(url) as (reading, writing, *_),
                    ClientSession(reading, writing) as session,
                ):
                    await session.initialize()
                    stored = await session.call_tool("memory_store", {"text": "Deploys go out on Tuesdays"})
                    found = await session.call_tool("memory_search", {"query": "when do we deploy"})
                    hits = found.structured_content["hits"]
                    assert [hit["id"] for hit in hits] == [stored.structured_content["id"]]
                    server.send_signal(signal.SIGTERM)  # with the session still open
                    ended.append(await anyio.to_thread.run_sync(server.wait, 2))

        with contextlib.suppress(BaseExceptionGroup):  # the session ends with its server
            anyio.run(talk)
        assert server.poll() == 0
        assert ended == [0]
    finally:
        server.kill()
        server.wait(10)
        server.stdout.close()


def posted(url: str, headers: dict[str, str]) -> int:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}).encode()
    accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, body, {**accept, **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
