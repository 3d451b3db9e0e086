"""Secrets made for a test, what the processes do that are given them, and the look for any of them afterwards.

Every secret has a core: letters and digits that no other text of the test holds. Whatever else of a secret may be left,
its core may not. Importable by a spawned child, and light.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import random
import re
import string
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdtrue import Memory, cli, logs
from properties.kit import raw

Fields = dict[str, Any]


@dataclass(frozen=True)
class Secret:
    """A text that holds a secret, and the parts of it that must not be found anywhere: each 10 characters and more."""

    text: str
    cores: tuple[str, ...]


# -- making them -------------------------------------------------------------------------------------------------------


def _core(rng: random.Random, length: int, letters: str = string.ascii_letters + string.digits) -> str:
    """Random, with a digit and a letter of each case where the letters have them."""
    while True:
        core = "".join(rng.choices(letters, k=length))
        if core.isupper() or core.islower() or (re.search("[a-z]", core) and re.search("[A-Z].*[0-9]", core)):
            return core


def _github(rng: random.Random) -> Secret:
    core = _core(rng, 36)
    return Secret("ghp" + "_" + core, (core,))


def _in_a_sentence(rng: random.Random) -> Secret:
    core = _core(rng, 12) + "&!"
    return Secret(f"the password is {core}", (core,))


def _in_an_address(rng: random.Random) -> Secret:
    core = _core(rng, 14)
    return Secret(f"postgres://svc:{core}%21@db.local:5432/app", (core,))


def _in_a_header(rng: random.Random) -> Secret:
    core = _core(rng, 24)
    return Secret("Authorization: Bearer " + "ey" + "J" + ".".join((_core(rng, 20), core, _core(rng, 24))), (core,))


def _in_basic(rng: random.Random) -> Secret:
    core = _core(rng, 15)
    pair = base64.b64encode(f"svc:{core}xx".encode()).decode()
    return Secret(f"Authorization: Basic {pair}", (core, pair))


def _private_key(rng: random.Random) -> Secret:
    lines = [_core(rng, 64) for _ in range(3)]
    head, tail = (f"-----{word} RSA " + "PRIVATE KEY-----" for word in ("BEGIN", "END"))
    return Secret("\n".join((head, *lines, tail)), tuple(lines))


def _cut_private_key(rng: random.Random) -> Secret:
    lines = [_core(rng, 64) for _ in range(2)]
    return Secret("\n".join(("-----BEGIN " + "PRIVATE KEY-----", *lines)), tuple(lines))


def _assigned(rng: random.Random) -> Secret:
    core = _core(rng, 16)
    return Secret(f'export SERVICE_TOKEN="{core}"', (core,))


def _behind_an_escape(rng: random.Random) -> Secret:
    core = _core(rng, 16, string.ascii_uppercase + string.digits)
    return Secret('{"said": "the id:\\n' + "AKIA" + core + '\\n"}', (core,))


def _with_escaped_letters(rng: random.Random) -> Secret:
    core = _core(rng, 36)
    return Secret('{"said": "' + "\\u0067h\\u0070_" + core + '"}', (core,))


def _with_escaped_slashes(rng: random.Random) -> Secret:
    core = _core(rng, 12)
    return Secret("amqp:\\/\\/svc:" + core + "\\/x@mq.local\\/v", (core,))


def _anthropic(rng: random.Random) -> Secret:
    core = _core(rng, 40)
    return Secret("sk-" + "ant-api03-" + core, (core,))


def _slack(rng: random.Random) -> Secret:
    core = _core(rng, 24, string.ascii_lowercase + string.digits)
    return Secret("xoxb" + "-1234567890-" + core, (core,))


KINDS: dict[str, Callable[[random.Random], Secret]] = {
    "github": _github,
    "sentence": _in_a_sentence,
    "address": _in_an_address,
    "bearer": _in_a_header,
    "basic": _in_basic,
    "private key": _private_key,
    "cut private key": _cut_private_key,
    "assigned": _assigned,
    "behind an escape": _behind_an_escape,
    "escaped letters": _with_escaped_letters,
    "escaped slashes": _with_escaped_slashes,
    "anthropic": _anthropic,
    "slack": _slack,
}
FIELDS = ("text", "user", "project", "session", "speaker", "tags", "source", "metadata", "metadata name", "named value")
LOOK_ALIKES = (
    "risk-based rollout of task-12345678901234567890",
    "commit d0c54df3a1b2c3d4e5f60718293a4b5c6d7e8f90 is on main",
    'apiKey: import.meta.env.VITE_KEY, api_key=os.environ["X"]',
    "no API key in this build, sk-learn 1.5, the password is required",
    "lock file sha256:" + "0123456789abcdef" * 4 + " of 0192f1c3-7b1a-7c4e-9d3f-1a2b3c4d5e6f",
)


def make(kind: str, seed: int) -> Secret:
    return KINDS[kind](random.Random(f"{kind} {seed}"))


def fields_of(field: str, secret: Secret, number: int) -> tuple[Fields, tuple[str, ...]]:
    """The arguments of an add that carries a secret in one field, and the cores that it holds."""
    text, cores = secret.text, secret.cores
    fields: Fields = {"text": f"memory {number} of the plan"}
    if field == "text":
        fields["text"] = f"memory {number}\n{text}\nand so on"
    elif field == "tags":
        fields["tags"] = [f"t {text}"[:200]] if len(text) < 190 else [text[:199]]
    elif field == "metadata":
        fields["metadata"] = {"deep": [{"list": [1, text]}], "number": number}
    elif field == "metadata name":
        fields["metadata"] = {text: number}
    elif field == "named value":
        # By itself this is a word like any other: only its name tells.
        cores = (random.Random(cores[0]).choice("abc") + cores[0][:9] + "x7Q",)
        fields["metadata"] = {"db": {"clientSecret": cores[0]}, "password": cores[0]}
    else:
        fields[field] = f"/srv/{text}/app"
    return fields, cores


# -- what the processes do ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _output(path: Path) -> Iterator[None]:
    """Standard output and error of this process go to a file, and all that is logged, at its most talkative."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    yield
    sys.stdout.flush()
    sys.stderr.flush()


def give_away(
    store: Path,
    watched: Path,
    adds: Sequence[Fields],
    texts: Sequence[str],
    commands: Sequence[Sequence[str]] = (),
    told: Any = None,
    go_on: Any = None,
) -> None:
    """Add with these fields, update to each text, use each where it is refused, run the commands; export and list; then
    tell, and wait with the store open, at most 30 s. Everything that is answered goes to files in `watched`.
    """
    with _output(watched / "worker.out"):
        memory = Memory(store)
        for fields in adds:
            _tried(memory.add, **fields)
        first = memory.add("a memory that is updated").id
        for text in texts:
            _tried(memory.update, first, text)
            _refusals(memory, text)
            _log(text)
        for arguments in commands:
            cli.run(["--store", str(store), *arguments])
        _tried(memory.export, watched / "export.jsonl")
        page = memory.list(limit=500)
        (watched / "list.json").write_text(json.dumps(page.as_dict(), ensure_ascii=False), encoding="utf-8")
        if told is not None:
            told.set()
            go_on.wait(30)
        memory.close()


def _tried(call: Callable[..., Any], *arguments: Any, **fields: Any) -> None:
    try:
        print(call(*arguments, **fields))
    except Exception as error:
        traceback.print_exc()
        print(repr(error), getattr(error, "__dict__", ""))
        logging.getLogger("holdtrue").error("A call failed", exc_info=error)


def _refusals(memory: Memory, text: str) -> None:
    """Calls that repeat what they were given in what they refuse it with."""
    _tried(memory.get, text)
    _tried(memory.forget, text)
    _tried(memory.add, "refused", at=text)
    _tried(memory.add, "refused", key=text)
    _tried(memory.add, "refused", metadata={text: {1, 2}})
    _tried(memory.add_many, [{"text": "refused", text: 1}])
    _tried(memory.list, since=text)
    _tried(memory.search, text, limit=5, project=text)


