"""C1: ``streamgroups checkpoint show`` for checkpoints of any source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from integration_tests.matrix import CELLS
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles
from unit_tests.cli_runner import CommandLine
from unit_tests.spark_checkpoints import NAMES, batches, golden, stateless, write

F0, F1 = (TopicPartition("flights", p) for p in range(2))
KAFKA = {n: f'{{"flights":{{"0":{5 * n},"1":{3 * n}}}}}' for n in range(1, 9)}
OWN = '{"version":2,"n":3,"ranges":{"flights":{"0":[5,9]}},"resting":{"flights":{"1":7}},"group":"board"}'


def document(cli: CommandLine, checkpoint: Path, *more: str) -> Any:
    result = cli("checkpoint", "show", str(checkpoint), *more, "-o", "json")
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


def test_there_is_a_checkpoint_of_each_pyspark_of_the_matrix() -> None:
    assert {it.partition("-")[0] for it in NAMES} == {cell.spark.rpartition(".")[0] for cell in CELLS}


@pytest.mark.parametrize("name", NAMES)
def test_C1_a_checkpoint_of_each_version(cli: CommandLine, name: str, tmp_path: Path) -> None:
    shown = document(cli, golden(name, tmp_path))
    assert len(shown["query_id"]) == 36
    assert shown["batches"] == [
        {
            "batch": batches(tmp_path)[-1],
            "status": "committed",
            "planned_at": shown["batches"][0]["planned_at"],
            "watermark": "2013-01-01T00:26:00.000Z",
            "next_watermark": "2013-01-01T00:26:00.000Z",
        }
    ]
    assert [it["end"] for it in shown["sources"]] == [{"logOffset": 7}]
    [operator] = shown["operators"]
    assert (operator["operator"], operator["name"]) == (0, "stateStoreSave")
    assert operator["stores"] == [{"store": "default", "partitions": 2}]
    provider = "HDFSBackedStateStoreProvider" if name.endswith("hdfs") else "RocksDBStateStoreProvider"
    assert (operator["provider"], operator["formats"]["aggregation"]) == (provider, "2")
    # The first batch that has read the last file but one.
    number = next(n for n in batches(tmp_path) if '{"logOffset":6}' in (tmp_path / "offsets" / str(n)).read_text())
    earlier = document(cli, tmp_path, "--batch", str(number))
    assert [(it["batch"], it["next_watermark"]) for it in earlier["batches"]] == [(number, "2013-01-01T00:22:00.000Z")]
    assert [it["end"] for it in earlier["sources"]] == [{"logOffset": 6}]


def test_C5_the_positions_of_a_kafka_query_are_shown(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path, stateless(KAFKA, committed=7))
    result = cli("checkpoint", "show", str(tmp_path))
    assert result.out.splitlines() == [
        f"Checkpoint {tmp_path}, query 250e5eb1-1465-4d3c-804d-df4f606787e6",
        "BATCH  STATUS     PLANNED-AT                WATERMARK  NEXT-WATERMARK",
        "    7  committed  1970-01-01T00:00:01.007Z  -          -",
        "    8  planned    1970-01-01T00:00:01.008Z  -          -",
        "",
        "Partitions, batch 7",
        "SOURCE  TOPIC    PARTITION  START-OFFSET  END-OFFSET  OFFSETS",
        "0       flights          0            30          35        5",
        "0       flights          1            18          21        3",
    ]
    assert cli("checkpoint", "show", str(tmp_path), "-o", "csv").out.splitlines()[1] == "0,flights,0,30,35,5"


def test_the_first_batch_begins_at_the_initial_offsets(cli: CommandLine, tmp_path: Path) -> None:
    files = stateless({0: '{"flights":{"0":4,"1":4}}'}, committed=0)
    write(tmp_path, {**files, "sources/0/0": '\0v1\n{"flights":{"0":1}}'})
    rows = document(cli, tmp_path)["partitions"]
    assert [(it["start_offset"], it["end_offset"], it["offsets"]) for it in rows] == [(1, 4, 3), (None, 4, None)]
    options = json.loads(cli("checkpoint", "show", str(tmp_path), "--as-options").out)
    # A partition that is new in a batch begins at its earliest record.
    assert options["startingOffsets"] == '{"flights":{"0":1,"1":-2}}'


def test_C5_positions_are_compared_with_a_group_and_the_topic(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path, stateless(KAFKA, committed=7))
    cli.cluster.create_topic("flights", 2)
    cli.cluster.produce(F0, 50, timestamp_ms=1_000)
    cli.cluster.delete_records(F0, 10)
    cli.admin.alter_offsets("board", {F0: Committed(33)})
    [first, second] = document(cli, tmp_path, "-b", "broker:9092", "--group", "board")["partitions"]
    assert (first["committed_offset"], first["difference"]) == (33, -2)
    assert (first["earliest_offset"], first["latest_offset"], first["remaining"]) == (10, 50, 15)
    assert (second["committed_offset"], second["latest_offset"], second["remaining"]) == (None, 0, -21)
    result = cli("checkpoint", "show", str(tmp_path), "--bootstrap-server", "broker:9092")
    assert "EARLIEST-OFFSET  LATEST-OFFSET  REMAINING" in result.out


def test_the_group_of_our_source_is_the_default(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path, stateless({3: OWN.replace('"n":3', '"n":2'), 4: OWN}, committed=4))
    cli.cluster.create_topic("flights", 2)
    cli.admin.alter_offsets("board", {F0: Committed(9), F1: Committed(8)})
    shown = document(cli, tmp_path, "-b", "broker:9092")
    assert [it["group"] for it in shown["sources"]] == ["board"]
    assert [
        (it["partition"], it["start_offset"], it["end_offset"], it["difference"]) for it in shown["partitions"]
    ] == [
        (0, 5, 9, 0),
        (1, 7, 7, 1),
    ]


def test_a_topic_that_no_longer_exists_is_no_error(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path, stateless(KAFKA, committed=7))
    shown = document(cli, tmp_path, "-b", "broker:9092")
    assert [it["latest_offset"] for it in shown["partitions"]] == [None, None]


def test_no_broker_is_needed(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMGROUPS_BOOTSTRAP_SERVER", "broker:9092")
    monkeypatch.setattr(cli.cluster, "check_reachable", lambda: pytest.fail("it connects"))
    write(tmp_path, stateless(KAFKA, committed=7))
    assert len(document(cli, tmp_path)["partitions"]) == 2


def test_C1_a_batch_as_options_of_a_batch_read(cli: CommandLine, tmp_path: Path) -> None:
    write(tmp_path, stateless(KAFKA, committed=7))
    result = cli("checkpoint", "show", str(tmp_path), "--batch", "5", "--as-options")
    assert json.loads(result.out) == {
        "assign": '{"flights":[0,1]}',
        "startingOffsets": '{"flights":{"0":20,"1":12}}',
        "endingOffsets": '{"flights":{"0":25,"1":15}}',
    }
    assert "spark.read.format('kafka')" in result.err
    own = write(tmp_path / "own", stateless({3: "-", 4: OWN}, committed=4))
    result = cli("checkpoint", "show", str(own), "--as-options", "--source", "0")
    assert json.loads(result.out) == {
        "assign": '{"flights":[0]}',
        "startingOffsets": '{"flights":{"0":5}}',
        "endingOffsets": '{"flights":{"0":9}}',
    }
    assert "spark.read.format('streamgroups')" in result.err


@pytest.mark.parametrize(
    ("batches", "arguments", "message"),
    [
        (KAFKA, ["--batch", "1"], "The start of batch 1 is unknown: the checkpoint has no batch 0."),
        ({**KAFKA, 7: KAFKA[6]}, [], "Batch 7 has read no records of source 0."),
        (KAFKA, ["--source", "1"], "The query has no source '1'. Its sources are: 0."),
        ({6: "3", 7: "4"}, [], "has 0 sources that read topics of Kafka"),
        ({6: "3", 7: "4"}, ["--source", "0"], "Source 0 does not read topics of Kafka"),
        ({6: OWN, 7: OWN}, [], "Batch 7 has read no records of source 0."),
        ({n: f"{line}\n{line}" for n, line in KAFKA.items()}, [], "Name one of its sources with --source: 0, 1."),
    ],
)
def test_a_batch_without_such_options(
    cli: CommandLine, tmp_path: Path, batches: dict[int, str], arguments: list[str], message: str
) -> None:
    write(tmp_path, stateless(batches, committed=7))
    result = cli("checkpoint", "show", str(tmp_path), "--as-options", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_what_is_not_a_checkpoint_is_rejected(cli: CommandLine, tmp_path: Path) -> None:
    def reason(checkpoint: Path | str, *more: str) -> str:
        result = cli("checkpoint", "show", str(checkpoint), *more)
        assert (result.code, result.out) == (2, "")
        return result.err

    assert "does not exist, or is empty" in reason(tmp_path / "nowhere")
    write(tmp_path / "state", {"0/0/1.delta": "x"})
    assert "is not a checkpoint: it has no directory 'offsets'" in reason(tmp_path / "state")
    assert "is not supported" in reason("dbfs:/checkpoint")
    (tmp_path / "empty" / "offsets").mkdir(parents=True)
    assert "contains no batch" in reason(tmp_path / "empty")
    write(tmp_path / "old", stateless(KAFKA, committed=7))
    assert "has no batch 99. Its offset log has the batches 1 to 8." in reason(tmp_path / "old", "--batch", "99")
    assert "--group needs a cluster" in reason(tmp_path / "old", "--group", "board")
    assert "--source needs --as-options" in reason(tmp_path / "old", "--source", "0")
    write(tmp_path / "old", {"offsets/8": "v1\n{}"})
    assert "contains a log that is not one of Spark" in reason(tmp_path / "old")
    write(tmp_path / "newer", {**stateless(KAFKA, committed=8), "offsets/8": "v9\n{}\n-"})
    result = cli("checkpoint", "show", str(tmp_path / "newer"))
    assert (result.code, "Version 9 of Spark's offset log is not supported" in result.err) == (1, True)


class CountedOpens:
    """A file system that counts the opened files."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.opened: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("open_"):
            return getattr(self._files, name)

        def opened(path: str, *more: Any, **options: Any) -> Any:
            self.opened.append(path)
            return getattr(self._files, name)(path, *more, **options)

        return opened


def test_C1_the_number_of_opened_files_does_not_grow_with_the_batches(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a state file for each batch, and with metadata of the operators for each start of the query."""
    counted: list[CountedOpens] = []
    create = CheckpointFiles.__init__

    def create_counted(self: CheckpointFiles, location: str, *names: str) -> None:
        create(self, location, *names)
        counted.append(CountedOpens(self.files))
        self.files = counted[-1]

    monkeypatch.setattr(CheckpointFiles, "__init__", create_counted)
    operator = (golden("4.2-hdfs", tmp_path / "golden") / "state" / "0" / "_metadata" / "metadata").read_text()

    def count(batches: int, *more: str) -> int:
        files = stateless({n: f'{{"flights":{{"0":{n}}}}}' for n in range(batches)}, committed=batches - 1)
        files |= {f"state/0/{n % 2}/{n}.delta": "state" for n in range(batches)} | {
            "state/0/_metadata/metadata": operator
        }
        counted.clear()
        document(cli, write(tmp_path / str(batches), files), *more)
        return sum(len(it.opened) for it in counted)

    assert count(3, "--batch", "1") == count(300, "--batch", "200") == 5
    assert count(3) == count(300) == 5
