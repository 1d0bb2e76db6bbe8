"""What groups and their clients call themselves drives no terminal and forges no line of a log."""

from __future__ import annotations

import pytest

from streamgroups.errors import EmbeddedBrokerError, GroupRejected
from streamgroups.groups.description import GroupMember
from streamgroups.partitions import TopicPartition
from unit_tests.cli_runner import CommandLine

ESCAPE = "\x1b]0;mine\x07\x1b[2J\n\x9b31m"


@pytest.fixture
def hostile(cli: CommandLine) -> CommandLine:
    cli.cluster.create_topic("flights", 1)
    cli.cluster.produce(TopicPartition("flights", 0), 10)
    cli.join("g" + ESCAPE, "flights", "c" + ESCAPE)
    cli.join("plain", "flights", "c" + ESCAPE)
    return cli


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "list"],
        ["groups", "describe", "plain"],
        ["groups", "describe", "--all-groups"],
        ["groups", "describe", "--all-groups", "--members"],
        ["groups", "describe", "--all-groups", "-o", "json"],
        ["groups", "describe", "--all-groups", "-o", "yaml"],
        ["groups", "reset", "plain", "--topic", "flights", "--to-earliest", "--execute"],
        ["groups", "reset", "g" + ESCAPE, "--topic", "flights", "--to-earliest", "--execute"],
        ["groups", "delete", "plain", "g" + ESCAPE, "--execute"],
        ["groups", "export", "g" + ESCAPE, "--file", "/nowhere/x"],
        ["groups", "watch", "--count", "1"],
        ["groups", "watch", "--count", "1", "-o", "json"],
        ["topics", "describe", "flights", "--groups"],
    ],
    ids=lambda arguments: " ".join(arguments).partition("\x1b")[0],
)
def test_no_command_prints_them_raw(hostile: CommandLine, arguments: list[str]) -> None:
    result = hostile(*arguments)
    assert result.out + result.err
    for control in ("\x1b", "\x07", "\x9b"):
        assert control not in result.out + result.err


def test_an_error_is_one_line() -> None:
    assert str(GroupRejected(f"Group 'g{ESCAPE}' is in use.", remedy="Wait.")) == (
        r"Group 'g\x1b]0;mine\x07\x1b[2J\x0a\x9b31m' is in use. Wait."
    )
    assert str(EmbeddedBrokerError("It ended:\nno luck")) == "It ended:\nno luck"


def test_a_member_is_shown_without_control_characters() -> None:
    assert str(GroupMember("c\n\x1b", "/10.0.0.2")) == r"c\x0a\x1b (/10.0.0.2)"
