"""INV-020: a secret that is given to the store in any field, by any door, is in no file, no index, no answer, no error and
no log afterwards, also when the store is killed or fails in the middle; what only looks like one is stored as it is."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from properties.kit import checkers, secret_workers
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew
from properties.kit.secret_workers import FIELDS, KINDS, LOOK_ALIKES, Fields

LIMIT_S = 60.0
pairs = st.lists(st.tuples(st.sampled_from(FIELDS), st.sampled_from(sorted(KINDS))), min_size=6, max_size=14)
POINTS = ["memory.embedded", "memories.between_check_and_insert", "derived.before_build", "writer.before_commit"]
POINTS += ["writer.after_commit"]
# An example costs three processes of the product, so there are fewer than elsewhere; the explicit one has every kind.
FEW = settings(max_examples=max(1, settings().max_examples // 3))
ALL_PAIRS = [(field, kind) for kind in KINDS for field in ("text", "metadata")] + [
    (field, kind) for field in FIELDS for kind in ("github", "sentence", "address", "escaped letters")
]


def adds_of(plan: list[tuple[str, str]], seed: int) -> tuple[list[Fields], list[str]]:
    adds, cores = [], []
    for number, (field, kind) in enumerate(plan):
        fields, held = secret_workers.fields_of(field, secret_workers.make(kind, seed + number), number)
        adds.append(fields)
        cores += held
    return adds, cores


def secrets_of(kinds: list[str], seed: int) -> tuple[list[str], list[str]]:
    made = [secret_workers.make(kind, seed) for kind in kinds]
    return [secret.text for secret in made], [core for secret in made for core in secret.cores]


@FEW
@given(plan=pairs, seed=st.integers(0, 10**6))
@example(plan=ALL_PAIRS, seed=0)
def test_a_secret_given_to_any_field_and_door_is_in_no_file_index_answer_error_or_log(
    fresh: Callable[[], Path], plan: list[tuple[str, str]], seed: int
) -> None:
    folder = fresh()
    store, watched = folder / "store", folder / "watched"
    watched.mkdir()
    adds, cores = adds_of(plan, seed)
    kinds = sorted({kind for _, kind in plan})
    updates, more = secrets_of(kinds, seed + 1_000)
    served, still_more = secrets_of(random.Random(seed).sample(kinds, min(3, len(kinds))), seed + 2_000)
    typed, typed_cores = secrets_of(random.Random(seed + 1).sample(kinds, min(2, len(kinds))), seed + 3_000)
    cores += more + still_more + typed_cores
    adds += [
        {"text": text, "project": text, "tags": [text], "metadata": {"note": text, text: 1}} for text in LOOK_ALIKES
    ]
    commands = [words for text in typed for words in commands_of(text)]
    told, go_on = SPAWN.Event(), SPAWN.Event()
    with Crew() as crew:
        crew.start(secret_workers.give_away, store, watched, adds, updates, commands, told, go_on)
        crew.start(secret_workers.serve, store, served, watched)
        assert told.wait(LIMIT_S), "the worker did not come to its end"
        # The writer is open: what it wrote is in the log and nothing was checkpointed on the way out.
        problems = [f"while it is open: {leak}" for leak in secret_workers.leaks([store, watched], cores)]
        go_on.set()
        codes = crew.wait(LIMIT_S)
    assert codes == [0, 0], f"the processes ended with {codes}: {told_in(watched)}"
    problems += secret_workers.leaks([store, watched], cores)
    problems += secret_workers.indexed_leaks(store, cores)
    problems += secret_workers.missing(store, LOOK_ALIKES)
    assert not problems, checkers.report(problems, f"plan={plan!r}, seed={seed}")
    listed = (watched / "list.json").read_text(encoding="utf-8")
    assert listed.count("[masked: ") >= len(plan), f"what was given away is not there at all: {listed[:2000]}"


def commands_of(text: str) -> list[list[str]]:
    return [
        ["add", f"typed: {text}", "--project", text, "--tag", text[:150], "--metadata", '{"n": 1}'],
        ["get", text],
        ["add", "typed", "--at", text],
        ["add", "typed", "--key", text, "--json"],
        ["search", "typed", "--limit", text],
        ["list", "--since", text, "--json"],
        [text],
    ]


def told_in(watched: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-800:]}" for path in watched.glob("*.out"))


@FEW
@given(
    plan=pairs,
    seed=st.integers(0, 10**6),
    point=st.sampled_from(POINTS),
    nth=st.integers(1, 4),
    action=st.sampled_from(["kill", "raise(ENOSPC)", "raise(EIO)"]),
)
@example(plan=ALL_PAIRS[:8], seed=1, point="writer.before_commit", nth=2, action="kill")
@example(plan=ALL_PAIRS[8:16], seed=2, point="writer.before_commit", nth=2, action="raise(ENOSPC)")
def test_a_store_that_is_killed_or_fails_in_the_middle_leaves_no_secret_in_its_files(
    fresh: Callable[[], Path], plan: list[tuple[str, str]], seed: int, point: str, nth: int, action: str
) -> None:
    folder = fresh()
    store, watched = folder / "store", folder / "watched"
    watched.mkdir()
    adds, cores = adds_of(plan, seed)
    updates, more = secrets_of(["github", "sentence"], seed + 1_000)
    points = Points(f"{point}={action}@{nth}", folder / "points")
    with Crew() as crew:
        crew.start(secret_workers.give_away, store, watched, adds, updates, variables=points.variables())
        codes = crew.wait(LIMIT_S)
    points.assert_fired()
    replay = f"plan={plan!r}, seed={seed}, {point}={action}@{nth}"
    if action == "kill":
        assert codes == [-signal.SIGKILL], f"the worker was to be killed and ended with {codes}: {replay}"
    else:
        assert None not in codes, f"the worker hangs: {replay}"
    problems = secret_workers.leaks([store, watched], cores + more)
    if (store / "memory.db").exists() and nth > 1:
        problems += secret_workers.indexed_leaks(store, cores + more)
    assert not problems, checkers.report(problems, replay)
