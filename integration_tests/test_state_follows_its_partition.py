"""S9, S10, C2: the state of a partition follows it to its next owner, and a reset moves it with the position."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.programs import Program, running
from integration_tests.state_query import DELAY_S, LATENESS_S, SIZE_S, start
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import (
    committed_metadata,
    committed_offsets,
    read_committed,
    wait_until_group_is_empty,
    wait_until_no_transaction_is_open,
)
from streamgroups_testkit.waits import wait_until

PARTITIONS = 4
START_MS = 1_750_000_000_000
Result = tuple[int, int]


class Records:
    """Records with times out of order, written to a topic and counted one by one."""

    def __init__(self, bootstrap: str, topic: str, seed: int = 7) -> None:
        self._producer, self._topic = ordered_producer(bootstrap), topic
        self._random = random.Random(seed)
        self._clocks = [START_MS] * PARTITIONS
        self.written: list[list[tuple[int, str, int]]] = [[] for _ in range(PARTITIONS)]

    def write(self, count: int) -> None:
        """Writes records to each partition."""
        choose = self._random
        for partition in range(PARTITIONS):
            for _ in range(count):
                self._clocks[partition] += choose.randint(0, 200)
                late_ms = 0 if choose.random() < 0.7 else choose.randint(0, 20_000)
                record = (
                    self._clocks[partition] - late_ms,
                    f"{partition}-{choose.randint(0, 20)}",
                    choose.randint(0, 9),
                )
                self.written[partition].append(record)
                self._send(partition, record)
        assert self._producer.flush(30) == 0

    def end(self) -> None:
        """Writes a record to each partition that closes all windows."""
        for partition in range(PARTITIONS):
            record = (self._clocks[partition] + 10_000_000, f"{partition}-end", 0)
            self.written[partition].append(record)
            self._send(partition, record)
        assert self._producer.flush(30) == 0

    def _send(self, partition: int, record: tuple[int, str, int]) -> None:
        time_ms, key, value = record
        self._producer.produce(self._topic, str(value), key, partition, timestamp=time_ms)
        self._producer.poll(0)

    @property
    def ends(self) -> dict[int, int]:
        return {partition: len(records) for partition, records in enumerate(self.written)}

    def results(self, until: list[int] | None = None) -> dict[tuple[int, str], Result]:
        """The result of each closed window, record by record."""
        found: dict[tuple[int, str], Result] = {}
        for partition, records in enumerate(self.written):
            newest_ms: int | None = None
            panes: dict[tuple[int, str], list[int]] = defaultdict(list)
            for time_ms, key, value in records[: None if until is None else until[partition]]:
                window_ms = time_ms - time_ms % (SIZE_S * 1_000)
                end_ms = window_ms + SIZE_S * 1_000
                if newest_ms is None or end_ms + LATENESS_S * 1_000 > newest_ms - DELAY_S * 1_000:
                    panes[window_ms, key].append(value)
                newest_ms = time_ms if newest_ms is None else max(newest_ms, time_ms)
            for (window_ms, key), values in panes.items():
                if newest_ms is not None and window_ms + SIZE_S * 1_000 <= newest_ms - DELAY_S * 1_000:
                    found[window_ms, key] = (len(values), sum(values))
        return found


def current(rows: list[dict[str, Any]]) -> dict[tuple[int, str], Result]:
    """The result with the highest revision of each window and key."""
    found: dict[tuple[int, str], tuple[int, Result]] = {}
    for row in rows:
        place, result = (row["start"], row["key"]), (row["revision"], (row["n"], row["total"]))
        assert place not in found or found[place][0] != result[0] or found[place] == result, (
            "two results of one revision"
        )
        found[place] = max(found.get(place, result), result)
    return {place: result for place, (_, result) in found.items()}


def read_rows(output: Path, name: str = "*") -> list[dict[str, Any]]:
    return [row for path in output.glob(f"{name}-*.json") for row in json.loads(path.read_text())]


class Runs:
    """Runs the query to the end of the topic, in the session of the test."""

    def __init__(self, spark: SparkSession, directory: Path, options: dict[str, str]) -> None:
        self._spark, self._directory, self.options = spark, directory, options
        self.output = directory / "output"

    def start(self, name: str, **more: Any) -> StreamingQuery:
        config = {
            "name": name,
            "output": str(self.output),
            "checkpoint": str(self._directory / "checkpoints" / name),
            "options": self.options,
            **more,
        }
        return start(self._spark, config)

    def run(self, name: str, **options: str) -> None:
        query = self.start(name, options={**self.options, **options}, trigger={"availableNow": True})
        assert query.awaitTermination(120)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(PARTITIONS, retention_ms="-1")


@pytest.fixture
def records(bootstrap: str, topic: str) -> Records:
    return Records(bootstrap, topic)


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, group: str, topic: str, tmp_path: Path) -> Runs:
    options = shared_options(bootstrap, group, topic, "consumer") | {"maxOffsetsPerTrigger": "700"}
    return Runs(spark, tmp_path, options)


@LONG
def test_C2_S10_a_new_checkpoint_continues_with_the_state_of_the_group(
    runs: Runs, records: Records, bootstrap: str, group: str, topic: str
) -> None:
    records.write(200)
    runs.run("first")
    records.write(200)
    runs.run("second")
    records.end()
    runs.run("third")
    assert committed_offsets(bootstrap, group, topic) == records.ends
    assert current(read_rows(runs.output)) == records.results()
    marks = committed_metadata(bootstrap, group, topic).values()
    assert all(";state=" in mark for mark in marks)


@LONG
def test_S10_a_reset_moves_the_state_with_the_position(
    runs: Runs, records: Records, bootstrap: str, group: str, topic: str, admin: AdminClient
) -> None:
    records.write(500)
    records.end()
    runs.run("first")
    targets = [123, 500, 0, 377]
    offsets = [TopicPartition(topic, p, offset) for p, offset in enumerate(targets)]
    wait_until_group_is_empty(admin, group)
    reset = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result(30)
    assert [tp.error for tp in reset.topic_partitions if tp.error is not None] == []
    runs.run("again")
    whole, before = records.results(), records.results(targets)
    # The rows after the reset are those that the records after it change, with the results of all records.
    assert current(read_rows(runs.output, "again")) == {k: v for k, v in whole.items() if before.get(k) != v}


def command_line(bootstrap: str, *arguments: str) -> Any:
    """The JSON document of a command of ``streamgroups``."""
    result = streamgroups(*arguments, "-b", bootstrap, "-o", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def state_rows(registry: CollectorRegistry) -> dict[int, int]:
    """The rows in the state of each partition, by the metrics of the query."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = (it for family in families for it in family.samples if it.name == "streamgroups_partition_state_rows")
    return {int(it.labels["partition"]): int(it.value) for it in samples}


