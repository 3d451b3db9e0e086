"""F-0010: metadata that was accepted can be read from anywhere, and a text that spells an escape is a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdtrue import Memory
from holdtrue.errors import (
    InvalidInput,
)


def depth(levels: int) -> dict[str, Any]:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return {"deep": value}


def deeper_by(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else deeper_by(frames - 1, call)


def test_metadata_that_was_accepted_can_be_read_from_a_deeper_place_in_a_program(memory: Memory) -> None:
    memory.add("an innocent neighbour")
    for levels in (100, 400, 700, 800, 850, 900, 940):
        try:
            memory.add(f"nested {levels} deep", metadata=depth(levels))
        except InvalidInput:
            break
    # A server's handlers sit deeper on the stack than a script: what a script could store must not break its lists.
    try:
        found = deeper_by(300, memory.list)
    except RecursionError:
        pytest.fail("one deeply nested memory makes every list fail")
    assert "an innocent neighbour" in [record.text for record in found]
