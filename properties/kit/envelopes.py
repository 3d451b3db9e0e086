"""A reader of the envelope that knows its form from the promise alone and shares nothing with the product.

It returns what is wrong with a block as sentences; empty means that it is one envelope and nothing else.
"""

from __future__ import annotations

import re
import unicodedata

_OPENING = re.compile(r"<holdtrue-memory ([0-9a-f]{16,})>")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_STRING = r'"(?:[^"\\]|\\.)*"(?:\.\.\.)?'
_HEAD = re.compile(
    rf"\[(\d+)\] \d{{4}}-\d\d-\d\dT\d\d:\d\dZ(?:, project {_STRING})?(?:, tags {_STRING}(?: {_STRING})*(?: and \d+ more)?)?"
    rf"(?:, speaker {_STRING})?(?:, source {_STRING})?(?:, \.\.\.)?, id {_UUID}"
)
_CUT = re.compile(r"  \[cut: the memory has \d+ characters\]")
_LEFT_OUT = re.compile(r"\[(\d+) more found and left out: no room\]")
_STORED = "  | "
_FENCE = re.compile(r"\s*(?:```|~~~)")
_REORDERING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_ANY_BRACKET = r"[<\u2039\u00ab\u2329\u3008\u27e8\u276e\u02c2\u1438]"
_DELIMITER = re.compile(_ANY_BRACKET + r"[\W_]*?holdtrue[\W_]*memory")


def number_of(block: str) -> str:
    """The number that the opening delimiter carries; empty where there is none."""
    found = _OPENING.match(block)
    return found[1] if found else ""


def delimiters(text: str) -> int:
    """How many things in a text a sloppy reader could take for a delimiter: any case, width, blanks and hidden letters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    seen = "".join(character for character in folded if unicodedata.category(character) not in ("Cf", "Mn"))
    return len(_DELIMITER.findall(seen))


def problems(block: str, *, budget: int, found: int) -> list[str]:
    """What is wrong with a block of at most `budget` characters that speaks of `found` memories."""
    wrong = [f"{len(block)} characters for a budget of {budget}"] if len(block) > budget else []
    wrong += [f"raw {character!r}" for character in sorted(set(block) - set("\n\t")) if drives(character)]
    lines = block.split("\n")
    opening = _OPENING.fullmatch(lines[0])
    if opening is None:
        return [*wrong, f"begins with {lines[0]!r}"]
    if lines[-1] != f"</holdtrue-memory {opening[1]}>":
        wrong.append(f"ends with {lines[-1]!r}")
    if delimiters(block) != 2:
        wrong.append(f"holds {delimiters(block)} delimiters")
    if len(lines) < 4 or "quot" not in lines[1] or "never an instruction" not in lines[1]:
        return [*wrong, "is not labelled as a quotation"]
    return wrong + _inside(lines[2:-1], found)


def _inside(lines: list[str], found: int) -> list[str]:
    wrong, heads, left_out, after = [], 0, 0, ""
    for line in lines:
        head = _HEAD.fullmatch(line)
        if left_out:
            wrong.append(f"after the count of what is left out: {line!r}")
        elif head is not None and after != "head" and int(head[1]) == heads + 1:
            heads, after = heads + 1, "head"
        elif line.startswith(_STORED) and after in ("head", "text"):
            after = "text"
        elif _CUT.fullmatch(line) and after in ("head", "text"):
            after = "cut"
        elif _LEFT_OUT.fullmatch(line) and heads:
            left_out = int(_LEFT_OUT.fullmatch(line)[1])
        else:
            wrong.append(f"a line that is nobody's: {line!r}")
        if _FENCE.match(line):
            wrong.append(f"a fence: {line!r}")
    if heads == 0:
        wrong.append("shows no memory")
    if heads + left_out != found:
        wrong.append(f"{heads} shown and {left_out} left out of {found}")
    return wrong


def drives(character: str) -> bool:
    return (
        unicodedata.category(character) in ("Cc", "Zl", "Zp")
        or unicodedata.bidirectional(character) in _REORDERING
        or "\U000e0000" <= character <= "\U000e007f"
    )
