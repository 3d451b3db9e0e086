"""What should be derived of a text, computed again and apart from the product's write path.

The index text is rebuilt here from Unicode's own names of scripts; the vector comes from the shipped model, asked
directly.
"""

from __future__ import annotations

import unicodedata

_UNSPACED_NAMES = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "HANGUL")


def index_of(text: str) -> str:
    """NFC, with each letter of an unspaced script standing alone between blanks."""
    return "".join(
        f" {letter} " if unicodedata.name(letter, "").startswith(_UNSPACED_NAMES) else letter
        for letter in unicodedata.normalize("NFC", text)
    )


def vector_of(text: str) -> bytes | None:
    """The bytes of the text's unit vector; None where it has no direction."""
    from holdtrue.models import default_embedder

    return default_embedder().embed([text]).blob(0)
