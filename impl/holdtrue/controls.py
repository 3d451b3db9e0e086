"""Control characters in stored text, and how they are shown.

Stored text comes from anywhere. What drives a terminal, ends a line, reorders or hides text is written out as an escape
(`\\x1b`), wherever the text is shown to a person or put before a model; everything else stays as it is. Enforces INV-021.
"""

from __future__ import annotations

import re

from holdtrue.enforces import enforces
from holdtrue.records import valid_unicode

# C0 but tab and newline, DEL, C1; what some programs take for the end of a line (U+2028, U+2029); what reorders text
# (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069); letters that only a model sees (the tags from U+E0000 on).
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f"
_IN_TEXT = re.compile(f"[{_CONTROLS}]")
_IN_LINE = re.compile(f"[{_CONTROLS}\t\n]")


@enforces("INV-021")
def visible(text: str) -> str:
    """The text with control characters written out as escapes. Tabs and newlines stay: the caller indents each line."""
    return _IN_TEXT.sub(_escape, valid_unicode(text))


@enforces("INV-021")
def one_line(text: str) -> str:
    """As `visible`, with tabs and newlines written out too: for a name, a tag, a message within a line."""
    return _IN_LINE.sub(_escape, valid_unicode(text))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
