"""How much of what was asked for is found: LoCoMo turns, one memory each, against plain BM25 in the same run.

LoCoMo (Maharana et al., ACL 2024) is CC BY-NC 4.0 and not part of this project: give the path of `locomo10.json`.
Gold are the turns a question names as evidence; categories 1 to 4; questions whose evidence does not resolve are left
out. Recall@k is the share of the gold among the first k, averaged over questions.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from holdtrue import Memory
from holdtrue.records import Filters
from holdtrue.search.query import parse
from impl.benchmarks.figures import Figure, Report, percentile

CUTS = (1, 5, 10, 20)


def conversations(path: Path) -> list[tuple[list[tuple[str, str]], list[tuple[str, list[str]]]]]:
    """Of each conversation: (turn id, text) and (question, gold turn ids)."""
    found = []
    for one in json.loads(path.read_text()):
        talk = one["conversation"]
        turns = [
            (turn["dia_id"], _text(turn))
            for name, session in talk.items()
            if re.fullmatch(r"session_\d+", name)
            for turn in session
        ]
        known = {turn_id for turn_id, _ in turns}
        questions = []
        for question in one["qa"]:
            gold = [turn for entry in question.get("evidence", []) for turn in re.findall(r"D\d+:\d+", str(entry))]
            if question["category"] in (1, 2, 3, 4) and gold and known.issuperset(gold):
                questions.append((str(question["question"]), sorted(set(gold))))
        found.append((turns, questions))
    return found


def _text(turn: dict[str, Any]) -> str:
    caption = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['speaker']}: {turn['text']}{caption}"


def measure(path: Path, *, progress: Any = None) -> Report:
    say = progress or (lambda _text: None)
    recalls: dict[str, dict[int, list[float]]] = {name: {cut: [] for cut in CUTS} for name in ("hybrid", "bm25")}
    reciprocal: dict[str, list[float]] = {"hybrid": [], "bm25": []}
    latencies: list[float] = []
    for number, (turns, questions) in enumerate(conversations(path)):
        say(f"conversation {number + 1}: {len(turns)} turns, {len(questions)} questions")
        with tempfile.TemporaryDirectory(prefix="holdtrue-bench-") as top, Memory(top) as memory:
            for start in range(0, len(turns), 500):
                memory.add_many([{"text": text, "metadata": {"turn": id_}} for id_, text in turns[start : start + 500]])
            # The same text said twice is one memory: every turn that said it is found with it.
            same: dict[str, list[str]] = {}
            for id_, text in turns:
                same.setdefault(text, []).append(id_)
            for question, gold in questions:
                began = time.perf_counter()
                hits = memory.search(question, limit=20)
                latencies.append(time.perf_counter() - began)
                _score("hybrid", [same[hit.text] for hit in hits], gold, recalls, reciprocal)
                _score("bm25", [same[text] for text in _bm25(memory, question)], gold, recalls, reciprocal)
    count = len(reciprocal["hybrid"])
    report = Report("retrieval", {"questions": count, "unit": "LoCoMo turns"})
    for cut in CUTS:
        for name in ("hybrid", "bm25"):
            report.figures.append(Figure(f"recall@{cut} {name}", sum(recalls[name][cut]) / count, ""))
    for name in ("hybrid", "bm25"):
        report.figures.append(Figure(f"MRR {name}", sum(reciprocal[name]) / count, ""))
    ten = sum(recalls["hybrid"][10]) / sum(recalls["bm25"][10])
    report.figures.append(Figure("recall@10, hybrid / bm25", ten, "", 1.0, "higher"))
    report.figures.append(Figure("median search", percentile(latencies, 0.5), "s"))
    return report


def _bm25(memory: Memory, question: str) -> list[str]:
    """Plain BM25 over the same index: the lexical leg alone."""
    with memory._read() as view:
        lexical = view.lexical(parse(question).phrases, Filters(), limit=20)
        records = view.records(list(lexical))
    return [records[seq].text for seq in sorted(lexical, key=lambda seq: (-lexical[seq], -seq))]


def _score(
    name: str,
    found: list[list[str]],
    gold: list[str],
    recalls: dict[str, dict[int, list[float]]],
    reciprocal: dict[str, list[float]],
) -> None:
    for cut in CUTS:
        seen = {turn for turns in found[:cut] for turn in turns}
        recalls[name][cut].append(len(seen.intersection(gold)) / len(gold))
    first = next((rank for rank, turns in enumerate(found, 1) if set(turns).intersection(gold)), None)
    reciprocal[name].append(1.0 / first if first else 0.0)
