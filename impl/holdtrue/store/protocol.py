"""What the facade asks of a store. SQLite is the first that answers; an engine for many machines can come next."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from holdtrue.clock import Deadline
from holdtrue.records import Forgotten, Record
from holdtrue.store.backup import KEEP, BackupReceipt
from holdtrue.store.damage import SetAside
from holdtrue.store.derived import Source
from holdtrue.store.doctor import Check
from holdtrue.store.draft import Advance
from holdtrue.store.exporting import Exported
from holdtrue.store.memories import Addition
from holdtrue.store.placement import Batch, Placed
from holdtrue.store.restore import RestoreReceipt
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

    def back_up(
        self,
        target: Path | None,
        *,
        wait_s: float,
        replace: bool = False,
        keep: int = KEEP,
        progress: Advance | None = None,
    ) -> BackupReceipt:
        """One committed state as a file of its own; its error means that there is nothing under the name."""

    def restore(
        self, given: Path, *, wait_s: float, save: bool = True, keep: int = KEEP, progress: Advance | None = None
    ) -> RestoreReceipt:
        """The state of a backup in the place of the present one, for all who have the store open, at one instant."""

    def export(
        self,
        target: Path | BinaryIO,
        *,
        wait_s: float,
        replace: bool = False,
        vectors: bool = False,
        progress: Advance | None = None,
    ) -> Exported:
        """One committed state in its portable form; its error means that there is nothing new under the name."""

    def place(self, batch: Batch, deadline: Deadline) -> Placed:
        """Records of an import, in one transaction."""

    def left_since(self, seq: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of what was forgotten and had been stored since a moment: what its erasure waits for, which files may hold it."""

    def owns(self, path: Path) -> bool:
        """Whether this is a file that belongs to a store and may be neither opened nor replaced."""

    def examine(self, advance: Advance) -> list[Check]:
        """Every check of what is there, however damaged. Changes nothing."""

    def set_aside(self, deadline: Deadline, advance: Advance) -> SetAside:
        """Keep the bytes of a damaged store and begin a new one with what can be read. Raises `StoreSound` else."""

    def broken(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of these derived structures whose tables cannot be read."""

    def reset_derived(self, names: Sequence[str], deadline: Deadline) -> None:
        """Make derived structures anew, whatever is left of them, in one transaction."""

    def sources_after(self, seq: int) -> list[tuple[Source, str, bytes]]:
        """What the next memories are derived from, without vectors, with their texts and the digests of these."""

    def rebuild_derived(
        self, sources: Sequence[Source], digests: Sequence[bytes], names: Sequence[str], deadline: Deadline
    ) -> int:
        """Derive structures of these memories anew, in one transaction; those that have changed since are left out."""

    def purge_strays(self, names: Sequence[str], deadline: Deadline) -> int:
        """Remove what derived structures hold of memories that are gone."""

    def close(self, deadline: Deadline) -> None: ...