@LONG
def test_S10_a_running_query_continues_with_the_states_that_the_plan_of_its_reset_shows(
    spark: SparkSession, runs: Runs, records: Records, bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    location = str(tmp_path / "checkpoints" / "streamgroups-state")
    at = ("--state-location", location)

    def all_is_committed() -> bool:
        assert query.isActive, query.exception()
        return committed_offsets(bootstrap, group, topic) == records.ends

    registry = CollectorRegistry()
    with sg.reports.MetricsListener(registry=registry):
        records.write(600)
        query = runs.start("live")
        try:
            wait_until(all_is_committed, "all is read")
            # Each batch reads 175 records of a partition, so the target is in a batch.
            reset = ["groups", "reset", group, "--topic", topic, "--shift-by", "-300", "--execute"]
            moves = command_line(bootstrap, *reset, *at)["moves"]
            assert [(it["to_offset"], it["state"]) for it in moves] == [(300, "stored")] * PARTITIONS
            assert [300 - it["state_offset"] for it in moves] == [it["read_again"] for it in moves]
            assert any(it["read_again"] > 0 for it in moves)
            records.write(100)
            wait_until(all_is_committed, "all is read again")
            [described] = command_line(bootstrap, "groups", "describe", group, "--state", *at)["groups"]
            rows = {it["partition"]: it["state"]["rows"] for it in described["partitions"]}
            wait_until(lambda: state_rows(registry) == rows, f"the metrics show {rows}")
            assert min(rows.values()) > 0
            [collected] = command_line(bootstrap, "state", "collect", location, group, "--retention", "0s")["states"]
            assert (collected["files"] > 0, collected["files_to_delete"]) == (True, 0), "all files are young"
            records.end()
            wait_until(all_is_committed, "all windows are closed")
        finally:
            query.stop()
    assert current(read_rows(runs.output)) == records.results()


def test_S10_a_lost_state_is_an_error_and_never_an_empty_state(runs: Runs, records: Records, tmp_path: Path) -> None:
    records.write(50)
    runs.run("first")
    for file in (tmp_path / "checkpoints").rglob("*.state"):
        file.unlink()
    records.write(50)
    with pytest.raises(StreamingQueryException, match=r"does not exist in .*stateLocation.*onMissingState=empty"):
        runs.run("second")
    runs.run("third", onMissingState="empty")


@LONG
def test_S10_a_damaged_state_is_an_error_whatever_is_chosen(runs: Runs, records: Records, tmp_path: Path) -> None:
    records.write(50)
    runs.run("first")
    for file in (tmp_path / "checkpoints").rglob("*.state"):
        file.write_bytes(file.read_bytes().replace(b"bytes=", b"bytez="))
    records.write(50)
    with pytest.raises(StreamingQueryException, match="is damaged: it is not a state file"):
        runs.run("second", onMissingState="empty")


class TestRejected:
    """S9: windows over a shared stream that could not be exact are rejected when the query is built or started."""

    @pytest.fixture
    def shared(self, spark: SparkSession, runs: Runs) -> DataFrame:
        records = spark.readStream.format("streamgroups").options(**runs.options).load()
        return records.withWatermark("timestamp", "2 seconds")

    @pytest.mark.parametrize(
        ("change", "more", "text"),
        [
            (lambda df: df.select("key", "timestamp"), {"by": ["key"]}, "has no column 'partition'"),
            (lambda df: df, {"by": ["value"]}, "the values of value.*prepartitioned=True"),
            (lambda df: df, {}, "the values of no column.*prepartitioned=True"),
            (lambda df: df.repartition(2), {"by": ["key"]}, r"moves records between tasks \(Repartition\)"),
            (lambda df: df, {"by": ["key"], "time": "query"}, "'time' of sg.windows is 'query', but queries share"),
            (lambda df: df, {"by": ["key"], "time": "key"}, "'time' is 'key'.*partition, group, query"),
        ],
    )
    def test_when_the_query_is_built(
        self, shared: DataFrame, change: Callable[[DataFrame], DataFrame], more: dict[str, Any], text: str
    ) -> None:
        arguments: dict[str, Any] = {
            "window": sg.shapes.tumbling("5s"),
            "aggregate": {"n": "count(*)"},
            "on": "timestamp",
        }
        with pytest.raises(InvalidOption, match=text):
            sg.windows(change(shared), **arguments | more)

    def test_sparks_own_state(self, shared: DataFrame, tmp_path: Path) -> None:
        query = shared.groupBy("key").count().writeStream.format("noop").outputMode("complete")
        with pytest.raises(StreamingQueryException, match="The query is stateful"):
            query.option("checkpointLocation", str(tmp_path / "own")).start().awaitTermination(60)

    def test_a_sink_that_does_not_read_its_batch(self, shared: DataFrame, records: Records, tmp_path: Path) -> None:
        records.write(10)
        counted = sg.windows(
            shared, window=sg.shapes.tumbling("5s"), aggregate={"n": "count(*)"}, on="timestamp", by=["key"]
        )
        writer = counted.writeStream.foreachBatch(lambda _batch, _id: None)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
        with pytest.raises(StreamingQueryException, match="no task has written the states"):
            query.awaitTermination(60)


# ``make test`` runs the demo, in which two queries share windows and one is killed.
@LONG
def test_S10_X2_two_queries_share_windows_and_one_is_killed(
    admin: AdminClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    topic: str,
    records: Records,
    tmp_path: Path,
) -> None:
    target = new_topic(2)
    options = shared_options(bootstrap, group, topic, "consumer") | {"maxOffsetsPerTrigger": "400"}
    sink = {"bootstrap_servers": bootstrap, "topic": target, "transaction_timeout": "10s"}
    members: dict[str, Program] = {}

    def begin(name: str) -> None:
        config = {
            "name": name,
            "checkpoint": str(tmp_path / "checkpoints" / name),
            "options": {**options, "kafka.client.id": name},
            "to": sink,
        }
        members[name] = programs.enter_context(running("state_query", config, tmp_path / f"{name}.log"))

    def owners() -> set[str]:
        for member in members.values():
            member.check()
        try:
            described = admin.describe_consumer_groups([group])[group].result(30)
        except KafkaException:
            # The group has no coordinator yet.
            return set()
        return {member.client_id for member in described.members if member.assignment.topic_partitions}

    def all_read() -> bool:
        for member in members.values():
            member.check()
        return committed_offsets(bootstrap, group, topic) == records.ends

    with ExitStack() as programs:
        begin("ann")
        begin("bob")
        records.write(300)
        wait_until(lambda: owners() == {"ann", "bob"}, "both queries own partitions", 120)
        records.write(300)
        wait_until(lambda: committed_offsets(bootstrap, group, topic) == records.ends, "both have read", 120)
        records.write(600)
        members.pop("bob").kill()
        begin("cem")
        records.write(300)
        wait_until(lambda: owners() == {"ann", "cem"}, "the new query owns partitions", 120)
        records.write(300)
        records.end()
        wait_until(all_read, "all is read", 120)
    wait_until_no_transaction_is_open(bootstrap, target)
    rows = [json.loads(message.value) for message in read_committed(bootstrap, target)]
    places = Counter((row["start"], row["key"], row["revision"]) for row in rows)
    assert [place for place, times in places.items() if times > 1] == []
    assert current(rows) == records.results()
