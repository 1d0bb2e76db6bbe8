"""Commands that are imported when they are called, so that a command starts without the imports of other commands.

``streamgroups_cli`` and its command groups use it. Typer creates a parser for every command at each call, and each file
defines its tables and classes at its import. Together that was half of the time of ``groups list``. A named command
imports only its own file; ``--help`` of a group imports all of them, for their first lines. Source: Typer's
``TyperGroup``, whose ``commands`` is a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from streamgroups_cli.exits import Interrupted
from streamgroups_cli.strict_values import check_values


def lazy_app(help_: str, places: Mapping[str, str], **settings: Any) -> typer.Typer:
    """Returns a group of commands.

    Args:
        help_: the help text of the group.
        places: the function of each command, or the ``typer.Typer`` of a group, as ``module:name`` by the command's
            name.
        **settings: other arguments of ``typer.Typer``.

    >>> group = typer.main.get_command(lazy_app("Look.", {"list": "streamgroups_cli.groups.listing:list_groups"}))
    >>> list(group.commands), group.commands["list"].name
    (['list'], 'list')
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            # Typer fills a dict of its own; this one imports its commands itself.
            self.commands = _Commands(places)  # type: ignore[assignment]

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as e:
                # Typer would replace it by an exit without the error.
                raise Interrupted(e) from e

    # Typer treats an app with a callback as a group.
    settings.setdefault("callback", lambda: None)
    return typer.Typer(help=help_, cls=LazyGroup, no_args_is_help=True, **settings)


class _Commands(Mapping[str, Any]):
    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, self._places[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _command(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(module), attribute)
    holder = typer.Typer()
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    command = typer.main.get_group(holder).commands[name]
    check_values(command)
    return command
