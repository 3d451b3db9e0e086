"""F-0017: a full disk takes the answer, not the memory; the command says so and does not call it a defect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdtrue import Memory


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["human", "json"])
def test_a_command_whose_answer_cannot_be_written_says_that_it_was_done(store: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "holdtrue", "add", "kept all the same", "--store", str(store), *options]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False, env=dict(os.environ)
        )
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert "could not be written" in said
    assert done.returncode == 4
    with Memory(store) as memory:
        assert [record.text for record in memory.list()] == ["kept all the same"]
