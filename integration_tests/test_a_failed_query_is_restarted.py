"""X2: a supervised query resumes from its checkpoint after a failure, ends after too many failures, and stops on
request. A failed batch can run again without a restart.
"""

from __future__ import annotations

import logging
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import QueryGivenUp
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import QueryProcess, all_records, arrived_records, shared_options
from streamgroups_testkit.reading import end_offsets
from streamgroups_testkit.waits import wait_until

PARTITIONS = 2
RECORDS = 40


class Unreliable:
    """A query in batches of 10 records, which runs until it has read all records. Its sink fails on request."""

    def __init__(self, spark: SparkSession, options: dict[str, str], checkpoint: Path, fails_at: list[int]) -> None:
        self._spark, self._options, self._checkpoint = spark, options, checkpoint
        self._fails_at = list(fails_at)
        self.write: Callable[[DataFrame, int], None] = self._write
        self.runs = 0
        self.records: Counter[tuple[str, int, int]] = Counter()

    def start(self) -> StreamingQuery:
        self.runs += 1
        reader = self._spark.readStream.format("streamgroups").options(**self._options)
        return (
            reader.option("maxOffsetsPerTrigger", "10")
            .load()
            .writeStream.foreachBatch(self.write)
            .queryName("departures")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def _write(self, batch: DataFrame, _batch_id: int) -> None:
        rows = [(r.topic, r.partition, r.offset) for r in batch.select("topic", "partition", "offset").collect()]
        if rows and self._fails_at and self._fails_at[0] == self.records.total():
            del self._fails_at[0]
            raise RuntimeError("the sink is down")
        self.records.update(rows)


@pytest.fixture
def topic(new_topic: Callable[..., str], bootstrap: str) -> str:
    made = new_topic(PARTITIONS)
    produce(bootstrap, made, RECORDS, partitions=PARTITIONS)
    return made


@pytest.fixture
def unreliable(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> Callable[..., Unreliable]:
    def make(fails_at: list[int], **more: str) -> Unreliable:
        options = {**shared_options(bootstrap, group, topic, "classic"), **more}
        return Unreliable(spark, options, tmp_path / "checkpoint", fails_at)

    return make


def test_it_resumes_where_it_failed(
    unreliable: Callable[..., Unreliable],
    bootstrap: str,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The batches between two failures reset the count of failures; otherwise two failures would exceed the limit."""
    query = unreliable(fails_at=[0, 10, 10])
    before = signal.getsignal(signal.SIGTERM)
    policy = sg.supervision.RestartPolicy(first_wait_ms=1, max_failures=2)
    with caplog.at_level(logging.WARNING, "streamgroups_spark.ops.supervise"):
        outcome = sg.supervise(query.start, policy=policy)
    assert (outcome.stopped_by_signal, outcome.restarts, query.runs) == (False, 3, 4)
    assert query.records == dict.fromkeys(all_records(topic, end_offsets(bootstrap, topic, PARTITIONS)), 1)
    assert signal.getsignal(signal.SIGTERM) is before
    # Py4J also logs exceptions of foreachBatch.
    reported = [r.getMessage() for r in caplog.records if r.name == "streamgroups_spark.ops.supervise"]
    again = "Query departures failed and restarts in _ s"
    first = f"{again} (failure 1 of 2 without a finished batch): RuntimeError: the sink is down"
    later = f"{again} (it had finished batches): RuntimeError: the sink is down"
    assert [re.sub(r"\d+\.\d s", "_ s", line) for line in reported] == [first, later, first]


@LONG
def test_a_failed_batch_runs_again_in_the_same_run(
    unreliable: Callable[..., Unreliable], bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    query = unreliable(fails_at=[0, 10, 10])
    query.write = sg.supervision.retry_batches(query.write)
    with caplog.at_level(logging.WARNING, "streamgroups_spark.ops.supervise"):
        query.start().awaitTermination()
    assert query.records == dict.fromkeys(all_records(topic, end_offsets(bootstrap, topic, PARTITIONS)), 1)
    reported = [r.getMessage() for r in caplog.records if r.name == "streamgroups_spark.ops.supervise"]
    again = "Batch {} runs again in {} s, because attempt {} of 3 has failed: RuntimeError: the sink is down"
    assert reported == [again.format(0, 0.2, 1), again.format(1, 0.2, 1), again.format(1, 0.4, 2)]


def test_it_is_not_restarted_after_failures_in_a_row(unreliable: Callable[..., Unreliable]) -> None:
    """A failed start also counts as a failure."""
    query = unreliable(fails_at=[0] * 9)
    cannot = [OSError("no such disk")]

    def start() -> StreamingQuery:
        if cannot:
            raise cannot.pop()
        return query.start()

    with pytest.raises(QueryGivenUp, match="2 consecutive runs failed before they finished a batch") as given_up:
        sg.supervise(start, policy=sg.supervision.RestartPolicy(first_wait_ms=1, max_failures=2))
    assert "RuntimeError: the sink is down" in str(given_up.value)
    assert isinstance(given_up.value.__cause__, StreamingQueryException)
    assert query.runs == 1


def test_it_is_not_restarted_for_what_does_not_pass(unreliable: Callable[..., Unreliable]) -> None:
    """Supervision recognizes errors of the source through Spark."""
    query = unreliable(fails_at=[], subscribe="nonesuch")
    with pytest.raises(QueryGivenUp, match=r"is not transient.*UnknownTopic: Topic 'nonesuch' does not exist"):
        sg.supervise(query.start)
    assert query.runs == 1


@pytest.mark.long
def test_it_stops_on_request_and_detects_when_spark_is_gone(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """SIGTERM stops it cleanly. The program then restarts it from its checkpoint, and its JVM is killed."""
    query = QueryProcess(tmp_path, "alice", shared_options(bootstrap, group, topic, "classic"), supervised=2).start()
    try:
        query.wait_for_batches(1)
        assert query.process is not None
        query.process.send_signal(signal.SIGTERM)
        wait_until(
            lambda: "SupervisedRun(stopped_by_signal=True, restarts=0)" in query.log(),
            f"it has stopped:\n{query.log()}",
        )
        everything = all_records(topic, end_offsets(bootstrap, topic, PARTITIONS))
        assert arrived_records(tmp_path) == dict.fromkeys(everything, 1)

        produce(bootstrap, topic, RECORDS, partitions=PARTITIONS, first=RECORDS)
        query.wait_for_batches(2)
        jvm = re.findall(r"^jvm (\d+)$", query.log_path.read_text(), re.MULTILINE)[-1]
        os.kill(int(jvm), signal.SIGKILL)
        assert query.wait_for_end(30) == 1
        assert "QueryGivenUp: Query" in query.log()
        assert "Spark's JVM has stopped" in query.log()
        assert set(arrived_records(tmp_path)) == all_records(topic, end_offsets(bootstrap, topic, PARTITIONS))
    finally:
        query.kill()
