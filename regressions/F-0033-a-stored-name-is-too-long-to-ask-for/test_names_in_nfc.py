"""The limit of a name is that of its stored form: NFC writes U+0958 as two characters, and `e` with an accent as one."""

from __future__ import annotations

from pathlib import Path

from holdtrue import HoldTrueError, Memory
from holdtrue.records import NAME_LIMIT


def outcome(memory: Memory, user: str) -> str:
    """ "refused", or whether a memory of the user can be listed under the user that it tells."""
    try:
        record = memory.add(f"the ferry leaves at {len(user)}", user=user)
    except HoldTrueError:
        return "refused"
    try:
        return "listed" if memory.list(user=record.user).total == 1 else "not listed"
    except HoldTrueError as error:
        return f"stored, and refused when asked for: {error.code}"


def test_a_name_that_is_stored_can_be_asked_for_and_one_that_grows_past_the_limit_is_refused(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        assert outcome(memory, "\u0958" * NAME_LIMIT) == "refused"
        assert memory.list().total == 0
        assert outcome(memory, "\u0958" * (NAME_LIMIT // 2)) == "listed"
        assert outcome(memory, "e\u0301" * NAME_LIMIT) == "listed"
