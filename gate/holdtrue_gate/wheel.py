"""A wheel: what is in it, and building it from a copy of a commit with what is installed, without a network.

The build backend is the project's own program and runs in a process of its own, under a limit.
"""

from __future__ import annotations

import contextlib
import email
import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from holdtrue_gate.errors import CannotJudgeError, UsageError
from holdtrue_gate.treedigest import file_sha256

BUILD_LIMIT_S = 600.0
_MEMBERS = 100_000
_MEMBER_BYTES = 1 << 31


@dataclass(frozen=True)
class Content:
    """A wheel that was read: its file's name and SHA-256, name and version in its metadata, SHA-256 of each file in it."""

    file: str
    sha256: str
    name: str
    version: str
    members: dict[str, str]


def read(path: Path) -> Content:
    """Read a wheel. Nothing of it is unpacked or run. Raises UsageError when it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            members: dict[str, str] = {}
            metadata = ""
            for info in archive.infolist():
                if info.is_dir():
                    continue
                if len(members) >= _MEMBERS or info.file_size > _MEMBER_BYTES:
                    raise UsageError("not-a-wheel", f"{path.name} is too large to be read")
                with archive.open(info) as file:
                    members[info.filename] = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
                if info.filename.count("/") == 1 and info.filename.endswith(".dist-info/METADATA"):
                    metadata = archive.read(info).decode("utf-8", "replace")
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise UsageError("not-a-wheel", f"{path} cannot be read as a wheel: {error}", "Name a .whl file.") from error
    headers = email.message_from_string(metadata)
    name, version = str(headers.get("Name", "")), str(headers.get("Version", ""))
    if not name or not version:
        raise UsageError("not-a-wheel", f"{path.name} has no METADATA with a name and a version", "Name a .whl file.")
    return Content(path.name, file_sha256(path), name, version, members)


def build(source: Path, target: Path, python: Path, epoch_s: int) -> Path:
    """Build the wheel of the project in `source` (a copy: backends write beside it) into `target`; the path of the file.

    `epoch_s` is the time that goes into it, so that one commit gives one wheel. Raises CannotJudgeError when nothing that
    is installed can build it.
    """
    target.mkdir(parents=True, exist_ok=True)
    before = {path.name: path.stat().st_mtime_ns for path in target.glob("*.whl")}
    told = []
    with_build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)]
    with_pip = ["-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    with_pip += ["--no-index", "--wheel-dir", str(target), str(source)]
    for interpreter in dict.fromkeys((python, Path(sys.executable))):
        for arguments in (with_build, with_pip):
            # Not in the source: a file build.py of the project would be taken for the program.
            output, code = _run([str(interpreter), *arguments], target, epoch_s)
            fresh = [p for p in sorted(target.glob("*.whl")) if p.stat().st_mtime_ns != before.get(p.name)]
            if code == 0 and len(fresh) == 1:
                return fresh[0]
            lines = [line.strip() for line in output.splitlines() if line.strip()]
            told.append(f"python {' '.join(arguments[:2])}: {lines[-1] if lines else f'exit status {code}'}")
    raise CannotJudgeError(
        "wheel-not-built",
        f"the wheel cannot be built with what is installed ({'; '.join(dict.fromkeys(told))})",
        "Install `build` and the project's build backend beside it, or give a wheel with --wheel FILE.",
    )


def _run(command: list[str], folder: Path, epoch_s: int) -> tuple[str, int]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PYTHON", "PIP_"))}
    kept |= {"SOURCE_DATE_EPOCH": str(epoch_s), "PIP_CONFIG_FILE": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=kept,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=BUILD_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"did not end within {BUILD_LIMIT_S:.0f} s", 1
    finally:
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    return output.decode("utf-8", "replace"), process.returncode
