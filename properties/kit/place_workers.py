"""What the processes of the hard places do. Importable by a spawned child, and light."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

import holdtrue
from holdtrue import HoldTrueError, Memory, failpoints
from holdtrue.errors import ExtensionUnavailable
from holdtrue.records import Hits
from holdtrue.store import connection
from properties.kit.ledger import Ledger
from properties.kit.places import Place

Step = dict[str, Any]


def perform(place: Place, ledger_path: Path, steps: Sequence[Step]) -> None:
    """Stand in the place and carry out steps such as `{"action": "add", "text": ...}`, each written down before and after.

    An action is the name of a method of `Memory`, or one of the kit's own: `reopen` goes on with a new `Memory`, `remove`
    deletes the file at `path`, so that there is room again.
    """
    ledger = Ledger(ledger_path)
    stand_in(place)
    memory = Memory(place.folder)
    for step in steps:
        action = step["action"]
        arguments = {name: value for name, value in step.items() if name != "action"}
        number = ledger.ask(action, **arguments)
        try:
            if action == "reopen":
                memory.close()
                memory = Memory(place.folder)
                answer: Any = None
            elif action == "remove":
                answer = Path(arguments["path"]).unlink()
            else:
                answer = getattr(memory, action)(**arguments)
        except HoldTrueError as error:
            ledger.refused(number, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - an unplanned error is a finding, not the end of the history
            ledger.refused(number, type(error).__name__, str(error))
        else:
            ledger.ok(number, **plain(answer))
    memory.close()


def perform_without_vectors(place: Place, ledger_path: Path, steps: Sequence[Step]) -> None:
    """As `perform`, in a process for which sqlite-vec is not installed."""

    def missing() -> str:
        raise ExtensionUnavailable("sqlite-vec is not installed.")

    connection._vector_extension = missing  # type: ignore[assignment]
    perform(place, ledger_path, steps)


def stand_in(place: Place) -> None:
    """Become who the place is for, with everything loaded that he might not be allowed to read."""
    if place.budget_bytes is not None:
        _limit_files(place.folder.parent, place.budget_bytes)
    if place.user is not None:
        from holdtrue.models import default_embedder

        assert default_embedder().identity.dimension
        default_embedder().embed(["ready"])
        for module in pkgutil.walk_packages(holdtrue.__path__, "holdtrue."):
            if not module.name.startswith(("holdtrue.__main__", "holdtrue.mcp_server", "holdtrue.models")):
                importlib.import_module(module.name)
        _bring_along_vectors(place.folder.parent)
        os.setgroups([])
        os.setresgid(place.user, place.user, place.user)
        os.setresuid(place.user, place.user, place.user)
        armed = failpoints._armed
        if armed is not None and armed.journal is not None and not os.access(Path(armed.journal).parent, os.W_OK):
            armed.journal = None  # whoever asked for it, it is in a folder of his own


def _bring_along_vectors(public: Path) -> None:
    """Let sqlite-vec be loaded from a folder that he may read: the one it is installed in may be closed to him."""
    (installed,) = Path(connection._vector_extension()).parent.glob("vec0.*")
    brought = public / installed.name
    shutil.copy(installed, brought)
    brought.chmod(0o755)
    connection._vector_extension = lambda: str(public / "vec0")  # type: ignore[assignment]


def plain(answer: Any) -> dict[str, Any]:
    """An answer of `Memory` as JSON can hold it."""
    if isinstance(answer, Hits):
        return {"hits": [hit.as_dict() for hit in answer], "degraded": list(answer.degraded)}
    if hasattr(answer, "as_dict"):
        extra = {name: getattr(answer, name) for name in ("created", "degraded") if hasattr(answer, name)}
        return {**answer.as_dict(), **{name: list(v) if isinstance(v, tuple) else v for name, v in extra.items()}}
    if isinstance(answer, list):
        return {"value": [plain(each) if hasattr(each, "as_dict") else each for each in answer]}
    return answer if isinstance(answer, dict) else {"value": answer}


def _limit_files(disk: Path, budget_bytes: int) -> None:
    """Let no WAL of this process grow once the files below `disk` have that many bytes in all.

    The WAL alone, since everything is written there first, and an error of Python's in a file that SQLite writes to while
    it closes would come out of the close.
    """

    base = apsw.vfs_names()[0]

    def used() -> int:
        return sum(path.stat().st_size for path in disk.rglob("*") if path.is_file())

    class Log(apsw.VFSFile):
        def __init__(self, name: Any, flags: Any) -> None:
            super().__init__(base, name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - the name of SQLite's method
            growth = offset + len(data) - super().xFileSize()
            if growth > 0 and used() + growth > budget_bytes:
                raise apsw.FullError("the budget of this disk is used up")
            super().xWrite(data, offset)

    class Budget(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("budget", base, makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
            return Log(name, flags) if flags[0] & apsw.SQLITE_OPEN_WAL else super().xOpen(name, flags)

    globals()["_budget"] = Budget()  # SQLite keeps no reference of its own
