"""The commands of the documents exist, and have the options and arguments that a page writes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from streamgroups_cli.command_line import app
from unit_tests.documents import PAGES

#: An indented line of a block of code with a command, after the prompt and variables of the environment.
_COMMAND = re.compile(r"[ ]+(?:\$ )?(?:[A-Z_]+=\S+ )*streamgroups (\w.*)")
_END = re.compile(r"\s(?:\||>|<|&&|;|#)\s.*|\s*[;&)]+$|\s2>.*")


def _commands() -> Iterator[tuple[str, str]]:
    # The generated pages contain usages, such as ``groups list [OPTIONS]``.
    for page in (it for it in PAGES if it.parent.name != "reference"):
        lines = page.read_text(encoding="utf-8").replace("\\\n", " ").split("\n")
        for number, line in enumerate(lines, 1):
            if found := _COMMAND.fullmatch(line):
                yield f"{page.name}:{number}", _END.sub("", found.group(1))


COMMANDS = list(_commands())


def test_the_documents_have_commands() -> None:
    assert len(COMMANDS) > 40


@pytest.mark.parametrize("line", [line for _, line in COMMANDS], ids=[place for place, _ in COMMANDS])
def test_a_documented_command_exists(line: str) -> None:
    command: Any = typer.main.get_command(app)
    words, context = shlex.split(line), None
    while hasattr(command, "commands"):
        with command.make_context(command.name, [], parent=context, resilient_parsing=True) as context:
            _, command, words = command.resolve_command(context, words)
    with command.make_context(command.name, [], parent=context, resilient_parsing=True) as context:
        # Values are checked when the command runs: some pages name files of the reader.
        parsed, rest, _ = command.make_parser(context).parse_args(words)
    assert not rest, f"'{command.name}' has no such arguments"
    required = {it.name for it in command.params if it.param_type_name == "argument" and it.required}
    assert all(parsed.get(name) for name in required)
