"""F-0009: whatever the path of a store, a call works or says what is wrong with the path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdtrue import Memory
from holdtrue.errors import HoldTrueError


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("~nobody-of-this-name/memories", id="unknown-home"),
        pytest.param("lone \ud800 surrogate", id="lone-surrogate"),
        pytest.param("a" * 300, id="too-long-a-name"),
        pytest.param("a/" * 3_000, id="too-long-a-path"),
    ],
)
@pytest.mark.parametrize("action", ["add", "search", "status", "exists"])
def test_a_path_that_no_file_system_takes_is_one_of_our_errors_and_never_a_bare_one(
    tmp_path: Path, name: str, action: str
) -> None:
    path = name if name.startswith("~") else str(tmp_path / name)
    arguments = {"add": ("a text",), "search": ("a text",)}.get(action, ())
    told = "nothing"
    try:
        with Memory(path) as memory:
            getattr(memory, action)(*arguments)
    except HoldTrueError as error:
        told = error.code
    except Exception as error:  # noqa: BLE001 - a bare error is what must not come
        told = repr(error)
    allowed = {"INVALID_INPUT", "STORE_UNUSABLE", "STORE_MISSING"} | (
        {"nothing"} if action in ("status", "exists") else set()
    )
    assert told in allowed


def test_a_folder_may_have_a_name_that_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDTRUE_WRITE_WAIT_S", "3")
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    try:
        folder.mkdir()
    except OSError:
        return  # this file system takes UTF-8 names only
    told = "nothing"
    with Memory(folder) as memory:
        try:
            memory.add("first")
        except Exception as error:  # noqa: BLE001 - the parent of the fix answers with one that says something else
            told = repr(error)
    assert told == "nothing"
