"""INV-013: no statement that reads or writes runs on a connection before all of its settings stand, alike on every one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from properties.kit import checkers, life_workers
from properties.kit.processes import Crew

LIMIT_S = 90.0
SWITCHES = {"defensive": 1, "trusted_schema": 0, "dqs_dml": 0, "dqs_ddl": 0, "foreign_keys": 1}
PRAGMAS = {"synchronous=full", "temp_store=memory", "secure_delete=on", "wal_autocheckpoint=0", "cache_size=-16000"}


def faults(settings: list[dict[str, Any]]) -> list[str]:
    """What was not set on a connection when its first statement ran."""
    found = []
    for number, one in enumerate(settings):
        wrong = {name: one[name] for name, wanted in SWITCHES.items() if one[name] != wanted}
        missing = sorted(PRAGMAS - set(one["pragmas"]))
        if wrong or missing:
            found.append(
                f"connection {number} began with {wrong or ''} {'without ' + ', '.join(missing) if missing else ''}"
            )
    return found


def test_every_connection_is_configured_before_its_first_statement(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    result = folder / "result"
    with Crew() as crew:
        crew.start(life_workers.use_from_threads, folder / "store", result, 2)
        assert crew.wait(LIMIT_S) == [0]
    told = json.loads(result.read_text())
    assert told["connections"] >= 3, "too few connections were seen to judge"
    problems = faults(told["settings"])
    assert not problems, checkers.report(problems, "every call of the facade, from two threads")


def test_a_connection_that_lacks_a_setting_is_noticed() -> None:
    good: dict[str, Any] = {**SWITCHES, "pragmas": sorted(PRAGMAS)}
    assert faults([good]) == []
    assert faults([{**good, "foreign_keys": 0}])
    assert faults([{**good, "pragmas": sorted(PRAGMAS - {"secure_delete=on"})}])
