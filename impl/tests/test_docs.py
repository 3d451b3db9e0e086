"""Every command and every option is documented, and every code of an error: a door nobody can find is a closed one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdtrue.cli.commands import holdtrue as cli
from holdtrue.config import SETTINGS
from holdtrue_gate.cli import gate

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def words_missing(group: click.Group, name: str, text: str) -> list[str]:
    """The commands and options of a group that a text does not name."""
    missing = []
    for command_name, command in group.commands.items():
        if f"{name} {command_name}" not in text:
            missing.append(f"{name} {command_name}")
        missing += [f"{name} {command_name} {option}" for option in options(command) if option not in text]
        if isinstance(command, click.Group):
            missing += words_missing(command, f"{name} {command_name}", text)
    return missing


def options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            # The longest spelling is the one that a reader looks for.
            yield max(parameter.opts, key=len) if parameter.opts[0] != "-C" else "-C"


@pytest.mark.parametrize(("group", "name"), [(cli, "holdtrue"), (gate, "gate")])
def test_every_command_and_option_is_in_the_guides(group: click.Group, name: str) -> None:
    assert words_missing(group, name, "\n".join(path.read_text(encoding="utf-8") for path in DOCS)) == []


def test_a_command_that_no_guide_names_is_noticed() -> None:
    group = click.Group("tool", commands={"run": click.Command("run", params=[click.Option(["--fast"])])})
    assert words_missing(group, "tool", "tool run --fast") == []
    assert words_missing(group, "tool", "tool run") == ["tool run --fast"]
    assert words_missing(group, "tool", "nothing") == ["tool run", "tool run --fast"]
    outer = click.Group("outer", commands={"tool": group})
    assert words_missing(outer, "outer", "outer tool run") == ["outer tool run --fast"]


def test_every_code_of_an_error_is_in_the_guide_to_operations() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "impl" / "holdtrue").rglob("*.py"))
    defined = set(re.findall(r'^    code = "([A-Z_]+)"', sources, re.MULTILINE)) - {"FAILPOINT_RAISED"}
    assert "STORE_BUSY" in defined
    assert [code for code in sorted(defined) if f"`{code}`" not in text] == []


def test_every_variable_that_the_product_reads_is_in_the_guide_to_operations() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "impl" / "holdtrue").rglob("*.py"))
    named = set(re.findall(r'"(HOLDTRUE_[A-Z_]+)"', sources)) - {"HOLDTRUE_ERROR"}
    named |= {row.variable for row in SETTINGS.values()}
    assert named
    assert [name for name in sorted(named) if f"`{name}`" not in text] == []


def test_the_table_of_settings_in_the_guide_is_the_table_of_the_product() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = [
        f"| `{row.name}` | `{row.variable}` | {row.sentence} | {row.kind.allowed} | {row.shown(row.default)} |"
        for row in SETTINGS.values()
    ]
    assert [row for row in rows if row not in text] == []


def test_every_command_that_the_product_names_exists() -> None:
    named = {
        command
        for path in (ROOT / "impl" / "holdtrue").rglob("*.py")
        for command in re.findall(r"`holdtrue ([a-z]+)", path.read_text(encoding="utf-8"))
    }
    assert named - set(cli.commands) == set()


def test_links_between_the_guides_lead_somewhere() -> None:
    pages = [*DOCS, ROOT / "CHANGELOG.md", ROOT / "INVARIANTS.md", ROOT / "invariants" / "README.md"]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    ]
    assert links
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []
