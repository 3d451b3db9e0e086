"""What processes do to one config file, what its readers see, and what must be in it at the end.

Importable by a spawned child, and light. The readers judge raw bytes with `json` alone.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdtrue.configfile import ConfigFile
from holdtrue.errors import HoldTrueError
from holdtrue.files import replace_file
from properties.kit.ledger import Call, Ledger

Step = dict[str, Any]

ABSENT = "(absent)"
_READ_PAUSE_S = 0.001
_READ_LIMIT_S = 60.0


def change(path: Path, ledger_path: Path, threads: Sequence[Sequence[Step]]) -> None:
    """Each thread carries out steps such as `{"action": "set", "name": "x1", "value": 2}` through a file of its own."""
    ledger = Ledger(ledger_path)
    lock = threading.Lock()

    def run(steps: Sequence[Step]) -> None:
        file = ConfigFile(path)
        for step in steps:
            arguments = {name: value for name, value in step.items() if name != "action"}
            _note(ledger, lock, step["action"], arguments, getattr(file, step["action"]))

    crew = [threading.Thread(target=run, args=(steps,)) for steps in threads]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


def replace(path: Path, ledger_path: Path, writer: int, lengths: Sequence[int], barrier: Any) -> None:
    """Replace the file again and again, without a lock, by objects that say how long they are."""
    ledger = Ledger(ledger_path)
    lock = threading.Lock()
    barrier.wait(30)
    for step, length in enumerate(lengths):
        data = json.dumps({"writer": writer, "step": step, "length": length, "fill": "x" * length}).encode()
        _note(ledger, lock, "replace", {"length": length}, lambda length, data=data: replace_file(path, data))


def _note(
    ledger: Ledger, lock: threading.Lock, action: str, arguments: dict[str, Any], do: Callable[..., object]
) -> None:
    with lock:
        number = ledger.ask(action, **arguments)
    try:
        do(**arguments)
    except HoldTrueError as error:
        with lock:
            ledger.refused(number, error.code, str(error))
    except Exception as error:  # noqa: BLE001 - an unplanned error is a finding, not the end of the history
        with lock:
            ledger.refused(number, type(error).__name__, str(error))
    else:
        with lock:
            ledger.ok(number)


def watch(path: Path, report: Path, ready: Any, stop: Any) -> None:
    """Read the file until told to stop, at most a minute, and write down how often and every read that was not whole."""
    reads, problems = 0, []
    until = time.monotonic() + _READ_LIMIT_S
    ready.set()
    while not stop.is_set() and time.monotonic() < until:
        try:
            problem = not_whole(path.read_bytes())
            ConfigFile(path).read()
        except Exception as error:  # noqa: BLE001 - whatever a reader meets is what the property is about
            problem = f"{type(error).__name__}: {error}"
        reads += 1
        if problem:
            problems.append(f"read {reads}: {problem}")
        time.sleep(_READ_PAUSE_S)
    report.write_text(json.dumps({"reads": reads, "problems": problems[:20]}))


def not_whole(data: bytes) -> str:
    """Why these bytes are no complete object; empty when they are one. A `length` must be that of `fill`."""
    try:
        found = json.loads(data)
    except ValueError as error:
        return f"{data[:80]!r} ({len(data)} bytes) is no JSON: {error}"
    if not isinstance(found, dict):
        return f"{data[:80]!r} is no object"
    if found.get("length", 0) != len(found.get("fill", "")):
        return f"an object of length {found.get('length')} is filled with {len(found.get('fill', ''))}"
    return ""


def keys_survive(calls: Sequence[Call], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Every key has the value of its last acknowledged change, or of an unanswered one after that; others are untouched.

    Expects every key to be changed by one thread only.
    """
    lost: list[str] = []
    possible: dict[str, list[Any]] = {name: [value] for name, value in before.items()}
    for call in sorted(calls, key=lambda call: call.began_ns):
        if call.outcome == "refused":
            continue
        values = possible.setdefault(call.arguments["name"], [ABSENT])
        if call.outcome == "ok":
            values.clear()
        values.append(call.arguments["value"] if call.action == "set" else ABSENT)
    for name in possible.keys() | after.keys():
        value, allowed = after.get(name, ABSENT), possible.get(name, [ABSENT])
        if value not in allowed:
            lost.append(f"{name} is {value!r} and should be {' or '.join(map(repr, allowed))}")
    refused = [f"{call.process} was refused: {call.answer}" for call in calls if call.outcome == "refused"]
    return sorted(lost) + refused
