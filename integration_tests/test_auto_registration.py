"""S13: ``format("streamgroups")`` without ``sg.register``: what works does, and everything else names the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, read_committed


@pytest.fixture
def unregistered(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with only the data sources that Spark has registered by itself."""
    yield spark.newSession()
    # The latest registered session is that of the other tests.
    sg.register(spark)


class Stream:
    """A query over a topic that collects the keys of its records."""

    def __init__(self, bootstrap: str, topic: str, group: str, checkpoint: Path) -> None:
        self._options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "group.id": group}
        self._checkpoint = checkpoint
        self.read: list[int] = []

    def run(self, spark: SparkSession, **options: str) -> None:
        """Runs it until it has read all records."""

        def keep(batch: DataFrame, _number: int) -> None:
            self.read.extend(int(row["key"]) for row in batch.select(batch["key"].cast("string")).collect())

        given = {**self._options, "startingOffsets": "earliest", **options}
        records = spark.readStream.format("streamgroups").options(**given).load()
        writer = records.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()


@LONG
def test_S13_reads_and_exclusive_streams_need_no_call(
    unregistered: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, 10, partitions=2)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    read = unregistered.read.format("streamgroups").options(**options).load()
    assert read.count() == 10
    writer = read.select("key", "value").coalesce(1).write.format("streamgroups").mode("append")
    writer.options(**{"kafka.bootstrap.servers": bootstrap, "topic": new_topic(2)}).save()
    stream = Stream(bootstrap, topic, group, tmp_path / "checkpoint")
    stream.run(unregistered, membership="exclusive")
    produce(bootstrap, topic, 10, partitions=2, first=10)
    stream.run(unregistered, membership="exclusive")
    assert sorted(stream.read) == list(range(20))


@LONG
def test_S13_a_shared_stream_names_the_call_which_then_suffices(
    unregistered: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(1)
    produce(bootstrap, topic, 5, partitions=1)
    stream = Stream(bootstrap, topic, group, tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match=f"The stream of group '{group}' is shared.*Call sg.register"):
        stream.run(unregistered)
    sg.register(unregistered)
    stream.run(unregistered)
    assert stream.read == list(range(5))


@LONG
def test_S13_the_sink_of_an_exclusive_stream_needs_no_call(
    unregistered: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, output = new_topic(2), new_topic(1)
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "group.id": group, "membership": "exclusive"}
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": output, "checkpointLocation": str(tmp_path)}
    for first in (0, 10):
        produce(bootstrap, topic, 10, partitions=2, first=first)
        records = unregistered.readStream.format("streamgroups").options(**source, startingOffsets="earliest").load()
        writer = records.select("key", "value").writeStream.format("streamgroups").options(**sink)
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
    assert sorted(int(record.key or b"") for record in read_committed(bootstrap, output)) == list(range(20))
    assert sum(committed_offsets(bootstrap, group, topic).values()) == 20
