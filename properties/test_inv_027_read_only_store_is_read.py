"""INV-027: a store that nobody may write is read as it is, or refused by name; no answer from files that change meanwhile.

Attacked on a real read-only mount and as another user: with stores that were closed, killed with everything in the WAL,
or robbed of their shared index; and with a writer on the other side of the mount that opens, commits and closes all the
while. What the readers say is judged by the ledger of who wrote.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from holdtrue import Memory
from properties.kit import checkers, ledger, place_workers, places
from properties.kit.places import Place
from properties.kit.points import Points
from properties.kit.processes import Crew

LIMIT_S = 40.0
BATCH = 8
WORDS = "word " * 200  # each batch makes the database longer
STOP_S = 0.4
PLACES = {"mount": places.read_only_mount, "stranger": places.foreign_folder}
REFUSALS = {"STORE_READ_ONLY", "STORE_CHANGED"}


@dataclass(frozen=True)
class Plan:
    """`adds` memories, left `how`: closed, killed, or killed and without its shared index; read from `place`."""

    place: str
    how: str
    adds: int


plans = st.builds(
    Plan,
    place=st.sampled_from(sorted(PLACES)),
    how=st.sampled_from(["closed", "killed", "index-lost"]),
    adds=st.integers(2, 30),
)


@given(plan=plans)
@example(plan=Plan("mount", "index-lost", 3))
def test_every_acknowledged_memory_is_read_there_or_the_read_is_refused_by_name(
    fresh: Callable[[], Path], plan: Plan
) -> None:
    folder = fresh()
    store = folder / "store"
    texts = [f"fact number {number}" for number in range(2 * plan.adds)]
    with Memory(store) as memory:  # closed, so that all of this stands in the database
        memory.add_many(texts[: plan.adds])
    steps = [{"action": "add", "text": text} for text in texts[plan.adds :]]
    if plan.how == "closed":
        place_workers.perform(Place(store), folder / "writer.ledger", steps)
    else:
        kill = {"HOLDTRUE_FAILPOINTS": f"writer.after_commit=kill@{plan.adds}"}
        with Crew() as crew:
            crew.start(place_workers.perform, Place(store), folder / "writer.ledger", steps, variables=kill)
            assert crew.wait(LIMIT_S) == [-9], f"the writer was not killed as planned: {plan}"
    if plan.how == "index-lost":
        (store / "memory.db-shm").unlink()
    before = contents(store)
    steps = [{"action": "list", "limit": 500}, {"action": "add", "text": "one more"}, {"action": "list", "limit": 500}]
    with PLACES[plan.place](store) as place:
        if place.user is None:
            place_workers.perform(place, folder / "reader.ledger", steps)
        else:
            places.carried_out(place, folder / "reader.ledger", steps)
        listed, refused, again = ledger.read([folder / "reader.ledger"])
        after = contents(place.folder)
    problems = [f"{name} changed, appeared or went" for name in before.keys() ^ after.keys()]
    problems += [f"{name} has other bytes" for name in before.keys() & after.keys() if before[name] != after[name]]
    if refused.answer is None or refused.answer.get("code") != "STORE_READ_ONLY":
        problems.append(f"the add was {refused.outcome}: {refused.answer}")
    written = ledger.read([folder / "writer.ledger"])
    for call in (listed, again):
        if call.outcome == "ok":
            problems += misread(call, written, known=texts[: plan.adds])
        elif call.answer is None or call.answer["code"] != "STORE_READ_ONLY" or plan.how != "index-lost":
            problems.append(f"a read was {call.outcome}: {call.answer}")
    assert not problems, checkers.report(problems, repr(plan))


def test_a_read_beside_a_writer_on_the_other_side_answers_a_committed_state_or_nothing(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    store = folder / "store"
    books = ledger.Ledger(folder / "writer.ledger")

    def write(number: int) -> None:
        """Open, commit and close, which leaves a database at rest, without a shared index."""
        texts = [f"batch {number} fact {i} {WORDS}" for i in range(BATCH)]
        asked = books.ask("add_many", items=texts)
        with writable(store), Memory(store) as memory:
            memory.add_many(texts)
        books.ok(asked)

    write(0)
    with PLACES["mount"](store) as place, public(place) as shared:
        # Each read stops when it has seen the first pages; at every second one the writer comes between.
        points = Points(f"reader.snapshot=delay({STOP_S})", shared / "points")
        reading = [{"action": "list", "limit": 500}] * 5
        with Crew() as crew:
            crew.start(place_workers.perform, place, folder / "reader.ledger", reading, variables=points.variables())
            for number in range(1, len(reading) + 1):
                stopped(points.journal, number)
                if number % 2:
                    write(number)
            assert crew.wait(LIMIT_S) == [0]
    reads = ledger.read([folder / "reader.ledger"])
    written = ledger.read([folder / "writer.ledger"])
    problems = []
    for call in reads:
        if call.outcome == "ok":
            problems += misread(call, written)
        elif call.answer is None or call.answer["code"] not in REFUSALS:
            problems.append(f"a read was {call.outcome}: {call.answer}")
    assert not problems, checkers.report(problems, f"{len(reads)} reads, a writer beside every second")
    assert {call.outcome for call in reads} == {"ok", "refused"}, "the writer never came between, or nothing was read"


def stopped(journal: Path, times: int) -> None:
    """Wait, at most 20 s, until a read has stopped for that many times."""
    until_s = time.monotonic() + 20
    while time.monotonic() < until_s:
        lines = journal.read_text().splitlines() if journal.exists() else []
        if sum(json.loads(line)["event"] == "fired" for line in lines) >= times:
            return
        time.sleep(0.005)
    raise AssertionError(f"the reader did not come to its read number {times}")


def misread(read: ledger.Call, written: list[ledger.Call], known: Sequence[str] = ()) -> list[str]:
    """What is wrong with the answer of a `list`: it lacks what was there, has what was not, or tears a batch.

    `known` was there before anything was written down.
    """
    assert read.answer is not None
    assert read.ended_ns is not None
    texts = {record["text"] for record in read.answer["memories"]}
    problems = [f"a read lacks {text!r}, which was there from the beginning" for text in set(known) - texts]
    if len(texts) != read.answer["total"] or len(texts) != len(read.answer["memories"]):
        problems.append(f"a read counts {read.answer['total']} memories and shows {len(texts)}")
    possible = set(known)
    for call in written:
        if call.action not in ("add", "add_many"):
            continue
        batch = set(call.arguments.get("items", [call.arguments.get("text")]))
        if call.began_ns < read.ended_ns:
            possible |= batch
        if call.outcome == "ok" and call.ended_ns is not None and call.ended_ns < read.began_ns and batch - texts:
            problems.append(f"a read lacks {sorted(batch - texts)[0]!r}, which was acknowledged before it began")
        if batch & texts and batch - texts:
            problems.append(f"a read has {len(batch & texts)} of {len(batch)} memories that were stored together")
    problems += [f"a read has {text!r}, which nobody had stored" for text in sorted(texts - possible)]
    return problems


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def writable(store: Path) -> Iterator[None]:
    """Where nothing can be mounted and this is not root, the place is this user's own folder without the right to write."""
    modes = {path: path.stat().st_mode & 0o777 for path in ([store, *store.iterdir()] if store.exists() else [])}
    for path, mode in modes.items():
        path.chmod(mode | 0o200)
    yield
    for path, mode in modes.items():
        if path.exists():
            path.chmod(mode)


@contextmanager
def public(place: Place) -> Iterator[Path]:
    """A folder in which the user of the place may write."""
    made = Path(tempfile.mkdtemp(prefix="holdtrue-points-", dir=tempfile.gettempdir()))
    try:
        made.chmod(0o700 if place.user is None else 0o777)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
