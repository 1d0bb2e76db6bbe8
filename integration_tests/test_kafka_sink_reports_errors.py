"""X2: a failed write fails the query with a remedy and shows no partial output. The query resumes after the cause is
removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from integration_tests.test_kafka_sink_is_exactly_once import Query, run, values
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, end_offsets, read_committed
from streamgroups_testkit.waits import wait_until

N = 100


@pytest.fixture
def query(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path) -> Query:
    """Reads a topic of `N` records."""
    topic = new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    return Query(spark, bootstrap, topic, group, tmp_path / "checkpoint")


def nothing_is_there(query: Query, board: str) -> bool:
    return not read_committed(query.bootstrap, board) and not any(
        committed_offsets(query.bootstrap, query.group, query.topic).values()
    )


@LONG
def test_a_record_too_large(query: Query, new_topic: Callable[..., str], admin: AdminClient) -> None:
    board = new_topic(2, max_message_bytes="2000")
    long = query.source(maxOffsetsPerTrigger="1000").select(
        F.when(F.col("key") == F.lit(b"77"), F.expr("cast(repeat('x', 5000) as binary)"))
        .otherwise(F.col("value"))
        .alias("value")
    )
    with pytest.raises(StreamingQueryException, match=r"2,000 are allowed|max\.message\.bytes"):
        run(query.exactly_once(long, board))
    assert nothing_is_there(query, board)
    larger = ConfigResource(
        ResourceType.TOPIC,
        board,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    for done in admin.incremental_alter_configs([larger]).values():
        done.result(30)
    run(query.exactly_once(long, board))
    assert len(read_committed(query.bootstrap, board)) == N


@LONG
def test_a_partition_that_is_not_there(query: Query, new_topic: Callable[..., str]) -> None:
    board = new_topic(1)
    both = query.source().select("value", "partition")
    with pytest.raises(StreamingQueryException, match=rf"partition 1, but topic '{board}' has 1 partitions"):
        run(query.exactly_once(both, board))
    assert nothing_is_there(query, board)
    run(query.exactly_once(both.withColumn("partition", F.lit(0)), board))
    assert values(query.bootstrap, board) == Counter(map(str, range(N)))


@LONG
def test_a_task_that_fails_in_the_middle(query: Query, new_topic: Callable[..., str]) -> None:
    board = new_topic(2)
    source = query.source(maxOffsetsPerTrigger="1000")
    broken = source.select(
        F.when(F.col("key") == F.lit(b"77"), F.raise_error(F.lit("no such gate")))
        .otherwise(F.col("value"))
        .alias("value")
    )
    with pytest.raises(StreamingQueryException, match="no such gate"):
        run(query.exactly_once(broken.select(F.col("value").cast("binary").alias("value")), board))
    assert nothing_is_there(query, board)
    run(query.exactly_once(source.select("value"), board))
    assert values(query.bootstrap, board) == Counter(map(str, range(N)))


def test_a_transaction_that_the_broker_does_not_allow(query: Query, new_topic: Callable[..., str]) -> None:
    board = new_topic(1)
    from streamgroups.errors import InvalidOption

    with pytest.raises(InvalidOption, match=r"transaction.*(time-?out|long)"):
        query.exactly_once(query.source().select("value"), board, transaction_timeout="12 days").start()


@LONG
def test_a_batch_that_takes_longer_than_its_transaction_may(query: Query, new_topic: Callable[..., str]) -> None:
    board = new_topic(2)
    bootstrap = query.bootstrap

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if "77" in batch.column("key").cast("string").to_pylist():
                # The write of the other task begins the transaction. Readers see its end after the broker has aborted
                # it.
                wait_until(
                    lambda: any(end_offsets(bootstrap, board, 2).values()), "the broker has aborted the transaction", 60
                )
            yield batch.select(["value"])

    source = query.source(maxOffsetsPerTrigger="1000", minPartitions="2").select("key", "value")
    slow = source.mapInArrow(slowly, "value binary")
    with pytest.raises(StreamingQueryException, match=r"kafka\.transaction\.timeout\.ms"):
        run(query.exactly_once(slow, board, transaction_timeout="1s"))
    assert nothing_is_there(query, board)
    run(query.exactly_once(slow, board, transaction_timeout="30s"))
    assert values(query.bootstrap, board) == Counter(map(str, range(N)))
