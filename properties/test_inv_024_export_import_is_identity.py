"""INV-024: what an export writes, an import brings back exactly: every field, time, revision, source, key, tombstone; and
doing it again changes nothing. An export is one committed state.

Attacked with drawn histories in many scripts, a process that writes while another exports, SIGKILL in the middle of an
import, and forgets on both sides between two imports. Judged from the raw tables of both stores.
"""

from __future__ import annotations

import json
import signal
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from properties.kit import checkers, raw, tables, transfer_workers
from properties.kit.expected import index_of, vector_of
from properties.kit.points import Points
from properties.kit.processes import SPAWN, Crew

LIMIT_S = 40.0
TEXTS = [
    "the harbour is east", "部署完成 at noon", unicodedata.normalize("NFD", "café zürich"), "배포 절차를 문서화", "--",
    "予約\tシステム\nを直した",
    'quote " slash \\ \u2028 line', "\x1b[2J \x01 controls", "emoji 🚢 \U0001f468\u200d\U0001f469",
    "half \ud83d", "a" * 3_000,
]  # fmt: skip
NAMES = ["", "maya", "Zoë", "プロジェクト", "a/b\nc"]
TIMES = [None, "2026-03-04T10:00:00.000001+01:00", "0001-01-02T00:00:00+00:00", "9999-12-30T00:00:00+00:00"]
METADATA: list[dict[str, Any] | None] = [None, {"ticket": "POL-1", "deep": [1, {"ü": None}]}, {"10": 0.1, "9": 1e300}]

adds = st.fixed_dictionaries(
    {"action": st.just("add"), "text": st.sampled_from(TEXTS)},
    optional={
        "user": st.sampled_from(NAMES),
        "project": st.sampled_from(NAMES),
        "session": st.sampled_from(NAMES),
        "speaker": st.sampled_from(NAMES),
        "at": st.sampled_from(TIMES),
        "tags": st.lists(st.sampled_from(["ops", "db", "日本", "a,b"]), max_size=3),
        "metadata": st.sampled_from(METADATA),
        "source": st.sampled_from(NAMES),
        "key": st.sampled_from(["k-1", "k-2", "キー"]),
    },
)
places = st.integers(0, 9)
updates = st.builds(
    lambda of, text: {"action": "update", "of": of, "text": f"{text} (again)"}, places, st.sampled_from(TEXTS)
)
forgets = st.builds(lambda of: {"action": "forget", "of": of}, places)
histories = st.lists(st.one_of(adds, adds, updates, forgets), min_size=6, max_size=16)

EVERYTHING: list[dict[str, Any]] = [
    {"action": "add", "text": TEXTS[0], "user": "maya", "project": "プロジェクト", "session": "s", "speaker": "Zoë",
     "at": TIMES[1], "tags": ["ops", "日本"], "metadata": METADATA[1], "source": "wiki", "key": "k-1"},
    {"action": "add", "text": TEXTS[0], "user": "maya", "project": "プロジェクト", "source": "chat", "key": "k-2"},
    {"action": "add", "text": TEXTS[0], "user": "maya", "project": "プロジェクト", "source": "wiki"},
    {"action": "add", "text": TEXTS[1], "at": TIMES[3]},
    *({"action": "update", "of": place, "text": f"revision {number}"} for place in (0, 3) for number in (2, 3)),
    {"action": "add", "text": TEXTS[2], "key": "キー"},
    {"action": "forget", "of": 4},
    {"action": "add", "text": TEXTS[2], "key": "キー"},
    *({"action": "add", "text": text} for text in TEXTS[3:]),
]  # fmt: skip


def judged(store: Path, wanted: tables.Whole) -> list[str]:
    """What is wrong with a store that should hold exactly this."""
    return tables.differences(wanted, tables.read(store)) + checkers.derived_agree(raw.read(store), index_of, vector_of)


def after_header(path: Path) -> list[bytes]:
    """The lines of an export but for the first, which holds its time."""
    return path.read_bytes().splitlines(keepends=True)[1:]


def receipts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def live(folder: Path, *steps: transfer_workers.Step, warm: bool = True, killed_at: Points | None = None) -> None:
    """Have a process of its own live through these steps; `killed_at` says where it must be killed."""
    with Crew() as crew:
        variables = killed_at.variables() if killed_at else {}
        crew.start(transfer_workers.live, folder, steps, warm, variables=variables)
        codes = crew.wait(LIMIT_S)
    assert codes == [-signal.SIGKILL if killed_at else 0], f"the process ended with {codes}: {steps!r:.300}"
    if killed_at:
        killed_at.assert_fired()


