"""What every benchmark here reports with: figures, percentiles, targets.

Machines are noisy, so a figure is a ratio of two things measured in one run, or a bound far from the noise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Figure:
    """One measured number and what it is held against. `better` is "lower" or "higher"."""

    name: str
    value: float
    unit: str
    target: float | None = None
    better: str = "lower"
    note: str = ""

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.better == "lower" else self.value >= self.target


@dataclass
class Report:
    """The figures of one benchmark and the raw numbers they come from."""

    benchmark: str
    conditions: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        figures = [{**asdict(figure), "reached": figure.reached} for figure in self.figures]
        return {"benchmark": self.benchmark, "conditions": self.conditions, "figures": figures, "raw": self.raw}

    def text(self) -> str:
        lines = [f"{self.benchmark}  ({', '.join(f'{name} {value}' for name, value in self.conditions.items())})"]
        for figure in self.figures:
            mark = {True: "reached", False: "MISSED", None: ""}[figure.reached]
            aim = (
                ""
                if figure.target is None
                else f"  target {'<=' if figure.better == 'lower' else '>='} {figure.target:g}"
            )
            lines.append(
                f"  {figure.name:<44} {figure.value:>10.4g} {figure.unit:<6}{aim:<20} {mark} {figure.note}".rstrip()
            )
        return "\n".join(lines)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; NaN for none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def dump(reports: Sequence[Report]) -> str:
    return json.dumps({"schema": "holdtrue.bench/1", "reports": [report.as_dict() for report in reports]}, indent=2)
