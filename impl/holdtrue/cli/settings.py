"""The command `config`: what is set, where it comes from, and how to change it."""

from __future__ import annotations
