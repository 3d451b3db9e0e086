"""`@enforces("INV-001")`: marks the function that keeps an invariant.

The mark is read from the source by `gate trace`, which fails unless spec and function name each other; at run time it
costs nothing but an attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def enforces(*invariants: str) -> Callable[[F], F]:
    """Mark a function as the enforcer of the named invariants (`INV-001`, ...)."""

    def mark(function: F) -> F:
        function.__enforces__ = invariants  # type: ignore[attr-defined]
        return function

    return mark
