"""Ids from outside: a UUID in one form, or nothing that anything behind the check gets to see."""

from __future__ import annotations

import pytest

from holdtrue.errors import NotFound
from holdtrue.records import check_id, is_id, new_id

UUID = "01900000-0000-7000-8000-00000000000a"


def test_an_id_is_accepted_in_either_case_and_has_one_form() -> None:
    assert check_id(UUID) == check_id(UUID.upper()) == UUID
    assert is_id(UUID)
    assert not is_id(UUID.upper())
    fresh = new_id()
    assert check_id(fresh) == fresh


@pytest.mark.parametrize(
    "value",
    [
        "..", "../../etc/passwd", "/etc/passwd", "C:\\x", "%2e%2e%2f", "no uuid", f"{UUID}/..", f"../{UUID}", f"{UUID}\n",
        f" {UUID}", UUID.replace("-", ""), UUID[:-1], UUID + "0", UUID.replace("a", "g"), UUID.replace("0", "０"),
        f"{{{UUID}}}", "\ud800", "' OR 1=1 --",
    ],
)  # fmt: skip
def test_a_text_that_is_no_uuid_names_no_memory_and_is_told_as_it_can_be_printed(value: str) -> None:
    with pytest.raises(NotFound) as refusal:
        check_id(value)
    assert str(refusal.value).encode("utf-8")
    assert "\n" not in str(refusal.value)
