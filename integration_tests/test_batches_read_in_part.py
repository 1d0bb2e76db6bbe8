"""S5, S10: a batch that Spark counts as finished, and that ``foreachBatch`` has not read whole, is read again by the next run.

The unit tests of the same name run the whole table on a model of Spark. Here Spark decides which tasks run, and what it
takes of their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.state_query import counts
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until

PARTITIONS, KEYS = 4, 10
START_MS, PART_MS = 1_750_000_000_000, 60_000

#: Functions by the way in which they use their batch. Each leaves rows out.
PARTLY: dict[str, Callable[[DataFrame], object]] = {
    "show": lambda batch: batch.show(1),
    "first": lambda batch: batch.first(),
    "limit": lambda batch: batch.limit(1).collect(),
    "filter": lambda batch: batch.where("false").collect(),
    "ignored": lambda batch: None,
}
SHARED = {"membership": "shared", "onRestart": "group"}
EXCLUSIVE = {"membership": "exclusive", "onRestart": "checkpoint"}
STRICT = {"membership": "exclusive", "onRestart": "fail"}
MEMBERSHIPS = {"shared": SHARED, "exclusive": EXCLUSIVE, "strict": STRICT}
#: The function, whether the batch is the first one, whether the checkpoint is the same, the options, and how the run ends.
CASES = [
    *product(PARTLY, (True, False), (True,), ("shared", "exclusive"), ("error",)),
    ("ignored", False, True, "exclusive", "stop"),
    *product(("first",), (True, False), (True, False), MEMBERSHIPS, ("error", "stop")),
]


def write(bootstrap: str, topic: str, part: int) -> Counter[str]:
    """Writes records with different keys in one window, and one that closes it. Returns the keys of closed windows."""
    producer, begin_ms = (
        ordered_producer(bootstrap),
        START_MS + part * PART_MS,
    )
    for partition in range(PARTITIONS):
        for n in range(KEYS):
            producer.produce(topic, "1", f"{partition}-{part}-{n}", partition, timestamp=begin_ms + n)
        producer.produce(topic, "1", f"{partition}-{part}-end", partition, timestamp=begin_ms + PART_MS // 2)
    assert producer.flush(30) == 0
    last = "end" if part else ""
    return Counter(
        [f"{partition}-{part}-{n}" for partition in range(PARTITIONS) for n in range(KEYS)]
        + [f"{partition}-{part - 1}-end" for partition in range(PARTITIONS) if last]
    )


class Runs:
    """The runs of a query, in the session of the test."""

    def __init__(self, spark: SparkSession, options: dict[str, str]) -> None:
        self._spark, self._options = spark, options

    def start(
        self, checkpoint: Path, function: Callable[[DataFrame], object], *, is_bounded: bool = True
    ) -> StreamingQuery:
        """Starts a run. It ends after its batches, or has one batch and waits for its stop."""
        writer = counts(self._spark, self._options, "partition").writeStream.foreachBatch(
            lambda batch, _: void(function(batch))
        )
        writer = writer.option("checkpointLocation", str(checkpoint))
        return (writer.trigger(availableNow=True) if is_bounded else writer.trigger(processingTime="1 hour")).start()

    def read(self, checkpoint: Path) -> Counter[str]:
        """Runs the query to the end of the topic. Returns the keys of its rows."""
        keys: list[str] = []
        query = self.start(checkpoint, lambda batch: keys.extend(row.key for row in batch.collect()))
        assert query.awaitTermination(120)
        return Counter(keys)


def void(_: object) -> None:
    return None


@LONG
@pytest.mark.parametrize(("function", "is_first", "is_same", "membership", "end"), CASES)
def test_S10_a_batch_that_was_read_in_part_is_read_again(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    function: str,
    is_first: bool,
    is_same: bool,
    membership: str,
    end: str,
) -> None:
    topic = new_topic(PARTITIONS, retention_ms="-1")
    location = {"stateLocation": str(tmp_path / "state")}
    runs = Runs(spark, {**shared_options(bootstrap, group, topic, "consumer"), **MEMBERSHIPS[membership], **location})
    checkpoint = tmp_path / "checkpoint"
    part = 0
    expected = write(bootstrap, topic, part)
    if not is_first:
        assert runs.read(checkpoint) == expected
        part += 1
        expected = write(bootstrap, topic, part)
    query = runs.start(checkpoint, PARTLY[function], is_bounded=end == "error")
    if end == "error":
        with pytest.raises(StreamingQueryException, match=r"no task has written the states .* Restart the query"):
            query.awaitTermination(120)
    else:
        try:
            commits = checkpoint / "commits"
            wait_until(
                lambda: query.exception() or (commits / str(part)).exists(), "Spark counts the batch as finished"
            )
            assert query.exception() is None
        finally:
            query.stop()
    wait_until_group_is_empty(admin, group)
    assert runs.read(checkpoint if is_same else tmp_path / "new") == expected
    assert committed_offsets(bootstrap, group, topic) == dict.fromkeys(range(PARTITIONS), (part + 1) * (KEYS + 1))
