"""An embedder that answers what a test wants, and how a `Memory` is given it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from holdtrue import Memory
from holdtrue.models import EmbedderIdentity, Embeddings


class Stub:
    """An embedder of 256 dimensions that answers what a test wants."""

    def __init__(self, name: str = "stub", rows: Any = None, failing: bool = False) -> None:
        self.identity = EmbedderIdentity(name, "1", 256)
        self.rows = rows
        self.failing = failing

    def embed(self, texts: Sequence[str]) -> Embeddings:
        if self.failing and list(texts) != ["ready"]:
            raise RuntimeError("out of memory")
        rows = np.zeros((len(texts), 256), dtype=np.float32)
        rows[:, 0] = 1.0
        if self.rows is not None:
            for row, text in zip(rows, texts, strict=True):
                row[:] = self.rows.get(text, row)
        return Embeddings(rows, np.ones(len(texts), dtype=np.bool_))


def use(monkeypatch: pytest.MonkeyPatch, embedder: Any) -> None:
    monkeypatch.setattr(Memory, "_load_embedder", lambda self: embedder)
