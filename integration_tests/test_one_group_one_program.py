"""S14, S15: a second program in a group, and the checkpoint of another group, are rejected before a record is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import ProgramMismatch
from streamgroups_testkit.producing import ordered_producer, produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed
from streamgroups_testkit.session_queries import running_query
from streamgroups_testkit.waits import wait_until

START_MS = 1_750_000_000_000
PARTITIONS = 2


class Programs:
    """Two programs that read one topic: windows exactly once, and one without state. Each runs until it has read everything."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, output: str, directory: Path) -> None:
        self._spark, self._bootstrap, self._topic = spark, bootstrap, topic
        self._output, self._directory = output, directory

    def read(self, group: str, **options: str) -> DataFrame:
        settings = shared_options(self._bootstrap, group, self._topic) | options
        return self._spark.readStream.format("streamgroups").options(**settings).load()

    def windows(self, group: str, **options: str) -> None:
        """The number of records in each window of ten seconds."""
        timed = self.read(group, **options).withWatermark("timestamp", "0 seconds")
        counted = sg.windows(
            timed,
            on="timestamp",
            by=["key"],
            window=sg.shapes.tumbling("10s"),
            aggregate={"records": "count(*)"},
            name="minutes",
        )
        rows = counted.selectExpr("concat_ws(' ', CAST(key AS STRING), unix_millis(window_start), records) AS value")
        sink = sg.KafkaSink(bootstrap_servers=self._bootstrap, topic=self._output)
        self._run(sg.exactly_once(rows, sink=sink, checkpoint=str(self._directory / "windows")))

    def plain(self, group: str, checkpoint: str = "plain", **options: str) -> int:
        """Returns the number of records that it has read."""
        found: list[int] = []
        rows = self.read(group, **options)
        writer = rows.writeStream.foreachBatch(lambda batch, _: found.append(batch.count()))
        self._run(writer.option("checkpointLocation", str(self._directory / checkpoint)))
        return sum(found)

    @staticmethod
    def _run(writer: DataStreamWriter) -> None:
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(90)
        finally:
            query.stop()

    def closed(self) -> dict[tuple[int, int], int]:
        """The records of each window in the output, by partition and second."""
        rows = [tuple(map(int, it.value.decode().split())) for it in read_committed(self._bootstrap, self._output)]
        assert max(Counter(row[:2] for row in rows).values(), default=1) == 1, "no window is there twice"
        return {(partition, (begins_ms - START_MS) // 1_000): records for partition, begins_ms, records in rows}

    def write(self, first_s: int, end_s: int) -> None:
        """Writes one record a second to each partition."""
        producer = ordered_producer(self._bootstrap)
        for second in range(first_s, end_s):
            for partition in range(PARTITIONS):
                producer.produce(self._topic, b"", str(partition), partition, timestamp=START_MS + second * 1_000)
        assert producer.flush(30) == 0


@pytest.fixture
def programs(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path) -> Programs:
    return Programs(spark, bootstrap, new_topic(PARTITIONS, retention_ms="-1"), new_topic(1), tmp_path)


def rejected(run: Callable[..., Any], *args: Any, **options: str) -> str:
    with pytest.raises(StreamingQueryException) as failed:
        run(*args, **options)
    return str(failed.value)


@LONG
def test_S14_a_stateless_query_does_not_take_the_records_of_windows(programs: Programs, group: str) -> None:
    programs.write(0, 25)
    programs.windows(group)
    programs.write(25, 45)
    text = rejected(programs.plain, group)
    assert f"Group '{group}' belongs to another program" in text
    assert "'windows:minutes -> kafka:" in text
    assert "this program is 'none'" in text
    programs.write(45, 55)
    programs.windows(group)
    assert programs.closed() == {(p, begins): 10 for p in range(PARTITIONS) for begins in range(0, 50, 10)}

    # The program without state replaces the windows on purpose, and the windows are rejected from then on.
    assert programs.plain(group, onOtherProgram="continue") == 0
    programs.write(55, 60)
    assert "was committed by 'none'" in rejected(programs.windows, group)
    assert programs.plain(group) == 5 * PARTITIONS


@LONG
def test_S14_windows_do_not_join_a_running_stateless_query(
    programs: Programs, spark: SparkSession, bootstrap: str, group: str
) -> None:
    programs.write(0, 10)
    with running_query(spark, shared_options(bootstrap, group, programs._topic)) as sink:
        wait_until(lambda: len(sink.records) == 10 * PARTITIONS, "the query reads everything")
        wait_until(
            lambda: committed_offsets(bootstrap, group, programs._topic) == dict.fromkeys(range(PARTITIONS), 10),
            "everything is committed",
        )
        for options in ({}, {"onOtherProgram": "continue"}):
            text = rejected(programs.windows, group, **options)
            assert "was committed by 'none'" in text
            assert "live members are streamgroups-" in text
        with sg.cursors.GroupCursors(bootstrap) as cursors, pytest.raises(ProgramMismatch, match="'cursors'"):
            cursors.create_group_cursor(programs._topic, group, "worker", sg.cursors.TRIM_HORIZON)
        programs.write(10, 20)
        wait_until(lambda: len(sink.records) == 20 * PARTITIONS, "the query keeps its partitions")


def test_S15_a_checkpoint_of_another_group_is_rejected(programs: Programs, bootstrap: str, group: str) -> None:
    produce(bootstrap, programs._topic, 100, partitions=PARTITIONS)
    assert programs.plain(group) == 100
    second = f"{group}-2"
    text = rejected(programs.plain, second)
    assert f"belongs to group '{group}', but the query has group.id={second}" in text
    assert "new checkpointLocation" in text
    assert committed_offsets(bootstrap, second, programs._topic) == {}
    assert programs.plain(second, checkpoint="second") == 100, "the remedy"
