"""INV-026: only a store that is damaged is set aside, once, its bytes kept whole; what was acknowledged stays.

Attacked with several processes that set the same store aside while others add, with damage of several kinds and with none,
and with kills between each two steps. Judged from the bytes that are kept and from raw storage.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdtrue import Memory
from properties.kit import checkers, damage_workers, expected, ledger, raw
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 90.0
MEMORIES = 120
ADDS = 8
DAMAGE: dict[str, Callable[[Path], None]] = {
    "header": damage_workers.damage_header,
    "leaf": damage_workers.damage_leaf,
    "text-file": damage_workers.replace_by_text,
}
STEPS = ("found", "copied", "kept", "salvaged", "before_reset", "reset", "replaced")


@dataclass(frozen=True)
class Plan:
    """`doctors` processes set one store aside while `adders` add to it. `damage` is None for a sound one."""

    damage: str | None
    doctors: int
    adders: int


plans = st.builds(
    Plan,
    damage=st.sampled_from([*sorted(DAMAGE), None]),
    doctors=st.integers(2, 3),
    adders=st.integers(1, 2),
)


def filled(store: Path) -> list[str]:
    """A store with memories of several pages; returns their texts."""
    texts = [f"fact {number} of the harbour, {'and so on ' * 12}" for number in range(MEMORIES)]
    with Memory(store) as memory:
        memory.add_many(texts)
    return texts


def kept(store: Path) -> list[Path]:
    """The folders of bytes that were kept, finished ones only."""
    shelf = store / "kept-aside"
    return [place for place in shelf.iterdir() if not place.name.endswith(".partial")] if shelf.exists() else []


def bytes_of(folder: Path) -> dict[str, str]:
    """The files that hold memories, with the digest of their bytes; an empty one counts as none."""
    files = {name: (folder / name).read_bytes() for name in ("memory.db", "memory.db-wal") if (folder / name).exists()}
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items() if content}


@settings(max_examples=max(1, settings().max_examples // 3))  # each example is four or five processes
@given(plan=plans)
@example(plan=Plan("leaf", doctors=3, adders=2))
@example(plan=Plan(None, doctors=2, adders=2))
def test_processes_that_set_a_store_aside_together_keep_one_damaged_one_and_no_sound_one(
    fresh: Callable[[], Path], plan: Plan
) -> None:
    folder = fresh()
    store = folder / "store"
    texts = filled(store)
    if plan.damage is not None:
        DAMAGE[plan.damage](store)
    original = bytes_of(store)
    barrier = SPAWN.Barrier(plan.doctors + plan.adders)
    with Crew() as crew:
        for number in range(plan.doctors):
            crew.start(damage_workers.set_aside, store, folder / f"doctor-{number}.ledger", barrier)
        for number in range(plan.adders):
            mine = [f"adder {number} adds number {one}" for one in range(ADDS)]
            path = folder / f"adder-{number}.ledger"
            crew.start(damage_workers.add_meanwhile, store, path, barrier, mine, 0.005)
        assert crew.wait(LIMIT_S) == [0] * (plan.doctors + plan.adders)
    calls = ledger.read(folder.glob("*.ledger"))
    doctors = [call for call in calls if call.action == "set_aside"]
    done = [call for call in doctors if call.outcome == "ok"]
    wanted = 0 if plan.damage is None else 1
    problems = []
    if len(done) != wanted:
        problems.append(f"{len(done)} of {plan.doctors} set it aside")
    problems += [
        f"a second one was refused with {call.answer}"
        for call in doctors
        if call.outcome != "ok" and (call.answer is None or call.answer["code"] != "STORE_SOUND")
    ]
    if len(kept(store)) != wanted:
        problems.append(f"{len(kept(store))} folders are kept aside")
    # Where nobody could add to the damaged file, what is kept is what was there.
    if plan.damage in ("header", "text-file") and bytes_of(kept(store)[0]) != original:
        problems.append("the bytes that are kept are not those that were there")
    state = raw.read(store)
    there = state.texts()
    problems += [*state.damage, *state.orphans]
    acknowledged = {call.arguments["text"] for call in calls if call.action == "add" and call.outcome == "ok"}
    assert len(acknowledged) == ADDS * plan.adders, "an adder gave up"
    problems += [
        f"acknowledged {text!r} is there {there.count(text)} times" for text in acknowledged if there.count(text) != 1
    ]
    if plan.damage in ("header", None):
        problems += [f"{text[:30]!r} was readable and is gone" for text in texts if text not in there]
    elif plan.damage == "leaf":
        lost = [text for text in texts if text not in there]
        if not 0 < len(lost) < MEMORIES // 3:
            problems.append(f"{len(lost)} memories are lost to one page")
    problems += checkers.derived_agree(state, expected.index_of, expected.vector_of)
    assert not problems, checkers.report(problems, repr(plan))


def test_a_kill_between_any_two_steps_leaves_the_damaged_bytes_and_the_next_one_finishes(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    model = folder / "model"
    texts = filled(model)
    damage_workers.damage_header(model)
    original = bytes_of(model)
    cases = []
    for step in STEPS:
        shutil.copytree(model, folder / step)
        cases.append((folder / step, f"damage.{step}=kill@1"))
    problems = []
    with Crew() as crew:
        crew.start(damage_workers.do_at_each_kill, cases, "set_aside", folder / "killed")
        assert crew.wait(LIMIT_S) == [0]
        ended = json.loads((folder / "killed").read_text())
        assert ended == [-9] * len(STEPS), f"the processes ended with {ended}"
        for store, rules in cases:
            places = kept(store)
            if bytes_of(store) != original and [bytes_of(place) for place in places] != [original]:
                problems.append(f"{rules}: the damaged bytes are neither in place nor kept")
        again = [(store, "") for store, _ in cases]
        crew.start(damage_workers.do_at_each_kill, again, "set_aside_if_damaged", folder / "next")
        assert crew.wait(LIMIT_S) == [0, 0]
        assert json.loads((folder / "next").read_text()) == [0] * len(STEPS)
    for store, rules in cases:
        if [bytes_of(place) for place in kept(store)] != [original]:
            problems.append(f"{rules}: {len(kept(store))} folders are kept, or not with the bytes that were there")
        problems += [f"{rules}: left behind {path}" for path in left_behind(store)]
        state = raw.read(store)
        problems += [f"{rules}: {problem}" for problem in (*state.damage, *state.orphans)]
        if sorted(state.texts()) != sorted(texts):
            problems.append(f"{rules}: {len(state.texts())} of {len(texts)} memories are there")
    assert not problems, checkers.report(problems, "a damaged header, a kill at each step")


def left_behind(store: Path) -> list[str]:
    return [str(path) for path in store.rglob("*") if ".partial" in path.name or path.suffix == ".lock"]


def test_a_store_whose_words_disagree_with_its_texts_is_no_damaged_one(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store = folder / "store"
    filled(store)
    connection = raw.connect(store)
    # FTS5 calls this a malformed index; the pages are as sound as before.
    connection.execute("DELETE FROM memories_fts_content WHERE id = 7").fetchall()
    connection.close()
    original = bytes_of(store)
    with Crew() as crew:
        crew.start(damage_workers.set_aside, store, folder / "doctor.ledger")
        assert crew.wait(LIMIT_S) == [0]
    (call,) = ledger.read([folder / "doctor.ledger"])
    problems = (
        [] if call.answer is not None and call.answer.get("code") == "STORE_SOUND" else [f"answered {call.answer}"]
    )
    problems += [f"kept aside: {place.name}" for place in kept(store)]
    if bytes_of(store) != original:
        problems.append("the files were changed")
    assert not problems, checkers.report(problems, "a row of the full-text index is gone")
