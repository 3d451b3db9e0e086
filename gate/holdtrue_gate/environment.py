"""The identity of the interpreter environment that replays run in.

It stands for everything installed that a test could import: the interpreter, each distribution and its record,
path files, and the sources of whatever is installed in editable mode elsewhere. Where that cannot be told there is none,
and nothing is kept. No code of the environment runs to find out, but the interpreter itself when it is no virtual one.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

# More files than this below a folder outside the environment, and it is not looked through.
LENT_FILES = 20_000

# Differ from one shell to the next, and are no reason for a test to do otherwise.
_PASSING = frozenset({"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TEMP", "TMP", "TMPDIR", "WINDOWID"})
_PASSING_PREFIXES = ("SSH_", "TERM_SESSION", "XDG_SESSION_", "DBUS_", "INVOCATION_", "JOURNAL_STREAM", "HOLDTRUE_GATE_")
_MAPPING = re.compile(r"^MAPPING[^=]*=\s*(\{.*?\})\s*$", re.MULTILINE | re.DOTALL)


def identity(python: Path, variables: Mapping[str, str], lent: Iterable[Path], checkout: Path) -> str | None:
    """A digest of the interpreter, of all that is installed for it, of `variables` and of the folders `lent` to it. None
    when something could change without a trace.

    What is installed from the user's `checkout` does not count: a replay never imports it from there.
    """
    try:
        told = _told(python, variables, lent, checkout.resolve())
    except OSError:
        return None
    return None if told is None else hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _told(python: Path, variables: Mapping[str, str], lent: Iterable[Path], checkout: Path) -> dict[str, Any] | None:
    real = python.resolve()
    state = real.stat()
    sites = _sites(python)
    if sites is None:
        return None
    outside: list[Path] = [*lent]
    installed = []
    for site in sites:
        installed.append([os.fspath(site), list(_installed(site))])
        outside += [folder for folder in _editable(site) if not folder.resolve().is_relative_to(checkout)]
    folders = []
    for folder in outside:
        files = list(_files(folder))
        if len(files) > LENT_FILES:
            return None
        folders.append([os.fspath(folder), files])
    return {
        "python": [os.fspath(python), os.fspath(real), state.st_size, state.st_mtime_ns],
        "platform": [sys.platform, platform.machine(), os.uname().release if hasattr(os, "uname") else ""],
        "installed": installed,
        "folders": folders,
        "variables": {
            name: value
            for name, value in variables.items()
            if name not in _PASSING and not name.startswith(_PASSING_PREFIXES)
        },
    }


def _sites(python: Path) -> list[Path] | None:
    """The folders that installed packages lie in: read off a virtual environment, asked of any other interpreter."""
    settings = python.parent.parent / "pyvenv.cfg"
    if settings.is_file():
        text = settings.read_text(encoding="utf-8", errors="replace").lower()
        if not re.search(r"^include-system-site-packages\s*=\s*true", text, re.MULTILINE):
            root = settings.parent
            return sorted({*root.glob("lib*/python*/site-packages"), *root.glob("Lib/site-packages")})
    question = "import json, site, sys; print(json.dumps([p for p in sys.path if p]))"
    try:
        done = subprocess.run(
            [str(python), "-c", question],
            capture_output=True,
            timeout=30,
            check=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
            cwd=os.sep,
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return [Path(entry) for entry in answer if isinstance(entry, str) and Path(entry).is_dir()]


def _installed(site: Path) -> Iterator[list[Any]]:
    """Each entry of a folder of packages: its name and time; of a distribution its record, of a path file its words."""
    with os.scandir(site) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name == "__pycache__":
            continue
        state = entry.stat(follow_symlinks=True) if entry.name.endswith((".py", ".pth", ".so", ".pyd")) else None
        row: list[Any] = [entry.name, *([state.st_size, state.st_mtime_ns] if state is not None else [])]
        if entry.name.endswith((".dist-info", ".egg-info")) and entry.is_dir():
            for name in ("RECORD", "METADATA", "PKG-INFO", "direct_url.json"):
                with contextlib.suppress(OSError):
                    about = os.stat(f"{entry.path}/{name}")  # noqa: PTH116 - hundreds of them
                    row += [name, about.st_size, about.st_mtime_ns]
        elif state is None and entry.is_dir():
            row.append(entry.stat().st_mtime_ns)
        yield row


def _editable(site: Path) -> Iterator[Path]:
    """Folders elsewhere whose code is importable: lines of path files, and the tables of setuptools' finders."""
    for path in sorted(site.glob("*.pth")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            text = line.strip()
            if text and not text.startswith(("#", "import ", "import\t")):
                folder = site / text
                if folder.is_dir() and site not in [folder, *folder.parents]:
                    yield folder
    for path in sorted(site.glob("__editable__*.py")):
        table = _MAPPING.search(path.read_text(encoding="utf-8", errors="replace"))
        with contextlib.suppress(ValueError, SyntaxError):
            mapping = ast.literal_eval(table.group(1)) if table else {}
            yield from (Path(place) for place in sorted(mapping.values()) if Path(place).exists())


def _files(folder: Path) -> Iterator[list[Any]]:
    """Name, size and time of what can be imported or read beside it below a folder."""
    if folder.is_file():
        state = folder.stat()
        yield [folder.name, state.st_size, state.st_mtime_ns]
        return
    number = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in ("__pycache__", "node_modules") and not name.startswith(".")
        )
        if place != os.fspath(folder) and "pyvenv.cfg" in names:
            folders[:] = []
            continue
        for name in sorted(names):
            if name.endswith((".pyc", ".pyo")):
                continue
            number += 1
            if number > LENT_FILES + 1:
                return
            state = os.lstat(f"{place}/{name}")
            yield [f"{place}/{name}", state.st_size, state.st_mtime_ns]
