"""How the two legs become one order.

The lexical leg is the strong one: its BM25 weights are scaled by the best of the query. The cosine of the semantic leg
counts from the embedder's zero point, the median cosine of unrelated short texts, so what merely sounds alike adds
little. An equal vote of both, as in reciprocal rank fusion, finds less than BM25 alone on short turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Recall@10 on LoCoMo turns is flat from 1 to 3; see impl/benchmarks/retrieval.py.
SEMANTIC_WEIGHT = 2.0
# Below this share of the way from unrelated to identical, a memory that shares no word with the query is no answer.
SEMANTIC_FLOOR = 0.05


@dataclass(frozen=True)
class Fused:
    """`score`, `lexical` and `semantic` lie in [0, 1]."""

    seq: int
    score: float
    lexical: float
    semantic: float


def fuse(lexical: Mapping[int, float], semantic: Mapping[int, float], *, unrelated: float) -> list[Fused]:
    """Order the memories of both legs, best first; ties go to the newer memory.

    `lexical` holds BM25 weights, larger is better; `semantic` cosines in [-1, 1]; `unrelated` is the cosine that counts
    as nothing. The score is the weighted mean (l + w * s) / (1 + w), with l = lexical / best lexical and
    s = (cosine - unrelated) / (1 - unrelated), not below 0.
    """
    best = max(lexical.values(), default=0.0)
    fused = []
    for seq in lexical.keys() | semantic.keys():
        words = lexical.get(seq, 0.0) / best if best > 0.0 else float(seq in lexical)
        meaning = min(1.0, max(0.0, (semantic.get(seq, -1.0) - unrelated) / (1.0 - unrelated)))
        if seq in lexical or meaning >= SEMANTIC_FLOOR:
            score = (words + SEMANTIC_WEIGHT * meaning) / (1.0 + SEMANTIC_WEIGHT)
            fused.append(Fused(seq, score, words, meaning))
    return sorted(fused, key=lambda one: (-one.score, -one.seq))
