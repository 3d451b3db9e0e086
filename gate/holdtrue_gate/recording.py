"""Results of replays as text, and back: what the cache keeps. A text that does not read back whole is no result at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from holdtrue_gate import journal
from holdtrue_gate.journal import RunRecord
from holdtrue_gate.replay import ReplayResult


def may_be_kept(result: ReplayResult) -> bool:
    """Whether a result depends on what was run alone: nothing was ended, and no process refused to work."""
    for record in result.records:
        ended = record.timed_out or bool(record.ended_for)
        if ended or (record.lines and (record.foreign or not record.session or not record.collection_done)):
            return False
    return True


def dumps(results: Iterable[ReplayResult]) -> str:
    """The results as JSON."""
    return json.dumps([_result(result) for result in results])


def loads(text: str) -> list[ReplayResult] | None:
    """What `dumps` wrote; None for anything else."""
    try:
        return [_read_result(data) for data in json.loads(text)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _result(result: ReplayResult) -> dict[str, Any]:
    return {
        "record": _record(result.record),
        "alone": {id_: _record(record) for id_, record in result.alone.items()},
        "apart": result.apart,
        "forked": result.forked,
        "asked": result.asked,
    }


def _record(record: RunRecord) -> dict[str, Any]:
    return {
        "lines": [line.decode("latin-1") for line in record.lines],
        "returncode": record.returncode,
        "seconds": record.seconds,
        "output": record.output,
        "sources": record.sources,
    }


def _read_result(data: dict[str, Any]) -> ReplayResult:
    return ReplayResult(
        _read_record(data["record"]),
        {str(id_): _read_record(record) for id_, record in data["alone"].items()},
        apart=bool(data["apart"]),
        forked=bool(data["forked"]),
        asked=_texts(data["asked"]),
    )


def _read_record(data: dict[str, Any]) -> RunRecord:
    lines = tuple(line.encode("latin-1") for line in _texts(data["lines"]))
    record = journal.read(lines)
    record.lines = lines
    returncode = data["returncode"]
    record.returncode = None if returncode is None else int(returncode)
    record.seconds = float(data["seconds"])
    record.output = str(data["output"])
    record.sources = {
        str(place): tuple((int(number), str(text)) for number, text in rows) for place, rows in data["sources"].items()
    }
    return record


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("a list of texts was expected")
    return tuple(values)
