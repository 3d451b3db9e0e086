"""F-0020: SQLite goes on with a database whose file is gone; an add acknowledged there is one that nobody will find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdtrue import Memory
from properties.kit import raw


def delete_folder(store: Path) -> None:
    shutil.rmtree(store)


def delete_files(store: Path) -> None:
    for path in store.glob("memory.db*"):
        path.unlink()


def move_away(store: Path) -> None:
    store.rename(store.with_name("moved"))


def replace(store: Path) -> None:
    move_away(store)
    with Memory(store.with_name("other")) as other:
        other.add("the store that took its place")
    store.with_name("other").rename(store)


@pytest.mark.parametrize("take_away", [delete_folder, delete_files, move_away, replace])
def test_what_is_acknowledged_after_the_store_was_taken_away_is_where_the_path_leads(
    store: Path, take_away: Callable[[Path], None]
) -> None:
    with Memory(store) as memory:
        memory.add("before")
        memory.list()
        take_away(store)
        memory.add("after")
        memory.add("and once more")
        seen = [record.text for record in memory.list()]
    there = raw.read(store).texts() if (store / "memory.db").exists() else []
    assert {"after", "and once more"} <= set(there)
    assert sorted(seen) == sorted(there)
