"""INV-015: what was forgotten is in no byte of the store's folder once the receipt says erased; until then it is enlisted,
no reader gets it, and the next writer after what held it up finishes it.

The folder is searched byte by byte: for each field's own word, for the texts of every revision, and for the vectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from properties.kit import backup_workers, checkers, life_workers, raw, workers
from properties.kit.expected import index_of, vector_of
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 60.0
FIELDS = ("user", "session", "speaker", "source", "key", "tag", "metadata", "value")
WORDS = {name: f"zq7x{number}kwv9{number}" for number, name in enumerate(FIELDS)}
SECRET: dict[str, Any] = {
    **{name: WORDS[name] for name in ("user", "session", "speaker", "source", "key")},
    "tags": [WORDS["tag"], "shared"],
    "metadata": {WORDS["metadata"]: [WORDS["value"]]},
}


@dataclass(frozen=True)
class Plan:
    """A text of `length` characters with its words at both ends and in the middle, among `neighbours`; the forgetting
    process is killed at `point`, or not."""

    length: int
    neighbours: int
    point: str


plans = st.builds(
    Plan,
    length=st.sampled_from([80, 900, 5_000, 49_000]),
    neighbours=st.integers(1, 20),
    point=st.sampled_from(["", "writer.after_commit", "checkpoint.locked", "checkpoint.moved"]),
)


def former_text(length: int) -> str:
    middle = max(length - 70, 0) // 2
    filler = ("the tide came in and the boats went out again " * (middle // 46 + 1))[:middle]
    return f"former zq7xhead {filler} zq7xmiddle {filler} zq7xtail"


def traces(folder: Path, vectors: list[str]) -> list[str]:
    """Where anything of the forgotten memory is left: file and what."""
    wanted = {word: word.encode() for word in (*WORDS.values(), "zq7xhead", "zq7xmiddle", "zq7xtail")}
    for number, vector in enumerate(vectors):
        blob = bytes.fromhex(vector)
        wanted |= {f"vector {number} from byte {start}": blob[start : start + 24] for start in range(0, 1000, 200)}
    return [
        f"{path.name} holds {name}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for content in [path.read_bytes().lower()]
        for name, needle in wanted.items()
        if needle.lower() in content
    ]


@given(plan=plans)
@example(plan=Plan(length=49_000, neighbours=3, point=""))
@example(plan=Plan(length=900, neighbours=20, point="writer.after_commit"))
def test_no_byte_of_the_folder_holds_what_was_forgotten(fresh: Callable[[], Path], plan: Plan) -> None:
    folder = fresh()
    store, stored, receipt = folder / "store", folder / "stored", folder / "receipt"
    ready, release = SPAWN.Event(), SPAWN.Event()
    points = Points(f"{plan.point}=kill@1" if plan.point else "", folder / "points")
    with Crew() as crew:
        crew.start(life_workers.store_for_forgetting, store, stored, SECRET, former_text(plan.length), plan.neighbours)
        assert crew.wait(LIMIT_S) == [0]
        told = json.loads(stored.read_text())
        assert len(traces(store, told["vectors"])) >= len(WORDS), "the search finds nothing where everything is there"
        crew.start(life_workers.idle_with_the_store_open, store, ready, release, LIMIT_S)
        assert ready.wait(LIMIT_S)
        crew.start(
            life_workers.forget_one, store, folder / "forget.ledger", told["id"], receipt,
            variables=points.variables() if plan.point else None,
        )  # fmt: skip
        crew.members[-1].join(LIMIT_S)
        if plan.point:
            points.assert_fired()
            crew.start(workers.perform, store, folder / "next.ledger", [{"action": "add", "text": "the next writer"}])
            crew.members[-1].join(LIMIT_S)
        else:
            answer = json.loads(receipt.read_text())
            assert answer["erased"], f"the receipt says that it waits for {answer['waiting_for']}"
        left = traces(store, told["vectors"])
        assert not left, checkers.report(left, f"{plan}, while another process has the store open")
        release.set()
        crew.wait(LIMIT_S)
    left = traces(store, told["vectors"])
    assert not left, checkers.report(left, f"{plan}, after everyone has left")
    problems = checkers.derived_agree(raw.read(store), index_of, vector_of)
    assert not problems, checkers.report(problems, repr(plan))
    texts = raw.read(store).texts()
    assert sum(text.startswith("neighbour") for text in texts) == 2 * plan.neighbours, "a neighbour was lost"


def test_a_reader_of_an_older_state_is_named_and_the_next_writer_after_it_finishes(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, stored, receipt = folder / "store", folder / "stored", folder / "receipt"
    pinned, release = SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        crew.start(life_workers.store_for_forgetting, store, stored, SECRET, former_text(400), 2)
        assert crew.wait(LIMIT_S) == [0]
        told = json.loads(stored.read_text())
        crew.start(workers.perform, store, folder / "more.ledger", [{"action": "add", "text": "a frame in the log"}])
        crew.members[-1].join(LIMIT_S)
        crew.start(life_workers.pin_a_state, store, pinned, release, LIMIT_S)
        assert pinned.wait(LIMIT_S)
        crew.start(life_workers.forget_one, store, folder / "forget.ledger", told["id"], receipt)
        crew.members[-1].join(LIMIT_S)
        answer = json.loads(receipt.read_text())
        assert answer["forgotten"], "the memory was not forgotten beside an older reader"
        assert not answer["erased"], "erased was said although a reader of the older state is still there"
        assert any("reader" in reason for reason in answer["waiting_for"]), answer
        assert told["id"] not in {row.id for row in raw.read(store).rows}, "a new reader still gets it"
        release.set()
        crew.members[2].join(LIMIT_S)
        crew.start(workers.perform, store, folder / "next.ledger", [{"action": "add", "text": "the next writer"}])
        assert crew.wait(LIMIT_S) == [0] * 5
    left = traces(store, told["vectors"])
    assert not left, checkers.report(left, "one reader of an older state, then one more write")


def test_backups_and_bytes_kept_aside_that_may_hold_it_are_named(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, stored, receipt = folder / "store", folder / "stored", folder / "receipt"
    with Crew() as crew:
        crew.start(life_workers.store_for_forgetting, store, stored, SECRET, former_text(100), 1)
        assert crew.wait(LIMIT_S) == [0]
        told = json.loads(stored.read_text())
        for place in ("backups", "kept-aside"):
            (store / place / "2026").mkdir(parents=True)
            (store / place / "2026" / "memory.db").write_bytes(b"zq7xhead")
        crew.start(life_workers.forget_one, store, folder / "forget.ledger", told["id"], receipt)
        assert crew.wait(LIMIT_S) == [0, 0]
    named = set(json.loads(receipt.read_text())["remains"])
    there = {str(path) for place in ("backups", "kept-aside") for path in (store / place).rglob("*") if path.is_file()}
    assert there <= named, f"not named in the receipt: {sorted(there - named)}"


def test_copies_that_a_kill_left_unfinished_go_with_what_they_hold(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, stored, receipt = folder / "store", folder / "stored", folder / "receipt"
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    with Crew() as crew:
        crew.start(life_workers.store_for_forgetting, store, stored, SECRET, former_text(400), 3)
        assert crew.wait(LIMIT_S) == [0]
        told = json.loads(stored.read_text())
        for number, target in enumerate([None, elsewhere / "kept.db"]):
            points = Points("backup.copied=kill@1", folder / f"points-{number}")
            crew.start(
                backup_workers.back_up, store, folder / f"{number}.ledger", [target], variables=points.variables()
            )
            crew.members[-1].join(LIMIT_S)
            points.assert_fired()
        left = [place for place in (store / "backups", elsewhere) if traces(place, told["vectors"])]
        assert left == [store / "backups", elsewhere], "the kills left nothing behind that would have to go"
        crew.start(life_workers.forget_one, store, folder / "forget.ledger", told["id"], receipt)
        assert crew.wait(LIMIT_S)[-1] == 0
    answer = json.loads(receipt.read_text())
    problems = traces(store, told["vectors"]) + traces(elsewhere, told["vectors"])
    problems += [f"named as what remains: {path}" for path in answer["remains"]]
    problems += ["the receipt does not say erased"] * (not answer["erased"])
    assert not problems, checkers.report(problems, "two backups were killed before the forget")
