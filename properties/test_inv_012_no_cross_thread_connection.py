"""INV-012: each connection is stepped by the one thread that opened it, also while the store is closed under its users."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from properties.kit import checkers, life_workers, raw
from properties.kit.processes import Crew

LIMIT_S = 90.0


def test_threads_that_share_a_memory_share_no_connection(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    result = folder / "result"
    with Crew() as crew:
        crew.start(life_workers.use_from_threads, folder / "store", result, 4)
        codes = crew.wait(LIMIT_S)
    assert codes == [0], f"the process ended with {codes}: a negative number is a signal"
    told = json.loads(result.read_text())
    assert told["connections"] >= 5, "too few connections were seen to judge"
    problems = [*told["strays"], *told["problems"], *raw.read(folder / "store").damage]
    assert not problems, checkers.report(problems, "four threads, one of them closes")
