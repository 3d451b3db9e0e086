"""What the processes of the export and import properties do. Importable by a spawned child."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdtrue import HoldTrueError, Memory

Step = dict[str, Any]


def live(folder: Path, steps: Sequence[Step], warm: bool = True) -> None:
    """Live through a history: `add`, `update` and `forget`, `export` to a path, `import` of one.

    A change names the earlier add by its place (`"of": 0`), or the memory by its text now (`"saying": "..."`). The receipt
    of an import is appended to `"receipt"` as a JSON line.
    """
    ids: list[str] = []
    with Memory(folder) as memory:
        if warm:
            _wait_for_model(memory)
        for step in steps:
            arguments = {name: value for name, value in step.items() if name not in ("action", "of", "saying")}
            try:
                if step["action"] == "add":
                    ids.append("")
                    ids[-1] = memory.add(**arguments).id
                elif step["action"] == "export":
                    memory.export(Path(step["path"]))
                elif step["action"] == "import":
                    receipt = memory.import_(Path(step["path"]))
                    with Path(step["receipt"]).open("a") as told:
                        told.write(json.dumps(receipt.as_dict()) + "\n")
                elif step["action"] == "update":
                    memory.update(_id(memory, step, ids), **arguments)
                else:
                    memory.forget(_id(memory, step, ids))
            except HoldTrueError as error:
                if error.code not in ("KEY_CONFLICT", "TEXT_CONFLICT", "NOT_FOUND", "INVALID_INPUT"):
                    raise


def alternate(folder: Path, memories: int, begun: Any, stop: Any) -> None:
    """Fill a store, then give its first and its last memory the texts `first 1`, `last 1`, `first 2`, `last 2`, ... in
    that order until told to stop, at most 30 s.
    """
    with Memory(folder) as memory:
        records = memory.add_many(["first 0", *(f"between {number}" for number in range(memories - 2)), "last 0"])
        until = time.monotonic() + 30
        number = 0
        while not stop.is_set() and time.monotonic() < until:
            number += 1
            memory.update(records[0].id, f"first {number}")
            memory.update(records[-1].id, f"last {number}")
            if number == 3:
                begun.set()


def _id(memory: Memory, step: Step, ids: Sequence[str]) -> str:
    if "saying" in step:
        (found,) = [record.id for record in memory.list() if record.text == step["saying"]]
        return found
    return ids[step["of"] % len(ids)] if ids else ""


def _wait_for_model(memory: Memory) -> None:
    until = time.monotonic() + 20
    memory.warm()
    while memory.search("is the model there?").degraded and time.monotonic() < until:
        time.sleep(0.01)
