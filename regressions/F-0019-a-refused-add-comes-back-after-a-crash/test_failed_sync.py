"""F-0019: a commit whose sync fails has its frames in the WAL already; recovery after a kill must not bring them back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from properties.kit import raw

# A VFS whose next sync of the WAL fails once. The list keeps a second connection open, as a peer's server would: without
# one, closing the last connection would clear the WAL.
PROGRAM = """
import os, sys
import apsw

class File(apsw.VFSFile):
    def __init__(self, name, flags):
        self.file = name.filename() if hasattr(name, "filename") else str(name)
        super().__init__("unix", name, flags)

    def xSync(self, flags):
        if failing and self.file.endswith("-wal"):
            failing.clear()
            raise apsw.IOError("the disk did not take it")
        return super().xSync(flags)

class Disk(apsw.VFS):
    def __init__(self):
        super().__init__("failing", "", makedefault=True)

    def xOpen(self, name, flags):
        return File(name, flags)

failing = []
disk = Disk()
from holdtrue import HoldTrueError, Memory

memory = Memory(sys.argv[1])
memory.add("acknowledged")
memory.list()
failing.append(True)
try:
    memory.add("refused")
except HoldTrueError as error:
    print(error.code, flush=True)
os.kill(os.getpid(), 9)
"""


def test_what_was_refused_because_a_sync_failed_stays_refused_after_a_crash(
    run_python: Callable[..., CompletedProcess[str]], store: Path
) -> None:
    done = run_python(PROGRAM, store, HOLDTRUE_MODEL_WAIT_S="10")
    assert done.stdout == "STORE_UNAVAILABLE\n", done.stderr
    assert raw.read(store).texts() == ["acknowledged"]
