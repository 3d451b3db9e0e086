"""Credentials of HTTP: `Authorization: Bearer ...`, `Basic ...`, and these two schemes by themselves."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from holdtrue.credentials.found import HEADER, Credential
from holdtrue.credentials.looks import SAMPLE, is_code, is_placeholder, is_random

_AUTHORIZATION = re.compile(
    r"authorization(?:\\?[\"'])?\]?\s{0,4}[:=,]\s{0,4}(?:\\?[\"'`]|[rbfu][\"'])?"
    r"(?:(bearer|basic|token|digest|apikey|api-key|negotiate|bot|oauth|key)(?:\s{1,4}|%20|\+))?"
)
_SCHEME = re.compile(r"(bearer|basic)\s{1,4}(?=[a-z0-9._~+/=%-]{8})")
_VALUE = re.compile(r"[A-Za-z0-9._~+/=|%-]{6,1024}+")
_REST = re.compile(r"[A-Za-z0-9._~+/=|%-]*+")
_WORD_FOLLOWS = re.compile(r"[ \t]+[A-Za-z]")


def find(text: str, lowered: str) -> Iterator[Credential]:
    done = 0
    if "authorization" in lowered:
        for found in _AUTHORIZATION.finditer(lowered):
            if found.start() < done:
                continue
            value = _VALUE.match(text, found.end())
            if value is None:
                continue
            bare = value[0].rstrip(".:,")
            if _is_credential(text, value, bare, found[1]):
                done = value.end()
                yield Credential(value.start(), value.start() + len(bare), HEADER, _label(found[1]))
    for found in _SCHEME.finditer(lowered):
        if found.start() < done:
            continue
        value = _VALUE.match(text, found.end())
        if value is None:
            continue
        bare = value[0].rstrip(".:,")
        done = value.end()  # a word that is no token now is none further on
        if _is_pair(bare) if found[1] == "basic" else len(bare) >= 12 and _is_token(text, value, bare):
            yield Credential(value.start(), value.start() + len(bare), HEADER, _label(found[1]))


def _label(scheme: str | None) -> str:
    return "password" if scheme == "basic" else "token"


def _is_credential(text: str, value: re.Match[str], bare: str, scheme: str | None) -> bool:
    if scheme is None:
        return _WORD_FOLLOWS.match(text, value.end()) is None and _is_token(text, value, bare)
    if is_placeholder(bare) or is_code(text, value.start(), bare):
        return False
    return not (bare.isalpha() and len(bare) < 16) or (scheme == "basic" and _is_pair(bare))


def _is_token(text: str, value: re.Match[str], bare: str) -> bool:
    return is_random(bare[:SAMPLE]) and not is_placeholder(bare) and not is_code(text, value.start(), bare)


def _is_pair(value: str) -> bool:
    """Whether base64 text is `user:password`. RFC 7617."""
    if len(value) % 4 or len(value) > 4096:
        return False
    try:
        pair = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in pair and pair.isprintable()
