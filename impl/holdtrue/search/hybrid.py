"""One search: both legs over one snapshot, fused and turned into hits."""

from __future__ import annotations

from holdtrue.records import Filters, Hit
from holdtrue.search.fusion import Fused, fuse
from holdtrue.search.query import Query, words_of
from holdtrue.store.view import View

_CANDIDATES = 200


def find(
    view: View,
    query: Query,
    vector: bytes | None,
    filters: Filters,
    *,
    limit: int,
    explain: bool = False,
    unrelated: float = 0.0,
) -> list[Hit]:
    """The best `limit` hits, best first.

    `vector` is the query's, 1,024 bytes of float32, or None where there is no model, no direction, or vectors of another
    space in the store; then words alone decide. `unrelated` is the cosine at which its embedder sees no relation.
    """
    candidates = max(_CANDIDATES, 2 * limit)
    lexical = view.lexical(query.phrases, filters, limit=candidates)
    semantic: dict[int, float] = {}
    if vector is not None and query.telling:
        semantic = view.nearest(vector, filters, limit=candidates)
        semantic.update(view.similarities(vector, lexical.keys() - semantic.keys()))
    past = _past(view, query, filters) if filters.as_of_us is not None else {}
    scale = max(lexical.values(), default=1.0)
    lexical |= {seq: share * scale for seq, (share, _, _) in past.items()}
    ordered = fuse(lexical, semantic, unrelated=unrelated)[:limit]
    records = view.records([one.seq for one in ordered])
    hits = []
    for one in ordered:
        record = records[one.seq]
        if one.seq in past:
            _, text, revision = past[one.seq]
            record = record.as_revision(text, revision)
        hits.append(Hit(record, round(one.score, 6), _why(one, query) if explain else {}))
    return hits


def _past(view: View, query: Query, filters: Filters) -> dict[int, tuple[float, str, int]]:
    """Memories whose text of that time holds words of the query: seq to (share of the phrases, text, revision).

    Replaced texts are few, so they stand in no index and are read one by one.
    """
    wanted = [f" {words_of(phrase)} " for phrase in query.phrases]
    found = {}
    for seq, text, revision in view.replaced(filters):
        words = f" {words_of(text)} "
        share = sum(phrase in words for phrase in wanted)
        if share:
            found[seq] = (share / len(wanted), text, revision)
    return found


def _why(one: Fused, query: Query) -> dict[str, object]:
    return {"lexical": round(one.lexical, 6), "semantic": round(one.semantic, 6), "phrases": list(query.phrases)}
