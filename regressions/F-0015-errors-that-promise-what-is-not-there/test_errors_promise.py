"""F-0015: a write that the system forbids is told as what it is, and what the error advises can be done."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdtrue.store.connection import store_error


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_write_that_the_system_forbids_is_a_store_that_is_read_only(tmp_path: Path, number: int) -> None:
    assert store_error(OSError(number, "forbidden"), tmp_path).code == "STORE_READ_ONLY"
