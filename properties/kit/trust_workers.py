"""What the processes of the trust properties do: store and recall hostile text, drive every call with hostile ids, come
first to a store under a umask. Importable by a spawned child, and light.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from holdtrue import HoldTrueError, Memory, cli

Answer = dict[str, Any]


# -- stored text stays data --------------------------------------------------------------------------------------------


def store_and_recall(
    folder: Path, items: Sequence[Mapping[str, Any]], query: str, budgets: Sequence[int], answers: Path
) -> None:
    with Memory(folder) as memory:
        memory.add_many(items)
    recall_all(folder, query, budgets, answers)


def recall_all(folder: Path, query: str, budgets: Sequence[int], answers: Path) -> None:
    """What the doors that speak to a model answer for each budget, as a JSON list of `{"door", "budget", "text"}`."""
    with Memory(folder) as memory:
        told: list[Answer] = [
            {"door": "recall", "budget": budget, "text": memory.recall(query, budget_chars=budget)}
            for budget in budgets
        ]
    store = ("--store", str(folder))
    code, out = command("search", query, "--context", str(budgets[0]), *store)
    told.append({"door": f"search --context, exit {code}", "budget": budgets[0], "text": out.removesuffix("\n")})
    answers.write_text(json.dumps(told), encoding="utf-8")


def store_and_show(folder: Path, items: Sequence[Mapping[str, Any]], query: str, answers: Path) -> None:
    """What the commands print for people, as a JSON object; `get` holds the answer for each id."""
    store = ("--store", str(folder))
    with Memory(folder) as memory:
        ids = sorted({record.id for record in memory.add_many(items)})
    told = {
        "search": command("search", query, "--explain", *store)[1],
        "list": command("list", *store)[1],
        "get": {id_: command("get", id_, *store)[1] for id_ in ids},
    }
    answers.write_text(json.dumps(told), encoding="utf-8")


def command(*arguments: str) -> tuple[int, str]:
    """Run a command inside this process: its exit code and what it wrote to stdout."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(arguments)
        sys.stdout.flush()
    return code, out.buffer.getvalue().decode()


# -- ids cannot traverse -----------------------------------------------------------------------------------------------

# What comes from outside and is no path, in methods, commands and tools alike.
EXTERNAL = (
    "id",
    "user",
    "project",
    "session",
    "speaker",
    "tags",
    "key",
    "source",
    "metadata",
    "names",
    "rebuild",
    "name",
)
ADDED = ("user", "project", "session", "speaker", "tags", "key", "source", "metadata")
# What the other arguments that must be there are given. A path is the user's own.
SAMPLES: dict[str, Any] = {"text": "a note", "query": "note", "value": "1"}
_EVENTS = ("open", "os.", "shutil.", "tempfile.", "glob.", "pathlib.", "subprocess.", "sqlite3.", "ctypes.dlopen")


def drive_everything(folder: Path, hostile: Sequence[str], told_at: Path) -> None:
    """Give every method, command and tool each hostile text in every argument that is no path.

    Writes what was asked and answered, as `calls`, and the path of every file operation that Python saw, as `paths`.
    """
    paths: set[tuple[str, str]] = set()
    sys.addaudithook(lambda event, arguments: _note_paths(paths, event, arguments))
    calls: list[list[str]] = []
    for number, text in enumerate(hostile):
        with Memory(folder) as memory:
            known = memory.add(f"known {number}", key=f"known {number}").id
            for name, call, arguments in [*_methods(memory, text), *_tools(memory, text)]:
                calls.append([name, _outcome(call, arguments)])
        for name, arguments in _commands(text):
            code, out = command("--store", str(folder), "--json", *arguments)
            calls.append([name, _code_of(out, code)])
        _import(folder, text, calls)
        with Memory(folder) as memory:
            calls.append(["forget", _outcome(memory.forget, {"id": known})])
    told_at.write_text(json.dumps({"calls": calls, "paths": sorted(paths)}))


