"""The command `config`: what is set, where it comes from, and how to change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdtrue.cli.door import DEGRADED, DONE, Door, command_of, common, holdtrue, inner_door
from holdtrue.errors import InvalidInput, ModelUnavailable

if TYPE_CHECKING:
    from holdtrue.config import Found, Setting

_KEYS_SHOWN = 20


@holdtrue.group("config")
@common
@click.pass_context
def config(context: click.Context, store: str | None, as_json: bool) -> None:
    """Show and change the settings.

    A setting is its variable HOLDTRUE_..., else its key in the config file, else its default.
    """
    context.obj = inner_door(context, store, as_json)


@command_of(config)
def list_command(door: Door, /) -> int:
    """List every setting: its value, where that comes from, and what it may be."""
    from holdtrue.config import SETTINGS, look_up

    lookup = look_up()
    rows = [_described(door, row, lookup.found[row.name]) for row in SETTINGS.values()]
    printer = door.printer
    if door.as_json:
        printer.document(
            {
                "path": str(lookup.path),
                "settings": rows,
                "unknown": list(lookup.unknown),
                "problems": lookup.problems,
            }
        )
    else:
        for row in rows:
            source = printer.style(f"({row['source']})", "dim")
            printer.line(f"{printer.style(row['name'], 'bold')} = {_plain(row['value'])}  {source}")
            printer.line(f"    {row['sentence']} {_sentence(row['allowed'])} {row['variable']}")
        printer.line()
        printer.line(printer.style(f"Config file: {_plain(str(lookup.path))}", "dim"))
        if lookup.unknown:
            shown = ", ".join(_plain(key) for key in lookup.unknown[:_KEYS_SHOWN])
            more = f" and {len(lookup.unknown) - _KEYS_SHOWN} more" if len(lookup.unknown) > _KEYS_SHOWN else ""
            printer.line(f"Keys in it that are no settings, kept as they are: {shown}{more}")
    printer.notices(lookup.problems)
    return DEGRADED if lookup.problems else DONE


@command_of(config)
@click.argument("name")
def get(door: Door, /, name: str) -> int:
    """Show the value of one setting."""
    from holdtrue.config import look_up

    row = _setting(name)
    lookup = look_up()
    found = lookup.found[row.name]
    problems = [sentence for sentence in (lookup.file_problem, found.problem) if sentence]
    described = _described(door, row, found)
    if door.as_json:
        door.printer.document({**described, "problems": problems})
    else:
        door.printer.line(_plain(described["value"]))
    door.printer.notices(problems)
    return DEGRADED if problems else DONE


@command_of(config)
@click.argument("name")
@click.argument("value")
def set_command(door: Door, /, name: str, value: str) -> int:
    """Write a setting to the config file. Its other keys stay as they are.

    `holdtrue config list` shows each NAME and what its VALUE may be.
    """
    import os

    from holdtrue.configfile import ConfigFile

    row = _setting(name)
    checked = _checked(row, value)
    file = ConfigFile.of()
    file.set(row.name, checked)
    over = row.variable if os.environ.get(row.variable, "").strip() else None
    if door.as_json:
        door.printer.document({"name": row.name, "value": checked, "path": str(file.path), "overridden_by": over})
        return DONE
    door.printer.line(f"{row.name} = {_plain(checked)}  in {_plain(str(file.path))}")
    if over:
        door.printer.line(f"{over} is set as well and goes before the file.")
    return DONE


@command_of(config)
@click.argument("name")
def unset(door: Door, /, name: str) -> int:
    """Take a key out of the config file, also one that is no setting."""
    from holdtrue.configfile import ConfigFile

    file = ConfigFile.of()
    removed = file.unset(name)
    if not removed:
        _setting(name)  # what is neither a setting nor a key is a slip of the pen
    if door.as_json:
        door.printer.document({"name": name, "removed": removed, "path": str(file.path)})
    else:
        done = "removed from" if removed else "is not in"
        door.printer.line(f"{_plain(name)} {done} {_plain(str(file.path))}")
    return DONE


@command_of(config)
def path(door: Door, /) -> int:
    """Show where the config file lies, or would lie."""
    from holdtrue.configfile import ConfigFile

    where = ConfigFile.of().path
    if door.as_json:
        door.printer.document({"path": str(where)})
    else:
        door.printer.line(_plain(str(where)))
    return DONE


def _setting(name: str) -> Setting:
    from holdtrue.config import SETTINGS

    if name not in SETTINGS:
        raise InvalidInput(f"There is no setting {name[:80]!a}.", hint=f"The settings are: {', '.join(SETTINGS)}.")
    return SETTINGS[name]


def _checked(row: Setting, text: str) -> Any:
    """The value as the file holds it. Raises `InvalidInput` with what is allowed."""
    try:
        value = row.kind.to_json(row.kind.of_text(text.strip()))
        row.kind.of_json(value)  # the file takes less than a variable does: no folder seen from the current one
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{row.name} cannot be {text[:80]!a}.", hint=f"It must be {row.kind.allowed}.") from error
    if row.name == "tier":
        from holdtrue.models import load_embedder

        try:
            load_embedder(value)
        except ModelUnavailable:
            pass  # the name is right, and what it needs may be installed later
    return value


def _described(door: Door, row: Setting, found: Found) -> dict[str, Any]:
    value: Any = found.value
    source: str = found.source
    if row.name == "home":
        from holdtrue.config import Settings, store_folder

        value = store_folder(door.store, Settings(home=value))
        source = source if door.store is None else "option"
    plain = row.shown(None) if value is None else row.kind.to_json(value)
    default = row.shown(None) if row.default is None else row.kind.to_json(row.default)
    return {
        "name": row.name,
        "value": plain,
        "source": source,
        "default": default,
        "allowed": row.kind.allowed,
        "variable": row.variable,
        "sentence": row.sentence,
    }


def _plain(value: Any) -> str:
    from holdtrue.controls import one_line

    return str(value).lower() if isinstance(value, bool) else one_line(str(value))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
