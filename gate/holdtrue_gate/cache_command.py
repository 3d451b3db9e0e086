"""`gate cache`: what is kept of earlier replays, and forgetting it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from holdtrue_gate.cache import Cache
from holdtrue_gate.options import guarded, json_option

SCHEMA = "holdtrue.gate.cache-info/1"


@click.group("cache")
def cache_command() -> None:
    """What is kept of earlier replays.

    A check takes the record of a replay from here when nothing that it rests on has changed: the files of the tree, the
    interpreter and what is installed for it, the environment's variables, the options, and the gate itself.
    """


@cache_command.command("info")
@json_option
@guarded
def info_command(as_json: bool) -> None:
    """Say where the cache is and how much it holds."""
    info = Cache().info()
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, **asdict(info)}, indent=2, sort_keys=True))
        return
    click.echo(f"{info.folder}")
    click.echo(f"{info.entries} replays, {info.bytes / 2**20:.1f} MiB of at most {info.limit_bytes / 2**20:.0f} MiB")
    if info.environments:
        click.echo(f"{info.environments} built environments, {info.environment_bytes / 2**20:.0f} MiB")


@cache_command.command("clear")
@json_option
@guarded
def clear_command(as_json: bool) -> None:
    """Remove everything that is kept, environments that were built too."""
    number = Cache().clear()
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "removed": number}, sort_keys=True))
    else:
        click.echo("1 replay removed" if number == 1 else f"{number} replays removed")
