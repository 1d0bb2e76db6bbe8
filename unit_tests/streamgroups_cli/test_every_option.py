"""An option that no test gives may do anything, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from streamgroups_cli.command_line import app

_TESTS = Path(__file__).parent.parent.parent
_TEXTS = [
    path.read_text(encoding="utf-8")
    for folder in ("unit_tests", "component_tests", "integration_tests")
    for path in sorted((_TESTS / folder).rglob("*.py"))
    if path != Path(__file__)
]


def _options(command: Any, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each option: the command, and its names, including the negative ones."""
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from _options(command.get_command(context, name), f"{path} {name}")
        return
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield path, (*parameter.opts, *parameter.secondary_opts)


OPTIONS = sorted(set(_options(typer.main.get_command(app), "streamgroups")))


def test_there_are_options() -> None:
    assert len(OPTIONS) > 100


@pytest.mark.parametrize(("command", "names"), OPTIONS, ids=lambda value: str(value).rsplit(" ", 1)[-1])
def test_a_test_gives_it(command: str, names: tuple[str, ...]) -> None:
    words = [name for name in names if name.startswith("-")]
    assert any(f'"{word}"' in text or f" {word} " in text for word in words for text in _TEXTS), command
