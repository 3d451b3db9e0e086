"""What a project tells pytest in its settings: parsed, never run.

pytest takes the first of these files that has settings for it (`_pytest/config/findpaths.py`): pytest.toml, .pytest.toml,
pytest.ini, .pytest.ini, pyproject.toml (`[tool.pytest]` or `[tool.pytest.ini_options]`), tox.ini (`[pytest]`), setup.cfg
(`[tool:pytest]`).
"""

from __future__ import annotations

import configparser
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Files that are pytest's own: they decide how it runs whatever else changed.
OWN_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini")
FILES = (*OWN_FILES, "pyproject.toml", "tox.ini", "setup.cfg")
_SECTIONS = {"tox.ini": "pytest", "setup.cfg": "tool:pytest", "pytest.ini": "pytest", ".pytest.ini": "pytest"}


@dataclass(frozen=True)
class PytestSettings:
    """The settings that the plan must know. `file` is None when the project has none; paths are as written there."""

    file: str | None = None
    options: tuple[str, ...] = ()
    python_files: tuple[str, ...] = ()
    testpaths: tuple[str, ...] = ()
    pythonpath: tuple[str, ...] = ()

    @property
    def doctest_modules(self) -> bool:
        """Whether docstrings of modules are tests."""
        return "--doctest-modules" in self.options

    @property
    def doctest_globs(self) -> tuple[str, ...]:
        """Which text files are tests."""
        found = []
        for index, word in enumerate(self.options):
            if word.startswith("--doctest-glob="):
                found.append(word.partition("=")[2])
            elif word == "--doctest-glob" and index + 1 < len(self.options):
                found.append(self.options[index + 1])
        return tuple(found) or ("test*.txt",)


def _toml(source: bytes) -> Mapping[str, Any]:
    try:
        return tomllib.loads(source.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}


def _ini(source: bytes, section: str) -> Mapping[str, Any] | None:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, comment_prefixes=("#", ";"))
    try:
        parser.read_string(source.decode("utf-8-sig"))
        return dict(parser.items(section)) if parser.has_section(section) else None
    except (UnicodeDecodeError, configparser.Error):
        return None


def table(name: str, source: bytes) -> Mapping[str, Any] | None:
    """The settings for pytest in one file, None when it has none. What cannot be read has none: pytest has the word."""
    if name in ("pytest.toml", ".pytest.toml"):
        found = _toml(source).get("pytest", {})
        return found if isinstance(found, dict) else {}
    if name == "pyproject.toml":
        tool = _toml(source).get("tool", {})
        found = tool.get("pytest") if isinstance(tool, dict) else None
        if not isinstance(found, dict):
            return None
        older = found.get("ini_options")
        return older if isinstance(older, dict) else found
    found = _ini(source, _SECTIONS[name])
    return {} if found is None and name in OWN_FILES else found


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(word for word in value if isinstance(word, str))
    if not isinstance(value, str):
        return ()
    try:
        return tuple(shlex.split(value, comments=True))
    except ValueError:
        return tuple(value.split())


def read(text: Callable[[str], bytes | None], folder: str = "") -> PytestSettings:
    """The settings that pytest takes with `folder` ("" or "a/b/") as its root. `text` gives the bytes of a path."""
    for name in FILES:
        source = text(folder + name)
        found = table(name, source) if source is not None else None
        if found is not None:
            return PytestSettings(
                folder + name,
                _words(found.get("addopts")),
                _words(found.get("python_files")),
                _words(found.get("testpaths")),
                _words(found.get("pythonpath")),
            )
    return PytestSettings()


def reaches(settings: PytestSettings, path: str) -> bool:
    """Whether pytest, run without arguments, comes to a path: `testpaths` say where it looks."""
    roots = [root.removeprefix("./").rstrip("/") for root in settings.testpaths]
    return not roots or any(root in ("", ".") or path == root or path.startswith(root + "/") for root in roots)
