"""What the processes of the properties about damage, upgrades and setting aside do, and the damage they are given."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdtrue import HoldTrueError, Memory, failpoints
from holdtrue.errors import StoreSound
from properties.kit import raw
from properties.kit.ledger import Ledger

PAGE_BYTES = 4096


# -- damage ------------------------------------------------------------------------------------------------------------


def noise(path: Path, at: int, length: int) -> None:
    """Overwrite a part of a file. Only while no process has it open."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(random.Random(at).randbytes(length))


def damage_header(folder: Path) -> None:
    noise(folder / "memory.db", 0, 100)


def damage_leaf(folder: Path) -> None:
    """Damage one page of memories in the middle, so that some cannot be read and others can be added."""
    connection = raw.connect(folder)
    pages = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = 'memories' AND pagetype = 'leaf' ORDER BY pageno"
    )
    leaves = [page for (page,) in pages.fetchall()]
    connection.close()
    noise(folder / "memory.db", (leaves[len(leaves) // 3] - 1) * PAGE_BYTES, PAGE_BYTES)


def replace_by_text(folder: Path) -> None:
    (folder / "memory.db").write_text("My notes, not a database.\n" * 400)


def leave_hot(folder: Path, texts: Sequence[str]) -> None:
    """Add memories in a process that dies with its WAL full, and so leaves it."""
    memory = Memory(folder)
    for text in texts:
        memory.add(text)
    os.kill(os.getpid(), signal.SIGKILL)


# -- processes ---------------------------------------------------------------------------------------------------------


def set_aside(folder: Path, ledger_path: Path, barrier: Any = None) -> None:
    """As `holdtrue doctor --set-aside`, written down before and after."""
    ledger = Ledger(ledger_path)
    memory = Memory(folder)
    if barrier is not None:
        barrier.wait(30)
    number = ledger.ask("set_aside")
    try:
        done = memory.set_aside()
    except HoldTrueError as error:
        ledger.refused(number, error.code, str(error))
    except Exception as error:  # noqa: BLE001 - an unplanned error is a finding, not the end of the history
        ledger.refused(number, type(error).__name__, str(error))
    else:
        ledger.ok(number, kept=done.kept, memories=done.salvaged.memories)
    memory.close()


def add_meanwhile(folder: Path, ledger_path: Path, barrier: Any, texts: Sequence[str], pause_s: float) -> None:
    """Add texts one after another; one that is refused is tried again, under the same key, at most for 20 s."""
    ledger = Ledger(ledger_path)
    memory = Memory(folder)
    barrier.wait(30)
    until = time.monotonic() + 20
    for text in texts:
        while True:
            number = ledger.ask("add", text=text)
            try:
                record = memory.add(text, key=text)
            except HoldTrueError as error:
                ledger.refused(number, error.code, str(error))
                if time.monotonic() > until:
                    break
                time.sleep(0.02)
                continue
            except Exception as error:  # noqa: BLE001
                ledger.refused(number, type(error).__name__, str(error))
                break
            ledger.ok(number, id=record.id)
            break
        time.sleep(pause_s)
    memory.close()


def open_together(folders: Sequence[Path], ledger_path: Path, barrier: Any, text: str) -> None:
    """Be one of those who open each of these folders for the first time, at the same moment.

    Without a text: look at each as soon as there is a file, which others are just making.
    """
    ledger = Ledger(ledger_path)
    for number, folder in enumerate(folders):
        barrier.wait(30)
        memory = Memory(folder)
        asked = ledger.ask("add" if text else "list", text=f"{text} in {number}", folder=folder.name)
        until = time.monotonic() + 10
        while not text and not (folder / "memory.db").exists() and time.monotonic() < until:
            time.sleep(0.0005)
        try:
            answer = {"id": memory.add(f"{text} in {number}").id} if text else {"total": memory.list().total}
        except HoldTrueError as error:
            ledger.refused(asked, error.code, str(error))
        else:
            ledger.ok(asked, **answer)
        if text:
            time.sleep(0.3)  # the log goes with the last one who closes; meanwhile it is there for the others to see
        memory.close()


def do_at_each_kill(cases: Sequence[tuple[Path, str]], action: str, result: Path) -> None:
    """For each store and failpoint rule, carry out an action in a forked child that the rule may kill.

    Writes for each case how the child ended: minus the signal, or its exit code. A fork costs a twentieth of a process, and
    is sound here because this process opens no store itself.
    """
    result.write_text(json.dumps([_forked(folder, rules, action) for folder, rules in cases]))


def open_with_kill_at_each(model: Path, point: str, step: int, result: Path) -> None:
    """Open copies of a store, each killed at a later hit of a failpoint, until there is no such hit any more.

    Writes pairs of the hit and how the child ended.
    """
    ended: list[tuple[int, int]] = []
    while not ended or ended[-1][1] != 0:
        nth = 1 + step * len(ended)
        shutil.copytree(model, killed_at(model, nth))
        ended.append((nth, _forked(killed_at(model, nth), f"{point}=kill@{nth}", "open")))
        assert len(ended) < 200, "the failpoint fires for ever"
    result.write_text(json.dumps(ended))


def killed_at(model: Path, nth: int) -> Path:
    """The copy of the store that was opened with a kill at this hit."""
    return model.with_name(f"{model.name}-{nth}")


def _forked(folder: Path, rules: str, action: str) -> int:
    child = os.fork()
    if child == 0:
        code = 9
        try:
            os.environ["HOLDTRUE_FAILPOINTS"] = rules
            failpoints._armed = failpoints._armed_from_environment()
            memory = Memory(folder)
            if action == "open":
                memory.open()
            else:
                with contextlib.suppress(StoreSound if action == "set_aside_if_damaged" else ()):
                    memory.set_aside()
            memory.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
