"""Rejects empty values in the command line: an unset variable of a shell is one.

:mod:`streamgroups_cli.lazy_commands` applies it to every command. Without it, ``--group "$GROUP"`` would select another
group, or ``--to "$DIRECTORY"`` the current directory. Source: the method ``process_value`` of Click's ``Parameter``, which
receives each value as text. All releases of Typer have it, with Click and with a copy of it.
"""

from __future__ import annotations

from typing import Any

from streamgroups.errors import InvalidOption


def reject_empty(command: Any) -> None:
    """Makes a command reject empty options and arguments.

    Args:
        command: the command, as Typer has made it.
    """
    for param in command.params:
        _check(param)


def _check(param: Any) -> None:
    process = param.process_value

    def checked(context: Any, value: Any) -> Any:
        values = value if isinstance(value, list | tuple) else (value,)
        if "" in values and param.default != "":
            raise InvalidOption(
                f"{_name(param)} is empty.",
                remedy="Set a value, or omit it. An unset variable of a shell is empty too.",
            )
        return process(context, value)

    param.process_value = checked


def _name(param: Any) -> str:
    if param.param_type_name == "option":
        return f"Option '{max(param.opts, key=len)}'"
    return f"Argument {param.metavar or param.name.upper()}"
