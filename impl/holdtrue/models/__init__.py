"""Embedders and the tiers that name them. Importing this loads neither NumPy nor any model.

| tier | embedder | needs |
|---|---|---|
| `default` (also `static`) | `StaticEmbedder`: 256 dimensions, shipped with the package | nothing |
| `base` | `SentenceTransformerEmbedder`: all-MiniLM-L6-v2, 384 dimensions | the extra `holdtrue[models]` |
"""

from __future__ import annotations

from holdtrue.errors import TierUnknown
from holdtrue.models.embedder import Embedder, EmbedderIdentity, Embeddings
from holdtrue.models.static import StaticEmbedder

__all__ = ["Embedder", "EmbedderIdentity", "Embeddings", "StaticEmbedder", "default_embedder", "load_embedder"]

_default = StaticEmbedder()


def default_embedder() -> StaticEmbedder:
    """The process-wide default embedder: every caller shares one copy of its model."""
    return _default


def load_embedder(tier: str | None = None) -> Embedder:
    """The embedder of a tier; its model loads on the first `embed`. None is the default tier.

    Raises `TierUnknown` for another name, `ModelUnavailable` when what the tier needs is not installed.
    """
    if tier in (None, "default", "static"):
        return _default
    if tier == "base":
        from holdtrue.models.transformer import SentenceTransformerEmbedder

        return SentenceTransformerEmbedder()
    raise TierUnknown(f"There is no tier called {tier!r}.")
