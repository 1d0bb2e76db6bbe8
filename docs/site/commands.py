"""The directive ``commands``: the reference of a command group, from the commands themselves.

Sphinx loads this extension (``docs/conf.py``). ``.. commands:: groups`` documents each command of ``streamgroups groups``
with its help text, its usage and its options, as ``--help`` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from streamgroups_cli.command_line import app as command_line

_PROGRAM = "streamgroups"


class Commands(SphinxDirective):
    """Documents the commands of a group, or of the program itself."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        # The page depends on the code, so each build reads it again.
        self.env.note_reread()
        names = self.arguments[0].split() if self.arguments else []
        command: Any = typer.main.get_command(command_line)
        for name in names:
            command = command.commands[name]
        section = nodes.Element()
        lines = StringList([line for found in _described(command, [_PROGRAM, *names]) for line in found.split("\n")])
        self.state.nested_parse(lines, self.content_offset, section, match_titles=True)
        return section.children


def _described(command: Any, path: list[str]) -> Iterator[str]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield from _command(command, path)
        return
    for name in commands:
        if not commands[name].hidden:
            yield from _described(commands[name], [*path, name])


def _command(command: Any, path: list[str]) -> Iterator[str]:
    title = " ".join(path)
    with command.make_context(title, [], resilient_parsing=True) as context:
        usage = command.get_usage(context).removeprefix("Usage:").strip()
    yield f"{title}\n{'-' * len(title)}\n\n{_prose(command.help or '')}\n\n::\n\n    {usage}\n\n"
    rows = [row for row in map(_parameter, command.params) if row]
    if rows:
        yield ".. list-table::\n   :widths: 35 65\n   :header-rows: 1\n\n   * - Option\n     - Meaning"
        for name, meaning in rows:
            yield f"   * - {name}\n     - {meaning}"
        yield "\n"


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


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
