"""G17: a list of groups omits those whose partition of ``__consumer_offsets`` has no leader, and the commands warn of it."""

from __future__ import annotations

import pytest

from streamgroups.errors import BrokerUnreachable, NotAuthorized, StreamGroupsError
from streamgroups.groups.unused_groups import OFFSETS_TOPIC
from streamgroups.partitions import TopicPartition
from streamgroups_admin.cluster import Cluster
from streamgroups_cli import metrics
from streamgroups_cli.groups.unlisted_groups import UnlistedGroups
from streamgroups_kafka.client.config import ClientConfig
from unit_tests.cli_runner import CommandLine

NO_LEADER = BrokerUnreachable("It has no leader.")
#: The commands that process all groups.
COMMANDS = [
    ("groups", "list"),
    ("groups", "describe", "--all-groups"),
    ("groups", "export", "--all-groups"),
    ("groups", "reset", "--all-groups", "--all-topics", "--to-latest"),
    ("groups", "delete", "--all-groups"),
    ("gaps",),
]
WARNING = (
    "Warning: Groups can be missing. The brokers do not list the groups of partitions of __consumer_offsets without a leader: "
    "1, 2. Try again later.\n"
)


@pytest.fixture
def restarting(cli: CommandLine) -> CommandLine:
    """A cluster with a broker that restarts."""
    cli.cluster.create_topic("flights")
    cli.cluster.create_topic(OFFSETS_TOPIC, 4)
    cli.cluster.commit("board", {TopicPartition("flights", 0): 0})
    for number in (1, 2):
        cli.cluster.rejections[TopicPartition(OFFSETS_TOPIC, number)] = NO_LEADER
    return cli


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_G17_missing_groups_are_a_warning(restarting: CommandLine, command: tuple[str, ...]) -> None:
    result = restarting(*command)
    assert (result.code, result.err.count(WARNING)) == (0, 1), result.err
    restarting.cluster.rejections.clear()
    assert WARNING not in restarting(*command).err


@pytest.mark.parametrize("command", [("groups", "describe", "board"), ("gaps", "board")], ids=" ".join)
def test_a_command_with_named_groups_lists_none(restarting: CommandLine, command: tuple[str, ...]) -> None:
    assert WARNING not in restarting(*command).err


@pytest.mark.parametrize(
    ("error", "warned"), [(NotAuthorized("It is denied."), False), (StreamGroupsError("It is unknown."), True)]
)
def test_a_list_of_groups_does_not_need_the_check(
    restarting: CommandLine, error: StreamGroupsError, warned: bool
) -> None:
    restarting.cluster.rejections[OFFSETS_TOPIC] = error
    result = restarting("groups", "list")
    assert (result.code, "board" in result.out) == (0, True)
    expected = "Warning: It is unknown whether all groups are listed. It is unknown.\n" if warned else ""
    assert result.err == expected


def test_a_repeated_check_warns_once(restarting: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    admin = restarting.admin
    cluster = Cluster(ClientConfig(()), admin, admin, {}, restarting.clock, print)
    unlisted = UnlistedGroups()

    def printed() -> str:
        unlisted.check(cluster)
        return capsys.readouterr().err

    assert [printed(), printed()] == [WARNING, ""]
    restarting.cluster.rejections.clear()
    assert printed() == ""
    restarting.cluster.rejections[TopicPartition(OFFSETS_TOPIC, 1)] = NO_LEADER
    assert "without a leader: 1." in printed()


@pytest.mark.parametrize("groups", [[], ["board"]])
def test_G17_the_exporter_warns(restarting: CommandLine, monkeypatch: pytest.MonkeyPatch, groups: list[str]) -> None:
    """Also of a named group the recorded gaps can be missing."""
    monkeypatch.setattr(metrics, "_refresh_until_stopped", lambda repeated: [refresh() for _, refresh in repeated])
    result = restarting("metrics", *groups, "--listen", "127.0.0.1:0")
    assert (result.code, result.err.count(WARNING)) == (0, 1), result.err
