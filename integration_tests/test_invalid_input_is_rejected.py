"""Bad input is rejected within 30 s without side effects; the error names the input and a remedy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamgroups_testkit.waits import wait_until

_DEADLINE_S = 30


@pytest.fixture
def good(bootstrap: str, new_topic: Callable[..., str], group: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "group.id": group, "subscribe": new_topic(2)}


def rejection(spark: SparkSession, options: dict[str, str]) -> str:
    """The error of a streaming query with these options."""
    started_s = time.monotonic()
    with pytest.raises(PySparkException) as rejected:
        _run(spark, options)
    assert time.monotonic() - started_s < _DEADLINE_S
    return str(rejected.value)


def _run(spark: SparkSession, options: dict[str, str]) -> None:
    query = spark.readStream.format("streamgroups").options(**options).load().writeStream.format("noop").start()
    try:
        query.awaitTermination(_DEADLINE_S)
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        ({"startingtimestmp": "1"}, "Option 'startingtimestmp' is unknown", "Did you mean 'startingTimestamp'?"),
        ({"subscribePattern": "a.*"}, "exclude each other", "exactly one of"),
        ({"assign": '{"t":[0]}'}, "exclude each other", "exactly one of"),
        ({"subscribe": None}, "No topics to read are set", "exactly one of"),
        ({"group.id": None}, "Option 'group.id' is missing", "name of the group"),
        ({"subscribe": "nowhere"}, "Topic 'nowhere' does not exist", "correct its name"),
        (
            {"startingTimestamp": "yesterday"},
            "Option 'startingTimestamp' is 'yesterday'",
            "Write it like",
        ),
        ({"startingTimestamp": "4102444800000"}, "no record at or after", "earlier time"),
        ({"startingOffsets": "now"}, "Option 'startingOffsets' is 'now'", "earliest, latest"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "127.0.0.1:1", ""),
        ({"kafka.auto.offset.reset": "earliest"}, "auto.offset.reset", "startingOffsets"),
        ({"membership": "alone"}, "Option 'membership' is 'alone'", "Allowed values: shared, exclusive"),
    ],
)
def test_rejected(
    spark: SparkSession,
    admin: AdminClient,
    good: dict[str, str],
    change: dict[str, str | None],
    message: str,
    remedy: str,
) -> None:
    options = {name: value for name, value in {**good, **change}.items() if value is not None}
    text = rejection(spark, options)
    assert message in text
    assert remedy in text
    groups = admin.list_consumer_groups().result(30).valid
    assert good["group.id"] not in {g.group_id for g in groups}, "nothing has changed"


@contextmanager
def consumer(bootstrap: str, group: str, topic: str, **config: str) -> Iterator[Consumer]:
    """A member of another client that owns partitions of the group."""
    other = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "other-app", **config})
    other.subscribe([topic])
    try:
        wait_until(lambda: other.poll(0.1) or other.assignment(), "the other member has joined")
        yield other
    finally:
        other.close()


def test_group_in_use_by_another_subscription(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], good: dict[str, str]
) -> None:
    elsewhere = new_topic(1)
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    with consumer(bootstrap, good["group.id"], elsewhere, **settings) as other:
        text = rejection(spark, good)
        assert other.assignment(), "the other member was not disturbed"
    assert "is in use by another subscription: other-app" in text
    assert f"reads {elsewhere}, this query would read {good['subscribe']}" in text


def test_group_in_use_by_another_assignor(spark: SparkSession, bootstrap: str, good: dict[str, str]) -> None:
    settings = {"partition.assignment.strategy": "range"}
    with consumer(bootstrap, good["group.id"], good["subscribe"], **settings) as other:
        text = rejection(spark, good)
        assert other.assignment()
    assert "assign by 'range'" in text
    assert "cooperative-sticky" in text


def test_assign_into_a_live_group(spark: SparkSession, bootstrap: str, good: dict[str, str]) -> None:
    topic = good.pop("subscribe")
    with consumer(bootstrap, good["group.id"], topic):
        text = rejection(spark, {**good, "assign": f'{{"{topic}":[0]}}'})
    assert "has live members (other-app" in text


def test_secrets_stay_secret(spark: SparkSession, good: dict[str, str]) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="hunter2secret";'
    secured = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas,
    }
    assert "hunter2secret" not in rejection(spark, {**good, **secured, "nonsense": "1"})
    assert "hunter2secret" not in rejection(spark, {**good, **secured})
    reader = spark.readStream.format("streamgroups").options(**{**good, **secured})
    assert "hunter2secret" not in reader.load()._jdf.queryExecution().toString()
