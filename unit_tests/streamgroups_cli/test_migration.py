"""O5: imports of a checkpoint of Spark's ``kafka`` source, and the options for that source."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from unit_tests.cli_runner import CommandLine

F0, F1, F2 = (TopicPartition("flights", p) for p in range(3))
W0 = TopicPartition("weather", 0)
#: Written by Spark 4.2: a union of two topics, aggregated, with 30 and 5 records.
GOLDEN = Path(__file__).parent.parent / "golden" / "spark_kafka_checkpoint_4.2"
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


class Checkpoint:
    """A checkpoint as Spark writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for log in ("offsets", "commits", "sources/0"):
            (path / log).mkdir(parents=True)
        (path / "metadata").write_text('{"id":"250e5eb1-1465-4d3c-804d-df4f606787e6"}')
        (path / "sources/0/0").write_bytes(b'\0v1\n{"flights":{"0":0,"1":2}}')

    def plan(self, batch: int, *ends: str) -> None:
        (self.path / "offsets" / str(batch)).write_text("\n".join(["v1", METADATA, *ends]))
        (self.path / "offsets" / f".{batch}.crc").write_bytes(b"crc\0")

    def commit(self, batch: int) -> None:
        (self.path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def run(self, batch: int, *ends: str) -> None:
        self.plan(batch, *ends)
        self.commit(batch)


@pytest.fixture
def old(tmp_path: Path) -> Checkpoint:
    checkpoint = Checkpoint(tmp_path / "old")
    checkpoint.run(9, '{"flights":{"0":3,"1":4}}')
    checkpoint.run(10, '{"flights":{"0":5,"1":6}}')
    return checkpoint


@pytest.fixture
def cluster(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cli.cluster.create_topic("flights", 3)
    cli.cluster.create_topic("weather", 1)
    for tp in (F0, F1, F2, W0):
        cli.cluster.produce(tp, 10, timestamp_ms=1_000)
    cli.clock.now_ms = 4_000_000_000_000
    return cli


def committed(cli: CommandLine, group_id: str = "board") -> dict[TopicPartition, int]:
    return {tp: c.next_offset for tp, c in cli.admin.committed_offsets([group_id])[group_id].items()}


def import_args(checkpoint: Path | str, *more: str) -> list[str]:
    return ["groups", "import", "--from-spark-checkpoint", str(checkpoint), "--group", "board", *more]


def test_O5_the_plan_comes_first(cluster: CommandLine, old: Checkpoint) -> None:
    before = {p: p.read_bytes() for p in old.path.rglob("*") if p.is_file()}
    planned = cluster(*import_args(old.path))
    assert (planned.code, committed(cluster)) == (0, {})
    assert "GROUP  TOPIC    PARTITION  FROM-OFFSET  TO-OFFSET" in planned.out
    assert planned.err.splitlines() == [
        "Group 'board' will be created by the commit.",
        f"These are the positions of the checkpoint '{old.path}' after batch 10, its last committed one.",
        "Nothing was changed: this is the plan. --execute applies it.",
    ]
    assert cluster(*import_args(old.path, "--execute")).code == 0
    assert committed(cluster) == {F0: 5, F1: 6}
    assert {p: p.read_bytes() for p in old.path.rglob("*") if p.is_file()} == before


def test_a_uri_is_read_too(cluster: CommandLine, old: Checkpoint) -> None:
    assert cluster(*import_args(f"file://{old.path}/", "--execute")).code == 0
    assert committed(cluster) == {F0: 5, F1: 6}


def test_O5_a_planned_batch_is_read_again_and_explained(cluster: CommandLine, old: Checkpoint) -> None:
    old.plan(11, '{"flights":{"0":8,"1":6}}')
    result = cluster(*import_args(old.path, "--execute"))
    assert committed(cluster) == {F0: 5, F1: 6}
    assert (
        "Warning: batch 11 is planned and not committed. Its output may exist, completely or in part. The group reads its 3 "
        "offsets again: flights-0[5,8)."
    ) in result.err
    assert "start the old query once with the trigger availableNow" in result.err


def test_O5_a_partition_that_was_new_in_the_planned_batch_is_explained(cluster: CommandLine, old: Checkpoint) -> None:
    old.plan(11, '{"flights":{"0":5,"1":6,"2":5}}')
    result = cluster(*import_args(old.path, "--execute"))
    assert committed(cluster) == {F0: 5, F1: 6}
    assert (
        "Warning: batch 11 is planned and not committed. Its output may exist, completely or in part. The group reads its "
        "offsets again: flights-2[?,5). The checkpoint does not contain where a new partition begins (?): the group reads it "
        "from its earliest record. To avoid that, start the old query once"
    ) in result.err
    assert "flights-2[?,5)" in cluster(*import_args(old.path, "--topic", "flights")).err
    assert "Warning: batch" not in cluster(*import_args(old.path, "--topic", "flights:0")).err


def test_a_planned_batch_without_records_repeats_nothing(cluster: CommandLine, old: Checkpoint) -> None:
    old.plan(11, '{"flights":{"0":5,"1":6}}')
    assert "Warning" not in cluster(*import_args(old.path)).err


def test_a_first_batch_without_commit_starts_at_the_initial_offsets(cluster: CommandLine, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "first")
    checkpoint.plan(0, '{"flights":{"0":4,"1":4}}')
    result = cluster(*import_args(checkpoint.path, "--execute"))
    assert committed(cluster) == {F0: 0, F1: 2}
    assert "before the first batch" in result.err


def test_O5_the_state_of_operators_stays_with_a_warning(cluster: CommandLine) -> None:
    result = cluster(*import_args(GOLDEN, "--execute"))
    assert committed(cluster) == {F0: 10, F1: 10, F2: 10, W0: 5}
    assert "Warning: the state of operators 0 (stateStoreSave) stays in the checkpoint" in result.err


def test_names_of_operators_are_optional(cluster: CommandLine, old: Checkpoint) -> None:
    (old.path / "state" / "0" / "_metadata" / "v2").mkdir(parents=True)
    (old.path / "state" / "0" / "_metadata" / "v2" / "0").write_text(
        'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},"stateStoreInfo":[]}'
    )
    (old.path / "state" / "10").mkdir()
    (old.path / "state" / "2").mkdir()
    assert "the state of operators 0 (dedupe), 2, 10 stays" in cluster(*import_args(old.path)).err


def test_sources_and_topics_are_selected(cluster: CommandLine, old: Checkpoint) -> None:
    old.run(11, '{"flights":{"0":5,"1":6}}', '{"logOffset":3}', '{"weather":{"0":7}}')
    assert "Not imported: source 1 of the query." in cluster(*import_args(old.path)).err
    assert cluster(*import_args(old.path, "--source", "2", "--execute")).code == 0
    assert committed(cluster) == {W0: 7}
    assert cluster(*import_args(old.path, "--topic", "flights:1", "--execute")).code == 0
    assert committed(cluster) == {W0: 7, F1: 6}
    rejected = cluster(*import_args(old.path, "--topic", "flihgts"))
    assert (rejected.code, "Use: flights, weather." in rejected.err) == (2, True)


def test_named_sources_of_a_log_of_version_2(cluster: CommandLine, old: Checkpoint) -> None:
    (old.path / "offsets" / "11").write_text(f'v2\n{METADATA}\nof_flights:{{"flights":{{"0":7,"1":7}}}}\nother:-')
    old.commit(11)
    assert cluster(*import_args(old.path, "--source", "of_flights", "--execute")).code == 0
    assert committed(cluster) == {F0: 7, F1: 7}


def test_a_query_that_may_still_run_is_a_warning(cluster: CommandLine, old: Checkpoint) -> None:
    newest = old.path / "offsets" / "10"
    os.utime(newest, (1_999_999_999, 1_999_999_999))
    cluster.clock.now_ms = 2_000_000_000_000
    assert "Warning: the checkpoint was written 1s ago. Stop its query first" in cluster(*import_args(old.path)).err


def test_an_import_replaces_offsets_and_can_be_undone(cluster: CommandLine, old: Checkpoint) -> None:
    cluster.admin.alter_offsets("board", {F0: Committed(9), F2: Committed(1)})
    result = cluster(*import_args(old.path, "--execute"))
    assert committed(cluster) == {F0: 5, F1: 6, F2: 1}
    undo = result.err.split("Undo it with: streamgroups ")[1].split()
    assert cluster(*undo).code == 0
    assert committed(cluster) == {F0: 9, F2: 1}


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (
            '{"flights":{"0":5,"1":11}}',
            "is outside flights-1 [0, 10]. The topic was recreated, or belongs to another cl",
        ),
        ('{"flights":{"0":1,"1":5}}', "is outside flights-0 [2, 10]. The records at this offset are deleted."),
    ],
)
def test_O5_offsets_outside_of_their_partition_are_rejected(
    cluster: CommandLine, old: Checkpoint, ends: str, message: str
) -> None:
    cluster.cluster.delete_records(F0, 2)
    old.run(11, ends)
    rejected = cluster(*import_args(old.path, "--execute"))
    assert (rejected.code, committed(cluster)) == (3, {})
    assert message in rejected.err
    accepted = cluster(*import_args(old.path, "--nearest", "--execute"))
    assert (accepted.code, committed(cluster).keys()) == (0, {F0, F1})
    assert "Warning: Offset" in accepted.err


