"""The command `doctor`: what is wrong with a store, and what can be made good."""

from __future__ import annotations