def _note_paths(paths: set[tuple[str, str]], event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith(_EVENTS):
        for one in arguments:
            for path in one if isinstance(one, list | tuple) else [one]:
                if isinstance(path, str | bytes | os.PathLike):
                    paths.add((event, os.fsdecode(path)))


def _hostile_value(name: str, text: str) -> Any:
    if name in ("tags", "names"):
        return [text]
    return {text: text} if name == "metadata" else text


def _methods(memory: Memory, text: str) -> list[tuple[str, Any, Answer]]:
    """Every public method with each of its external arguments hostile by itself: one that is refused hides no other."""
    calls: list[tuple[str, Any, Answer]] = []
    for method, function in inspect.getmembers(memory, inspect.ismethod):
        if method.startswith("_"):
            continue
        parameters = inspect.signature(function).parameters
        names = [name for name in parameters if name in EXTERNAL]
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            names += ["user", "project", "session", "tags"]
        needed = [
            name for name, one in parameters.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD
        ]
        calls += [
            (
                f"{method}({name})",
                function,
                {**{one: SAMPLES.get(one, "") for one in needed}, name: _hostile_value(name, text)},
            )
            for name in names
        ]
    everything = {name: _hostile_value(name, text) for name in ADDED}
    calls.append(("add_many", memory.add_many, {"items": [{"text": f"of {text[:99]!a}", **everything}]}))
    calls.append(("add(everything)", memory.add, {"text": f"all of {text[:99]!a}", **everything}))
    return calls


def _tools(memory: Memory, text: str) -> list[tuple[str, Any, Answer]]:
    from holdtrue.mcp_server import tools

    def run(tool: Any, arguments: Answer) -> Any:
        return tools.run(lambda: memory, tool, arguments)

    calls: list[tuple[str, Any, Answer]] = []
    for tool in tools.TOOLS.values():
        for name in tool.properties:
            if name in EXTERNAL:
                given = {**{one: SAMPLES.get(one, "") for one in tool.required}, name: _hostile_value(name, text)}
                calls.append((f"{tool.name}({name})", run, {"tool": tool, "arguments": given}))
    return calls


def _commands(text: str) -> list[tuple[str, list[str]]]:
    """Every command with each of its external arguments and options hostile by itself."""
    from holdtrue.cli.commands import holdtrue

    calls = []
    for words, one in _leaves((), holdtrue):
        for external in one.params:
            if external.name not in EXTERNAL:
                continue
            value = json.dumps({text: text}) if external.name == "metadata" else text
            needed = [parameter for parameter in one.params if isinstance(parameter, click.Argument)]
            given = [value if parameter is external else SAMPLES.get(str(parameter.name), "") for parameter in needed]
            options = [] if isinstance(external, click.Argument) else [f"{external.opts[0]}={value}"]
            calls.append((f"{' '.join(words)} {external.name}", [*words, *options, "--", *given]))
    return calls


def _leaves(words: tuple[str, ...], one: click.Command) -> list[tuple[tuple[str, ...], click.Command]]:
    if isinstance(one, click.Group):
        return [leaf for name, inner in one.commands.items() for leaf in _leaves((*words, name), inner)]
    return [(words, one)]


def _import(folder: Path, text: str, calls: list[list[str]]) -> None:
    """A file whose lines hold hostile ids and names; and the store that holds them written out and copied."""
    given = folder.parent / "given"
    fields = {name: _hostile_value(name, text) for name in ADDED}
    lines = [
        {"id": text, "text": f"came with a hostile id {text[:99]!a}"},
        {"text": f"came with hostile names {text[:99]!a}", **fields},
        {"tombstone": {"id": text, "forgotten_at": "2026-01-01T00:00:00.000000Z"}},
    ]
    (given / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Memory(folder) as memory:
        calls.append(["import_", _outcome(memory.import_, {"path": given / "lines.jsonl"})])
        calls.append(["export", _outcome(memory.export, {"path": given / "export.jsonl", "replace": True})])
        calls.append(["backup", _outcome(memory.backup, {"path": given / "backup.db", "replace": True})])


def _outcome(call: Any, arguments: Answer) -> str:
    """`ok`, the code of a deliberate error, or the name of another exception."""
    try:
        call(**arguments)
    except HoldTrueError as error:
        return error.code
    except Exception as error:  # noqa: BLE001 - an unplanned error is a finding, not the end
        return f"{type(error).__name__}: {error}"
    return "ok"


def _code_of(out: str, code: int) -> str:
    try:
        answer = json.loads(out)
    except ValueError:
        return f"exit {code} with {out[:80]!r}"
    return str(answer["error"]["code"]) if "error" in answer else "ok"


# -- owner-only files --------------------------------------------------------------------------------------------------


def come_first(umask: int, entry: str, folder: Path, told_at: Path, held: Any, looked: Any) -> None:
    """Be the first to come to a store, or to make a file of one, by the named entry point and under a umask.

    Then hold the store open, with all the files that SQLite lays beside it, until the watcher has looked, at most 30 s.
    """
    sys.dont_write_bytecode = True  # nothing of this is to be seen by others, or to be unreadable to them
    os.umask(umask)
    told = ENTRIES[entry](folder)
    with Memory(folder) as memory:
        memory.add("held open")
        held.set()
        looked.wait(30)
    descriptor = os.open(told_at, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, told.encode())


def _by_library(folder: Path) -> str:
    with Memory(folder) as memory:
        memory.add("who may read this?")
        return f"found {len(memory.search('read'))}"


def _by_reader(folder: Path) -> str:
    with Memory(folder) as memory:
        return f"listed {memory.list().total}"


def _by_command(folder: Path) -> str:
    code, out = command("add", "who may read this?", "--store", str(folder))
    return f"exit {code} {out}"


def _by_server(folder: Path) -> str:
    handshake = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "kit", "version": "1"}}
    store = {"name": "memory_store", "arguments": {"text": "who may read this?"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": handshake},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": store},
    ]
    command_line = [sys.executable, "-m", "holdtrue", "serve", "--store", str(folder)]
    with subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        server.stdin.flush()
        # It is let go of when it has answered: a server whose client leaves gives up what takes long.
        return b"".join(server.stdout.readline() for line in lines if "id" in line).decode()


