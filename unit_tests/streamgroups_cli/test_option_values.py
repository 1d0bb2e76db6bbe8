"""Each option with a type rejects an invalid value in the words of this library, not in those of a parser."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer

from streamgroups_cli.command_line import _types, app
from unit_tests.cli_runner import CommandLine


def below(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    context = command.context_class(command)
    for name in command.list_commands(context):
        yield from below(command.get_command(context, name), [*path, name])


def typed_options() -> Iterator[tuple[list[str], str]]:
    """The command, with its required arguments, and the name of each option that is a number or one of some words."""
    for path, command in below(typer.main.get_command(app), []):
        declared = inspect.signature(command.callback, eval_str=True).parameters
        required = ["a" for it in command.params if it.required and not it.opts[0].startswith("-")]
        for param in command.params:
            found = declared.get(param.name)
            types = set() if found is None else set(_types(found.annotation))
            is_checked = types & {int, float} or any(issubclass(it, Enum) for it in types)
            if is_checked and param.opts[0].startswith("-"):
                yield [*path, *required], max(param.opts, key=len)


OPTIONS = list(typed_options())


@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=[f"{' '.join(c)} {o}" for c, o in OPTIONS])
def test_an_invalid_value(cli: CommandLine, command: list[str], option: str) -> None:
    result = cli(*command, option, "\x1bsoon")
    assert (result.code, result.out) == (2, ""), result.err
    assert result.err.startswith(f"Error: Option '{option}' is '\\x1bsoon'. ")
    assert any(text in result.err for text in ("It must be a", "Allowed values: "))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["groups", "reset", "x", "--all-topics", "--shift-by", "abc"],
            "'--shift-by' is 'abc'. It must be a whole number.",
        ),
        (
            ["topics", "create", "x", "--partitions=0"],
            "'--partitions' is '0'. It must be a whole number from 1 to 2147483647.",
        ),
        (["broker", "run", "--nodes", "4"], "'--nodes' is '4'. It must be a whole number from 1 to 3."),
        (
            ["topics", "create", "x", "--partitions", "1000000000000"],
            "'--partitions' is '1000000000000'. It must be a whole number from 1 to 2147483647.",
        ),
        (
            ["topics", "create", "x", "--replication-factor", "40000"],
            "'--replication-factor' is '40000'. It must be a whole number from 1 to 32767.",
        ),
        (
            ["topics", "tail", "x", "-n", "10000000000000000000"],
            "'--last' is '10000000000000000000'. It must be a whole number from 0 to 2147483647.",
        ),
        (["topics", "tail", "x", "-n", "1_0"], "'--last' is '1_0'. It must be a whole number from 0 to"),
        (
            ["groups", "reset", "x", "--all-topics", "--to-offset", "1_0"],
            "'--to-offset' is '1_0'. It must be a whole number",
        ),
        (["topics", "produce", "x", "--rate", "1_0"], "'--rate' is '1_0'. It must be a number"),
        (["topics", "produce", "x", "--rate", "1e-20"], "'--rate' is 1e-20. It must be at least 0.001."),
        (["topics", "produce", "x", "--timeout", "25d"], "'--timeout' is '25d'. It must be at most 1h."),
        (["groups", "list", "--timeout", "61m"], "'--timeout' is '61m'. It must be at most 1h."),
        (["dlq", "list", "x", "-n0"], "'--limit' is '0'. It must be a whole number of at least 1."),
        (["groups", "list", "-o", "xml"], "'--output' is 'xml'. Allowed values: table, json, yaml, csv."),
        (
            ["dlq", "stats", "x", "--by", "no", "--by", "hour"],
            "'--by' has an invalid value. Allowed values: step, error",
        ),
    ],
)
def test_the_value_and_the_allowed_ones_are_named(cli: CommandLine, arguments: list[str], message: str) -> None:
    result = cli(*arguments)
    assert (result.code, result.err.startswith(f"Error: Option {message}")) == (2, True), result.err


def texts() -> Iterator[tuple[list[str], str]]:
    """The command, with its required arguments, and the name of each option or argument that is a text or a path."""
    for path, command in below(typer.main.get_command(app), []):
        declared = inspect.signature(command.callback, eval_str=True).parameters
        required = ["a" for it in command.params if it.required and not it.opts[0].startswith("-")]
        for param in command.params:
            found = declared.get(param.name)
            if found is None or not {str, Path} & set(_types(found.annotation)) or param.default == "":
                continue
            others = [it for it in command.params if it.required and it.opts[0].startswith("-") and it is not param]
            required_options = [word for it in others for word in (max(it.opts, key=len), "a")]
            if param.opts[0].startswith("-"):
                given = [*required_options, max(param.opts, key=len), ""]
                yield [*path, *given, *required], f"Option '{max(param.opts, key=len)}'"
            elif param is next(it for it in command.params if not it.opts[0].startswith("-")):
                yield [*path, "", *required[1:], *required_options], f"Argument {param.metavar or param.name.upper()}"


TEXTS = list(texts())


@pytest.mark.parametrize(("command", "name"), TEXTS, ids=[" ".join(c) for c, _ in TEXTS])
def test_O2_an_empty_value_selects_nothing_else(cli: CommandLine, command: list[str], name: str) -> None:
    result = cli(*command)
    assert (result.code, result.out, result.err.startswith(f"Error: {name} is empty. Set a value")) == (2, "", True)


def test_a_setting_of_the_command_line_is_given_once(cli: CommandLine) -> None:
    for other in ("kafka.Client.Rack", "client.rack"):
        result = cli("groups", "list", "-b", "a:1", "--kafka", "client.rack=a", "--kafka", f"{other}=b")
        assert result.code == 2
        assert f"'client.rack' and '{other.removeprefix('kafka.')}' are the same option" in result.err


def test_programs_get_the_same_error(cli: CommandLine) -> None:
    result = cli("topics", "create", "x", "--partitions", "many", "-o", "json")
    error = json.loads(result.err)["error"]
    assert (result.code, error["class"]) == (2, "InvalidOption")
    assert (error["message"], error["remedy"]) == (
        "Option '--partitions' is 'many'.",
        "It must be a whole number from 1 to 2147483647.",
    )
