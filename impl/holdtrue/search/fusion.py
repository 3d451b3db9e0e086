"""How the two legs become one order.

The lexical leg is the strong one. Its BM25 weights are scaled by the best of the query; the cosine of the semantic leg
is added with a smaller weight. An equal vote of both, as in reciprocal rank fusion, finds less than BM25 alone on short
turns, because half of its places go to what merely sounds alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEMANTIC_WEIGHT = 0.5


@dataclass(frozen=True)
class Fused:
    """`score`, `lexical` and `semantic` lie in [0, 1]."""

    seq: int
    score: float
    lexical: float
    semantic: float


def fuse(lexical: Mapping[int, float], semantic: Mapping[int, float], *, semantic_weight: float) -> list[Fused]:
    """Order the memories of both legs, best first; ties go to the newer memory.

    `lexical` holds BM25 weights, larger is better; `semantic` cosines in [-1, 1]. The score is the weighted mean
    (lexical / best lexical + w * max(cosine, 0)) / (1 + w).
    """
    best = max(lexical.values(), default=0.0)
    fused = []
    for seq in lexical.keys() | semantic.keys():
        words = lexical.get(seq, 0.0) / best if best > 0.0 else float(seq in lexical)
        meaning = min(1.0, max(0.0, semantic.get(seq, 0.0)))
        score = (words + semantic_weight * meaning) / (1.0 + semantic_weight)
        fused.append(Fused(seq, score, words, meaning))
    return sorted(fused, key=lambda one: (-one.score, -one.seq))
