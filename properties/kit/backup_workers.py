"""What the processes around backups and restores do. Importable by a spawned child, and light."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from holdtrue import HoldTrueError, Memory
from properties.kit.ledger import Ledger


def first_text(number: int) -> str:
    return f"generation first number {number:02d}"


def second_text(number: int) -> str:
    return f"generation second number {number:02d}"


# Some 30 kB that nothing is derived of: a store of few memories has many pages, and is made in a moment.
FILLER = {"filler": "\u5e93" * 9_900}
# By which a reader lists a generation whole, however many memories the writers beside it store.
TAGS = ["generation"]


def seed(folder: Path, count: int, done: Path, forgotten: str = "") -> None:
    """Store the first generation, back it up, then give every memory its text of the second.

    `forgotten` is a text that the backup holds and the store has forgotten. Leaves the backup beside the store, and the
    id of what was forgotten in `done`.
    """
    with Memory(folder) as memory:
        records = memory.add_many(
            [{"text": first_text(number), "tags": TAGS, "metadata": FILLER} for number in range(count)]
        )
        canary = memory.add(forgotten).id if forgotten else ""
        memory.backup(done.with_suffix(".db"))
        for number, record in enumerate(records):
            memory.update(record.id, second_text(number))
        if canary:
            assert memory.forget(canary).erased, "nobody else has the store open, so the bytes must be gone at once"
        done.write_text(canary)


def seed_strangers(folder: Path, count: int, backup: Path) -> None:
    """Back up a store of another origin that holds the first generation, in the names of people of its own."""
    with Memory(folder) as memory:
        memory.add_many(
            [
                {
                    "text": first_text(number),
                    "tags": TAGS,
                    "user": f"stranger {number}",
                    "session": f"visit {number}",
                    "metadata": FILLER,
                }
                for number in range(count)
            ]
        )
        memory.backup(backup)


def add_in_order(folder: Path, ledger_path: Path, name: str, ready: Any, stop: Any, limit_s: float) -> None:
    """Add texts numbered from 0 until told to stop; each second one is a pair that is stored in one call."""
    until, number = time.monotonic() + limit_s, 0
    ledger = Ledger(ledger_path)
    with Memory(folder) as memory:
        memory.add(f"{name} is ready", user=name)
        ready.release()
        while not stop.is_set() and time.monotonic() < until:
            texts = [f"{name} {number:05d}"]
            if number % 2:
                texts = [f"{name} {number:05d} {half}" for half in "ab"]
            asked = ledger.ask("add", texts=texts)
            try:
                memory.add_many([{"text": text, "user": name, "session": f"{name}-{number // 7}"} for text in texts])
            except HoldTrueError as error:
                ledger.refused(asked, error.code, str(error))
            else:
                ledger.ok(asked)
            number += 1


def back_up(folder: Path, ledger_path: Path, targets: list[Path | None]) -> None:
    """Make one backup after the other."""
    ledger = Ledger(ledger_path)
    with Memory(folder) as memory:
        for target in targets:
            asked = ledger.ask("backup", target=str(target))
            try:
                receipt = memory.backup(target)
            except HoldTrueError as error:
                ledger.refused(asked, error.code, str(error))
            else:
                ledger.ok(asked, **receipt.as_dict())


def restore(folder: Path, ledger_path: Path, path: Path, keep_present: bool) -> None:
    ledger = Ledger(ledger_path)
    with Memory(folder) as memory:
        asked = ledger.ask("restore", path=str(path))
        try:
            receipt = memory.restore(path, backup=keep_present)
        except HoldTrueError as error:
            ledger.refused(asked, error.code, str(error))
        else:
            ledger.ok(asked, **receipt.as_dict())


def watch(folder: Path, seen_path: Path, ready: Any, stop: Any, limit_s: float) -> None:
    """Read until told to stop and once more after that; write down all texts that each read found."""
    until = time.monotonic() + limit_s
    descriptor = os.open(seen_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with Memory(folder) as memory:
        memory.search("generation")  # the model is there before the watch begins
        ready.release()
        last = False
        while not last:
            last = stop.is_set() or time.monotonic() >= until
            for action in ("list", "search"):
                line: dict[str, Any] = {"action": action, "began_ns": time.monotonic_ns()}
                try:
                    if action == "list":
                        line["texts"] = [record.text for record in memory.list(tags=TAGS, limit=500)]
                    else:
                        line["texts"] = [hit.text for hit in memory.search("generation number", limit=200)]
                except Exception as error:  # noqa: BLE001 - whatever a read says, it is to be judged
                    line["error"] = f"{type(error).__name__}: {error}"
                line["ended_ns"] = time.monotonic_ns()
                os.write(descriptor, json.dumps(line).encode() + b"\n")
