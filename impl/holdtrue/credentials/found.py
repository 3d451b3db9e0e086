"""What a rule reports."""

from __future__ import annotations

from typing import NamedTuple

HEADER, KEY, FORMAT, ADDRESS, NAME = range(5)


class Credential(NamedTuple):
    """`text[start:end]` is a secret. Where two overlap, the label of the lower rank is the more telling one."""

    start: int
    end: int
    rank: int
    label: str
