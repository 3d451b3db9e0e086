"""What every embedder promises, and the two values it deals in.

An embedder turns texts into unit vectors, or says that a text has none. It never answers with a zero or non-finite
vector: such a row is masked out, and the caller stores the memory without a vector. An identity travels with every
stored vector, because vectors of two identities must never be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from holdtrue.errors import InvalidInput

if TYPE_CHECKING:  # the interpreter must start without NumPy
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Which vectors these are. Equal identities mean comparable vectors.

    `revision` is derived from the model's content: another content is another revision. `unrelated_cosine` is
    the median cosine of unrelated texts of a few words, the zero point from which a cosine counts; it takes no part in
    equality.
    """

    name: str
    revision: str
    dimension: int
    unrelated_cosine: float = field(default=0.0, compare=False)

    @property
    def key(self) -> str:
        """One string for the three, fit for a column: `static-minilm-256@5b732112e4438ada/256`."""
        return f"{self.name}@{self.revision}/{self.dimension}"


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """The answer for n texts, in their order.

    `vectors`: float32 (n, dimension), C-contiguous; rows of unit length, or of zeros where `usable` is False.
    `usable`: bool (n,).
    """

    vectors: NDArray[np.float32]
    usable: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.usable)

    def blob(self, row: int) -> bytes | None:
        """Row as little-endian float32 bytes, the format of sqlite-vec; None where the text has no usable vector."""
        return self.vectors[row].astype("<f4", copy=False).tobytes() if self.usable[row] else None

    def blobs(self) -> list[bytes | None]:
        """`blob` of every row."""
        return [self.blob(row) for row in range(len(self))]


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors. Safe to share between threads; loads itself on the first `embed`."""

    @property
    def identity(self) -> EmbedderIdentity:
        """Known without loading the model."""
        ...

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """One row a text. The vector of a text does not depend on the texts beside it.

        No `str` makes it raise. Raises `ModelUnavailable` when the model cannot be loaded, `InvalidInput` for anything
        that is not a sequence of `str`.
        """
        ...


def checked_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list. Raises `InvalidInput` for a bare string (a sequence of letters) and for other types."""
    if isinstance(texts, str):
        raise InvalidInput("embed takes a sequence of texts, not one text.", hint="Put it in a list.")
    listed = list(texts)
    for text in listed:
        if not isinstance(text, str):
            raise InvalidInput(f"embed takes texts, not {type(text).__name__}.")
    return listed


def normalised(raw: NDArray[np.floating]) -> Embeddings:
    """Scale rows (n, dimension) to unit length; mask the rows that have no direction.

    Sums only: `numpy.linalg.norm` and products may wake the threads of a BLAS.
    """
    import numpy as np

    wide = raw.astype(np.float64, copy=True)
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt((wide * wide).sum(axis=1))
    usable = np.isfinite(length) & (length > 1e-9)
    wide[~usable] = 0.0
    length[~usable] = 1.0
    wide /= length[:, None]
    vectors = np.ascontiguousarray(wide, dtype=np.float32)
    assert vectors.shape == raw.shape
    assert usable.shape == (len(raw),)
    return Embeddings(vectors, usable)