def _by_export(folder: Path) -> str:
    return _by_library(folder) + command("export", str(folder.parent / "export.jsonl"), "--store", str(folder))[1]


def _by_backup(folder: Path) -> str:
    told = _by_library(folder) + command("backup", "--store", str(folder))[1]
    return told + command("backup", str(folder.parent / "backup.db"), "--store", str(folder))[1]


def _by_restore(folder: Path) -> str:
    told = _by_library(folder) + command("backup", str(folder.parent / "backup.db"), "--store", str(folder))[1]
    other = folder.parent / "other" / "store"
    return told + command("restore", str(folder.parent / "backup.db"), "--yes", "--store", str(other))[1]


def _by_import(folder: Path) -> str:
    lines = io.BytesIO(b'{"text": "who may read this?"}\n')
    with Memory(folder) as memory:
        return f"imported {memory.import_(lines)}"


def _by_setting_aside(folder: Path) -> str:
    _by_library(folder)
    with (folder / "memory.db").open("r+b") as file:  # nobody has it open
        file.write(b"no database at all" * 100)
    return command("doctor", "--set-aside", "--store", str(folder))[1]


def _by_config(folder: Path) -> str:
    return command("config", "set", "write_wait_s", "7")[1] + _by_reader(folder)


ENTRIES = {
    "library": _by_library,
    "reader": _by_reader,
    "command": _by_command,
    "server": _by_server,
    "export": _by_export,
    "backup": _by_backup,
    "restore": _by_restore,
    "import": _by_import,
    "set-aside": _by_setting_aside,
    "config": _by_config,
}
