"""The default embedder: a static model of 256 dimensions that ships with the package and runs on the CPU in 0.1 ms.

Owns the files of `static_minilm/` (made by `impl/benchmarks/distill_static_minilm.py`). A text's vector is the sum of
one row for each of its wordpieces, scaled to unit length.

Faults tolerated:
- any `str`: lone surrogates count as U+FFFD, NUL and other control characters are dropped, pieces that the vocabulary
  does not know add nothing. A text of nothing else (blank, emoji only) has no vector;
- a text of any size: `MAX_CHARACTERS` are read, rows are added up in blocks;
- many threads at once: the first loads, the others wait for it. Texts go one by one through the tokeniser, never
  through its batch call, which would start threads and make every later fork print a warning;
- a fork while another thread loads: it waits for the load, and the child has the whole model. Nothing is imported
  outside the lock, since a child cannot finish an import that another thread began;
- missing or truncated files: `ModelUnavailable`, and the next call tries again.
"""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdtrue.errors import ModelUnavailable
from holdtrue.models.embedder import Embedder, EmbedderIdentity, Embeddings, checked_texts, normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

MODEL_DIRECTORY = Path(__file__).parent / "static_minilm"
MAX_CHARACTERS = 65_536  # above the length limit of a memory; bounds time (0.1 s) and memory (30 MB) of one text
BLOCK_ROWS = 2_048  # 2 MiB of float32 at a time, however long the text
WORDS_KEPT = 20_000  # words of ASCII whose pieces are remembered: 3 MB
WORD_CHARACTERS = 16  # a longer word is left to the tokeniser, which tries its parts faster

# What the tokeniser's normaliser drops, and what its first step takes for a word: a run of letters and digits, or a mark.
_ASCII_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127))
_ASCII_WORD = re.compile("[a-z0-9]+|[!-/:-@[-`{-~]")

# One lock for all instances. A fork waits for a load in progress: its child would otherwise inherit a NumPy that is half
# imported by a thread that no longer exists. Reentrant, so that a fork by the loading thread itself cannot block.
_load_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_load_lock.acquire, after_in_parent=_load_lock.release, after_in_child=_load_lock.release
    )


class _Loaded:
    """The model in memory. `rows` int8 (pieces, 256), mapped from the file; `scales` float32 (pieces, 1)."""

    __slots__ = ("_vocabulary", "_words", "rows", "scales", "tokenizer")

    def __init__(
        self,
        rows: NDArray[np.int8],
        scales: NDArray[np.float32],
        tokenizer: Tokenizer,
        vocabulary: dict[str, int],
    ) -> None:
        self.rows = rows
        self.scales = scales
        self.tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._words: dict[str, list[int]] = {}

    def pieces(self, text: str) -> list[int]:
        """Row numbers of the text's wordpieces; unknown pieces are row 0, a row of zeros.

        The tokeniser takes a text apart at blanks and punctuation and then each word by itself. Of ASCII both steps are
        done here, and the pieces of its short words are remembered: a fifth of the time, and the same numbers.
        """
        if not text.isascii() or len(text) > MAX_CHARACTERS:
            return _encode(self.tokenizer, text)
        known = self._words
        pieces: list[int] = []
        plain = text if text.isprintable() else text.translate(_ASCII_CONTROLS)
        for word in _ASCII_WORD.findall(plain.lower()):
            found = known.get(word)
            if found is None:
                if len(word) > WORD_CHARACTERS:
                    found = _encode(self.tokenizer, word)
                else:
                    if len(known) >= WORDS_KEPT:
                        known.clear()
                    found = known[word] = self._split(word)
            pieces += found
        return pieces

    def _split(self, word: str) -> list[int]:
        """The pieces of one word: from its beginning, always the longest that the vocabulary has; the whole is unknown
        where there is none.
        """
        pieces = []
        begin, prefix = 0, ""
        while begin < len(word):
            for end in range(len(word), begin, -1):
                piece = self._vocabulary.get(prefix + word[begin:end])
                if piece is not None:
                    break
            else:
                return [0]
            pieces.append(piece)
            begin, prefix = end, "##"
        return pieces


