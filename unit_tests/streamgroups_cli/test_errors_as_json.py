"""Errors under ``-o json``: one object, the exit code of the text form, and what every command has in common."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from streamgroups._version import __version__
from streamgroups.errors import DataLoss, PartitionsAdded, StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups_cli.command_line import app
from streamgroups_cli.exits import ExitCode, exit_code
from streamgroups_cli.output import is_json_requested
from unit_tests.cli_runner import CommandLine

JSON = ["-o", "json"]


def commands() -> Iterator[list[str]]:
    """The words of every command and group of commands."""

    def below(command: Any, path: list[str]) -> Iterator[list[str]]:
        yield path
        if hasattr(command, "list_commands"):
            context = command.context_class(command)
            for name in command.list_commands(context):
                yield from below(command.get_command(context, name), [*path, name])

    yield from below(typer.main.get_command(app), [])


COMMANDS = list(commands())


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ["groups", "describe", "unknown"],
            ExitCode.ERROR,
            {"class": "UnknownGroup", "code": "unknown_group", "group": "unknown"},
        ),
        (
            ["topics", "tail", "gone"],
            ExitCode.ERROR,
            {"class": "UnknownTopic", "code": "unknown_topic", "topic": "gone"},
        ),
        (["groups", "describe"], ExitCode.USAGE, {"class": "InvalidOption", "code": "invalid_option"}),
        (["groups", "describe", "unknown", "--timeout", "soon"], ExitCode.USAGE, {"class": "InvalidOption"}),
        (["groups", "list", "--bogus"], ExitCode.USAGE, {"class": "InvalidOption"}),
        (["groups", "fly"], ExitCode.USAGE, {"class": "InvalidOption"}),
        (["doctor", "--kafka", "nonsense"], ExitCode.USAGE, {"class": "InvalidOption"}),
        (
            ["groups", "reset", "board", "--topic", "flights:7", "--to-offset", "0"],
            ExitCode.ERROR,
            {"class": "UnknownTopic", "topic": "flights", "partition": 7},
        ),
    ],
)
def test_an_error_is_one_object_on_standard_error(
    cli: CommandLine, arguments: list[str], code: ExitCode, error: dict[str, Any]
) -> None:
    cli.cluster.create_topic("flights")
    as_text, as_json = cli(*arguments), cli(*arguments, *JSON)
    assert (as_text.code, as_json.code) == (code, code)
    document = json.loads(as_json.err.splitlines()[-1])
    assert document["schema_version"] == 1
    assert error.items() <= document["error"].items()
    assert set(document["error"]) - {"group", "topic", "partition"} == {
        "class",
        "code",
        "message",
        "remedy",
        "retriable",
    }
    assert document["error"]["message"].rstrip(".") in " ".join(as_text.err.replace("│", " ").split())


@pytest.mark.parametrize("arguments", [["groups", "list"], ["topics", "create", "flights"]])
def test_O2_ctrl_c_is_one_object_on_standard_error(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cluster, "check_reachable", interrupt)
    as_text, as_json = cli(*arguments), cli(*arguments, *JSON)
    assert (as_text.code, as_text.err, as_json.code) == (130, "", 130)
    assert json.loads(as_json.err)["error"]["message"] == "The command was interrupted."


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("arguments", [["--version"], ["metrics", "--dashboard"]])
def test_O2_a_full_disk_is_an_error_without_a_traceback(arguments: list[str]) -> None:
    command = [sys.executable, "-c", "from streamgroups_cli import main; main()", *arguments]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (result.returncode, result.stderr.decode()) == (
        1,
        "Error: The system has failed: No space left on device. Check the output of the command, its disk and permissions.\n",
    )


def test_O2_a_reader_that_has_ended_is_no_error() -> None:
    command = [sys.executable, "-c", "from streamgroups_cli import main; main()", "metrics", "--dashboard"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    finally:
        os.close(writer)
    assert (result.stderr, result.returncode) == (b"", 1)


@pytest.mark.parametrize("output", ["table", "json", "yaml", "csv"])
def test_O2_a_name_is_printed_in_every_locale(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    cli.cluster.create_topic("flights")
    cli.cluster.commit("zürich", {TopicPartition("flights", 0): 0})
    cli.cluster.commit("other", {TopicPartition("flights", 0): 0})
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    result = cli("groups", "list", "-o", output)
    text = written.getvalue().decode()
    assert (result.code, "other" in text, "zürich" in text) == (0, True, True), result.err
    if output == "json":
        assert [it["group"] for it in json.loads(text)["groups"]] == ["other", "zürich"]


def test_O2_json_on_a_terminal_without_utf_8_is_ascii(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.cluster.create_topic("flights")
    cli.cluster.commit("zürich", {TopicPartition("flights", 0): 0})
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    assert cli("groups", "list", "-o", "json").code == 0
    assert json.loads(written.getvalue().decode("ascii"))["groups"][0]["group"] == "zürich"
    assert cli("groups", "list").code == 0
    assert b"z\\xfcrich" in written.getvalue()


def test_a_result_is_the_same_whether_errors_are_json() -> None:
    assert not is_json_requested(["groups", "list", "-o", "yaml", "json"])
    assert all(
        map(is_json_requested, (["-o", "JSON"], ["-ojson"], ["-vo", "json"], ["--output", "json"], ["--output=json"]))
    )


def test_what_an_error_is_about_survives_pickling_and_new_words() -> None:
    error = DataLoss("flights-3 has no offset 5.", group="board", topic="flights", partition=3)
    for copy in (pickle.loads(pickle.dumps(error)), error.with_text(error.what, "")):
        assert isinstance(copy, StreamGroupsError)
        assert copy.document == error.document
    assert error.document["partition"] == 3


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_a_short_flag_for_help(cli: CommandLine, path: list[str]) -> None:
    assert cli(*path, "-h").out == cli(*path, "--help").out
    assert cli(*path, "-h").code == 0


def test_the_version(cli: CommandLine) -> None:
    assert cli("--version").out == f"streamgroups {__version__}\n"


def test_one_flag_means_one_thing_in_all_commands() -> None:
    """Flags with one name have one form: ``-b`` and ``-o`` belong to all commands that have a cluster or a result."""
    root = typer.main.get_command(app)
    seen: dict[str, set[tuple[str, ...]]] = {}
    types: dict[str, set[str]] = {}
    for path in COMMANDS:
        command: Any = root
        for name in path:
            command = command.get_command(command.context_class(command), name)
        for parameter in command.params:
            for flag in parameter.opts if parameter.param_type_name == "option" else ():
                seen.setdefault(flag, set()).add(tuple(sorted(parameter.opts)))
                types.setdefault(flag, set()).add(str(parameter.metavar))
    assert seen["-b"] == {("--bootstrap-server", "-b")} == seen["--bootstrap-server"]
    assert seen["-o"] == {("--output", "-o")} == seen["--output"]
    # How many records: the last ones of a topic, the next ones of a cursor. ``-f`` follows a topic, as in ``tail``, and names
    # the files of processors, as in ``kubectl``.
    assert {flag for flag, forms in seen.items() if len(forms) > 1} == {"-n", "-f"}
    for flag in ("--timeout", "--interval", "--window", "--wait", "--lease-timeout"):
        assert types[flag] == {"DURATION"}


def test_O2_a_reset_with_state_of_fewer_partitions_is_rejected() -> None:
    assert exit_code(PartitionsAdded("Topic 'flights' has 8 partitions.")) is ExitCode.REJECTED
