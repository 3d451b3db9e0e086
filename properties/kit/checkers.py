"""Checkers: pure judgements of a history against raw storage.

Each returns the list of what is wrong, as sentences; empty means that the promise held. Every checker here is tried on
bad histories that it must reject, in `test_kit_checkers.py`.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from properties.kit.ledger import Call
from properties.kit.raw import Raw


def adds_survive(calls: Sequence[Call], raw: Raw) -> list[str]:
    """Acknowledged adds are there exactly once, refused ones not at all, unknown ones at most once and whole.

    Expects every add of the history to have a text of its own.
    """
    problems = [*raw.damage]
    present = Counter(raw.texts())
    ids = {row.text: row.id for row in raw.rows}
    asked = Counter(call.arguments["text"] for call in calls if call.action == "add")
    acknowledged = {call.arguments["text"] for call in calls if call.action == "add" and call.outcome == "ok"}
    for call in calls:
        if call.action != "add":
            continue
        text, count = call.arguments["text"], present[call.arguments["text"]]
        if call.outcome == "ok" and count != 1:
            problems.append(f"acknowledged {text!r} is there {count} times")
        elif call.outcome == "ok" and call.answer is not None and call.answer["id"] != ids[text]:
            problems.append(f"{text!r} was acknowledged as {call.answer['id']} and is stored as {ids[text]}")
        elif call.outcome == "refused" and count and text not in acknowledged and asked[text] == 1:
            problems.append(f"refused {text!r} is there {count} times")
        elif call.outcome == "unknown" and count > 1:
            problems.append(f"unanswered {text!r} is there {count} times")
    problems += [f"{text!r} is there and nobody asked for it" for text in present if text not in asked]
    return problems


def derived_agree(raw: Raw, index_of: Callable[[str], str], vector_of: Callable[[str], bytes | None]) -> list[str]:
    """Index and vector of every memory are those of its text, and nothing is left of memories that are gone.

    `index_of` and `vector_of` compute what should be there, from the text alone.
    """
    problems = [*raw.damage, *raw.orphans]
    for row in raw.rows:
        if row.indexed != index_of(row.text):
            problems.append(f"memory {row.seq} {row.text!r} is indexed as {row.indexed!r}")
        wanted = vector_of(row.text)
        if row.vector is None and not row.pending and wanted is not None:
            problems.append(f"memory {row.seq} {row.text!r} has no vector and awaits none")
        if row.vector is not None and row.vector != wanted:
            problems.append(f"memory {row.seq} {row.text!r} has the vector of another text")
        if row.vector is not None and row.pending:
            problems.append(f"memory {row.seq} {row.text!r} has a vector and awaits one")
    return problems


def one_memory_a_text(calls: Sequence[Call], raw: Raw) -> list[str]:
    """Each NFC text is stored once, and everyone who added it was told the same id."""
    problems = [*raw.damage]
    stored = Counter(unicodedata.normalize("NFC", text) for text in raw.texts())
    problems += [f"{text!r} is stored {count} times" for text, count in stored.items() if count > 1]
    told: dict[str, set[str]] = {}
    created: Counter[str] = Counter()
    for call in calls:
        text = unicodedata.normalize("NFC", call.arguments["text"])
        if call.outcome != "ok" or call.answer is None:
            problems.append(f"add of {text!r} was {call.outcome}: {call.answer}")
            continue
        told.setdefault(text, set()).add(call.answer["id"])
        created[text] += bool(call.answer["created"])
        if stored[text] == 0:
            problems.append(f"{text!r} was acknowledged and is not there")
    problems += [f"{text!r} was answered with {len(ids)} different ids" for text, ids in told.items() if len(ids) > 1]
    problems += [f"{count} adds of {text!r} say that they created it" for text, count in created.items() if count != 1]
    return problems


def report(problems: Iterable[str], replay: str) -> str:
    """The message of a failed property: what is wrong, and the plan that shows it again."""
    shown = list(problems)
    rest = f"\n  ... and {len(shown) - 10} more" if len(shown) > 10 else ""
    return "the promise does not hold:\n  " + "\n  ".join(shown[:10]) + rest + f"\nplan: {replay}"
