"""S7: records that were deleted before they were read are always reported."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from integration_tests.tiers import LONG
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.groups.gaps import Gaps
from streamgroups_testkit.producing import produce, recreate_topic
from streamgroups_testkit.reading import committed_metadata
from streamgroups_testkit.waits import wait_until


def run(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> list[int]:
    """The offsets that a query reads until it ends by itself."""
    offsets: list[int] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        offsets.extend(r.offset for r in batch.select("offset").collect())

    reader = spark.readStream.format("streamgroups").options(**options).load()
    query = reader.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    assert query.trigger(availableNow=True).start().awaitTermination(90)
    return offsets


@pytest.fixture
def options(bootstrap: str, group: str, new_topic: Callable[..., str]) -> dict[str, str]:
    topic = new_topic(1)
    produce(bootstrap, topic, 10, partitions=1)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "group.id": group,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }


def recorded(bootstrap: str, group: str, topic: str) -> list[tuple[int | None, int, str]]:
    """The recorded gaps of the topic's only partition: begin, end and reason."""
    metadata = committed_metadata(bootstrap, gaps_group_of(group), topic)
    return [(g.from_offset, g.to_offset, g.cause.value) for g in Gaps.decode(metadata.get(0, "")).newest]


def test_S7_deleted_records(
    spark: SparkSession, admin: AdminClient, bootstrap: str, group: str, options: dict[str, str], tmp_path: Path
) -> None:
    topic = options["subscribe"]
    assert run(spark, options, tmp_path) == list(range(10))
    produce(bootstrap, topic, 10, partitions=1)
    deleted = confluent_kafka.TopicPartition(topic, 0, 15)
    for future in admin.delete_records([deleted]).values():
        future.result(30)
    with pytest.raises(StreamingQueryException, match=rf"{topic}-0 \(position 10, available offsets \[15, 20\)\)"):
        run(spark, options, tmp_path)
    assert recorded(bootstrap, group, topic) == []
    assert run(spark, {**options, "onDataLoss": json.dumps({topic: {"0": "skip"}})}, tmp_path) == list(range(15, 20))
    assert recorded(bootstrap, group, topic) == [(10, 15, "expired")]


@LONG
def test_S11_a_recreated_topic_that_is_longer_than_the_position(
    spark: SparkSession,
    admin: AdminClient,
    bootstrap: str,
    group: str,
    options: dict[str, str],
    tmp_path: Path,
    new_topic: Callable[..., str],
) -> None:
    topic = options["subscribe"]
    assert run(spark, options, tmp_path) == list(range(10))
    recreate_topic(admin, topic)
    produce(bootstrap, topic, 25, partitions=1)
    with pytest.raises(
        StreamingQueryException, match=r"position 10 of topic id .*: the topic was deleted and recreated"
    ):
        run(spark, options, tmp_path)
    assert run(spark, {**options, "failOnDataLoss": "false"}, tmp_path) == list(range(25))
    assert recorded(bootstrap, group, topic) == [(10, 0, "recreated")]
    recreate_topic(admin, topic)
    produce(bootstrap, topic, 30, partitions=1)
    assert run(spark, {**options, "onDataLoss": "skip"}, tmp_path) == []
    assert recorded(bootstrap, group, topic) == [(25, 30, "recreated")]


def test_S11_a_topic_recreated_while_the_query_runs(
    spark: SparkSession,
    admin: AdminClient,
    bootstrap: str,
    group: str,
    options: dict[str, str],
    tmp_path: Path,
    new_topic: Callable[..., str],
) -> None:
    topic = options["subscribe"]
    offsets: list[int] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        offsets.extend(r.offset for r in batch.select("offset").collect())

    running = {**options, "onDataLoss": "earliest", "kafka.metadata.max.age.ms": "500"}
    reader = spark.readStream.format("streamgroups").options(**running).load()
    query = reader.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path)).start()
    try:
        wait_until(lambda: offsets == list(range(10)), "the first topic is read")
        # A query detects a new topic at its next metadata refresh. Earlier records may be read from the old position
        # (docs/gaps.rst).
        recreate_topic(admin, topic)
        noticed = [(10, 0, "recreated")]
        wait_until(
            lambda: query.exception() or recorded(bootstrap, group, topic) == noticed, "the new topic is noticed"
        )
        produce(bootstrap, topic, 25, partitions=1)
        wait_until(lambda: query.exception() or offsets[10:] == list(range(25)), "the new topic is read")
        assert query.exception() is None, str(query.exception())
    finally:
        query.stop()
    assert recorded(bootstrap, group, topic) == noticed


@LONG
def test_S11_another_cluster_at_the_same_address(
    spark: SparkSession, bootstrap: str, options: dict[str, str], tmp_path: Path
) -> None:
    """The checkpoint contains another cluster id, as if this cluster had replaced that one."""
    assert run(spark, options, tmp_path) == list(range(10))
    for logged in (tmp_path / "offsets").glob("[0-9]*"):
        logged.write_text(re.sub(r'(cluster\\*": ?\\*")[^"\\]+', r"\1another-cluster", logged.read_text()))
    for checksum in (tmp_path / "offsets").glob(".*.crc"):
        checksum.unlink()
    produce(bootstrap, options["subscribe"], 5, partitions=1)
    with pytest.raises(StreamingQueryException, match="position 10 of cluster id another-cluster, current cluster id "):
        run(spark, {**options, "onRestart": "checkpoint"}, tmp_path)