def _log(text: str) -> None:
    """As a module of the product logs: a record, and an exception that is not one of its own."""
    log = logs.logger("holdtrue.of_a_worker")
    log.info("met %s and %r", text, {"given": text})
    try:
        raise ValueError(f"unplanned: {text}")
    except ValueError:
        log.exception("could not take %s", text)


def serve(store: Path, texts: Sequence[str], watched: Path) -> None:
    """Give an MCP server the texts in calls that it carries out and in calls that it refuses, from this process."""
    calls: list[tuple[str, Any]] = []
    for text in texts:
        calls += [
            ("memory_store", {"text": f"served: {text}", "metadata": {"note": text}, "project": text}),
            ("memory_store", {"text": "served", "at": text, "user": text}),
            ("memory_store", {"text": "served", "key": text}),
            ("memory_store", {"text": "served", text: text}),
            ("memory_store", {"text": ["served", text]}),
            ("memory_get", {"id": text}),
            ("memory_search", {"query": text, "limit": text}),
            (text, {}),
            ("memory_list", text),
        ]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    messages: list[dict[str, Any]] = [{"id": 0, "method": "initialize", "params": hello}]
    messages += [{"method": "notifications/initialized"}]
    messages += [
        {"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls, 1)
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    lines += [f"no message at all: {json.dumps(text)}" for text in texts]
    with (watched / "server.out").open("ab") as out:
        subprocess.run(
            [sys.executable, "-m", "holdtrue", "serve", "--store", str(store)],
            input="\n".join(lines).encode() + b"\n",
            stdout=out,
            stderr=out,
            timeout=30,
            check=True,
            env={**os.environ, "HOLDTRUE_LOG": "DEBUG"},
        )


# -- looking for them --------------------------------------------------------------------------------------------------


def leaks(folders: Iterable[Path], cores: Iterable[str]) -> list[str]:
    """Where a core is found in the bytes of a file, as it is or in any of the ways that text is written in files."""
    wanted = {core: _spellings(core) for core in cores}
    found = []
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            folded = content.lower()
            found += [
                f"{path.name} holds {core!r}"
                for core, spellings in wanted.items()
                if any(spelling in content for spelling in spellings) or core.lower().encode() in folded
            ]
    return found


def _spellings(core: str) -> tuple[bytes, ...]:
    return (
        core.encode(),
        json.dumps(core)[1:-1].encode(),
        core.encode("utf-16-le"),
        base64.b64encode(core.encode())[:-4],
    )


def indexed_leaks(store: Path, cores: Iterable[str]) -> list[str]:
    """Terms of the full-text index that are a part of a core: its bytes are split and folded there."""
    connection = raw.connect(store)
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, memories_fts, row)").fetchall()
        terms = {row[0] for row in connection.execute("SELECT term FROM temp.terms")}
        found = []
        for core in cores:
            words = [word for word in re.split(r"[^a-z0-9]+", core.lower()) if len(word) >= 6]
            found += [f"the full-text index holds {word!r}" for word in words if any(word in term for term in terms)]
            for word in words:
                hits = connection.execute("SELECT rowid FROM memories_fts WHERE memories_fts MATCH ?", (f'"{word}"*',))
                found += [f"{word!r} finds memory {row[0]}" for row in hits]
        return found
    finally:
        connection.close()


def missing(store: Path, texts: Iterable[str]) -> list[str]:
    """Look-alikes that are not stored as they were given, by each field that held them."""
    connection = raw.connect(store)
    try:
        texts = list(texts)
        stored = {row[0] for row in connection.execute("SELECT text FROM memories")}
        names = {row[0] for row in connection.execute("SELECT name FROM names WHERE kind = 'project'")}
        tags = {row[0] for row in connection.execute("SELECT tag FROM tags")}
        notes = {json.loads(row[0]).get("note") for row in connection.execute("SELECT metadata FROM memories")}
        places = {"text": stored, "project": names, "tag": tags, "metadata": notes}
        return [f"{text!r} is not stored as {place}" for text in texts for place in places if text not in places[place]]
    finally:
        connection.close()
