"""A group of commands that imports the module of a command when that command is asked for.

Reading every module of the gate costs more than many of its commands do.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """`modules` names, for each command that is not added by hand, the module that defines it."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which they were named."""
        return [*self.commands, *(name for name in self.modules if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported at the first call."""
        if cmd_name not in self.commands and cmd_name in self.modules:
            module = importlib.import_module(self.modules[cmd_name])
            found = (value for value in vars(module).values() if isinstance(value, click.Command))
            self.add_command(next(command for command in found if command.name == cmd_name))
        return self.commands.get(cmd_name)
