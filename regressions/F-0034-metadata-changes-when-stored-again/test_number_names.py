"""Numbers are sorted as numbers, their texts as texts: the stored form is that of the texts, however they were given."""

from __future__ import annotations

import json
from pathlib import Path

from holdtrue import Memory

METADATA = {10: {9: "inner", 11: "inner"}, 2: "outer"}


def metadata_line(folder: Path, metadata: object) -> str:
    """The metadata of a memory as an export writes it."""
    with Memory(folder) as memory:
        memory.add("the ferry leaves at ten", metadata=metadata)  # type: ignore[arg-type]
        memory.export(folder / "out.jsonl")
    (line,) = [one for one in (folder / "out.jsonl").read_text().splitlines() if "the ferry leaves" in one]
    start = line.index("{", line.index('"metadata"'))
    return line[start : json.JSONDecoder().raw_decode(line, start)[1]]


def test_metadata_read_back_and_stored_again_is_the_same_text(tmp_path: Path) -> None:
    as_given = metadata_line(tmp_path / "first", METADATA)
    as_read = metadata_line(tmp_path / "second", json.loads(json.dumps(METADATA)))
    assert as_given == as_read