def test_O5_a_group_with_members_is_rejected(cluster: CommandLine, old: Checkpoint) -> None:
    member = cluster.join("board", "flights")
    before = committed(cluster)
    rejected = cluster(*import_args(old.path, "--execute"))
    assert (rejected.code, committed(cluster)) == (3, before)
    assert "it cannot be changed by this import" in rejected.err
    member.close()


def test_O5_topics_of_another_cluster_are_rejected(cluster: CommandLine, old: Checkpoint) -> None:
    old.run(11, '{"flights":{"0":5,"1":6},"gates":{"0":1}}')
    rejected = cluster(*import_args(old.path, "--execute"))
    assert (rejected.code, committed(cluster)) == (1, {})
    assert f"Partition gates-0 does not exist; nothing was changed. The checkpoint '{old.path}' has" in rejected.err
    assert cluster(*import_args(old.path, "--topic", "flights", "--execute")).code == 0


def test_O5_what_is_not_such_a_checkpoint_is_rejected(cluster: CommandLine, old: Checkpoint, tmp_path: Path) -> None:
    def reason(checkpoint: Path | str) -> str:
        rejected = cluster(*import_args(checkpoint, "--execute"))
        assert (rejected.code, committed(cluster), rejected.out) == (2, {}, "")
        return rejected.err

    assert "does not exist, or is empty" in reason(tmp_path / "nowhere")
    assert "it has no directory 'offsets'" in reason(tmp_path)
    assert "location 'dbfs:///checkpoint' is not supported" in reason("dbfs:/checkpoint")
    (tmp_path / "empty" / "offsets").mkdir(parents=True)
    assert "contains no batch" in reason(tmp_path / "empty")
    old.run(11, '{"version":2,"n":1,"ranges":{},"resting":{},"group":"billing"}')
    assert "group 'billing' stores its positions" in reason(old.path)
    old.commit(12)
    assert "batch 12 is committed, and the last one in its offset log is 11" in reason(old.path)
    (old.path / "offsets" / "12").write_text("v9\n{}\n")
    assert "Version 9 of Spark's offset log is not supported" in cluster(*import_args(old.path)).err
    (old.path / "offsets" / "12").write_text("damaged")
    assert "contains a log that is not one of Spark" in reason(old.path)
    (old.path / "offsets" / "12").unlink()
    (old.path / "offsets" / "12").mkdir()
    assert "cannot be read" in reason(old.path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-spark-checkpoint", "x"], "needs --group, and no file"),
        (["f.csv", "--from-spark-checkpoint", "x", "--group", "board"], "needs --group, and no file"),
        (["f.csv", "--nearest"], "need --from-spark-checkpoint"),
        ([], "The file is missing"),
        (["--from-spark-checkpoint", "x", "--group", "board.streamgroups"], "which no query can use as its group.id"),
    ],
)
def test_wrong_options_are_rejected(cluster: CommandLine, arguments: list[str], message: str) -> None:
    rejected = cluster("groups", "import", *arguments)
    assert rejected.code == 2
    assert message in rejected.err


