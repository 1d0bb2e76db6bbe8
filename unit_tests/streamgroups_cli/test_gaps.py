"""O4: ``streamgroups gaps`` lists what running queries recorded, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.gaps import Cause, Gap, Gaps
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from unit_tests.cli_runner import CommandLine

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
A, B = TopicIdentity("cluster-1", "topic-1"), TopicIdentity("cluster-1", "topic-2")
NAMES = [
    "group",
    "topic",
    "partition",
    "from_offset",
    "to_offset",
    "lost_offsets",
    "cause",
    "time",
    "topic_id",
    "new_topic_id",
    "cluster_id",
    "new_cluster_id",
]
EXPIRED = [
    "board",
    "flights",
    0,
    10,
    15,
    5,
    "expired",
    "1970-01-01T00:00:01.000Z",
    "topic-1",
    "topic-1",
    "cluster-1",
    "cluster-1",
]
RECREATED = [
    "board",
    "flights",
    0,
    20,
    0,
    None,
    "recreated",
    "1970-01-01T00:00:02.000Z",
    "topic-1",
    "topic-2",
    "cluster-1",
    "cluster-1",
]
OTHER = ["other", "flights", 1, None, 3, None, "truncated", "1970-01-01T00:00:03.000Z", None, None, None, None]


@pytest.fixture
def recorded(cli: CommandLine) -> CommandLine:
    """Two groups with gaps, and one without."""
    cli.cluster.create_topic("flights", 2)
    of_metadata_group = (
        Gaps().plus(Gap(10, 15, Cause.EXPIRED, 1_000, A, A)).plus(Gap(20, 0, Cause.RECREATED, 2_000, A, B))
    )
    cli.cluster.commit(gaps_group_of("board"), {P0: 0}, of_metadata_group.encode())
    cli.cluster.commit(gaps_group_of("other"), {P1: 3}, Gaps().plus(Gap(None, 3, Cause.TRUNCATED, 3_000)).encode())
    for group in ("board", "other", "whole"):
        cli.cluster.commit(group, {P0: 5, P1: 5})
    return cli


def test_as_a_table(recorded: CommandLine) -> None:
    result = recorded("gaps")
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[0].split() == [name.upper().replace("_", "-") for name in NAMES]
    assert [line.split() for line in lines[1:]] == [
        ["-" if cell is None else str(cell) for cell in row] for row in (EXPIRED, RECREATED, OTHER)
    ]


def test_as_csv_json_and_yaml(recorded: CommandLine) -> None:
    rows = list(csv.reader(io.StringIO(recorded("gaps", "board", "-o", "csv").out)))
    assert rows == [NAMES, *(["" if cell is None else str(cell) for cell in row] for row in (EXPIRED, RECREATED))]
    document = json.loads(recorded("gaps", "board", "-o", "json").out)
    assert document["gaps"] == [dict(zip(NAMES, row, strict=True)) for row in (EXPIRED, RECREATED)]
    assert document["partitions"] == [
        {"group": "board", "topic": "flights", "partition": 0, "gaps": 2, "lost_offsets": 5, "not_kept": 0}
    ]
    assert yaml.safe_load(recorded("gaps", "board", "-o", "yaml").out) == document


def test_a_group_without_gaps_and_one_that_does_not_exist(recorded: CommandLine) -> None:
    result = recorded("gaps", "whole")
    assert (result.code, result.err) == (0, "No gaps are recorded.\n")
    result = recorded("gaps", "board", "nowhere", "-o", "csv")
    assert (result.code, len(result.out.splitlines())) == (1, 3)
    assert "Group 'nowhere' does not exist" in result.err


def test_G17_an_unreadable_entry_is_not_one_without_gaps(recorded: CommandLine) -> None:
    metadata_group = gaps_group_of("other")
    recorded.cluster.commit(metadata_group, {P1: 3}, '{"v":2,"gaps":[]}')
    result = recorded("gaps", "other")
    assert result.code == 4
    assert "No gaps are recorded" not in result.err
    assert f"The entries of the metadata group '{metadata_group}' at flights-1 cannot be read" in result.err
    result = recorded("gaps", "-o", "json")
    document = json.loads(result.out)
    assert (result.code, len(document["gaps"])) == (4, 2)
    assert [it["gaps"] for it in document["partitions"]] == [2, None]
    remedy = ["groups", "delete-offsets", metadata_group, "--topic", "flights:1", "--execute"]
    assert f"To delete damaged ones: streamgroups {' '.join(remedy)}" in result.err
    assert recorded(*remedy).code == 0
    assert recorded("gaps", "-o", "json").code == 0


def test_O4_gaps_of_a_newer_version_are_counted(recorded: CommandLine) -> None:
    stored = recorded.cluster.all_committed(gaps_group_of("other"))[P1].metadata
    recorded.cluster.commit(gaps_group_of("other"), {P1: 3}, stored.replace("truncated", "moved"))
    result = recorded("gaps", "other", "-o", "json")
    document = json.loads(result.out)
    assert (result.code, document["gaps"], document["partitions"][0]["gaps"]) == (0, [], 1)
    assert result.err == (
        "Group 'other', flights-1: 1 recorded gaps are not listed: a newer version of streamgroups has written them.\n"
    )


def test_a_repeated_group_counts_once(recorded: CommandLine) -> None:
    result = recorded("gaps", "board", "nowhere", "board", "nowhere", "-o", "csv")
    assert (result.code, len(result.out.splitlines())) == (1, 3)
    assert "Group 'nowhere' does not exist" in result.err


def test_gaps_that_are_not_kept_are_counted(recorded: CommandLine) -> None:
    gaps = Gaps()
    for i in range(200):
        gaps = gaps.plus(Gap(i, i + 1, Cause.EXPIRED, i, A, A))
    recorded.cluster.commit(gaps_group_of("board"), {P0: 0}, gaps.encode())
    result = recorded("gaps", "board", "-o", "json")
    (summary,) = json.loads(result.out)["partitions"]
    assert (summary["gaps"], summary["lost_offsets"]) == (200, 200)
    assert f"{summary['not_kept']} older gaps are counted, but not stored" in result.err


def test_deleting_a_group_deletes_its_gaps(recorded: CommandLine) -> None:
    assert recorded("groups", "delete", "board", "--execute").code == 0
    assert gaps_group_of("board") not in recorded.cluster.group_ids()
