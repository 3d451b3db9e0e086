"""F-0002: the cosine that counts as unrelated was that of long turns, so a paraphrase of a few words was no answer."""

from __future__ import annotations

import pytest

from holdtrue import Memory

PARAPHRASES = [
    ("doctor prescribed antibiotics", "the physician gave her medicine"),
    ("my sister adopted a puppy", "her family got themselves another dog"),
    ("the flat is in Berlin", "their new apartment lies in Germany"),
    ("he ran a marathon in May", "she finished some long race last spring"),
    ("which database holds the billing data?", "invoices live in PostgreSQL"),
]
UNRELATED = ["interest rates went up", "the printer is out of ink", "penguins live in the south", "the soup needs salt"]


@pytest.mark.parametrize(("query", "text"), PARAPHRASES)
def test_a_meaning_is_found_without_a_common_word(memory: Memory, query: str, text: str) -> None:
    memory.add_many([*UNRELATED, *(said for _, said in PARAPHRASES)])
    hits = memory.search(query, explain=True)
    assert text in [hit.text for hit in hits][:3]
    assert all(hit.why["lexical"] == 0 for hit in hits), "the query shares a word, so it tests nothing"
