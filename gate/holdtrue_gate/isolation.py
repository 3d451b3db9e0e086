"""An interpreter environment built for a project: `--isolate`.

It is built from the commit's own metadata: the declared dependencies, extras and dependency groups that tests need, and
requirement files for tests. The project is installed as well, and then its code is taken out again: its metadata and its
console scripts stay, and what they import comes from the replayed tree. It lies in the gate's cache, by the digest of the
metadata, and is built once. Building runs the project's build backend and pip with the user's settings, in processes of
their own.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdtrue_gate import cache
from holdtrue_gate.errors import CannotJudgeError
from holdtrue_gate.plan import Plan
from holdtrue_gate.repo import Repository, remove_tree

BUILD_LIMIT_S = 1800.0
KEPT_ENVIRONMENTS = 8
TAIL_LINES = 15
# Extras and groups that hold what tests need, by the names that projects give them.
TEST_EXTRAS = ("test", "tests", "testing", "dev")
TEST_REQUIREMENTS = (
    "requirements-test.txt",
    "requirements-tests.txt",
    "requirements-testing.txt",
    "requirements-dev.txt",
    "requirements_test.txt",
    "requirements_dev.txt",
    "test-requirements.txt",
    "dev-requirements.txt",
    "requirements/test.txt",
    "requirements/tests.txt",
    "requirements/dev.txt",
)
_METADATA = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", *TEST_REQUIREMENTS)
_READY = ".ready"


def environment(repository: Repository, plan: Plan, python: Path) -> Path:
    """The interpreter of an environment for the commit of `plan`, made by `python`; built when there is none yet.

    Raises CannotJudgeError (`no-environment`) with the end of pip's words when it cannot be built.
    """
    metadata = {name: repository.text(plan.head, name) for name in _METADATA}
    base = _base_python(python)
    folder = cache.home() / "environments" / _digest(metadata, base)
    with _turn(folder):
        if not (folder / _READY).is_file():
            remove_tree(folder) if folder.exists() else None
            try:
                _build(repository, plan, metadata, base, folder)
            except BaseException:
                remove_tree(folder)
                raise
        os.utime(folder)
    _forget_old(folder.parent)
    return _interpreter(folder)


def extras(pyproject: bytes | None, setup_cfg: bytes | None = None) -> tuple[str, ...]:
    """The extras for tests that a project declares."""
    declared: set[str] = set()
    with contextlib.suppress(tomllib.TOMLDecodeError, UnicodeDecodeError):
        project = tomllib.loads((pyproject or b"").decode()).get("project", {})
        declared |= set(project.get("optional-dependencies", {})) if isinstance(project, dict) else set()
    section = re.search(rb"^\[options\.extras_require\]\s*$(.*?)(?=^\[|\Z)", setup_cfg or b"", re.MULTILINE | re.DOTALL)
    if section:
        declared |= {name.decode() for name in re.findall(rb"^([A-Za-z0-9_-]+)\s*=", section.group(1), re.MULTILINE)}
    return tuple(name for name in TEST_EXTRAS if name in declared)


def group_requirements(pyproject: bytes | None) -> tuple[str, ...]:
    """Requirements of the dependency groups for tests, groups that they include among them (PEP 735)."""
    try:
        groups = tomllib.loads((pyproject or b"").decode()).get("dependency-groups", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ()
    found: dict[str, None] = {}

    def take(name: str, above: tuple[str, ...]) -> None:
        for item in groups.get(name, ()) if name not in above else ():
            if isinstance(item, str):
                found[item] = None
            elif isinstance(item, dict) and isinstance(item.get("include-group"), str):
                take(item["include-group"], (*above, name))

    for name in TEST_EXTRAS:
        take(name, ())
    return tuple(found)


# --- building


def _digest(metadata: Mapping[str, bytes | None], python: Path) -> str:
    state = python.stat()
    told: list[Any] = [[name, None if text is None else text.decode("latin-1")] for name, text in metadata.items()]
    told.append([os.fspath(python), state.st_size, state.st_mtime_ns])
    # Another index or another constraint is another environment.
    told.append(sorted((name, value) for name, value in os.environ.items() if name.startswith("PIP_")))
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _base_python(python: Path) -> Path:
    """The interpreter that a virtual environment was made from, or the interpreter itself."""
    settings = python.parent.parent / "pyvenv.cfg"
    if settings.is_file():
        home = re.search(r"^home\s*=\s*(.+)$", settings.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if home:
            for name in (python.name, "python3", "python"):
                if (Path(home.group(1).strip()) / name).exists():
                    return Path(home.group(1).strip()) / name
    return python.resolve()


def _interpreter(folder: Path) -> Path:
    windows = folder / "Scripts" / "python.exe"
    return windows if windows.exists() else folder / "bin" / "python"


def _build(repository: Repository, plan: Plan, metadata: Mapping[str, bytes | None], base: Path, folder: Path) -> None:
    _run([str(base), "-m", "venv", str(folder)], "the environment cannot be made")
    python = _interpreter(folder)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    source = folder / "source"
    repository.write_tree(plan.tree("head"), source)
    project = source / plan.prefix if plan.prefix else source
    wanted = ["pytest", *group_requirements(metadata["pyproject.toml"])]
    for name in TEST_REQUIREMENTS:
        if metadata[name] is not None:
            wanted += ["-r", str(project / name)]
    installable = metadata["setup.py"] is not None or metadata["setup.cfg"] is not None or _has_project(metadata)
    if installable:
        named = extras(metadata["pyproject.toml"], metadata["setup.cfg"])
        wanted.append(f"{project}[{','.join(named)}]" if named else str(project))
    elif metadata["requirements.txt"] is not None:
        wanted += ["-r", str(project / "requirements.txt")]
    _run([*pip, *wanted], "the dependencies cannot be installed", project)
    _take_code_out(folder, project)
    remove_tree(source)
    (folder / _READY).touch()


def _has_project(metadata: Mapping[str, bytes | None]) -> bool:
    with contextlib.suppress(tomllib.TOMLDecodeError, UnicodeDecodeError):
        document = tomllib.loads((metadata["pyproject.toml"] or b"").decode())
        poetry = document.get("tool", {}).get("poetry") if isinstance(document.get("tool"), dict) else None
        return bool(document.get("project") or document.get("build-system") or poetry)
    return False


def _run(command: Sequence[str], what: str, directory: Path | None = None) -> None:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "PYTEST_")) and name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotJudgeError("no-environment", f"{what} within {BUILD_LIMIT_S:.0f} s") from error
    except OSError as error:
        raise CannotJudgeError("no-environment", f"{what}: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
        raise CannotJudgeError(
            "no-environment",
            f"{what} (exit status {done.returncode}):\n" + "\n".join(lines[-TAIL_LINES:]),
            "Without --isolate the project's own environment is used; --python names another.",
        )


def _take_code_out(folder: Path, project: Path) -> None:
    """Removes the files of the project itself, but for its metadata and its scripts (PEP 376, PEP 610)."""
    for site in (*folder.glob("lib*/python*/site-packages"), *folder.glob("Lib/site-packages")):
        for origin in site.glob("*.dist-info/direct_url.json"):
            with contextlib.suppress(OSError, ValueError):
                url = json.loads(origin.read_text(encoding="utf-8")).get("url", "")
                if Path(url.removeprefix("file://")).resolve() != project.resolve():
                    continue
                rows = list(csv.reader((origin.parent / "RECORD").read_text(encoding="utf-8").splitlines()))
                for row in rows:
                    path = (site / row[0]).resolve()
                    inside = path.is_relative_to(site.resolve()) and ".dist-info" not in row[0].partition("/")[0]
                    if inside and path.is_file():
                        path.unlink()
                        _remove_empty(path.parent, site.resolve())


def _remove_empty(folder: Path, end: Path) -> None:
    """A folder without a module would still be a namespace package beside the tree's."""
    while folder != end and end in folder.parents:
        left = [entry for entry in folder.iterdir() if entry.name != "__pycache__"]
        if left:
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder = folder.parent


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One gate builds an environment at a time; others wait and then use it."""
    cache.private_folder(folder.parent)
    with (folder.parent / f"{folder.name}.lock").open("ab") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        except ImportError:
            pass
        yield


def _forget_old(environments: Path) -> None:
    """Keeps the environments that were of use last. One that another gate uses now was of use a moment ago."""
    found = sorted(
        (path for path in environments.iterdir() if (path / _READY).is_file()),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    for path in found[KEPT_ENVIRONMENTS:]:
        with contextlib.suppress(OSError):
            remove_tree(path)
