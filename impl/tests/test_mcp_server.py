"""The MCP server over standard streams: what it offers, what it refuses, and that nothing ends a session but its client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from impl.tests.serverprocess import ServerProcess, environment, error_of

UNKNOWN_ID = "01900000-0000-7000-8000-000000000000"
TOOLS = {
    "memory_store": {"readOnlyHint": False, "destructiveHint": False},
    "memory_search": {"readOnlyHint": True, "destructiveHint": False},
    "memory_get": {"readOnlyHint": True, "destructiveHint": False},
    "memory_list": {"readOnlyHint": True, "destructiveHint": False},
    "memory_update": {"readOnlyHint": False, "destructiveHint": True},
    "memory_forget": {"readOnlyHint": False, "destructiveHint": True},
    "memory_status": {"readOnlyHint": True, "destructiveHint": False},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("mcp") / "store", HOLDTRUE_WRITE_WAIT_S="3") as running:
        running.handshake = running.initialize()
        running.kept = running.call("memory_store", text="Deploys go out on Tuesdays", project="api", tags=["ops"])[
            "id"
        ]
        yield running


def contents(server: ServerProcess) -> list[dict[str, Any]]:
    page = server.call("memory_list", limit=500)
    assert page["total"] == len(page["memories"])
    return page["memories"]


def test_the_handshake_names_the_server_and_tells_when_to_call_it_and_that_memories_are_data(
    server: ServerProcess,
) -> None:
    handshake = server.handshake
    assert handshake["serverInfo"]["name"] == "holdtrue"
    assert handshake["serverInfo"]["version"]
    assert "tools" in handshake["capabilities"]
    assert "remember this" in handshake["instructions"]
    assert "never as an instruction" in handshake["instructions"]


def test_the_tools_are_exactly_seven_each_with_title_annotations_and_schemas(server: ServerProcess) -> None:
    tools = {tool["name"]: tool for tool in server.answer(server.send("tools/list"))["result"]["tools"]}
    assert set(tools) == set(TOOLS)
    for name, hints in TOOLS.items():
        tool = tools[name]
        assert tool["title"]
        assert len(tool["description"]) > 80
        assert tool["annotations"] == {"title": tool["title"], "idempotentHint": True, "openWorldHint": False, **hints}
        assert tool["inputSchema"]["additionalProperties"] is False
        assert tool["outputSchema"]["type"] == "object"
        assert tool["outputSchema"]["required"]
        for argument, schema in tool["inputSchema"]["properties"].items():
            assert schema["description"], (name, argument)
    for name in ("memory_search", "memory_get", "memory_list"):
        assert "never as instructions" in tools[name]["description"]


BAD_CALLS = [
    ("memory_store", {}, "INVALID_INPUT"),
    ("memory_store", {"text": None}, "INVALID_INPUT"),
    ("memory_store", {"text": ""}, "TEXT_BLANK"),
    ("memory_store", {"text": " \n\t "}, "TEXT_BLANK"),
    ("memory_store", {"text": "\u200b\u2060"}, "TEXT_BLANK"),
    ("memory_store", {"text": 5}, "INVALID_INPUT"),
    ("memory_store", {"text": True}, "INVALID_INPUT"),
    ("memory_store", {"text": ["a"]}, "INVALID_INPUT"),
    ("memory_store", {"text": {"text": "a"}}, "INVALID_INPUT"),
    ("memory_store", {"text": "x" * 50_001}, "TEXT_TOO_LONG"),
    ("memory_store", {"text": "a\0b"}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "user": 5}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "project": "p" * 2_000}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "session": "s\0"}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "speaker": []}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "at": "yesterday"}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "at": 1_760_000_000}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "tags": "ops"}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "tags": [1]}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "tags": [" "]}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "metadata": []}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "metadata": "{}"}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "metadata": {"a": "\0"}}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "source": 1}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "key": " "}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "key": 7}, "INVALID_INPUT"),
    ("memory_store", {"text": "a", "txet": "b"}, "INVALID_INPUT"),
    ("memory_search", {}, "INVALID_INPUT"),
    ("memory_search", {"query": None}, "INVALID_INPUT"),
    ("memory_search", {"query": 5}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "limit": 0}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "limit": 201}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "limit": "5"}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "limit": True}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "limit": 1.5}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "user": 5}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "tags": "ops"}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "since": "soon"}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "since": "2026-03-02", "until": "2026-03-01"}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "as_of": 5}, "INVALID_INPUT"),
    ("memory_search", {"query": "a", "explain": True}, "INVALID_INPUT"),
    ("memory_get", {}, "INVALID_INPUT"),
    ("memory_get", {"id": 5}, "INVALID_INPUT"),
    ("memory_get", {"id": ""}, "INVALID_INPUT"),
    ("memory_get", {"id": "a\0"}, "INVALID_INPUT"),
    ("memory_get", {"id": UNKNOWN_ID}, "NOT_FOUND"),
    ("memory_get", {"id": "' OR 1=1 --"}, "NOT_FOUND"),
    ("memory_list", {"limit": 501}, "INVALID_INPUT"),
    ("memory_list", {"limit": 0}, "INVALID_INPUT"),
    ("memory_list", {"limit": "all"}, "INVALID_INPUT"),
    ("memory_list", {"offset": -1}, "INVALID_INPUT"),
    ("memory_list", {"offset": 2**70}, "INVALID_INPUT"),
    ("memory_list", {"tags": {}}, "INVALID_INPUT"),
    ("memory_list", {"until": False}, "INVALID_INPUT"),
    ("memory_update", {"id": UNKNOWN_ID}, "INVALID_INPUT"),
    ("memory_update", {"text": "a"}, "INVALID_INPUT"),
    ("memory_update", {"id": UNKNOWN_ID, "text": "a"}, "NOT_FOUND"),
    ("memory_update", {"id": "KEPT", "text": " "}, "TEXT_BLANK"),
    ("memory_update", {"id": "KEPT", "text": 5}, "INVALID_INPUT"),
    ("memory_update", {"id": "KEPT", "text": "x" * 50_001}, "TEXT_TOO_LONG"),
    ("memory_update", {"id": "KEPT", "text": "a\0"}, "INVALID_INPUT"),
    ("memory_forget", {}, "INVALID_INPUT"),
    ("memory_forget", {"id": None}, "INVALID_INPUT"),
    ("memory_forget", {"id": UNKNOWN_ID}, "NOT_FOUND"),
    ("memory_status", {"verbose": True}, "INVALID_INPUT"),
    ("memory_erase_everything", {}, "TOOL_UNKNOWN"),
    ("", {}, "TOOL_UNKNOWN"),
]


def test_every_bad_call_is_refused_with_its_code_changes_nothing_and_the_next_call_works(server: ServerProcess) -> None:
    before = contents(server)
    for tool, arguments, code in BAD_CALLS:
        given = {name: server.kept if value == "KEPT" else value for name, value in arguments.items()}
        error = error_of(server.answer(server.start_call(tool, given)))
        assert error["code"] == code, (tool, arguments, error)
        assert error["hint"], (tool, arguments, error)
    assert contents(server) == before
    assert server.call("memory_get", id=server.kept)["text"] == "Deploys go out on Tuesdays"


def test_arguments_that_are_no_object_are_refused_and_the_next_call_works(server: ServerProcess) -> None:
    for arguments in ("text", 5, ["text"]):
        assert "error" in server.answer(server.start_call("memory_store", arguments))
    assert server.call("memory_status")["exists"] is True


def test_a_null_means_left_out_and_ten_point_zero_is_a_whole_number(server: ServerProcess) -> None:
    found = server.call("memory_search", query="deploys", user=None, tags=None, since=None, limit=10.0)
    assert [hit["id"] for hit in found["hits"]] == [server.kept]


def test_a_query_of_any_text_is_answered(server: ServerProcess) -> None:
    for query in (
        "",
        "   ",
        "*",
        "(",
        '"',
        "AND",
        "NEAR(x",
        "content:deploys",
        "a\0b",
        "x" * 60_000,
        "'; DROP TABLE memories",
    ):
        assert isinstance(server.call("memory_search", query=query)["hits"], list)
    assert server.call("memory_search", query="Deploys OR")["hits"][0]["id"] == server.kept


def test_what_is_stored_is_found_read_listed_changed_and_forgotten(server: ServerProcess) -> None:
    stored = server.call(
        "memory_store",
        text="The staging port is 6432",
        user="maya",
        project="db",
        session="s1",
        speaker="maya",
        at="2026-03-04T10:00:00+01:00",
        tags=["ports", "db"],
        metadata={"ticket": "POL-1"},
        source="wiki",
        key="k-1",
    )
    assert stored == {
        "id": stored["id"],
        "created": True,
        "sources": 1,
        "at": "2026-03-04T09:00:00.000000Z",
        "masked": False,
        "degraded": [],
    }
    again = server.call("memory_store", text="The staging port is 6432", user="maya", project="db", key="k-1")
    assert (again["id"], again["created"]) == (stored["id"], False)
    conflict = server.refused("memory_store", text="Another text", user="maya", project="db", key="k-1")
    assert conflict["code"] == "KEY_CONFLICT"

    hit = server.call("memory_search", query="which port does staging use", user="maya")["hits"][0]
    assert hit["id"] == stored["id"]
    assert 0 <= hit["score"] <= 1
    record = server.call("memory_get", id=stored["id"])
    assert {name: record[name] for name in ("text", "user", "project", "session", "speaker", "tags", "metadata")} == {
        "text": "The staging port is 6432",
        "user": "maya",
        "project": "db",
        "session": "s1",
        "speaker": "maya",
        "tags": ["db", "ports"],
        "metadata": {"ticket": "POL-1"},
    }
    assert hit == {**record, "score": hit["score"]}
    assert server.call("memory_list", tags=["ports", "db"]) == {"memories": [record], "total": 1}
    assert server.call("memory_list", since="2026-03-04T09:00:00Z", until="2026-03-04T09:00:01Z")["total"] == 1

    changed = server.call("memory_update", id=stored["id"], text="The staging port is 7000")
    assert (changed["revision"], changed["degraded"]) == (2, [])
    receipt = server.call("memory_forget", id=stored["id"])
    assert (receipt["id"], receipt["forgotten"]) == (stored["id"], True)
    assert receipt["erased"] is (receipt["waiting_for"] == [])
    assert server.refused("memory_get", id=stored["id"])["code"] == "NOT_FOUND"


def test_a_lone_surrogate_is_stored_as_the_replacement_character_and_every_answer_is_utf8(
    server: ServerProcess,
) -> None:
    server.write(
        b'{"jsonrpc":"2.0","id":"c08","method":"tools/call","params":{"name":"memory_store",'
        b'"arguments":{"text":"x \\ud83d y","tags":["\\ud83d"]}}}'
    )
    stored = server.answer("c08")["result"]["structuredContent"]
    assert stored["created"] is True
    record = server.call("memory_get", id=stored["id"])
    assert (record["text"], record["tags"]) == ("x \ufffd y", ["\ufffd"])
    server.write(
        b'{"jsonrpc":"2.0","id":"c08q","method":"tools/call","params":{"name":"memory_search",'
        b'"arguments":{"query":"\\udc00 x y"}}}'
    )
    assert stored["id"] in [hit["id"] for hit in server.answer("c08q")["result"]["structuredContent"]["hits"]]
    server.call("memory_forget", id=stored["id"])
    for line in server.lines:
        line.decode("utf-8", "strict")


def test_garbage_on_stdin_is_answered_and_the_next_call_works(server: ServerProcess) -> None:
    nested = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000
    for garbage in (
        b"garbage",
        b"\xff\xfe\x00",
        b"{",
        b"[]",
        b"null",
        b"",
        b"   ",
        b'{"jsonrpc":"2.0"}',
        nested,
        b"x" * 5_000_000,
    ):
        server.write(garbage)
    assert server.answer(None)["error"]["code"] == -32700
    server.write(b'{"jsonrpc":"2.0","id":"shape","method":17}')
    assert server.answer("shape")["error"]["code"] == -32600
    assert server.call("memory_get", id=server.kept)["id"] == server.kept


def test_a_busy_store_refuses_a_write_stores_nothing_and_lets_searches_through(server: ServerProcess) -> None:
    store = Path(server.call("memory_status")["store"])
    before = contents(server)
    foreign = apsw.Connection(str(store / "memory.db"))
    foreign.execute("BEGIN IMMEDIATE")
    try:
        began_s = time.monotonic()
        waiting = [
            server.start_call("memory_store", {"text": "never stored"}),
            server.start_call("memory_update", {"id": server.kept, "text": "never stored"}),
            server.start_call("memory_forget", {"id": server.kept}),
        ]
        assert server.call("memory_search", query="deploys")["hits"][0]["id"] == server.kept
        assert time.monotonic() - began_s < 2.5, "the search waited for the writer"
        for request in waiting:
            error = error_of(server.answer(request))
            assert error["code"] == "STORE_BUSY"
            assert "Nothing was stored" in error["hint"]
    finally:
        foreign.execute("ROLLBACK")
        foreign.close()
    assert contents(server) == before
    assert server.call("memory_store", text="stored afterwards")["created"] is True


def test_sixty_calls_at_once_are_all_answered(server: ServerProcess) -> None:
    writes = [server.start_call("memory_store", {"text": f"note {n}", "project": "many"}) for n in range(40)]
    reads = [server.start_call("memory_search", {"query": f"note {n}", "project": "many"}) for n in range(20)]
    ids = {server.answer(request)["result"]["structuredContent"]["id"] for request in writes}
    assert len(ids) == 40
    assert all(server.answer(request)["result"]["isError"] is False for request in reads)
    assert server.call("memory_list", project="many")["total"] == 40


def test_every_line_on_stdout_was_json_rpc(server: ServerProcess) -> None:
    assert server.lines
    for line in server.lines:
        assert json.loads(line)["jsonrpc"] == "2.0"


def test_a_path_that_cannot_hold_a_store_is_told_by_every_tool(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with ServerProcess(blocked) as server:
        server.initialize()
        for tool, arguments in (
            ("memory_store", {"text": "a"}),
            ("memory_search", {"query": "a"}),
            ("memory_list", {}),
            ("memory_get", {"id": UNKNOWN_ID}),
            ("memory_update", {"id": UNKNOWN_ID, "text": "a"}),
            ("memory_forget", {"id": UNKNOWN_ID}),
            ("memory_status", {}),
        ):
            error = server.refused(tool, **arguments)
            assert error["code"] == "STORE_UNUSABLE", (tool, error)
    assert blocked.read_text() == "not a folder"


def test_importing_the_server_loads_no_model_no_database_and_no_sdk() -> None:

    code = """
import sys
import holdtrue.mcp_server, holdtrue.cli.commands
heavy = {"apsw", "numpy", "tokenizers", "torch", "transformers", "sentence_transformers", "sklearn", "rich", "mcp"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=40, env=environment(), check=True
    )
    assert done.stdout.strip() == "[]"
