"""Arming the product's failpoints for processes, and proof that they fired."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Points:
    """Rules such as `writer.after_commit=kill@3` and the journal in which the product notes them."""

    rules: str
    journal: Path

    def variables(self) -> dict[str, str]:
        return {"HOLDTRUE_FAILPOINTS": self.rules, "HOLDTRUE_FAILPOINT_JOURNAL": str(self.journal)}

    def requested(self) -> set[str]:
        return {rule.split("=")[0].strip() for rule in self.rules.split(";") if rule.strip()}

    def noted(self, event: str) -> set[str]:
        """The points with this event (`reached` or `fired`) in the journal."""
        if not self.journal.exists():
            return set()
        lines = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return {line["point"] for line in lines if line["event"] == event}

    def assert_fired(self) -> None:
        silent = self.requested() - self.noted("fired")
        assert not silent, f"failpoints that were asked for and never fired: {sorted(silent)} (rules: {self.rules})"
