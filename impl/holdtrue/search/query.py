"""A query as the words it holds.

Any text is a query and is taken literally. The words go to the lexical leg as phrases; whether they tell anything at all
decides if the semantic leg is asked.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from holdtrue.enforces import enforces
from holdtrue.errors import InvalidInput
from holdtrue.records import QUERY_LIMIT, valid_unicode
from holdtrue.store.segment import UNSPACED_RUN, index_text

_WORD = re.compile(r"[^\W_]+")
_PHRASES_LIMIT = 64

# The words that stand in nearly every English text: as search terms they cost much and tell nothing.
STOP_WORDS = frozenset(
    """
    a about am an and are as at be been but by can could did do does for from had has have he her him his how i if
    in is it its me my not of on or our she should so that the their them then there these they this those to us was
    we were what when where which who whom why will with would you your
    """.split()  # noqa: SIM905 - a paragraph reads better than ninety quoted words
)


@dataclass(frozen=True)
class Query:
    """`phrases` are what the lexical leg looks for; `telling` is False when they are all stop words."""

    text: str
    phrases: tuple[str, ...]
    telling: bool


@enforces("INV-008")
def parse(value: object) -> Query:
    """Parse any text. Raises `InvalidInput` for a non-string only.

    Each word stands as a phrase of its parts and, where punctuation joins several, each part again by itself: so
    `POL-358` prefers the memory that holds just that, and `NEAR(webhook` still finds "webhook". Stop words are left out
    unless there is nothing else. The text is cut after 2,000 characters and 64 phrases.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"query must be a string, not {type(value).__name__}.", hint="Pass the question as text.")
    text = unicodedata.normalize("NFC", valid_unicode(value[:QUERY_LIMIT])).replace("\0", " ")
    telling: dict[str, None] = {}  # a set that keeps the order of the words
    others: dict[str, None] = {}
    for word in text.split():
        for phrase in _phrases(word):
            (others if phrase.lower() in STOP_WORDS else telling)[phrase] = None
    return Query(text, tuple(telling or others)[:_PHRASES_LIMIT], bool(telling))


def words_of(text: str) -> str:
    """The words of a text as the full-text index cuts them, without case, punctuation or stemming."""
    return " ".join(_WORD.findall(index_text(text).casefold()))


def _phrases(word: str) -> list[str]:
    parts = _WORD.findall(word)
    joined = len(parts) > 1
    phrases = [word] if joined and not UNSPACED_RUN.search(word) else []
    for part in parts:
        position = 0
        for run in UNSPACED_RUN.finditer(part):
            phrases += [part[position : run.start()], *_neighbours(run.group())]
            position = run.end()
        rest = part[position:]
        # A single letter cut off by punctuation, as the t of "doesn't", is noise beside the whole word.
        if not (joined and len(rest) == 1 and rest.isascii() and rest.isalpha()):
            phrases.append(rest)
    return [phrase for phrase in phrases if phrase]


def _neighbours(run: str) -> list[str]:
    """The pairs of neighbouring letters of a run of an unspaced script; a lone letter stands for itself."""
    return [run[start : start + 2] for start in range(len(run) - 1)] or [run]
