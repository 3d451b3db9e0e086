"""INV-023: the WAL stays under its limit, whoever reads and for however long; writes wait for a reader that holds it up,
and are refused by name when it does not end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import checkers, ledger, life_workers, raw, workers
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 60.0
LIMIT_MIB = 8
SETTING = {"HOLDTRUE_WAL_LIMIT_MIB": str(LIMIT_MIB), "HOLDTRUE_MODEL_WAIT_S": "20"}


def steps(process: str, count: int) -> list[workers.Step]:
    return [{"action": "add", "text": f"{process} remembers fact number {number}"} for number in range(count)]


def largest(wal: Path, until: Callable[[], bool]) -> int:
    """The largest size of the file seen until the condition holds, in bytes."""
    size = 0
    give_up = time.monotonic() + LIMIT_S
    while not until() and time.monotonic() < give_up:
        size = max(size, wal.stat().st_size if wal.exists() else 0)
        time.sleep(0.005)
    return size


@given(writers=st.integers(2, 4), pinned_s=st.floats(1.0, 1.5))
@example(writers=4, pinned_s=1.5)
def test_a_reader_of_an_old_state_makes_writers_wait_and_not_the_log_grow(
    fresh: Callable[[], Path], writers: int, pinned_s: float
) -> None:
    folder = fresh()
    store = folder / "store"
    pinned, release = SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        crew.start(workers.perform, store, folder / "first.ledger", steps("first", 1))
        assert crew.wait(LIMIT_S) == [0]
        crew.start(life_workers.pin_a_state, store, pinned, release, LIMIT_S)
        assert pinned.wait(LIMIT_S)
        crowd = [
            crew.start(workers.perform, store, folder / f"w{number}.ledger", steps(f"w{number}", 60), variables=SETTING)
            for number in range(writers)
        ]
        wal = store / "memory.db-wal"
        full = LIMIT_MIB * 2**20 // 2
        largest(wal, lambda: wal.exists() and wal.stat().st_size >= full)
        began = time.monotonic()
        size = largest(wal, lambda: time.monotonic() >= began + pinned_s)
        assert size >= full, f"the log never got full ({size:,} bytes), so the reader was in nobody's way"
        release.set()
        size = max(size, largest(wal, lambda: all(process.exitcode is not None for process in crowd)))
        assert crew.wait(LIMIT_S) == [0] * (writers + 2)
    assert size <= LIMIT_MIB * 2**20, f"the log grew to {size:,} bytes, over its limit of {LIMIT_MIB} MiB"
    calls = ledger.read(folder.glob("*.ledger"))
    problems = checkers.adds_survive(calls, raw.read(store))
    problems += [f"{call.process} was refused: {call.answer}" for call in calls if call.outcome != "ok"]
    assert not problems, checkers.report(problems, f"{writers} writers, a reader of {pinned_s:.1f} s")


def test_writes_behind_a_reader_that_does_not_end_are_refused_and_the_reader_is_named(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    store = folder / "store"
    pinned, release, told = SPAWN.Event(), SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        crew.start(workers.perform, store, folder / "first.ledger", steps("first", 1))
        assert crew.wait(LIMIT_S) == [0]
        crew.start(life_workers.pin_a_state, store, pinned, release, LIMIT_S)
        assert pinned.wait(LIMIT_S)
        plan = [*steps("impatient", 60), {"action": "tell"}, {"action": "add", "text": "after the reader"}]
        variables = {**SETTING, "HOLDTRUE_WRITE_WAIT_S": "0.3"}
        path = folder / "impatient.ledger"
        crew.start(workers.perform_and_tell, store, path, plan, told, release, variables=variables)
        wal = store / "memory.db-wal"
        size = largest(wal, told.is_set)
        release.set()
        assert crew.wait(LIMIT_S) == [0, 0, 0]
    assert size <= LIMIT_MIB * 2**20, f"the log grew to {size:,} bytes"
    calls = ledger.read(folder.glob("*.ledger"))
    refused = [call.answer for call in calls if call.outcome == "refused" and call.answer]
    assert refused, "nothing was refused although the reader never ended"
    assert {answer["code"] for answer in refused} == {"STORE_BUSY"}
    assert any("a reader of an older state" in answer["message"] for answer in refused), refused[0]
    problems = checkers.adds_survive(calls, raw.read(store))
    assert not problems, checkers.report(problems, "one reader that does not end")
    assert "after the reader" in raw.read(store).texts()


def test_readers_that_overlap_without_end_do_not_starve_the_log(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store = folder / "store"
    stop = SPAWN.Event()
    with Crew() as crew:
        crew.start(workers.perform, store, folder / "first.ledger", steps("first", 1))
        assert crew.wait(LIMIT_S) == [0]
        for number in range(3):
            crew.start(life_workers.read_in_turns, store, number, stop)
        crowd = [
            crew.start(workers.perform, store, folder / f"w{number}.ledger", steps(f"w{number}", 90), variables=SETTING)
            for number in range(2)
        ]
        size = largest(store / "memory.db-wal", lambda: all(process.exitcode is not None for process in crowd))
        stop.set()
        assert crew.wait(LIMIT_S) == [0] * 6
    assert size <= LIMIT_MIB * 2**20, f"the log grew to {size:,} bytes beside readers that overlap"
    calls = ledger.read(folder.glob("*.ledger"))
    refused = [call.answer for call in calls if call.outcome != "ok"]
    assert not refused, f"{len(refused)} writes were refused: {refused[0]}"
