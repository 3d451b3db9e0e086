"""Snapshot readers: each thread reads on its own connection, in a transaction of its own.

Owns: the read connections. A read sees one committed state and waits for no writer, no turnstile and no model: in WAL
mode a reader takes its snapshot beside whoever writes. Faults it survives: a store that does not exist yet, an older
schema, a thread that ends (its connection is closed with it), a close while other threads read, a connection that fails
(the next read opens a fresh one), a store that nobody may write (see `store.frozen`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from holdtrue import failpoints
from holdtrue.enforces import enforces
from holdtrue.errors import StoreClosed, StoreMissing, StoreReadOnly
from holdtrue.files import exists
from holdtrue.store import frozen, schema
from holdtrue.store.connection import DATABASE_NAME, StoreConnection, open_connection, store_error
from holdtrue.store.statements import run


class SchemaOutdated(StoreMissing):
    """The store exists but a writer must bring its schema up to date first."""

    code = "STORE_OUTDATED"


class Readers:
    """The readers of one store in one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._local = threading.local()
        self._closed = False

    @contextmanager
    @enforces("INV-002")
    def snapshot(self) -> Iterator[StoreConnection]:
        """A read transaction over one committed state, on this thread's own connection.

        Raises `StoreMissing` where there is no store, `SchemaOutdated` where it is older than this program, or another
        `StoreError`.
        """
        connection = self._connection()
        try:
            run(connection, "BEGIN")
            failpoints.hit("reader.snapshot")
            yield connection
        except apsw.Error as error:
            connection.check_unchanged()
            self._forget()
            raise store_error(error, self._folder) from error
        except Exception:
            connection.check_unchanged()  # that a memory is not there is an answer as well
            raise
        else:
            connection.check_unchanged()
        finally:
            with suppress(apsw.Error):  # it may be closed by now
                if connection.in_transaction:
                    run(connection, "ROLLBACK")
            if self._closed or connection.frozen is not None:
                self._forget()

    def _connection(self) -> StoreConnection:
        if self._closed:
            self._forget()
            raise StoreClosed("The store was closed.")
        connection: StoreConnection | None = getattr(self._local, "connection", None)
        if connection is not None and connection.displaced():
            self._forget()
            connection = None
        if connection is None:
            connection = self._open()
            self._local.connection = connection
        connection.check_owner()
        return connection

    def _open(self) -> StoreConnection:
        if not exists(self._folder / DATABASE_NAME):
            raise StoreMissing(f"There is no store at {self._folder}.")
        connection = open_connection(self._folder, write=False)
        try:
            version = schema.version_of(connection)
            if version < schema.VERSION and not frozen.writable(connection.path):
                raise StoreReadOnly(
                    f"The store at {self._folder} has schema version {version} and this program reads {schema.VERSION}:"
                    " it must be brought up to date, and nobody may write there.",
                    hint="Copy the whole folder to a place where you may write and open the copy.",
                )
            if version < schema.VERSION:
                raise SchemaOutdated(f"The store at {self._folder} is not set up yet.")
        except apsw.Error as error:
            connection.close()
            raise store_error(error, self._folder) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _forget(self) -> None:
        connection: StoreConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            connection.close()

    def close(self) -> None:
        """Close this thread's connection; every other thread closes its own at its next use or its end."""
        self._closed = True
        self._forget()
