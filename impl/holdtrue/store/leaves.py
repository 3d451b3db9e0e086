"""Leaves: the rows that the pages of a damaged database still hold, found without the tree that led to them.

Owns: nothing but the copy it is given. Where the root of a table, the schema or the first page is damaged, or the database
is gone and only a part of it stands in the WAL, nothing leads to rows whose own pages are whole. So each page that looks
like the leaf of a table is made the root of a table of its own and asked for its rows, one page after another. Whether a
row is what it seems to be is for the caller to tell.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from holdtrue.store import schema
from holdtrue.store.statements import run

_LEAF = b"\x0d"  # of a table: https://www.sqlite.org/fileformat.html, section 1.6
_FRAME_HEADER_BYTES, _LOG_HEADER_BYTES = 24, 32
_PAGES_LIMIT = 1 << 22  # 16 GiB
_COUNTERS = struct.Struct(">II")


def rows(path: Path, log: Path, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Every row that some leaf gives for a table with these columns, the first of which is its number. `path` is changed.

    A row of another table may come as well, with whatever its values are.
    """
    _take_log_in(path, log)
    pages = path.stat().st_size // schema.PAGE_BYTES
    if pages < 2:
        return
    _give_first_page(path, table, columns, pages)
    name = f"file:{quote(os.fsencode(path))}"
    connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        run(connection, "PRAGMA writable_schema = ON")
        run(connection, "BEGIN")  # never committed: only the schema of this connection is to be another each time
        for page in _leaves(path, pages):
            with contextlib.suppress(apsw.Error, UnicodeError):
                run(connection, "UPDATE sqlite_schema SET rootpage = ?", (page,))
                run(connection, "PRAGMA writable_schema = RESET")
                run(connection, "PRAGMA writable_schema = ON")
                yield from _of_page(connection, table)
    finally:
        connection.close(True)


def _of_page(connection: apsw.Connection, table: str) -> list[tuple[Any, ...]]:
    """The rows of the table, one by one where they cannot be had together."""
    with contextlib.suppress(apsw.Error, UnicodeError):
        return run(connection, f"SELECT * FROM {table}")
    found = []
    last = -(2**63)
    for _ in range(schema.PAGE_BYTES // 4):
        try:
            numbers = run(connection, f"SELECT rowid FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT 1", (last,))
        except apsw.Error:
            break
        if not numbers:
            break
        last = numbers[0][0]
        with contextlib.suppress(apsw.Error, UnicodeError):
            found += run(connection, f"SELECT * FROM {table} WHERE rowid = ?", (last,))
    return found


def _leaves(path: Path, pages: int) -> list[int]:
    found = []
    with path.open("rb") as file:
        for page in range(2, pages + 1):
            file.seek((page - 1) * schema.PAGE_BYTES)
            if file.read(1) == _LEAF:
                found.append(page)
    return found


def _take_log_in(path: Path, log: Path) -> None:
    """Write the newest committed state of each page of the WAL into the file.

    Only frames that carry the salt of the WAL's own header belong to it, and only those up to its last commit.
    https://www.sqlite.org/fileformat.html, section 4
    """
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return
    size = schema.PAGE_BYTES
    if len(data) < _LOG_HEADER_BYTES or struct.unpack_from(">I", data, 8)[0] != size:
        return
    salt = data[16:24]
    newest: dict[int, int] = {}
    committed: dict[int, int] = {}
    offset = _LOG_HEADER_BYTES
    while offset + _FRAME_HEADER_BYTES + size <= len(data) and data[offset + 8 : offset + 16] == salt:
        page, pages_after = struct.unpack_from(">II", data, offset)
        if not 0 < page <= _PAGES_LIMIT:
            break
        newest[page] = offset + _FRAME_HEADER_BYTES
        if pages_after:
            committed.update(newest)
            newest.clear()
        offset += _FRAME_HEADER_BYTES + size
    with path.open("r+b") as file:
        for page, place in committed.items():
            file.seek((page - 1) * size)
            file.write(data[place : place + size])


def _give_first_page(path: Path, table: str, columns: Sequence[str], pages: int) -> None:
    """Write a first page whose schema is one table, and whose header says that the file is whole."""
    model = apsw.Connection(":memory:")
    try:
        run(model, f"PRAGMA page_size = {schema.PAGE_BYTES}")
        first, *rest = columns
        run(model, f"CREATE TABLE {table}({first} INTEGER PRIMARY KEY, {', '.join(rest)})")
        page = bytearray(model.serialize("main")[: schema.PAGE_BYTES])
    finally:
        model.close()
    changes = 1
    _COUNTERS.pack_into(page, 24, changes, pages)
    _COUNTERS.pack_into(page, 92, changes, apsw.SQLITE_VERSION_NUMBER)
    with path.open("r+b") as file:
        file.write(page)
        file.truncate(pages * schema.PAGE_BYTES)
