"""Secrets out of whatever is stored or told: the value goes, a short label stands in its place.

`postgres://svc:[masked: password]@db.local:5432/app`. What is around a secret stays readable, so a memory keeps its use.

Owns the search through a text as it stands and as it reads once its JSON escapes are undone: a key behind a written-out
newline, or with an escaped letter, is a key. Which parts are secrets is for `holdtrue.credentials` to say; it is
loaded with the first text that could hold one. Faults it survives: text made to cost time, escapes of escapes, labels
that were masked before. It enforces INV-020.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from typing import Any

from holdtrue.enforces import enforces

_SHORTEST = 8  # `pwd=x1y2`: nothing shorter is taken for a secret

# A text without any of these, and without a run of letters long enough for a token, holds no secret. This is all that
# ordinary text pays for.
_SIGNS = ("pass", "token", "key", "secret", "://", "\\", "pwd", "authoriz", "curl ")
_SIGNS_ELSEWHERE = ("contraseña", "密码", "密碼", "口令", "パスワード", "비밀번호", "пароль")
_SHAPE = bytes(97 if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "-_") else 32 for byte in range(256))
_TOKEN_LIKE = b"a" * 16

# Undone before a second search: the escapes of JSON, the signs that are seen as nothing, and the one that NFC turns into
# a letter of a key.
_ESCAPES = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])' "|[\u00ad\u200b-\u200d\u2060\ufeff\u212a]")
_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\u212a": "K"}
_LAYERS = 4  # JSON within JSON within JSON, and one more
_ROUNDS = 8

_BEGINS = "[masked: "
_LABEL = re.compile(r"\[masked: [a-z0-9-]+\]")


@enforces("INV-020")
def mask(text: str) -> str:
    """The text with each secret replaced by a label such as `[masked: github-token]`.

    Returns the very text it was given when there is none. What it returns, it returns again when asked again. Linear in
    the length of the text.
    """
    if len(text) < _SHORTEST or not may_hold_secret(text):
        return text
    for _ in range(_ROUNDS):  # a label can bring what is around it closer to a rule
        masked = _mask_once(text)
        if masked == text:
            return text
        text = masked
    return text


def count_labels(*texts: str) -> int:
    return sum(text.count(_BEGINS) for text in texts)


def mask_values(value: Any) -> Any:
    """Texts, and the texts within mappings and lists, masked; anything else as it is.

    In a mapping a name speaks for its value: `{"password": "..."}` holds a secret that shows no sign of it by itself.
    Two names that become one are told apart by a number.
    """
    return _mask_values(value, "")


def _mask_values(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return _mask_named(name, value)
    if isinstance(value, Mapping):
        answer: dict[Any, Any] = {}
        for key, item in value.items():
            shown = mask(key) if isinstance(key, str) else key
            if shown is not key:
                shown = _unused(shown, answer)
            answer[shown] = _mask_values(item, key if isinstance(key, str) else "")
        return answer
    if isinstance(value, list):
        return [_mask_values(item, name) for item in value]
    if isinstance(value, tuple):
        return tuple(_mask_values(item, name) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool) and name and may_hold_secret(name):
        return _mask_number(name, value)
    return value


def _mask_number(name: str, value: float) -> Any:
    """`{"password": 48291375}`: under other names a number is a number."""
    from holdtrue import credentials

    return f"{_BEGINS}password]" if credentials.label_of(name, str(value)) == "password" else value


def _mask_named(name: str, value: str) -> str:
    """The text of one value, masked; as a whole when its name calls it a secret."""
    masked = mask(value)
    if masked is value and name and len(value) >= 4 and may_hold_secret(name):
        from holdtrue import credentials

        label = credentials.label_of(name, value)
        if label is not None:
            return f"{_BEGINS}{label}]"
    return masked


def _unused(name: str, taken: Mapping[Any, Any]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} {number}"
    return free


def may_hold_secret(text: str) -> bool:
    """Whether a text shows a sign of a secret. Cheap; no for nearly all ordinary text, and never a wrong no."""
    lowered = text.lower()
    for sign in _SIGNS:
        if sign in lowered:
            return True
    if _TOKEN_LIKE in text.encode("utf-8", "surrogatepass").translate(_SHAPE):
        return True
    return not text.isascii() and (
        any(sign in lowered for sign in _SIGNS_ELSEWHERE) or _ESCAPES.search(text) is not None
    )


def _mask_once(text: str) -> str:
    from holdtrue import credentials  # a hundred formats are compiled here

    found = [*credentials.find(text, _lower(text))]
    plain, places = text, None
    for _ in range(_LAYERS):
        below = _Plain.of(plain)
        if below is None:
            break
        plain = below.text
        places = [*(places or []), below]
        for start, end, rank, label in credentials.find(plain, _lower(plain)):
            for layer in reversed(places):
                start, end = layer.origin(start), layer.origin(end)
            found.append(credentials.Credential(start, end, rank, label))
    return _replaced(text, found) if found else text


def _replaced(text: str, found: list[Any]) -> str:
    """The text with labels in the places found; where they overlap, one label for all of it."""
    found.sort()
    parts: list[str] = []
    done, index = 0, 0
    while index < len(found):
        start, end, rank, label = found[index]
        index += 1
        while index < len(found) and found[index].start < end:
            _, later, other, name = found[index]
            end = max(end, later)
            if other < rank:
                rank, label = other, name
            index += 1
        if _LABEL.fullmatch(text, start, end):
            continue
        parts += [text[done:start], f"{_BEGINS}{label}]"]
        done = end
    parts.append(text[done:])
    return "".join(parts)


def _lower(text: str) -> str:
    """The text in lower case, character by character: one letter of Turkish has a lower case of two."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return text.replace("\u0130", "i").lower()


class _Plain:
    """A text with one layer of escapes undone, and where each of its characters stood."""

    def __init__(self, text: str, starts: list[int], shifts: list[int]) -> None:
        self.text = text
        self._starts = starts
        self._shifts = shifts

    @classmethod
    def of(cls, text: str) -> _Plain | None:
        """None for a text without escapes."""
        parts: list[str] = []
        starts, shifts = [0], [0]
        done = length = 0
        for escape in _ESCAPES.finditer(text):
            piece = _undone(escape[0])
            parts += [text[done : escape.start()], piece]
            length += escape.start() - done + len(piece)
            done = escape.end()
            starts.append(length)
            shifts.append(done - length)
        if done == 0:
            return None
        parts.append(text[done:])
        return cls("".join(parts), starts, shifts)

    def origin(self, position: int) -> int:
        """Where the character at this position begins in the text with its escapes."""
        index = bisect.bisect_right(self._starts, position) - 1
        return position + self._shifts[index]


def _undone(escape: str) -> str:
    if escape[0] != "\\":
        return _SIMPLE.get(escape, "")
    if escape[1] == "u":
        return chr(int(escape[2:], 16))
    return _SIMPLE.get(escape[1], escape[1])
