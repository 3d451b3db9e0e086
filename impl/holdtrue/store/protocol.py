"""What the facade asks of a store. SQLite is the first that answers; an engine for many machines can come next."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from holdtrue.clock import Deadline
from holdtrue.records import Forgotten, Record
from holdtrue.store.memories import Addition
from holdtrue.store.vectors import Vector
from holdtrue.store.view import View


class Store(Protocol):
    """A store of memories, shared by threads and processes.

    A write returns after its commit; its error means that nothing of it was stored. A read sees one committed state.
    """

    def exists(self) -> bool: ...

    def open(self, deadline: Deadline) -> None:
        """Make the store if there is none. Raises a `StoreError`."""

    def read(self) -> AbstractContextManager[View]:
        """One snapshot for the length of the context."""

    def add(self, additions: Sequence[Addition], deadline: Deadline) -> list[Record]:
        """All or none."""

    def update(self, id_: str, text: str, vector: Vector | None, deadline: Deadline) -> Record: ...

    def forget(self, id_: str, deadline: Deadline) -> Forgotten: ...

    def complete_vector(self, seq: int, text: str, vector: Vector, deadline: Deadline) -> bool: ...

    def verify(self) -> list[str]:
        """Every damage and disagreement found; empty when the store is sound."""

    def close(self) -> None: ...
