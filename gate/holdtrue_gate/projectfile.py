"""Where a project's packages begin, as its `pyproject.toml` tells its build backend. Parsed, never run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any


def _table(value: object, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _told(tool: Mapping[str, Any]) -> Iterator[str]:
    # setuptools.pypa.io/en/latest/userguide/package_discovery.html
    yield from _texts(_table(tool, "setuptools", "packages", "find").get("where"))
    yield from _texts(_table(tool, "setuptools", "package-dir").get(""))
    # python-poetry.org/docs/pyproject: packages = [{ include = "pkg", from = "lib" }]
    packages = _table(tool, "poetry").get("packages")
    for package in packages if isinstance(packages, list) else []:
        yield from _texts(package.get("from") if isinstance(package, dict) else None)
    # hatch.pypa.io: packages = ["lib/pkg"]
    for package in _texts(_table(tool, "hatch", "build", "targets", "wheel").get("packages")):
        yield package.rstrip("/").rpartition("/")[0]
    yield from _texts(_table(tool, "pdm", "build").get("package-dir"))
    yield from _texts(_table(tool, "maturin").get("python-source"))


def source_folders(pyproject: bytes | None) -> tuple[str, ...]:
    """Folders relative to the project in which its packages lie, where the build backend is told; never one outside."""
    try:
        document = tomllib.loads((pyproject or b"").decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return ()
    found = [folder.removeprefix("./").rstrip("/") for folder in _told(_table(document, "tool"))]
    return tuple(
        dict.fromkeys(f for f in found if f not in ("", ".") and not f.startswith("/") and ".." not in f.split("/"))
    )
