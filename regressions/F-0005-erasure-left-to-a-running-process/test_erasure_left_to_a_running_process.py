"""F-0005: what a process that is gone could not erase, the next write of any process must."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from holdtrue import Memory
from properties.kit import raw

FORGET_AND_LEAVE = """
import sys
from holdtrue import Memory
with Memory(sys.argv[1]) as memory:
    print(memory.forget(sys.argv[2]).erased)
"""


def test_an_erasure_left_by_a_process_that_is_gone_is_finished_by_the_next_write_of_another(
    store: Path, run_python: Callable[..., CompletedProcess[str]]
) -> None:
    with Memory(store) as memory:
        id_ = memory.add("the zanzibarine wording").id
        reader = raw.connect(store)
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM memories").fetchall()
        done = run_python(FORGET_AND_LEAVE, store, id_)
        assert (done.stdout, done.stderr) == ("False\n", "")
        reader.execute("ROLLBACK").fetchall()
        reader.close()
        memory.add("the next write of a process that was there before")
        assert memory.status()["erasures_waiting"] == 0
        left = [path.name for path in store.iterdir() if b"zanzibarine" in path.read_bytes()]
        assert left == []
