"""``groups sweep``: deletes only groups without members whose last use is known and old."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.errors import BrokerUnreachable, NotAuthorized
from streamgroups.groups.unused_groups import OFFSETS_TOPIC, GroupUse, Verdict, judge, partition_of_group
from streamgroups.partitions import TopicPartition
from unit_tests.cli_runner import CommandLine

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
P0 = TopicPartition("flights", 0)
NO_LEADER = BrokerUnreachable("The partition has no leader.")


@pytest.fixture
def cli(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cli.clock.now_ms = NOW_MS
    cli.cluster.create_topic("flights")
    cli.cluster.create_topic(OFFSETS_TOPIC, 3)
    # The other groups of the cluster commit.
    for number in range(3):
        cli.cluster.produce(TopicPartition(OFFSETS_TOPIC, number), key=b"", timestamp_ms=NOW_MS)
    return cli


def used(cli: CommandLine, group: str, days_ago: float) -> None:
    """A committed offset of a group, and the record that Kafka writes about it."""
    cli.cluster.commit(group, {P0: 5})
    key = struct.pack(f">hh{len(group)}s", 1, len(group), group.encode()) + b"\0\7flights\0\0\0\0"
    to = TopicPartition(OFFSETS_TOPIC, partition_of_group(group, 3))
    cli.cluster.produce(to, key=key, timestamp_ms=int(NOW_MS - days_ago * DAY_MS))


def swept(cli: CommandLine, *options: str) -> dict[str, tuple[str, str]]:
    result = cli("groups", "sweep", "-o", "json", *options)
    assert result.code == 0, result.err
    return {it["group"]: (it["action"], it["reason"]) for it in json.loads(result.out)["groups"]}


def omit(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, group: str | None) -> None:
    """Omits a group from the list of groups."""
    listed = cli.admin.list_groups()
    monkeypatch.setattr(cli.admin, "list_groups", lambda: [it for it in listed if it.group_id != group])


def test_a_name_with_the_suffixes_of_two_metadata_groups_is_a_group_as_others(cli: CommandLine) -> None:
    """Any client that may commit can create such a name."""
    used(cli, "odd.streamgroups.gaps.streamgroups.resets", 40)
    used(cli, "old", 40)
    assert swept(cli)["old"][0] == "delete"


def test_O2_a_clock_that_is_ahead_deletes_no_group(cli: CommandLine) -> None:
    used(cli, "billing", 0)
    used(cli, "old", 40)
    cli.clock.now_ms += 8 * DAY_MS
    result = cli("groups", "sweep", "--execute")
    assert (result.code, existing(cli)) == (0, {"billing"})
    assert "billing  keep    last used 8d ago by the clock of this machine only" in result.out
    assert (
        "The clock of this machine is 8d after the newest record of __consumer_offsets. Groups are kept whose time without use "
        "depends on it. Check the clock with: date -u. If it is right, use --trust-clock." in result.err
    )
    assert swept(cli, "--trust-clock")["billing"] == ("delete", "last used 8d ago")


def existing(cli: CommandLine) -> set[str]:
    return {it.group_id for it in cli.admin.list_groups()}


def test_a_plan_names_each_group_with_its_reason_and_changes_nothing(cli: CommandLine) -> None:
    for group, days in (("old", 40), ("recent", 2), ("gone.streamgroups", 40), ("young.streamgroups", 1)):
        used(cli, group, days)
    used(cli, "noted", 40)
    used(cli, "noted.streamgroups", 3)
    cli.cluster.commit("unknown", {P0: 1})
    used(cli, "running", 40)
    cli.join("running", "flights")
    before = existing(cli)
    assert swept(cli) == {
        "old": ("delete", "last used 40d ago"),
        "recent": ("keep", "last used 2d ago"),
        "gone.streamgroups": ("delete", "group 'gone' does not exist, last used 40d ago"),
        "young.streamgroups": ("keep", "group 'young' does not exist, last used 1d ago"),
        "noted": ("keep", "last used 3d ago"),
        "unknown": ("keep", "the time of its last use is unknown"),
        "running": ("keep", "it is Stable"),
    }
    assert existing(cli) == before
    assert swept(cli, "--older-than", "50d")["old"][0] == "keep"


def test_execute_deletes_the_unused_groups_and_undo_restores_them(cli: CommandLine) -> None:
    for group, days in (("old", 40), ("old.streamgroups", 41), ("recent", 2), ("gone.streamgroups", 40)):
        used(cli, group, days)
    done = cli("groups", "sweep", "--execute")
    assert done.code == 0, done.err
    assert existing(cli) == {"recent"}
    assert "2 groups and 1 metadata group deleted." in done.err
    assert cli("groups", "undo", "old", "--execute").code == 0
    assert "old" in existing(cli)
    assert cli("groups", "sweep", "--execute", "--older-than", "100d").err.endswith("There is nothing to delete.\n")


def test_G17_a_group_whose_offsets_are_hidden_is_kept(cli: CommandLine) -> None:
    for group in ("old", "old.streamgroups", "hidden", "hidden.streamgroups"):
        used(cli, group, 40)
    cli.cluster.create_topic("airports")
    cli.cluster.forget("hidden")
    cli.cluster.commit("hidden", {TopicPartition("airports", 0): 1})
    cli.cluster.rejections["airports"] = NotAuthorized("Not airports.")
    done = cli("groups", "sweep", "--execute")
    assert (done.code, existing(cli)) == (0, {"hidden", "hidden.streamgroups"})
    assert "Group 'hidden' is kept: it shows no committed offset, and no undo file could restore it." in done.err
    assert "streamgroups groups delete --allow-no-offsets hidden" in done.err


@pytest.mark.parametrize(("own_days", "metadata_days"), [(0, 60), (60, 0)])
def test_G15_a_group_is_kept_while_one_of_its_partitions_has_no_leader(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, own_days: int, metadata_days: int
) -> None:
    """As during a rolling restart. The list of groups omits what this partition stores, or has it already."""
    group, other = "fares", gaps_group_of("fares")
    assert partition_of_group(group, 3) != partition_of_group(other, 3)
    used(cli, group, own_days)
    used(cli, other, metadata_days)
    unavailable = group if own_days == 0 else other
    cli.cluster.rejections[TopicPartition(OFFSETS_TOPIC, partition_of_group(unavailable, 3))] = NO_LEADER
    kept = ("keep", "the time of its last use is unknown")
    for omitted in (None, unavailable):
        omit(cli, monkeypatch, omitted)
        assert set(swept(cli, "--execute").values()) == {kept}
        assert f"Partitions of {OFFSETS_TOPIC} are not available" in cli("groups", "sweep").err
    assert set(cli.cluster.group_ids()) == {group, other}


@pytest.mark.parametrize("omitted", ["billing", "billing.streamgroups.gaps"])
def test_G15_a_group_that_the_list_of_groups_omits_exists(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, omitted: str
) -> None:
    """Its coordinator has moved while the brokers were listing their groups."""
    for group, days in (("billing", 60), ("billing.streamgroups.gaps", 60), ("old", 60)):
        used(cli, group, 0 if group == omitted else days)
    omit(cli, monkeypatch, omitted)
    done = cli("groups", "sweep", "--execute")
    reason = "exists" if omitted == "billing" else "has omitted"
    assert (done.code, reason in done.err, "1 group deleted." in done.err) == (0, True, True)
    assert set(cli.cluster.group_ids()) == {"billing", "billing.streamgroups.gaps"}


def test_without_the_topic_of_offsets_everything_is_kept(cli: CommandLine) -> None:
    used(cli, "old", 40)
    cli.cluster.delete_topic(OFFSETS_TOPIC)
    assert swept(cli, "--execute")["old"] == ("keep", "the time of its last use is unknown")
    assert existing(cli) == {"old"}


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (GroupUse("Empty", "share", "", 0), "it is a share group"),
        (GroupUse("Empty", "classic", "connect", 0), "its members are of type connect"),
        (GroupUse("", "", "", 0), "its state is unknown"),
        (GroupUse("PreparingRebalance", "classic", "consumer", 0), "it is PreparingRebalance"),
        (GroupUse("Empty", "classic", "consumer", NOW_MS + DAY_MS), "last used 0s ago"),
    ],
)
def test_any_other_group_is_kept(use: GroupUse, reason: str) -> None:
    assert judge(use, DAY_MS, NOW_MS) == Verdict(False, reason)