def test_O5_the_options_for_the_way_back(cluster: CommandLine, tmp_path: Path) -> None:
    cluster.admin.alter_offsets("board", {F0: Committed(4), F2: Committed(6), W0: Committed(1)})
    cluster.cluster.commit("board", {TopicPartition("gone", 0): 6})
    result = cluster("groups", "export", "board", "--to-spark-options")
    assert json.loads(result.out) == {
        "subscribe": "flights,weather",
        "startingOffsets": '{"flights":{"0":4,"1":-2,"2":6},"weather":{"0":1}}',
    }
    assert result.err.splitlines() == [
        "Skipped, because they no longer exist: gone-0.",
        "Without a committed offset, so they start at their earliest record (-2): flights-1.",
        "Start the query of format('kafka') with a new checkpointLocation: with an old one, Spark ignores startingOffsets.",
    ]
    file = tmp_path / "options.json"
    assert (
        cluster("groups", "export", "board", "--topic", "weather", "--to-spark-options", "--file", str(file)).code == 0
    )
    assert json.loads(file.read_text()) == {"subscribe": "weather", "startingOffsets": '{"weather":{"0":1}}'}
    with_members = cluster.join("board", "flights")
    assert "has members, so these offsets will change" in cluster("groups", "export", "board", "--to-spark-options").err
    with_members.close()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["board", "other"], 2, "needs exactly one group"),
        (["--all-groups"], 2, "needs exactly one group"),
        (["board", "-o", "json"], 2, "has no --output"),
        (["board", "--topic", "flights:0"], 2, "exports whole topics"),
        (["board"], 1, "Group 'board' has no committed offsets."),
    ],
)
def test_a_way_back_that_cannot_be(cluster: CommandLine, arguments: list[str], code: int, message: str) -> None:
    rejected = cluster("groups", "export", *arguments, "--to-spark-options")
    assert (rejected.code, message in rejected.err) == (code, True), rejected.err


def test_credentials_in_a_location_are_not_printed(cluster: CommandLine) -> None:
    result = cluster(*import_args("s3://key:hunter2@bucket/old?scheme=nonsense"))
    assert result.code == 2
    assert "hunter2" not in result.err


def test_the_golden_checkpoint_is_not_changed(cluster: CommandLine, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(GOLDEN, copy)
    assert cluster(*import_args(copy, "--topic", "weather", "--execute")).code == 0
    assert committed(cluster) == {W0: 5}
