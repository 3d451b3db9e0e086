"""Text of the code under test, made harmless: each format escapes what `printable` gives it by its own rules."""

from __future__ import annotations


def printable(text: str, *, lines: bool = False) -> str:
    """Text whose control characters, bidirectional marks and lone surrogates are written out as escapes (`\\x1b`).

    With `lines`, newlines and tabs stay; without, the answer is one line.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    shown = "".join(
        character if character.isprintable() or character in kept else character.encode("unicode_escape").decode()
        for character in text
    )
    # A surrogate is not printable, so this only guards the promise.
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str, characters: int) -> str:
    """At most so many characters; an ellipsis says that there were more."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def first_line(text: str | None) -> str:
    """The first line that is not empty."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")
