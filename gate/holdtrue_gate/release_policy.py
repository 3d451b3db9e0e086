"""`[tool.gate.release]` of the target's `pyproject.toml`: what a release of this project must not have. Pure.

Its keys, all optional:

- `block`: which open findings stop a release; a list of tables with `category` and `severity`, each one word or a list of
  them, and all of them where it is left out. Default: data, trust and concurrency, whatever the severity.
- `withdrawn`: ids that the history names and that are no findings any more (a duplicate, a typing error in a trailer).
- `tag_prefix`: what stands before the version in a tag. Default: "v".
- `changelog`: the file whose headings name the releases. Default: the first of the usual names that exists.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from holdtrue_gate.errors import ConfigError
from holdtrue_gate.fields import Form, ProblemsError, TableReader
from holdtrue_gate.findings import FINDING_ID, Finding
from holdtrue_gate.spec import CATEGORIES, SEVERITIES

TABLE = "release"
DEFAULT_CATEGORIES = ("data", "trust", "concurrency")
CHANGELOGS = ("CHANGELOG.md", "CHANGELOG.rst", "CHANGES.md", "CHANGES.rst", "HISTORY.md", "HISTORY.rst")

_CATEGORY = Form(rf"^({'|'.join(CATEGORIES)})\Z", f"write one of {', '.join(CATEGORIES)}")
_SEVERITY = Form(rf"^({'|'.join(SEVERITIES)})\Z", f"write one of {', '.join(SEVERITIES)}")
_PREFIX = Form(r"^[^\s~^:?*\[\\]*\Z", "write what stands before the version in a tag")
_PATH = Form(r"^(?!/)(?!([^:]*/)?\.\.?/)[^\\\n]*\S\Z", "write a path relative to the project")


@dataclass(frozen=True)
class Block:
    """Open findings of one of these categories and one of these severities stop a release."""

    categories: tuple[str, ...] = tuple(CATEGORIES)
    severities: tuple[str, ...] = tuple(SEVERITIES)

    def hits(self, finding: Finding) -> bool:
        """Whether the finding is one of these, whatever its status."""
        return finding.category in self.categories and finding.severity in self.severities

    def as_dict(self) -> dict[str, object]:
        """The shape that `--json` prints."""
        return {"category": list(self.categories), "severity": list(self.severities)}


@dataclass(frozen=True)
class Policy:
    """The settings of a release; see the module for the keys."""

    block: tuple[Block, ...] = (Block(DEFAULT_CATEGORIES),)
    withdrawn: tuple[str, ...] = ()
    tag_prefix: str = "v"
    changelog: str | None = None

    def blocks(self, finding: Finding) -> bool:
        """Whether the finding stops a release while it is open."""
        return any(block.hits(finding) for block in self.block)

    def as_dict(self) -> dict[str, object]:
        """The shape that `--json` prints."""
        return {
            "block": [block.as_dict() for block in self.block],
            "withdrawn": list(self.withdrawn),
            "tag_prefix": self.tag_prefix,
            "changelog": self.changelog,
        }


def parse(pyproject: bytes | None) -> Policy:
    """The policy in the bytes of a `pyproject.toml`; None means there is none. Raises ConfigError with all problems."""
    if pyproject is None:
        return Policy()
    try:
        document = tomllib.loads(pyproject.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError("config-toml", f"pyproject.toml cannot be read: {error}") from error
    tool = document.get("tool", {})
    gate = tool.get("gate", {}) if isinstance(tool, dict) else {}
    if not isinstance(gate, dict):
        raise ConfigError("config-value", "[tool.gate] must be a table")
    _refuse_misspelt(gate)
    table = gate.get(TABLE)
    if table is None:
        return Policy()
    problems: list[str] = []
    if not isinstance(table, dict):
        raise ConfigError("config-value", f"[tool.gate.{TABLE}] must be a table")
    policy = _read(TableReader(table, f"[tool.gate.{TABLE}]", problems), table)
    if problems:
        raise ProblemsError("release-policy", problems)
    return policy


def _refuse_misspelt(gate: Mapping[str, object]) -> None:
    """A table whose name is nearly `release` would otherwise be a policy that nobody reads."""
    for key, value in gate.items():
        if key != TABLE and isinstance(value, dict) and difflib.get_close_matches(key, [TABLE], cutoff=0.75):
            raise ConfigError(
                "config-key", f"[tool.gate.{key}] is not a table here", f"Did you mean [tool.gate.{TABLE}]?"
            )


def _read(reader: TableReader, table: Mapping[str, object]) -> Policy:
    blocks = tuple(_block(entry) for entry in reader.tables("block"))
    # An empty list is a choice of its own too: nothing that is open stops a release.
    block = blocks if "block" in table else Policy.block
    withdrawn = reader.texts("withdrawn", FINDING_ID, required=False)
    # An empty prefix is a choice of its own: tags that are the bare version.
    prefix = reader.text("tag_prefix", _PREFIX, required=False)
    if "tag_prefix" not in table:
        prefix = Policy.tag_prefix
    changelog = reader.text("changelog", _PATH, required=False) or None
    reader.finish()
    return Policy(block, withdrawn, prefix, changelog)


def _block(reader: TableReader) -> Block:
    categories = reader.text_or_texts("category", _CATEGORY, default="")
    severities = reader.text_or_texts("severity", _SEVERITY, default="")
    reader.finish()
    return Block(
        categories if categories != ("",) else tuple(CATEGORIES),
        severities if severities != ("",) else tuple(SEVERITIES),
    )
