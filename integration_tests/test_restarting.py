"""S5: a restarted query, its checkpoint, and a group that other members may have advanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from integration_tests.tiers import LONG
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, wait_until_group_is_empty

PARTITIONS = 2


class Runs:
    """Runs of one query. Each ends when it has read all records, or fails on request."""

    def __init__(self, spark: SparkSession, checkpoint: Path, options: dict[str, str]) -> None:
        self._spark, self._checkpoint, self._options = spark, checkpoint, options

    def run(self, *, fail: bool = False, checkpoint: str = "checkpoint", **options: str) -> Counter[tuple[int, int]]:
        """Returns the (partition, offset) of all records of finished batches; with ``fail`` no batch finishes."""
        found: Counter[tuple[int, int]] = Counter()
        # Before Spark 4.2 a run after a failed one finishes only the failed batch.
        for _ in range(1 if fail or FEATURES.passes_start else 2):
            self._run(found, fail, checkpoint, options)
        return found

    def _run(self, found: Counter[tuple[int, int]], fail: bool, checkpoint: str, options: dict[str, str]) -> None:
        def write(batch: DataFrame, _batch_id: int) -> None:
            rows = [(r.partition, r.offset) for r in batch.select("partition", "offset").collect()]
            if fail:
                raise RuntimeError("the sink is down")
            found.update(rows)

        reader = self._spark.readStream.format("streamgroups").options(**{**self._options, **options})
        query = (
            reader.load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self._checkpoint / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        if fail:
            with pytest.raises(StreamingQueryException, match="the sink is down"):
                query.awaitTermination(90)
        else:
            assert query.awaitTermination(90)
        if not FEATURES.passes_start:
            # The source commits the last batch when Spark ends its process, for which Spark does not wait.
            admin = AdminClient({"bootstrap.servers": self._options["kafka.bootstrap.servers"]})
            wait_until_group_is_empty(admin, self._options["group.id"])


@pytest.fixture
def topic(new_topic: Callable[..., str], bootstrap: str) -> str:
    made = new_topic(PARTITIONS)
    produce(bootstrap, made, 20, partitions=PARTITIONS)
    return made


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path) -> Runs:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    return Runs(spark, tmp_path, options)


def move_group(admin: AdminClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    wait_until_group_is_empty(admin, group)
    moved = [confluent_kafka.TopicPartition(topic, p, offset) for p, offset in offsets.items()]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, moved)])[group].result(30)


def each(first: int, end: int) -> Counter[tuple[int, int]]:
    return Counter((p, offset) for p in range(PARTITIONS) for offset in range(first, end))


def test_from_the_checkpoint_and_from_the_group(runs: Runs, bootstrap: str, topic: str) -> None:
    assert runs.run() == each(0, 10)
    produce(bootstrap, topic, 20, partitions=PARTITIONS)
    assert runs.run() == each(10, 20)
    produce(bootstrap, topic, 20, partitions=PARTITIONS)
    # A lost checkpoint loses no records: the group has the positions.
    assert runs.run(checkpoint="new") == each(20, 30)


def test_unfinished_batch_is_read_again(runs: Runs, bootstrap: str, topic: str, group: str) -> None:
    runs.run(fail=True)
    assert committed_offsets(bootstrap, group, topic) == {0: 0, 1: 0}, "only where it starts"
    produce(bootstrap, topic, 20, partitions=PARTITIONS)
    assert runs.run() == each(0, 20)
    assert committed_offsets(bootstrap, group, topic) == {0: 20, 1: 20}


def test_group_is_right_by_default(runs: Runs, admin: AdminClient, topic: str, group: str) -> None:
    assert runs.run() == each(0, 10)
    move_group(admin, group, topic, {0: 4, 1: 7})
    assert runs.run() == Counter([(0, o) for o in range(4, 10)] + [(1, o) for o in range(7, 10)])


@LONG
def test_checkpoint_wins_if_configured(runs: Runs, admin: AdminClient, topic: str, group: str, bootstrap: str) -> None:
    assert runs.run() == each(0, 10)
    move_group(admin, group, topic, {0: 4, 1: 7})
    produce(bootstrap, topic, 4, partitions=PARTITIONS)
    assert runs.run(onRestart="checkpoint") == each(10, 12)
    assert committed_offsets(bootstrap, group, topic) == {0: 12, 1: 12}


@LONG
def test_difference_fails_if_configured(runs: Runs, admin: AdminClient, topic: str, group: str, bootstrap: str) -> None:
    runs.run()
    move_group(admin, group, topic, {0: 4, 1: 10})
    with pytest.raises(StreamingQueryException, match=rf"{topic}-0: checkpoint 10, group 4 \(-6\)"):
        runs.run(onRestart="fail")
    assert committed_offsets(bootstrap, group, topic) == {0: 4, 1: 10}, "a rejection changes nothing"


@LONG
def test_unfinished_batch_that_the_group_has_passed(runs: Runs, admin: AdminClient, topic: str, group: str) -> None:
    runs.run(fail=True)
    # Another member took over partition 0, read all of it and left; it read half of partition 1.
    move_group(admin, group, topic, {0: 10, 1: 5})
    assert runs.run() == Counter((1, o) for o in range(5, 10))


@LONG
def test_group_that_was_deleted_is_rebuilt_from_the_checkpoint(
    runs: Runs, admin: AdminClient, topic: str, group: str, bootstrap: str
) -> None:
    runs.run()
    wait_until_group_is_empty(admin, group)
    admin.delete_consumer_groups([group])[group].result(30)
    produce(bootstrap, topic, 20, partitions=PARTITIONS)
    assert runs.run() == each(10, 20)


@LONG
def test_checkpoint_of_another_source_is_rejected(runs: Runs, tmp_path: Path, topic: str) -> None:
    runs.run()
    log = tmp_path / "checkpoint" / "offsets" / "0"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:-1], f'{{"{topic}":{{"0":3,"1":3}}}}']))
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink()
    with pytest.raises(StreamingQueryException, match="The checkpoint belongs to a query of format"):
        runs.run()
