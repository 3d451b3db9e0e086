"""INV-008: any text is a literal query: it never raises, nothing in it acts as syntax, and a word that is in a memory
finds that memory, whatever stands around the word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, ledger, workers
from properties.kit.processes import Crew

LIMIT_S = 40.0
MEMORIES = {
    "harbour": "the harbour is east of town",
    "webhook": "retry the webhook twice",
    "mitigation": "mitigation needs a rollback plan",
    "部署": "昨天后端部署完成",
    "zürich": "the zürich office moved",
}
SYNTAX = ['"', "'", "(", ")", "*", "^", "-", "+", ":", "{", "}", "NEAR(", "AND", "OR", "NOT", "body:", "rowid:", "\0"]
SYNTAX += ["--", "/*", ";", "%", "_", "\\", "\ud83d", "\u200b", '""', "memories_fts:", "NEAR/3", "? 1"]
GLUE = ["", '"', "'", "(", "^", "-", "body:", 'ab"', 'ab" OR "', "ab*"]
noise = st.lists(st.one_of(st.sampled_from(SYNTAX), st.text(max_size=6)), max_size=5)
wrapped = st.tuples(noise, st.sampled_from(sorted(MEMORIES)), st.sampled_from(GLUE), noise)


def query_of(before: list[str], word: str, glued: str, after: list[str]) -> str:
    return " ".join([*before, glued + word, *after])


@given(wrappings=st.lists(wrapped, min_size=10, max_size=25), anything=st.lists(st.text(max_size=40), max_size=15))
@example(
    wrappings=[
        ([mark], word, glue, [mark]) for mark in SYNTAX for word in ("harbour", "部署") for glue in ("", '"', "-")
    ],
    anything=["", "   ", "*", "(", "---", '"', "'", "\0", "\ud800", "NOT", "a" * 5_000, "x " * 3_000, "\U0001f600"],
)
def test_a_word_is_found_whatever_syntax_stands_around_it_and_no_text_raises(
    fresh: Callable[[], Path],
    wrappings: list[tuple[list[str], str, str, list[str]]],
    anything: list[str],
) -> None:
    folder = fresh()
    store = folder / "store"
    queries = [query_of(*wrapping) for wrapping in wrappings]
    steps: list[workers.Step] = [{"action": "search", "query": query} for query in [*queries, *anything]]
    with Crew() as crew:
        setup = [{"action": "add", "text": text} for text in MEMORIES.values()]
        crew.start(workers.perform, store, folder / "setup.ledger", setup)
        assert crew.wait(LIMIT_S) == [0]
        crew.start(workers.perform, store, folder / "search.ledger", steps)
        assert crew.wait(LIMIT_S) == [0, 0]
    calls = ledger.read([folder / "search.ledger"])
    problems = [
        f"{call.arguments['query'][:60]!r} was {call.outcome}: {call.answer}" for call in calls if call.outcome != "ok"
    ]
    for call, (_, word, _, _) in zip(calls, wrappings, strict=False):
        found = [hit["text"] for hit in call.answer["hits"]] if call.answer and "hits" in call.answer else []
        if MEMORIES[word] not in found:
            problems.append(f"{call.arguments['query']!r} does not find {MEMORIES[word]!r}")
    problems += [problem for call in calls for problem in _found_without_a_word(call)]
    assert not problems, checkers.report(problems, f"{wrappings!r}, {anything!r}")


def _found_without_a_word(call: ledger.Call) -> list[str]:
    """A memory found by its words that shares none with the query: then something acted as more than a word."""
    if call.answer is None or "hits" not in call.answer:
        return []
    wanted = _letters(call.arguments["query"])
    return [
        f"{call.arguments['query']!r} finds {hit['text']!r} by its words"
        for hit in call.answer["hits"]
        if hit["lexical"] > 0 and not any(word in wanted for word in _letters(hit["text"]).split())
    ]


def _letters(text: str) -> str:
    """Letters and digits without case and accents, unspaced ones apart, everything else a blank."""
    folded = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return re.sub(r"([\u3040-\u9fff\uac00-\ud7af])", r" \1 ", re.sub(r"[\W_]+", " ", folded))
