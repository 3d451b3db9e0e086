"""Turns any text into what the full-text index holds.

FTS5's unicode61 keeps a run of Chinese, Japanese or Korean letters as one token, so a two-letter word in it is never
found. Here each such letter becomes a token of its own, so that a query can ask for neighbours.
Everything is NFC first, so that both forms of an accented letter or a Hangul syllable meet.
"""

from __future__ import annotations

import re
import unicodedata

from holdtrue.records import valid_unicode

# Scripts written without spaces between words, and Hangul, where particles cling to the word.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff"  # Hangul Jamo
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"  # Kana, Hangul compatibility Jamo
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"  # Han, Hangul syllables, half-width Kana
    "\U00020000-\U0003134f"
)
_UNSPACED_LETTER = re.compile(f"([{_UNSPACED}])")
UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")


def index_text(text: str) -> str:
    """The derived text of the full-text index: NFC, unspaced scripts cut into letters, NUL-free, valid UTF-8."""
    if text.isascii():
        return text.replace("\0", " ")
    normal = unicodedata.normalize("NFC", valid_unicode(text)).replace("\0", " ")
    return _UNSPACED_LETTER.sub(r" \1 ", normal)
