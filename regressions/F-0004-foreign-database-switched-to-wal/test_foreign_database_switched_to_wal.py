"""F-0004: a database that is not a store must be refused before anything is changed in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdtrue import Memory
from holdtrue.errors import StoreUnusable


def other_program(path: Path, *, wal: bool = False, version: int = 0, application: int = 0) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {'wal' if wal else 'delete'}")
    connection.execute("CREATE TABLE accounts(owner TEXT)")
    connection.execute("INSERT INTO accounts VALUES('theo')")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(f"PRAGMA application_id = {application}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "made",
    [
        pytest.param({}, id="plain"),
        pytest.param({"version": 7}, id="with-a-version"),
        pytest.param({"application": 0x12345678}, id="of-a-named-application"),
        pytest.param({"wal": True, "version": 1}, id="in-wal-mode"),
    ],
)
def test_the_database_of_another_program_is_refused_and_left_to_the_byte(tmp_path: Path, made: dict[str, Any]) -> None:
    database = tmp_path / "memory.db"
    other_program(database, **made)
    before = database.read_bytes()
    with Memory(tmp_path) as memory, pytest.raises(StoreUnusable):
        memory.add("into the wrong house")
    assert database.read_bytes() == before
