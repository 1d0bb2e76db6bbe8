"""C3, C5: a savepoint of a running exclusive query contains its checkpoint, and a fork continues with Spark's own windows.

The rows of the fork are those that the original has written after the copied batch, and together with the rows before it they
are those of a plain program over all records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.killed_commands import RESTORE_POINTS, Point, is_killed, run_command
from integration_tests.test_state_follows_its_partition import PARTITIONS, Records
from integration_tests.tiers import LONG
from streamgroups_testkit.queries import exclusive_options
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

SIZE_S = 10
_BETWEEN_FILES = Point("streamgroups_admin.checkpoints.checkpoint_files", "CheckpointFiles", "copy", call=3)

#: The start of a window in milliseconds, its key, and the number of its records.
Row = tuple[int, str, int]


class SparkWindows:
    """A query with windows of Spark in an exclusive group."""

    def __init__(self, spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
        #: The rows of each batch.
        self.rows: dict[int, list[Row]] = {}
        self._spark, self._options, self.checkpoint = spark, options, checkpoint

    def start(self) -> StreamingQuery:
        session = self._spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "2")
        records = session.readStream.format("streamgroups").options(**self._options).load()
        window = F.window("timestamp", f"{SIZE_S} seconds")
        timed = records.withColumn("key", F.expr("cast(key AS string)")).withWatermark("timestamp", "1 minute")
        counts = timed.groupBy(window, "key").count()
        rows = counts.select(F.unix_millis("window.start").alias("start"), "key", "count")

        def keep(batch: DataFrame, number: int) -> None:
            self.rows[number] = [(int(it["start"]), str(it["key"]), int(it["count"])) for it in batch.collect()]

        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(processingTime="200 milliseconds").start()

    def after(self, batch_id: int) -> Counter[Row]:
        return Counter(row for number, rows in self.rows.items() if number > batch_id for row in rows)


def closed(records: Records) -> Counter[Row]:
    """The windows before the last record of each partition."""
    starts = Counter(
        (time_ms - time_ms % (SIZE_S * 1_000), key) for written in records.written for time_ms, key, _ in written[:-1]
    )
    return Counter((start, key, count) for (start, key), count in starts.items())


def until(query: StreamingQuery, condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition, while the query runs."""

    def is_met() -> bool:
        assert query.exception() is None
        return condition()

    wait_until(is_met, what, interval_s=0.5)


@LONG
def test_C3_C5_a_fork_continues_with_the_windows_of_spark(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(PARTITIONS, retention_ms="-1")
    records = Records(bootstrap, topic)

    def query(name: str, of_group: str) -> SparkWindows:
        options = exclusive_options(bootstrap, of_group, topic, "consumer") | {"maxOffsetsPerTrigger": "200"}
        return SparkWindows(spark, options, tmp_path / name)

    def all_is_written(windows: SparkWindows) -> bool:
        last = {(start, key) for start, key, _ in closed(records)}
        return last <= {(start, key) for rows in windows.rows.values() for start, key, _ in rows}

    original, fork = query("original", group), query("fork", f"{group}-fork")
    savepoints = sg.savepoints.Savepoints(str(tmp_path / "savepoints"), bootstrap_servers=bootstrap)
    running = original.start()
    try:
        records.write(150)
        until(running, lambda: sum(committed_offsets(bootstrap, group, topic).values()) >= 200, "batches are committed")
        made = savepoints.create(group, checkpoint=str(original.checkpoint))
        records.write(150)
        records.end()
        until(running, lambda: all_is_written(original), "all windows are closed")
    finally:
        running.stop()
    assert made.checkpoint is not None
    assert original.after(-1) == closed(records)
    # Spark deletes old batches later.
    original.checkpoint.rename(tmp_path / "deleted")

    restore = ("savepoint", "restore", savepoints.location, made.id, "-b", bootstrap, "--group", f"{group}-fork")
    into = (*restore, "--checkpoint", str(fork.checkpoint), "--execute")
    # The same command finishes a restore that was killed.
    for point in (_BETWEEN_FILES, RESTORE_POINTS["before-commit"]):
        killed = run_command(point, *into)
        assert is_killed(killed), f"exit code {killed.returncode}: {killed.stderr}"
        assert not committed_offsets(bootstrap, f"{group}-fork", topic)
    restored = streamgroups(*into, "-o", "json")
    assert restored.returncode == 0, restored.stderr
    moves = {it["partition"]: it["to_offset"] for it in json.loads(restored.stdout)["moves"]}
    assert moves == {tp.partition: n for tp, n in made.next_offsets.items()}
    expected = original.after(made.checkpoint.batch_id)
    running = fork.start()
    try:
        until(running, lambda: fork.after(-1) >= expected, "the fork closes all windows")
    finally:
        running.stop()
    assert fork.after(-1) == expected
    # The state of the copied batch was needed: windows have records before and after it.
    assert min(fork.rows) > made.checkpoint.batch_id
    alone = Counter(
        (time_ms - time_ms % (SIZE_S * 1_000), key)
        for tp, n in made.next_offsets.items()
        for time_ms, key, _ in records.written[tp.partition][n:-1]
    )
    assert any(alone[start, key] != count for start, key, count in fork.after(-1))


@LONG
def test_C2_C3_the_same_group_with_a_ledger_continues_with_the_windows_of_spark(
    spark: SparkSession, bootstrap: str, group: str, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The ledger follows the group back, with the default of onRestart. The old checkpoint is rejected, twice."""
    topic = new_topic(PARTITIONS, retention_ms="-1")
    records, old, new = Records(bootstrap, topic), tmp_path / "old", tmp_path / "new"
    sink = sg.DeltaSink(uri=str(tmp_path / "board"), mode="upsert", key=("start", "key"))
    options = exclusive_options(bootstrap, group, topic, "consumer") | {"maxOffsetsPerTrigger": "200"}

    def run(checkpoint: Path) -> None:
        session = spark.newSession()
        sg.register(session)
        session.conf.set("spark.sql.shuffle.partitions", "2")
        source = session.readStream.format("streamgroups").options(**options).load()
        timed = source.withColumn("key", F.expr("cast(key AS string)")).withWatermark("timestamp", "1 minute")
        counts = timed.groupBy(F.window("timestamp", f"{SIZE_S} seconds"), "key").count()
        rows = counts.select(F.unix_millis("window.start").alias("start"), "key", "count")
        query = sg.exactly_once(rows, sink=sink, checkpoint=str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert sum(committed_offsets(bootstrap, group, topic).values()) == sum(map(len, records.written))

    records.write(150)
    run(old)
    savepoints = sg.savepoints.Savepoints(str(tmp_path / "savepoints"), bootstrap_servers=bootstrap)
    made = savepoints.create(group, sink=sink, checkpoint=str(old))
    records.write(150)
    run(old)
    savepoints.restore(made.id, checkpoint=str(new), sink=sink, accept_repeated_output=True)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="restored to a savepoint"):
            run(old)
    records.end()
    run(new)
    table = DeltaTable(sink.uri).to_pyarrow_table().to_pylist()
    last = {(start, key) for start, key, _ in closed(records)}
    assert Counter((it["start"], it["key"], it["count"]) for it in table if (it["start"], it["key"]) in last) == closed(
        records
    )
