"""F-0018: a path that is a file can never become a store, whichever command meets it first."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdtrue import HoldTrueError, Memory


@pytest.mark.parametrize("action", ["exists", "status"])
def test_every_way_to_a_store_tells_a_file_from_a_missing_one(tmp_path: Path, action: str) -> None:
    (tmp_path / "notes.txt").write_text("not a store")
    told = "nothing"
    with Memory(tmp_path / "notes.txt") as memory:
        try:
            getattr(memory, action)()
        except HoldTrueError as error:
            told = error.code
    assert told == "STORE_UNUSABLE"
