"""Where a text holds credentials: formats that vendors publish, and values that stand where a secret is named.

Owns what counts as a secret. A vendor's token is known by its prefix and length alone. Anything else needs its context:
a private key its header, a password in an address its `://user:`, any other value a name before it (`password=`,
`"api_key": `, `the token is`) and the look of a literal, of neither a placeholder nor code that fetches the secret.

Faults it survives: text made to cost time. Every repetition is possessive or bounded, and what is judged of a value is
bounded, so that the whole is linear. It enforces nothing by itself: `holdtrue.masking` decides what is searched and what
takes a secret's place.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdtrue.credentials import addresses, formats, headers, names, privatekeys
from holdtrue.credentials.found import Credential

__all__ = ["Credential", "find", "label_of"]

label_of = names.label_of


def find(text: str, lowered: str) -> Iterator[Credential]:
    """Every credential in a text, in no order; they may overlap.

    `lowered` is the text in lower case, character for character.
    """
    yield from formats.find(text)
    if "://" in text or "curl" in lowered:
        yield from addresses.find(text)
    if "private key" in lowered:
        yield from privatekeys.find(text)
    yield from headers.find(text, lowered)
    if names.are_mentioned(lowered):
        yield from names.find(text, lowered)
