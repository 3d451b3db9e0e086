"""Settings of the properties: Hypothesis draws plans, processes carry them out, so examples are few and unhurried."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# The settings of whoever runs the properties are no part of them.
os.environ["XDG_CONFIG_HOME"] = str(Path(tempfile.gettempdir()) / "holdtrue-tests-without-settings")

_common = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    "print_blob": True,
    # A plan is carried out by processes, so the same plan may pass once and fail once: nothing to shrink by.
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
}
settings.register_profile("fast", max_examples=3, derandomize=True, database=None, **_common)
settings.register_profile("deep", max_examples=60, **_common)
settings.load_profile(os.environ.get("HOLDTRUE_PROPERTIES", "fast"))


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """A new folder at each call: each example of a property has a store of its own, on a real disk."""
    numbers = itertools.count()

    def make() -> Path:
        folder = tmp_path / f"example-{next(numbers)}"
        folder.mkdir()
        return folder

    return make