# Three processes an example: a third of the profile's examples.
@settings(max_examples=max(1, settings.default.max_examples // 3))
@given(
    history=histories,
    point=st.sampled_from(["import.between_rows_and_derived", "import.placed", "writer.before_commit"]),
)
@example(history=EVERYTHING, point="import.placed")
def test_an_import_brings_back_exactly_what_was_exported_and_a_second_one_changes_nothing(
    fresh: Callable[[], Path], history: list[dict[str, Any]], point: str
) -> None:
    folder = fresh()
    first, second, receipt = folder / "first", folder / "second", folder / "receipts"
    there_and = {"action": "export", "path": folder / "1.jsonl"}
    back = {"action": "import", "path": folder / "1.jsonl", "receipt": receipt}
    # One memory at least, so that there is something to be killed at.
    live(first, {"action": "add", "text": "one at least"}, *history, there_and, warm=False)
    live(second, back, warm=False, killed_at=Points(f"{point}=kill@1", folder / "points"))
    live(second, back, back, {"action": "export", "path": folder / "2.jsonl"})
    problems = judged(second, tables.read(first))
    if after_header(folder / "1.jsonl") != after_header(folder / "2.jsonl"):
        problems.append("the export of what was imported is not what was imported")
    told, again = receipts(receipt)
    problems += [f"the first import says {told}"] if told["bad_count"] or told["conflict_count"] else []
    problems += [f"the second import says {again}"] if again["added"] or again["updated"] or again["merged"] else []
    assert not problems, checkers.report(problems, f"{history!r}, {point}")


def test_an_import_that_is_killed_at_a_later_batch_is_finished_by_the_next_one(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    moment = "2026-03-04T09:00:00.000001Z"
    memories = [
        {
            "id": f"{number:08x}-0000-7000-8000-000000000000",
            "text": f"memory {number}",
            "revision": 1,
            **dict.fromkeys(("at", "valid_from", "created_at", "updated_at"), moment),
            "sources": [{"source": f"s{number % 3}", "times": 2, "last": moment}],
        }
        for number in range(1_200)
    ]
    header = {"holdtrue": "export", "version": 1}
    end = {"end": {"memories": 1_200, "tombstones": 0}}
    lines = [json.dumps(line) for line in (header, *({"memory": memory} for memory in memories), end)]
    (folder / "1.jsonl").write_text("\n".join(lines) + "\n")
    step = {"action": "import", "path": folder / "1.jsonl", "receipt": folder / "receipts"}
    store = folder / "store"
    live(store, step, warm=False, killed_at=Points("import.placed=kill@2", folder / "points"))
    kept = len(raw.read(store).rows)
    assert 0 < kept < 1_200, f"{kept} memories were there after the kill, so it cut nothing off"
    live(store, step)
    state = tables.read(store)
    assert [memory["id"] for memory in state.memories] == [memory["id"] for memory in memories], (
        "not all came, in order"
    )
    assert {memory["sources"][0][1] for memory in state.memories} == {2}, "a source was counted again"
    problems = checkers.derived_agree(raw.read(store), index_of, vector_of)
    assert not problems, checkers.report(problems, "killed at the second batch, then run again")
    (receipt,) = receipts(folder / "receipts")
    assert (receipt["added"], receipt["known"]) == (1_200 - kept, kept)


def test_an_export_while_others_write_is_one_committed_state(fresh: Callable[[], Path]) -> None:
    folder = fresh()
    store, path = folder / "store", folder / "1.jsonl"
    begun, stop = SPAWN.Event(), SPAWN.Event()
    points = Points("export.page=delay(0.2)", folder / "points")
    with Crew() as crew:
        # The first and the last memory lie on different pages of the export.
        crew.start(transfer_workers.alternate, store, 300, begun, stop)
        assert begun.wait(LIMIT_S)
        step = {"action": "export", "path": path}
        exporter = crew.start(transfer_workers.live, store, [step], False, variables=points.variables())
        exporter.join(LIMIT_S)
        stop.set()
        assert crew.wait(LIMIT_S) == [0, 0]
    points.assert_fired()
    *lines, end = [json.loads(line) for line in after_header(path)]
    first, *_, last = [line["memory"]["text"] for line in lines]
    ahead = int(first.split()[1]) - int(last.split()[1])
    assert ahead in (0, 1), f"the export is no state that the store was ever in: {first!r} and {last!r}"
    now = tables.read(store).memories[0]["text"]
    assert int(now.split()[1]) > int(first.split()[1]) + 1, (
        "nobody wrote while the export was made, so it tested nothing"
    )
    assert (len(lines), end) == (300, {"end": {"memories": 300, "tombstones": 0}})


def test_what_was_forgotten_on_either_side_is_forgotten_after_an_import_and_no_source_is_doubled(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    first, second, receipt = folder / "first", folder / "second", folder / "receipts"
    kept = {"action": "add", "text": "kept on both sides", "source": "wiki"}
    there, here = "forgotten there", "forgotten here"
    live(
        first,
        *(kept, kept, {"action": "add", "text": there}, {"action": "add", "text": here}),
        {"action": "export", "path": folder / "1.jsonl"},
        {"action": "forget", "saying": there},
        {"action": "export", "path": folder / "2.jsonl"},
    )
    again = {"action": "import", "path": folder / "2.jsonl", "receipt": receipt}
    live(
        second,
        {"action": "import", "path": folder / "1.jsonl", "receipt": receipt},
        {"action": "forget", "saying": here},
        *(again, again),
    )
    source, state = tables.read(first), tables.read(second)
    assert [memory["text"] for memory in state.memories] == ["kept on both sides"], "a forgotten memory is there"
    assert state.memories[0]["sources"] == source.memories[0]["sources"], "an import doubled a source"
    assert set(source.tombstones) <= set(state.tombstones), "a tombstone is missing, or has another time"
    assert len(state.tombstones) == 2, "what was forgotten here has no tombstone"
    problems = checkers.derived_agree(raw.read(second), index_of, vector_of)
    assert not problems, checkers.report(problems, "forgotten on both sides")
