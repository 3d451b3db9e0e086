"""`[tool.gate]` of the target's `pyproject.toml`: read from the commit under judgement, never from the user's edited
files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from holdtrue_gate.errors import ConfigError
from holdtrue_gate.patterns import PathRules
from holdtrue_gate.pytestfile import OWN_FILES

DEFAULT_TESTS = ("tests", "test", "test_*.py", "*_test.py")

# Test-side whatever `tests` says: pytest reads these itself when it runs a test.
ALWAYS_TESTS = ("conftest.py", *OWN_FILES, "tox.ini")

# Cannot change what a test sees: prose, pictures of it, and the settings of other tools.
DEFAULT_IGNORED = (
    "*.md",
    "*.rst",
    "/docs/**",
    "/doc/**",
    "LICENSE*",
    "LICENCE*",
    "COPYING*",
    "NOTICE*",
    "AUTHORS*",
    "CHANGES*",
    "CHANGELOG*",
    "CONTRIBUTORS*",
    ".github/**",
    ".gitlab/**",
    ".ci/**",
    "/ci/**",
    "/Dockerfile",
    ".dockerignore",
    "/mkdocs.yml",
    ".circleci/**",
    ".vscode/**",
    ".gitlab-ci.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    ".gitignore",
    ".gitattributes",
    ".mailmap",
    ".editorconfig",
    ".pre-commit-config.yaml",
    ".readthedocs.y*ml",
    "/pyproject.toml",
    "/setup.cfg",
    "/Makefile",
    "/noxfile.py",
    "*.lock",
    "requirements*.txt",
)

MAX_RUNS = 1000


@dataclass(frozen=True)
class Config:
    """The settings of a check.

    `source`: source roots relative to the project, put first on PYTHONPATH (None: the root, and `src` where it exists).
    `failpoint_journal_env`: the environment variable that names the file to which the product appends the failpoints it
    reaches.
    `tests`: names and globs of what is test-side. `checkers`: test-side files that live among the product. `ignored`:
    neither product nor test, beside the built-in list. `runs`: repeats on each side. `timeout_s`: limit of one node.
    `run_timeout_s`: limit of one replay. `memory_mib`: memory of all processes of a run together, in mebibytes.
    `fork`: whether the runs of a side may be children of one pytest process that has collected.
    `require_pinned`: whether, under `--ablate`, a part of a fix that no new test needs fails the check.
    `plugin_autoload`: whether pytest loads the plugins that are installed; false starts faster where none is needed.
    """

    source: tuple[str, ...] | None = None
    tests: tuple[str, ...] = DEFAULT_TESTS
    checkers: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    runs: int = 3
    timeout_s: float = 60.0
    run_timeout_s: float = 900.0
    memory_mib: int = 4096
    fork: bool = True
    plugin_autoload: bool = True
    failpoint_journal_env: str = "HOLDTRUE_FAILPOINT_JOURNAL"
    require_pinned: bool = False

    @property
    def test_rules(self) -> PathRules:
        """What is test-side."""
        return PathRules((*self.tests, *self.checkers, *ALWAYS_TESTS))

    @property
    def checker_rules(self) -> PathRules:
        """Registered oracles."""
        return PathRules(self.checkers)

    @property
    def ignored_rules(self) -> PathRules:
        """What is neither product nor test."""
        return PathRules((*self.ignored, *DEFAULT_IGNORED))

    def overridden(
        self, *, runs: int | None = None, timeout_s: float | None = None, fork: bool | None = None
    ) -> Config:
        """The same settings with what the command line says."""
        changes: dict[str, Any] = {}
        if runs is not None:
            changes["runs"] = runs
        if timeout_s is not None:
            changes["timeout_s"] = timeout_s
        if fork is not None:
            changes["fork"] = fork
        return replace(self, **changes)


def _strings(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(
            "config-value",
            f"[tool.gate] {key} must be a list of strings, not {value!r}",
            f'For example: {key} = ["tests"]',
        )
    return tuple(item.removeprefix("./") for item in value)


def _seconds(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError("config-value", f"[tool.gate] {key} must be a positive number of seconds, not {value!r}")
    return float(value)


def from_table(table: Mapping[str, object]) -> Config:
    """The settings of one `[tool.gate]` table. Raises ConfigError on an unknown key or a wrong value."""
    known = {field.name for field in fields(Config)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            # Tables below [tool.gate] belong to other commands (`release`, ...), which check them.
            continue
        if key not in known:
            raise ConfigError(
                "config-key", f"[tool.gate] has an unknown key {key!r}", f"Known keys: {', '.join(sorted(known))}."
            )
        if key in ("source", "tests", "checkers", "ignored"):
            values[key] = _strings(key, value)
        elif key in ("plugin_autoload", "require_pinned", "fork"):
            if not isinstance(value, bool):
                raise ConfigError("config-value", f"[tool.gate] {key} must be true or false, not {value!r}")
            values[key] = value
        elif key == "runs":
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RUNS:
                raise ConfigError(
                    "config-value", f"[tool.gate] runs must be a whole number from 1 to {MAX_RUNS}, not {value!r}"
                )
            values[key] = value
        elif key == "memory_mib":
            if isinstance(value, bool) or not isinstance(value, int) or value < 64:
                raise ConfigError(
                    "config-value", f"[tool.gate] {key} must be a whole number of at least 64, not {value!r}"
                )
            values[key] = value
        elif key == "failpoint_journal_env":
            if not isinstance(value, str) or not value.isidentifier():
                raise ConfigError(
                    "config-value", f"[tool.gate] {key} must be the name of an environment variable, not {value!r}"
                )
            values[key] = value
        else:
            values[key] = _seconds(key, value)
    return Config(**values)


def parse(pyproject: bytes | None) -> Config:
    """The settings in the bytes of a `pyproject.toml`; None means there is none. Raises ConfigError."""
    if pyproject is None:
        return Config()
    return from_table(_tool_table(pyproject, "gate"))


def _tool_table(pyproject: bytes, name: str) -> Mapping[str, object]:
    try:
        document = tomllib.loads(pyproject.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError("config-toml", f"pyproject.toml cannot be read: {error}") from error
    tool = document.get("tool", {})
    table = tool.get(name, {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError("config-value", f"[tool.{name}] must be a table")
    return table


def pytest_table(pyproject: bytes | None) -> Mapping[str, object]:
    """The `[tool.pytest]` table of a `pyproject.toml`, empty when there is none or it cannot be read."""
    if pyproject is None:
        return {}
    try:
        return _tool_table(pyproject, "pytest")
    except ConfigError:
        return {}
