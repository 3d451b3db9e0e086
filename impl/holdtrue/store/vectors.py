"""Vectors: how they are written, and whose embedding space they lie in.

Owns: `memories_vec`, the `embedder` entry of `meta`, `pending_vectors`. A vector is written in the transaction of the
text it belongs to, and only in the space the store has recorded; any other memory waits in `pending_vectors`.
"""

from __future__ import annotations

import math
import struct

import apsw

from holdtrue.store.statements import one, run

DIMENSION = 256
BYTES = DIMENSION * 4
_FLOATS = struct.Struct(f"<{DIMENSION}f")
_NORM_TOLERANCE = 0.01


class Vector:
    """A unit vector of `DIMENSION` float32 values, little-endian, and the key of the embedder that made it.

    `blob` is None for a text that has no direction (punctuation, unknown letters): stored, found by its words alone.
    `usable` says that it is finite and of unit length: vec0 accepts anything, then answers NULL distances that sort
    before real ones. It is worked out here, by the caller's thread, and not under the write lock.
    """

    __slots__ = ("blob", "embedder", "usable")

    def __init__(self, embedder: str, blob: bytes | None) -> None:
        self.embedder = embedder
        self.blob = blob
        self.usable = blob is not None and is_unit(blob)

    def fits(self, recorded: str | None) -> bool:
        """Whether it may stand beside, or be compared with, the vectors of the recorded embedder."""
        return self.usable and recorded in (None, self.embedder)


def is_unit(blob: bytes) -> bool:
    """Whether these are `DIMENSION` finite float32 values of unit length."""
    if len(blob) != BYTES:
        return False
    norm = math.hypot(*_FLOATS.unpack(blob))
    return math.isfinite(norm) and abs(norm - 1.0) <= _NORM_TOLERANCE


def recorded_embedder(connection: apsw.Connection) -> str | None:
    """The key of the embedder whose vectors the store holds; None before the first one."""
    row = one(connection, "SELECT value FROM meta WHERE name = 'embedder'")
    return None if row is None else str(row[0])


def claim(connection: apsw.Connection, vector: Vector) -> bool:
    """Whether a vector may be stored; the embedder of the first one is recorded beside it."""
    recorded = recorded_embedder(connection)
    if not vector.fits(recorded):
        return False
    if recorded is None:
        run(connection, "INSERT INTO meta VALUES('embedder', ?)", (vector.embedder,))
    return True
