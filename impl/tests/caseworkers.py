"""What the processes of the recorded cases do. Importable by a spawned child, like `properties.kit.workers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdtrue import HoldTrueError, Memory
from properties.kit.ledger import Ledger


def open_in_rounds(folder: Path, ledger_path: Path, barrier: Any, rounds: int, name: str) -> None:
    """In each round meet the others, then be one of the first to open a path, and add one memory."""
    ledger = Ledger(ledger_path)
    for number in range(rounds):
        text = f"{name} came to round {number}"
        call = ledger.ask("add", text=text)
        barrier.wait(30)
        try:
            with Memory(folder / f"round-{number}") as memory:
                ledger.ok(call, id=memory.add(text).id)
        except HoldTrueError as error:
            ledger.refused(call, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - an unplanned error is a finding, not the end of the history
            ledger.refused(call, type(error).__name__, str(error))


def add_unless_there(folder: Path, ledger_path: Path, barrier: Any, texts: Sequence[str]) -> None:
    """Look whether a text is there and add it if not: what a client does that does not trust the store with it."""
    ledger = Ledger(ledger_path)
    barrier.wait(30)
    with Memory(folder) as memory:
        for text in texts:
            call = ledger.ask("add", text=text)
            try:
                there = [hit for hit in memory.search(text, limit=3) if hit.text == text]
                if there:
                    ledger.ok(call, id=there[0].id, created=False)
                else:
                    added = memory.add(text)
                    ledger.ok(call, id=added.id, created=added.created)
            except HoldTrueError as error:
                ledger.refused(call, error.code, str(error))
            except Exception as error:  # noqa: BLE001 - an unplanned error is a finding, not the end of the history
                ledger.refused(call, type(error).__name__, str(error))
