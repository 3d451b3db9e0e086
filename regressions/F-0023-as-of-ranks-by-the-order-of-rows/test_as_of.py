"""F-0023: the share of the query that a past text holds counts, not which of them was read first."""

from __future__ import annotations

import time

from holdtrue import Memory
from holdtrue.clock import now_us


def test_a_past_text_that_holds_more_of_the_query_comes_first(memory: Memory) -> None:
    long_ago = "2020-01-01T00:00:00Z"
    texts = ["alpha zulu yankee", "alpha beta whiskey", "victor alpha beta gamma"]
    ids = [memory.add(text, at=long_ago).id for text in texts]
    then = now_us()
    time.sleep(0.01)
    for number, id_ in enumerate(ids):
        memory.update(id_, f"unrelated {number}")
    hits = memory.search("alpha beta gamma", as_of=then, explain=True)
    assert [hit.text for hit in hits if hit.why["lexical"] > 0] == list(reversed(texts))
