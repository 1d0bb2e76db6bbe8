"""X5, S10: ``sg.dedup`` drops the records that a producer has sent again, and no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.dedup_query import once, start
from integration_tests.programs import Program, running
from integration_tests.protocol_proxy import ProtocolProxy
from integration_tests.protocol_rules import Action, ApiKey, Rule
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption
from streamgroups.monitoring.query_progress import DedupCounts, read_progress
from streamgroups_testkit.producing import ordered_producer, produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import (
    committed_offsets,
    end_offsets,
    read_committed,
    wait_until_group_is_empty,
    wait_until_no_transaction_is_open,
)
from streamgroups_testkit.waits import wait_until

PARTITIONS = 4
#: Each fourth response to a Produce request is lost with its connection. The producer then sends the batch again.
EACH_FOURTH = Rule(Action.LOSE, ApiKey.PRODUCE, count=None, every=4)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(PARTITIONS)


@pytest.fixture
def options(bootstrap: str, group: str, topic: str) -> dict[str, str]:
    return shared_options(bootstrap, group, topic, "consumer") | {"maxOffsetsPerTrigger": "300"}


class RetryingProducer:
    """A producer without idempotence, whose connections are cut."""

    def __init__(self, proxy: ProtocolProxy, topic: str) -> None:
        self._topic, self.delivered = topic, 0
        self._producer = Producer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "enable.idempotence": False,
                "acks": "all",
                "batch.num.messages": 20,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "log_level": 0,
            }
        )

    def write(self, first: int, end: int) -> None:
        """Writes a record for each id, and waits until the producer reports that all of them are written."""
        for n in range(first, end):
            self._producer.produce(self._topic, str(n), f"id-{n}", n % PARTITIONS, on_delivery=self._report)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _report(self, error: KafkaError | None, _: Message) -> None:
        assert error is None
        self.delivered += 1


def owners(admin: AdminClient, group: str) -> int:
    """The number of members with partitions."""
    try:
        described = admin.describe_consumer_groups([group])[group].result(30)
    except KafkaException:
        # The group has no coordinator yet.
        return 0
    return sum(bool(member.assignment.topic_partitions) for member in described.members)


def check(bootstrap: str, topic: str, target: str, ids: int) -> tuple[int, list[tuple[int, int]]]:
    """Checks that the topic has retries, and the output each id once. Returns the number of retries, and the places of
    the records in the output.
    """
    written = Counter(message.key for message in read_committed(bootstrap, topic))
    retries = sum(written.values()) - len(written)
    assert (len(written), retries > ids // 30) == (ids, True), "the producer has really written records twice"
    # The transaction of a stopped query hides later records until its timeout.
    wait_until_no_transaction_is_open(bootstrap, target, 120)
    rows = [json.loads(message.value) for message in read_committed(bootstrap, target)]
    assert Counter(row["id"] for row in rows) == Counter(f"id-{n}" for n in range(ids))
    return retries, sorted((row["partition"], row["offset"]) for row in rows)


@LONG
def test_X5_S10_retries_are_dropped_while_queries_take_over_from_each_other(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    group: str,
    topic: str,
    options: dict[str, str],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    target = new_topic(1)

    def begin(name: str) -> StreamingQuery:
        to = {"bootstrap_servers": bootstrap, "topic": target}
        return start(spark, {"options": options, "to": to, "checkpoint": str(tmp_path / name)})

    def all_read() -> bool:
        return committed_offsets(bootstrap, group, topic) == end_offsets(bootstrap, topic, PARTITIONS)

    queries = [begin("ann")]
    try:
        with ProtocolProxy(bootstrap) as proxy, proxy.rules.applying(EACH_FOURTH) as lost:
            producer = RetryingProducer(proxy, topic)
            producer.write(0, 500)
            queries.append(begin("bob"))
            producer.write(500, 1_000)
            wait_until(lambda: owners(admin, group) == 2, "both queries own partitions")
            producer.write(1_000, 1_250)
            # At any point of a batch.
            queries[0].stop()
            producer.write(1_250, 1_500)
            wait_until(all_read, "all is read")
            assert (producer.delivered, lost.done > 5) == (1_500, True)
    finally:
        counts = sum((read_progress(it.json).dedup for q in queries for it in q.recentProgress), DedupCounts())
        for query in queries:
            query.stop()
    retries, places = check(bootstrap, topic, target, 1_500)
    # A batch of the stopped query can be missing in its progress.
    assert counts.duplicates <= retries
    assert counts.too_old == 0
    assert counts.filtered > 10 * counts.false_positives
    bounded = (
        spark.read.format("streamgroups").options(subscribe=topic, **{"kafka.bootstrap.servers": bootstrap}).load()
    )
    assert places == sorted(
        (row.partition, row.offset) for row in once(bounded).select("partition", "offset").collect()
    )


@LONG
def test_X5_S10_retries_are_dropped_while_queries_are_killed(
    bootstrap: str,
    admin: AdminClient,
    group: str,
    topic: str,
    options: dict[str, str],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    target = new_topic(1)
    members: dict[str, Program] = {}

    def begin(name: str) -> None:
        to = {"bootstrap_servers": bootstrap, "topic": target, "transaction_timeout": "10s"}
        config = {"options": options, "to": to, "checkpoint": str(tmp_path / name)}
        members[name] = programs.enter_context(running("dedup_query", config, tmp_path / f"{name}.log"))

    def all_read() -> bool:
        for member in members.values():
            member.check()
        return committed_offsets(bootstrap, group, topic) == end_offsets(bootstrap, topic, PARTITIONS)

    with ExitStack() as programs, ProtocolProxy(bootstrap) as proxy, proxy.rules.applying(EACH_FOURTH):
        producer = RetryingProducer(proxy, topic)
        for name in ("ann", "bob"):
            begin(name)
        producer.write(0, 2_000)
        wait_until(lambda: owners(admin, group) == 2, "both queries own partitions", 120)
        for i, (killed, name) in enumerate([("ann", "cem"), ("bob", "dan"), ("cem", "eve")]):
            producer.write(2_000 + i * 2_000, 4_000 + i * 2_000)
            # Some of its batches are committed, and one is running.
            members.pop(killed).kill()
            begin(name)
        wait_until(all_read, "all is read", 180)
    check(bootstrap, topic, target, 8_000)


@LONG
def test_X5_a_reset_that_keeps_ids_returns_no_record_again(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    group: str,
    topic: str,
    options: dict[str, str],
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    target = new_topic(1)

    def run(name: str) -> list[bytes]:
        records = spark.readStream.format("streamgroups").options(**options).load()
        rows = once(records, id="value", on_reset="keep").select("value")
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=target)
        query = sg.exactly_once(rows, sink=sink, checkpoint=str(tmp_path / name)).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        return [message.value for message in read_committed(bootstrap, target)]

    produce(bootstrap, topic, 100, partitions=PARTITIONS)
    first = run("first")
    assert len(first) == len(set(first)) == 100
    wait_until_group_is_empty(admin, group)
    offsets = [TopicPartition(topic, partition, partition) for partition in range(PARTITIONS)]
    reset = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group].result(30)
    assert [tp.error for tp in reset.topic_partitions if tp.error is not None] == []
    produce(bootstrap, topic, 20, partitions=PARTITIONS, first=100)
    assert sorted(run("second")) == sorted([*first, *({m.value for m in read_committed(bootstrap, topic)} - {*first})])
    assert committed_offsets(bootstrap, group, topic) == end_offsets(bootstrap, topic, PARTITIONS)


@pytest.fixture
def stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("streamgroups").options(**options).load()


@pytest.mark.parametrize(
    ("change", "arguments", "text"),
    [
        (lambda df: df.drop("offset"), {}, "has no column 'offset'"),
        (lambda df: df, {"id": "order"}, "Column 'order' of 'id' does not exist"),
        (lambda df: df, {"id": []}, "'id' is empty"),
        (lambda df: df.withColumn("key", F.array("key")), {}, "'key' of 'id' is of type array"),
        (lambda df: df.withColumn("key", F.lit(0.5)), {}, "'key' of 'id' is of type double"),
        (lambda df: df.withColumn("key", F.expr("'a' COLLATE UTF8_LCASE")), {}, "COLLATE UTF8_BINARY"),
        (lambda df: df.drop("timestamp"), {}, "Column 'timestamp' does not exist.*set 'on'"),
        (lambda df: df, {"on": "offset"}, "'offset' is of type bigint"),
        (lambda df: df.selectExpr("*", "key"), {}, "2 columns have the name 'key'"),
        (lambda df: df.withColumn("id_high", F.lit(1)), {}, "uses the column name 'id_high' itself"),
        (lambda df: df, {"horizon": "0s"}, "'horizon' is 0"),
        (lambda df: df, {"horizon": "an hour"}, "'horizon' is 'an hour', which is not a duration"),
        (lambda df: df, {"false_positive_rate": 1}, "'false_positive_rate' is 1"),
        (lambda df: df, {"scope": "topic"}, "'scope' is 'topic'"),
        (lambda df: df, {"on_reset": "drop"}, "'on_reset' is 'drop'"),
        (lambda df: df, {"id": "value", "scope": "global"}, r"sg.repartition\(df.*dropDuplicatesWithinWatermark"),
        (lambda df: df.repartition(2), {}, r"moves records between tasks \(Repartition\)"),
    ],
)
def test_X5_invalid_arguments_are_rejected(
    stream: DataFrame, change: Callable[[DataFrame], DataFrame], arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidOption, match=text):
        once(change(stream), **arguments)


def test_X5_all_columns_are_kept_and_ids_have_several_columns(stream: DataFrame) -> None:
    df = stream.withColumn("day", F.to_date("timestamp"))
    returned = once(df, id=["key", "day"], scope="global")
    assert [(it.name, it.dataType) for it in returned.schema] == [(it.name, it.dataType) for it in df.schema]


#: The ids (1, 1) and (2, n) have the same first 64 bits, or the same last 64 bits.
SAME_HIGH, SAME_LOW = 2924133954913007334, 2096978715859986801


def test_X5_an_id_has_several_columns_no_null_and_the_time_of_on(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    # Columns a and b, and the time in seconds.
    returned = [(1, 1, 0), (1, 2, 1), (None, 1, 3), (None, 1, 3), (1, None, 4), (1, None, 4), (2, SAME_HIGH, 5)]
    returned += [(2, SAME_LOW, 5), (1, 1, 10_000)]
    rows = [*returned[:2], (1, 1, 2), *returned[2:]]
    producer = ordered_producer(bootstrap)
    for a, b, at_s in rows:
        value = json.dumps({"a": a, "b": b, "at_s": at_s})
        # The column timestamp of all records is about the same.
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    reader = spark.read.format("streamgroups").options(subscribe=topic, **{"kafka.bootstrap.servers": bootstrap})
    fields = F.from_json(F.col("value").cast("string"), "a bigint, b bigint, at_s bigint")
    df = reader.load().select("*", fields.alias("it")).select("*", "it.a", "it.b", "it.at_s")
    df = df.withColumn("at", F.timestamp_seconds("at_s"))
    ids = ((1, 1), (2, SAME_HIGH)), ((1, 1), (2, SAME_LOW))
    halves = (F.expr(f"xxhash64({seed}, {a}L, {b}L)") for seed, it in enumerate(ids) for a, b in it)
    [[high, same_high, low, same_low]] = spark.range(1).select(*halves).collect()
    assert (high, low) == (same_high, same_low)
    found = once(df, id=["a", "b"], on="at").orderBy("offset").select("a", "b", "at_s").collect()
    assert [tuple(row) for row in found] == returned


def test_X5_a_variant_is_returned_as_it_was(spark: SparkSession, bootstrap: str, topic: str) -> None:
    texts = ['{"delay":5}', "[1,2]"]
    producer = ordered_producer(bootstrap)
    for number, text in enumerate([*texts, texts[0]]):
        producer.produce(topic, text, str(number % 2), 0)
    assert producer.flush(30) == 0
    reader = spark.read.format("streamgroups").options(subscribe=topic, **{"kafka.bootstrap.servers": bootstrap})
    df = reader.load().withColumn("payload", F.parse_json(F.col("value").cast("string")))
    found = once(df).orderBy("offset").select(F.to_json("payload")).collect()
    assert [row[0] for row in found] == texts