class StaticEmbedder(Embedder):
    """Embeds with the arrays of `directory`. Cheap to make: nothing is read before it is asked for something."""

    def __init__(self, directory: Path = MODEL_DIRECTORY) -> None:
        self._directory = directory
        self._identity: EmbedderIdentity | None = None
        self._loaded: _Loaded | None = None
        self.loads = 0  # how often the model was read, for the tests

    @property
    def identity(self) -> EmbedderIdentity:
        """From `identity.json`; loads neither NumPy nor the model. Raises `ModelUnavailable`."""
        if self._identity is None:
            described = self._described()
            self._identity = EmbedderIdentity(
                name=described["name"],
                revision=described["revision"],
                dimension=described["dimension"],
                unrelated_cosine=described["unrelated_cosine"],
            )
        return self._identity

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Vectors float32 (n, 256) and usable bool (n,) for n texts; see `Embedder.embed`."""
        listed = checked_texts(texts)
        model = self._loaded or self._load()
        import numpy as np

        sums = np.zeros((len(listed), model.rows.shape[1]), dtype=np.float64)
        for total, text in zip(sums, listed, strict=True):
            pieces = np.array(model.pieces(text), dtype=np.intp)
            for start in range(0, len(pieces), BLOCK_ROWS):
                block = pieces[start : start + BLOCK_ROWS]
                total += (model.rows.take(block, axis=0) * model.scales.take(block, axis=0)).sum(axis=0)
        return normalised(sums)

    def verify(self) -> None:
        """Compare every file with the digest that `identity.json` records. Raises `ModelUnavailable` on a difference."""
        import hashlib

        for name, recorded in self._described()["files"].items():
            try:
                found = hashlib.sha256((self._directory / name).read_bytes()).hexdigest()
            except OSError as error:
                raise ModelUnavailable(f"The default model cannot be read: {error}.", hint=_REINSTALL) from error
            if found != recorded["sha256"]:
                raise ModelUnavailable(f"The default model's {name} is not the one that was shipped.", hint=_REINSTALL)

    def _described(self) -> dict[str, Any]:
        try:
            described: dict[str, Any] = json.loads((self._directory / "identity.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"The default model cannot be read: {error}.", hint=_REINSTALL) from error
        missing = _DESCRIPTION.difference(described)
        if missing:
            raise ModelUnavailable(f"The default model's identity.json lacks {sorted(missing)}.", hint=_REINSTALL)
        return described

    def _load(self) -> _Loaded:
        with _load_lock:
            if self._loaded is None:
                self._loaded = self._read()
                self.loads += 1
            return self._loaded

    def _read(self) -> _Loaded:
        described = self._described()
        shape = (described["pieces"], described["dimension"])
        try:
            import numpy as np
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

            # np.asarray: indexing a memmap object costs several times as much as its plain view.
            rows = np.asarray(np.load(self._directory / "vectors.npy", mmap_mode="r", allow_pickle=False))
            scales = np.load(self._directory / "scales.npy", allow_pickle=False).astype(np.float32)[:, None]
            # Not splitlines(): it would also split at characters that may be pieces.
            pieces = (self._directory / "vocabulary.txt").read_bytes().decode("utf-8").split("\n")
            if rows.shape != shape or rows.dtype != np.int8 or scales.shape != (shape[0], 1) or len(pieces) != shape[0]:
                raise ModelUnavailable("The default model's files do not fit together.", hint=_REINSTALL)
            rules = described["tokeniser"]
            vocabulary = dict(zip(pieces, range(len(pieces)), strict=True))
            wordpiece = models.WordPiece(
                vocabulary,
                unk_token=rules["model"]["unknown"],
                max_input_chars_per_word=rules["model"]["max_input_chars_per_word"],
                continuing_subword_prefix=rules["model"]["prefix"],
            )
            # No special tokens: "[UNK]" in a text is five characters like any other.
            tokenizer = Tokenizer(wordpiece)
            tokenizer.normalizer = normalizers.BertNormalizer(
                **{name: value for name, value in rules["normaliser"].items() if name != "type"}
            )
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            _encode(tokenizer, "Warm up: naïve 日本語")  # what initialises itself at first use does so under the lock
        except (ImportError, OSError, EOFError, ValueError) as error:
            raise ModelUnavailable(f"The default model cannot be loaded: {error}.", hint=_REINSTALL) from error
        return _Loaded(rows, scales, tokenizer, vocabulary)


_DESCRIPTION = frozenset({"name", "revision", "dimension", "unrelated_cosine", "pieces", "tokeniser", "files"})
_REINSTALL = "Reinstall it: `pip install --force-reinstall holdtrue`. Keyword search goes on without it."


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Row numbers of the text's wordpieces; unknown pieces are row 0, a row of zeros."""
    cut = text[:MAX_CHARACTERS]
    try:
        cut.encode("utf-8")
    except UnicodeEncodeError:
        # "replace" would put question marks, which are pieces; U+FFFD is dropped by the normaliser.
        cut = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in cut)
    return tokenizer.encode(cut, add_special_tokens=False).ids
