"""HoldTrue: an agent's memory that holds, and the proof that it does.

from holdtrue import Memory

with Memory("~/memories") as memory:
    memory.add("Deploys go out on Tuesdays")
    print(memory.search("when do we deploy?")[0].text)
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdtrue.errors import HoldTrueError
    from holdtrue.memory import Memory
    from holdtrue.records import Forgotten, Hit, Page, Record

# What a library logs is its user's to show.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__version__ = "0.1.0"

__all__ = ["Forgotten", "Hit", "HoldTrueError", "Memory", "Page", "Record", "__version__"]

_HOMES = {
    "Forgotten": "records",
    "Hit": "records",
    "HoldTrueError": "errors",
    "Memory": "memory",
    "Page": "records",
    "Record": "records",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use: a server answers its handshake before it opens SQLite."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"holdtrue.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
