"""The page of the reference about the commands, from the commands themselves.

``reference`` calls it. Each command has its help text, its usage and its options, as ``--help`` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from markup import heading, literal, table

from streamgroups_cli.command_line import app as command_line

_PROGRAM = "streamgroups"
_INTRODUCTION = """\
The program ``streamgroups`` needs the extra ``cli``. ``-b`` names the brokers, and ``-o json`` prints JSON for scripts.
`groups-cli.rst <../groups-cli.rst>`_, `dlq-cli.rst <../dlq-cli.rst>`_ and `cursors-cli.rst <../cursors-cli.rst>`_ describe
their use.

"""


def page() -> str:
    """The text of the page."""
    command: Any = typer.main.get_command(command_line)
    return heading("Commands", "=") + _INTRODUCTION + "".join(_described(command, [_PROGRAM]))


def _described(command: Any, path: list[str]) -> Iterator[str]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield _command(command, path)
        return
    for name in commands:
        if not commands[name].hidden:
            yield from _described(commands[name], [*path, name])


def _command(command: Any, path: list[str]) -> str:
    title = " ".join(path)
    usage = " ".join([title, "[OPTIONS]", *filter(None, map(_argument, command.params))])
    text = heading(title, "-") + _prose(command.help or "") + "\n\n" + literal(usage)
    rows = [row for row in map(_parameter, command.params) if row]
    return text + (table(["Option", "Meaning"], [35, 65], rows) if rows else "")


def _argument(parameter: Any) -> str:
    """An argument in a usage. Releases of Typer write it in different ways."""
    if parameter.param_type_name != "argument":
        return ""
    name = parameter.metavar or parameter.name.upper()
    if name.startswith("["):
        return str(name)
    return (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else "")


def _parameter(parameter: Any) -> tuple[str, str] | None:
    if getattr(parameter, "hidden", False):
        return None
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [parameter.metavar or parameter.name.upper()]
    text = " ".join((getattr(parameter, "help", None) or "").split())
    default = getattr(parameter, "show_default", None)
    value = getattr(parameter.default, "value", parameter.default)
    value = f" Default: ``{value}``." if default is not False and _is_shown(value) else ""
    return ", ".join(f"``{name}``" for name in names), (_prose(text).replace("\n", " ") or "\\") + value


def _is_shown(default: Any) -> bool:
    return default not in (None, False, True, (), "") and not callable(default) and "UNSET" not in str(default).upper()


def _prose(text: str) -> str:
    """Removes the markup of rich, and quotes options, which would be dashes otherwise."""
    text = re.sub(r"\[/?[a-z_ ]+\]", "", text).replace("\b", "").replace("\\[", "[")
    text = re.sub(r"(?<![`\w-])(--?[a-zA-Z][\w-]*)", r"``\1``", text)
    return re.sub(r"(?<!`)([*|_])(?=\w)", r"\\\1", text)
