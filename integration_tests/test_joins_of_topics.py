"""W18, S10, X2: a join has each row once, also if a query is killed, or a tool resets one of its topics."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.join_query import joined, start
from integration_tests.programs import running
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups_operators.joins.join_definition import How
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import (
    committed_offsets,
    read_committed,
    wait_until_group_is_empty,
    wait_until_no_transaction_is_open,
)
from streamgroups_testkit.waits import wait_until
from unit_tests.streamgroups_operators.join_model import Record, brute_force

PARTITIONS = 4
#: Partition, key, the left and the right offset, and whether the record is late.
Row = tuple[int, str | None, int | None, int | None, bool]


class Records:
    """Records of two topics, with times out of order, and their join by brute force."""

    def __init__(self, bootstrap: str, topics: tuple[str, str], seed: int = 7) -> None:
        self._producer, self.topics = ordered_producer(bootstrap), topics
        self._random = random.Random(seed)
        self.written: list[tuple[list[Record], list[Record]]] = [([], []) for _ in range(PARTITIONS)]

    def write(self, count: int) -> None:
        """Writes records to each partition of both topics."""
        choose = self._random
        for partition, sides in enumerate(self.written):
            for _ in range(count):
                for side in choose.sample((0, 1), 2):
                    at_s = len(sides[side]) // 10 - (0 if choose.random() < 0.7 else choose.randint(0, 5))
                    key = None if choose.random() < 0.05 else f"{partition}-{choose.randint(0, 20)}"
                    self._send(partition, side, Record(at_s, key))
        assert self._producer.flush(30) == 0

    def end(self) -> None:
        """Writes a record to each partition after which no earlier one has a match."""
        for partition in range(PARTITIONS):
            for side in (0, 1):
                self._send(partition, side, Record(1_000_000, f"{partition}-end"))
        assert self._producer.flush(30) == 0

    def _send(self, partition: int, side: int, record: Record) -> None:
        assert record.time_us is not None
        self.written[partition][side].append(record)
        self._producer.produce(self.topics[side], b"", record.key, partition, timestamp=record.time_us // 1_000)
        self._producer.poll(0)

    @property
    def ends(self) -> tuple[dict[int, int], dict[int, int]]:
        left, right = ({partition: len(sides[side]) for partition, sides in enumerate(self.written)} for side in (0, 1))
        return left, right

    def rows(self, until: tuple[int, int] | None = None) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for partition, sides in enumerate(self.written):
            upto = until or (len(sides[0]), len(sides[1]))
            for (key, _, one, other, late), times in brute_force(sides, upto, How.FULL).items():
                row = partition, key, None if one is None else int(one), None if other is None else int(other), late
                found[row] += times
        return found


def written(bootstrap: str, target: str) -> Counter[Row]:
    rows = (json.loads(message.value) for message in read_committed(bootstrap, target))
    return Counter((it["partition"], it.get("key"), it.get("one"), it.get("other"), it["late"]) for it in rows)


@pytest.fixture
def topics(new_topic: Callable[..., str]) -> tuple[str, str]:
    return new_topic(PARTITIONS, retention_ms="-1"), new_topic(PARTITIONS, retention_ms="-1")


@pytest.fixture
def records(bootstrap: str, topics: tuple[str, str]) -> Records:
    return Records(bootstrap, topics)


@pytest.fixture
def target(new_topic: Callable[..., str]) -> str:
    return new_topic(2)


@pytest.fixture
def config(bootstrap: str, group: str, topics: tuple[str, str], target: str) -> dict[str, Any]:
    assigned = {"kafka.group.remote.assignor": "range", "maxOffsetsPerTrigger": "800"}
    return {
        "left": topics[0],
        "right": topics[1],
        "options": shared_options(bootstrap, group, ",".join(topics), "consumer") | assigned,
        "to": {"bootstrap_servers": bootstrap, "topic": target, "transaction_timeout": "10s"},
    }


@LONG
def test_S10_X2_W18_two_queries_share_a_join_and_one_is_killed(
    spark: SparkSession,
    admin: AdminClient,
    bootstrap: str,
    group: str,
    target: str,
    records: Records,
    config: dict[str, Any],
    tmp_path: Path,
) -> None:
    ann: StreamingQuery | None = None

    def of(name: str) -> dict[str, Any]:
        options = {**config["options"], "kafka.client.id": name}
        return config | {"checkpoint": str(tmp_path / "checkpoints" / name), "options": options}

    def owned() -> dict[str, set[tuple[str, int]]]:
        try:
            described = admin.describe_consumer_groups([group])[group].result(30)
        except KafkaException:
            # The group has no coordinator yet.
            return {}
        found: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for member in described.members:
            found[member.client_id] |= {(it.topic, it.partition) for it in member.assignment.topic_partitions}
        return dict(found)

    def share() -> bool:
        bob.check()
        assert ann is not None
        assert ann.isActive, ann.exception()
        return sorted(len(it) for it in owned().values()) == [4, 4]

    def all_read() -> bool:
        assert ann is not None
        assert ann.isActive, ann.exception()
        return tuple(committed_offsets(bootstrap, group, topic) for topic in records.topics) == records.ends

    with running("join_query", of("bob"), tmp_path / "bob.log") as bob:
        try:
            ann = start(spark, of("ann"))
            records.write(150)
            wait_until(share, "each query owns half of the partitions", 120)
            left, right = records.topics
            for places in owned().values():
                assert {p for topic, p in places if topic == left} == {p for topic, p in places if topic == right}
            wait_until(all_read, "both have read")
            records.write(400)
            wait_until(lambda: len(written(bootstrap, target)) > 1_000, "some rows are written")
            bob.kill()
            records.write(150)
            records.end()
            wait_until(all_read, "all is read", 120)
        finally:
            if ann is not None:
                ann.stop()
    wait_until_no_transaction_is_open(bootstrap, target)
    rows, expected = written(bootstrap, target), records.rows()
    assert (expected - rows, rows - expected) == (Counter(), Counter())
    assert len(expected) > 5_000


def run_to_end(
    spark: SparkSession, admin: AdminClient, group: str, config: dict[str, Any], checkpoint: Path, **more: Any
) -> None:
    """Runs the query alone to the end of its topics."""
    options = shared_options(config["options"]["kafka.bootstrap.servers"], group, config["options"]["subscribe"])
    own = {"options": options | {"membership": "exclusive", "maxOffsetsPerTrigger": "800"}}
    now = {"checkpoint": str(checkpoint), "trigger": {"availableNow": True}}
    assert start(spark, config | own | now | more).awaitTermination(120)
    wait_until_group_is_empty(admin, group)


@LONG
def test_X2_W18_a_ledger_names_the_states_of_both_topics(
    spark: SparkSession, admin: AdminClient, group: str, records: Records, config: dict[str, Any], tmp_path: Path
) -> None:
    """The group and the checkpoint are lost after the first run: the positions and states are those of the ledger."""
    table = str(tmp_path / "table")
    for count in (100, 50):
        records.write(count)
        run_to_end(spark, admin, group, config, tmp_path / "checkpoints" / str(count), delta=table)
        admin.delete_consumer_groups([group])[group].result(30)
    rows = Counter(
        (it["partition"], it["key"], it["one"], it["other"], it["late"])
        for it in DeltaTable(table).to_pyarrow_table().to_pylist()
    )
    expected = records.rows()
    assert (expected - rows, rows - expected) == (Counter(), Counter())


@LONG
def test_S10_W18_a_reset_of_one_topic_joins_its_records_again(
    spark: SparkSession,
    admin: AdminClient,
    bootstrap: str,
    group: str,
    target: str,
    records: Records,
    config: dict[str, Any],
    tmp_path: Path,
) -> None:
    def run(name: str) -> Counter[Row]:
        before = written(bootstrap, target)
        run_to_end(spark, admin, group, config, tmp_path / name)
        return written(bootstrap, target) - before

    records.write(200)
    assert run("first") == records.rows()
    back = [TopicPartition(records.topics[0], partition, 77) for partition in range(PARTITIONS)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, back)])[group].result(30)
    assert run("again") == records.rows() - records.rows((77, 200))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"kafka.group.protocol": "classic"},
            "protocol classic, .*kafka.group.remote.assignor=range .*membership=exclusive",
        ),
        pytest.param({"kafka.group.remote.assignor": "uniform"}, "remote assignor uniform", marks=LONG),
        pytest.param({"subscribe": "{left},{right},{target}"}, "its stream also reads '{target}'", marks=LONG),
        pytest.param(
            {"subscribe": "{left},{target}"},
            "'{left}' with 4 partitions and '{target}' with 2 partitions.*sg.repartition",
            marks=LONG,
        ),
    ],
)
def test_W18_partitions_that_do_not_belong_together_are_rejected(
    spark: SparkSession, config: dict[str, Any], options: dict[str, str], text: str, target: str, tmp_path: Path
) -> None:
    names = {"left": config["left"], "right": config["right"], "target": target}
    given = {**config["options"], **{name: value.format(**names) for name, value in options.items()}}
    if "kafka.group.protocol" in options:
        del given["kafka.group.remote.assignor"]
    right = target if given["subscribe"].count(",") == 1 and target in given["subscribe"] else config["right"]
    rows = joined(spark, config["left"], right, given)
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(StreamingQueryException, match=text.format(**names)):
        query.awaitTermination(60)


@pytest.mark.parametrize(
    ("change", "more", "text"),
    [
        (lambda df: df.drop("topic"), {}, "has no column 'topic'"),
        (lambda df: df.drop("offset"), {}, "has no column 'offset'"),
        (lambda df: df, {"by": []}, "'by' is empty"),
        (lambda df: df, {"by": ["value"]}, "the values of value.*prepartitioned=True"),
        (lambda df: df, {"on": "partition"}, "'partition' is of type int"),
        (
            lambda df: df.withColumn("ts", F.col("timestamp") + F.expr("interval 1 second")),
            {"on": "ts"},
            "no watermark",
        ),
        (lambda df: df, {"right": "orders"}, "both 'orders'"),
        (lambda df: df, {"how": "outer"}, "'how' is 'outer'.*'full'"),
        (lambda df: df, {"within": "soon"}, "within"),
        (lambda df: df.withColumnRenamed("key", "left"), {"by": ["left"]}, "name 'left'"),
        (lambda df: df.repartition(2), {}, r"moves records between tasks \(Repartition\)"),
    ],
)
def test_W18_arguments_are_checked_when_the_query_is_built(
    spark: SparkSession,
    config: dict[str, Any],
    change: Callable[[DataFrame], DataFrame],
    more: dict[str, Any],
    text: str,
) -> None:
    records = spark.readStream.format("streamgroups").options(**config["options"]).load()
    arguments: dict[str, Any] = {
        "left": "orders",
        "right": "payments",
        "by": ["key"],
        "on": "timestamp",
        "within": "1m",
    }
    with pytest.raises(InvalidOption, match=text):
        sg.join(change(records.withWatermark("timestamp", "1 second")), **arguments | more)
