"""F-0030: a failed commit is covered by another one, which a full disk does not take either; so a plain full disk was told
as an outcome that nobody knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

PROGRAM = """
import os, sys
import apsw

class File(apsw.VFSFile):
    def __init__(self, name, flags):
        self.file = name.filename() if hasattr(name, "filename") else str(name)
        super().__init__("unix", name, flags)

    def xWrite(self, data, offset):
        if full and self.file.endswith("-wal"):
            raise apsw.FullError("no space is left")
        return super().xWrite(data, offset)

class Disk(apsw.VFS):
    def __init__(self):
        super().__init__("small", "", makedefault=True)

    def xOpen(self, name, flags):
        return File(name, flags)

full = []
disk = Disk()
from holdtrue import HoldTrueError, Memory

memory = Memory(sys.argv[1])
memory.add("acknowledged")
memory.list()
full.append(True)
try:
    memory.add("refused")
except HoldTrueError as error:
    print(error.code)
full.clear()
memory.add("after there is room")
print(sorted(record.text for record in memory.list()))
sys.stdout.flush()
os._exit(0)
"""


def test_an_add_on_a_full_disk_is_refused_as_not_stored(
    run_python: Callable[..., CompletedProcess[str]], store: Path
) -> None:
    done = run_python(PROGRAM, store, HOLDTRUE_MODEL_WAIT_S="10")
    assert done.stdout == "STORE_FULL\n['acknowledged', 'after there is room']\n", done.stderr
