"""Rejects values of the command line that mean something else than their user expects: empty ones, and numbers such as 1_0.

:mod:`streamgroups_cli.lazy_commands` applies it to every command. Without it, ``--group "$GROUP"`` with an unset variable
would select another group, and ``--to "$DIRECTORY"`` the current directory. Source: the method ``process_value`` of Click's
``Parameter``, which receives each value as text. All releases of Typer have it, with Click and with a copy of it.
"""

from __future__ import annotations

from typing import Any

import typer

from streamgroups.errors import InvalidOption


def check_values(command: Any) -> None:
    """Makes a command, and the commands below it, reject such values of its options and arguments.

    Args:
        command: the command, as Typer has made it.
    """
    # A program receives the arguments after its name unchanged.
    passes_on = not command.context_settings.get("allow_interspersed_args", True)
    for param in command.params:
        if not (passes_on and param.nargs == -1):
            _check(param)
    below = getattr(command, "commands", {})
    # A lazy group checks its commands when it imports them.
    for it in below.values() if isinstance(below, dict) else ():
        check_values(it)


def _check(param: Any) -> None:
    process = param.process_value

    def checked(context: Any, value: Any) -> Any:
        texts = _listed(value)
        # Commands explain an empty value that is also the default.
        if "" in texts and param.default != "":
            raise InvalidOption(
                f"{_name(param)} is empty.",
                remedy="Set a value, or omit it. An unset variable of a shell is empty too.",
            )
        found = process(context, value)
        if any(map(_is_number, _listed(found))) and any(isinstance(it, str) and not _is_plain(it) for it in texts):
            raise typer.BadParameter("It is not a number.", ctx=context, param=param)
        return found

    param.process_value = checked


def _listed(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else (value,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(text: str) -> bool:
    """Whether a number has only the characters of JSON. Python also accepts other digits, and 1_0 as 10.

    >>> _is_plain("-1.5e3"), _is_plain("1_0")
    (True, False)
    """
    return text.isascii() and "_" not in text


def _name(param: Any) -> str:
    if param.param_type_name == "option":
        return f"Option '{max(param.opts, key=len)}'"
    return f"Argument {param.metavar or param.name.upper()}"
