"""S4: options of Spark's own ``kafka`` source work here too: the same rows, columns and order, option by option.

Both sources read the same topics in the same session. Tests of intentional differences have ``on_purpose`` in their
names.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from integration_tests.spark_kafka import spark_kafka_jars
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import ordered_producer, produce
from streamgroups_testkit.reading import end_offsets
from streamgroups_testkit.waits import wait_until
from unit_tests.requirements import without


@pytest.fixture(scope="module", autouse=True)
def _their_connector_is_there() -> None:
    if not spark_kafka_jars().paths:
        without("parity", spark_kafka_jars().why_not)


SPARK, STREAMGROUPS = "kafka", "streamgroups"
PARTITIONS = 3
#: The timestamp of the first record of topic ``a``; each later one is one second later.
T0_MS = 1_750_000_000_000
RECORDS = 60
#: All kinds of headers: none, one, the same key twice, no value, an empty value, no text.
HEADERS: list[list[tuple[str, str | bytes | None]] | None] = [
    None,
    [("trace", b"1")],
    [("trace", b"1"), ("trace", b"2"), ("other", b"3"), ("trace", b"1")],
    [("nothing", None), ("empty", b"")],
    [("", b"\x00\xff"), ("ключ", "значение".encode())],
]
KEYS = [b"key", None, b"", b"\x00\xff"]
VALUES = [b"value", b"", None, b"x" * 2_000]


@dataclass(frozen=True)
class World:
    """Topics with all kinds of records, written once.

    Args:
        bootstrap: the bootstrap servers.
        name: the prefix of the topic names.
    """

    bootstrap: str
    name: str

    def topic(self, kind: str) -> str:
        return f"{self.name}-{kind}"

    def fill(self, text: str) -> str:
        """Inserts names into an option: ``<a>`` is the topic ``a``, ``<>`` is the prefix of all names."""
        return re.sub(r"<([a-z]*)>", lambda found: self.topic(found[1]), text)


@pytest.fixture(scope="module")
def world(bootstrap: str, admin: AdminClient) -> World:
    world = World(bootstrap, f"parity-{uuid.uuid4().hex[:6]}")
    often: dict[str, str] = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    configs: dict[str, dict[str, str]] = {
        "a": {},
        "b": {},
        "stamped": {"message.timestamp.type": "LogAppendTime"},
        "transactions": {},
        "deleted": {},
        "empty": {},
        "compacted": often,
    }
    # The timestamps are in the past, so the topics have no retention limit.
    topics = [
        NewTopic(world.topic(kind), PARTITIONS, 1, config={"retention.ms": "-1", **config})
        for kind, config in configs.items()
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)
    _write_everything(bootstrap, world.topic("a"), T0_MS)
    _write_everything(bootstrap, world.topic("b"), T0_MS + 5_000)
    _write_everything(bootstrap, world.topic("stamped"), T0_MS)
    _write_transactions(bootstrap, world.topic("transactions"))
    produce(bootstrap, world.topic("deleted"), RECORDS, partitions=PARTITIONS)
    delete_before(admin, world.topic("deleted"), 7)
    return world


def _write_everything(bootstrap: str, topic: str, first_ms: int) -> None:
    producer = ordered_producer(bootstrap)
    for i in range(RECORDS):
        producer.produce(
            topic,
            key=KEYS[i % len(KEYS)],
            value=VALUES[i // 2 % len(VALUES)],
            partition=i % PARTITIONS,
            timestamp=first_ms + i * 1_000,
            headers=HEADERS[i // PARTITIONS % len(HEADERS)],
        )
    assert producer.flush(30) == 0


def _write_transactions(bootstrap: str, topic: str) -> None:
    """Writes committed, aborted and empty transactions in turn. An abort marker is last in each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for i in range(12):
            producer.produce(
                topic, key=f"{number}-{i}", value="aborted" if number % 2 else "committed", partition=i % 2
            )
        producer.flush(30)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
        produce(bootstrap, topic, 2 * number if number < 5 else 0, partitions=2)


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    for deleted in admin.delete_records([TopicPartition(topic, p, offset) for p in range(PARTITIONS)]).values():
        deleted.result(30)


def checked(rows: pa.Table, *, split: bool = False) -> list[dict[str, Any]]:
    """The rows, ordered by partition. Unless partitions were split, the rows of each partition must already be in
    order.
    """
    found: list[dict[str, Any]] = rows.to_pylist()
    for _, of_partition in groupby(sorted(found, key=_partition), key=_partition):
        offsets = [row["offset"] for row in of_partition]
        assert split or offsets == sorted(offsets)
    return sorted(found, key=lambda row: (*_partition(row), row["offset"]))


def _partition(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["topic"], row["partition"]


def read(spark: SparkSession, source: str, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format(source).options(**options).load()


A_JSON = '{"<a>":{"0":-2,"1":3,"2":5}}'
BATCHES: dict[str, dict[str, str]] = {
    "several topics": {"subscribe": "<a>,<b>,<empty>"},
    "pattern": {"subscribePattern": "<>[ab]"},
    "pattern of a part of the name": {"subscribePattern": " (?<=<>)[ab] "},
    "pattern of nothing": {"subscribePattern": "<>none"},
    "assign": {"assign": '{"<a>":[0,2],"<b>":[1]}'},
    "empty topic": {"subscribe": "<empty>"},
    "append time": {"subscribe": "<stamped>", "includeHeaders": "TRUE"},
    "offsets": {"subscribe": "<a>", "startingOffsets": A_JSON, "endingOffsets": '{"<a>":{"0":-1,"1":3,"2":11}}'},
    "at the end": {"subscribe": "<a>", "startingOffsets": '{"<a>":{"0":20,"1":20,"2":20}}'},
    "time": {"subscribe": "<a>,<b>", "startingTimestamp": f"{T0_MS + 9_500}", "endingTimestamp": f"{T0_MS + 20_000}"},
    "times": {
        "subscribe": "<a>",
        "startingOffsetsByTimestamp": json.dumps({"<a>": {str(p): T0_MS + p * 9_000 for p in range(PARTITIONS)}}),
        "endingOffsetsByTimestamp": json.dumps({"<a>": {str(p): T0_MS + 27_000 for p in range(PARTITIONS)}}),
    },
    "times after all": {
        "subscribe": "<a>",
        "startingTimestamp": f"{T0_MS + 10_000_000}",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": f"{T0_MS + 20_000_000}",
    },
    "precedence": {
        "subscribe": "<a>",
        "startingTimestamp": f"{T0_MS + 9_000}",
        "startingOffsetsByTimestamp": json.dumps({"<a>": {str(p): T0_MS for p in range(PARTITIONS)}}),
        "startingOffsets": "earliest",
        "endingTimestamp": f"{T0_MS + 20_000}",
        "endingOffsets": "latest",
    },
    "read committed": {"subscribe": "<transactions>", "kafka.isolation.level": "read_committed"},
    "read uncommitted": {"subscribe": "<transactions>", "kafka.isolation.level": "read_uncommitted"},
    "isolation unsaid": {"subscribe": "<transactions>"},
    "deleted": {"subscribe": "<deleted>"},
    "offsets that are gone": {
        "subscribe": "<deleted>",
        "startingOffsets": '{"<deleted>":{"0":2,"1":9,"2":6}}',
        "failOnDataLoss": "false",
    },
    "offsets to come": {
        "subscribe": "<a>",
        "endingOffsets": '{"<a>":{"0":200,"1":3,"2":20}}',
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "1000",
    },
    "spaces": {"subscribe": " <a> , <b>", "startingOffsets": " Earliest ", "endingOffsets": "LATEST"},
    "limits, ignored in a batch": {"subscribe": "<a>", "maxOffsetsPerTrigger": "3", "minOffsetsPerTrigger": "2"},
    "headers, names in any case": {"SUBSCRIBE": "<a>", "STARTINGOFFSETS": "EARLIEST", "includeheaders": "true"},
    "settings of the Java client": {
        "subscribe": "<a>",
        "kafka.max.poll.records": "10",
        "kafka.fetch.max.wait.ms": "50",
        "kafka.max.partition.fetch.bytes": "3000",
        "kafka.request.timeout.ms": "31000",
        "kafka.client.id": "somebody",
        "kafka.receive.buffer.bytes": "-1",
        "kafka.metadata.max.age.ms": "10000",
        "kafkaConsumer.pollTimeoutMs": "20000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "10",
        "kafka.group.id": "parity",
    },
}
SPLIT: dict[str, dict[str, str]] = {
    "minPartitions": {"subscribe": "<a>", "minPartitions": "7"},
    "maxRecordsPerPartition": {"subscribe": "<a>", "maxRecordsPerPartition": "4"},
    "both": {"subscribe": "<transactions>", "minPartitions": "5", "maxRecordsPerPartition": "9"},
}


def both(spark: SparkSession, world: World, options: Mapping[str, str], *, split: bool = False) -> list[dict[str, Any]]:
    """Reads with both sources, compares the rows, and returns them."""
    given = {name: world.fill(value) for name, value in options.items()}
    given["kafka.bootstrap.servers"] = world.bootstrap
    other, own = (read(spark, source, given) for source in (SPARK, STREAMGROUPS))
    assert own.schema == other.schema
    rows = checked(own.toArrow(), split=split)
    assert rows == checked(other.toArrow(), split=split)
    return rows


#: Combinations of what other cases compare, and those that the rules of the options decide (unit tests).
_LONG_CASES = {
    "at the end",
    "empty topic",
    "isolation unsaid",
    "limits, ignored in a batch",
    "offsets to come",
    "pattern",
    "pattern of a part of the name",
    "pattern of nothing",
    "precedence",
    "settings of the Java client",
    "spaces",
    "time",
    "times",
    "times after all",
}


@pytest.mark.parametrize("case", [pytest.param(it, marks=LONG) if it in _LONG_CASES else it for it in BATCHES])
def test_a_batch_read_gives_the_same(spark: SparkSession, world: World, case: str) -> None:
    rows = both(spark, world, BATCHES[case])
    assert rows or case in ("pattern of nothing", "empty topic", "at the end", "times after all")


@pytest.mark.parametrize("case", [it if it == "minPartitions" else pytest.param(it, marks=LONG) for it in SPLIT])
def test_split_partitions_give_the_same(spark: SparkSession, world: World, case: str) -> None:
    assert both(spark, world, SPLIT[case], split=True)


@LONG
def test_the_topics_have_what_the_tests_are_about(spark: SparkSession, world: World) -> None:
    everything = {"kafka.bootstrap.servers": world.bootstrap, "includeHeaders": "true"}
    names = ",".join(map(world.topic, ("a", "stamped", "transactions")))
    rows = read(spark, STREAMGROUPS, {**everything, "subscribe": names}).toArrow().to_pylist()
    headers = [row["headers"] for row in rows]
    assert None in headers
    assert [{"key": "nothing", "value": None}, {"key": "empty", "value": b""}] in headers
    assert any(h is not None and [x["key"] for x in h].count("trace") == 3 for h in headers)
    assert {row["timestampType"] for row in rows if row["topic"] == world.topic("stamped")} == {1}
    assert {(row["key"] is None, row["value"] is None) for row in rows} > {(True, False), (False, True)}
    in_transactions = [row for row in rows if row["topic"] == world.topic("transactions")]
    assert {b"committed", b"aborted"} < {row["value"] for row in in_transactions}
    last = max(row["offset"] for row in in_transactions if row["partition"] == 0)
    assert last < end_offsets(world.bootstrap, world.topic("transactions"), 1)[0] - 1, (
        "a marker is the last thing there"
    )
    committed = read(
        spark, STREAMGROUPS, {**everything, "subscribe": names, "kafka.isolation.level": "read_committed"}
    ).toArrow()
    assert b"aborted" not in committed["value"].to_pylist()


@LONG
def test_a_compacted_topic_gives_the_same(spark: SparkSession, world: World) -> None:
    topic = world.topic("compacted")
    producer = ordered_producer(world.bootstrap)

    def gaps() -> bool:
        # The cleaner ignores the active segment; another record closes it.
        for p in range(PARTITIONS):
            for i in range(20):
                producer.produce(topic, key=str(i % 3), value=str(i), partition=p)
        producer.flush(30)
        given = {"kafka.bootstrap.servers": world.bootstrap, "subscribe": topic}
        return (
            read(spark, STREAMGROUPS, given).count() < sum(end_offsets(world.bootstrap, topic, PARTITIONS).values()) - 5
        )

    wait_until(gaps, "compaction", 60, 0.5)
    given = {"kafka.bootstrap.servers": world.bootstrap, "subscribe": topic, "minPartitions": "5"}

    def same() -> bool:
        # The cleaner is asynchronous: our count is valid if Spark's source reads the same before and after.
        before, own, after = (
            checked(read(spark, source, given).toArrow(), split=True) for source in (SPARK, STREAMGROUPS, SPARK)
        )
        assert before != after or own == before
        return before == after

    wait_until(same, "a pause of the cleaner")


REJECTED: dict[str, dict[str, str]] = {
    "nothing subscribed": {},
    "empty pattern": {"subscribePattern": " "},
    "two subscriptions": {"subscribe": "<a>", "subscribePattern": "<>a"},
    "latest, in a batch": {"subscribe": "<a>", "startingOffsets": "latest"},
    "latest in JSON, in a batch": {"subscribe": "<a>", "startingOffsets": '{"<a>":{"0":-1,"1":0,"2":0}}'},
    "earliest, as an end": {"subscribe": "<a>", "endingOffsets": "earliest"},
    "earliest in JSON, as an end": {"subscribe": "<a>", "endingOffsets": '{"<a>":{"0":-2,"1":1,"2":1}}'},
    "a partition left out": {"subscribe": "<a>", "startingOffsets": '{"<a>":{"0":1,"1":1}}'},
    "no JSON": {"subscribe": "<a>", "startingOffsets": "[1]"},
    "no record so late": {
        "subscribe": "<a>",
        "startingTimestamp": f"{T0_MS + 10_000_000}",
        "fetchOffset.numRetries": "0",
    },
    "offsets that are gone": {"subscribe": "<deleted>", "startingOffsets": '{"<deleted>":{"0":2,"1":9,"2":6}}'},
    "backwards": {
        "subscribe": "<a>",
        "startingOffsets": '{"<a>":{"0":9,"1":9,"2":9}}',
        "endingOffsets": '{"<a>":{"0":3,"1":9,"2":9}}',
    },
    "a partition too many": {"subscribe": "<a>", "startingOffsets": '{"<a>":{"0":1,"1":1,"2":1,"3":1}}'},
    "no such topic": {"subscribe": "<a>,<nowhere>", "fetchOffset.numRetries": "0"},
    "failOnDataLoss": {"subscribe": "<a>", "failOnDataLoss": "yes"},
    "auto.offset.reset": {"subscribe": "<a>", "kafka.auto.offset.reset": "earliest"},
    "deserializer": {"subscribe": "<a>", "kafka.key.deserializer": "x"},
    "auto commit": {"subscribe": "<a>", "kafka.enable.auto.commit": "true"},
    "interceptors": {"subscribe": "<a>", "kafka.interceptor.classes": "x"},
    "minPartitions": {"subscribe": "<a>", "minPartitions": "0"},
    "assign": {"assign": "<a>"},
}


#: Both sources decide about them without a request to the broker.
_LONG_REJECTED = {
    "assign",
    "auto commit",
    "auto.offset.reset",
    "deserializer",
    "earliest in JSON, as an end",
    "earliest, as an end",
    "empty pattern",
    "failOnDataLoss",
    "interceptors",
    "latest in JSON, in a batch",
    "minPartitions",
    "no JSON",
    "nothing subscribed",
}


@pytest.mark.parametrize("case", [pytest.param(it, marks=LONG) if it in _LONG_REJECTED else it for it in REJECTED])
def test_both_reject(spark: SparkSession, world: World, case: str) -> None:
    given = {name: world.fill(value) for name, value in REJECTED[case].items()}
    for source in (SPARK, STREAMGROUPS):
        with pytest.raises((PySparkException, Py4JJavaError)):
            read(spark, source, {**given, "kafka.bootstrap.servers": world.bootstrap}).collect()


#: Options that Spark's source ignores and this library rejects, because each is nearly always a mistake.
REJECTED_ON_PURPOSE: dict[str, tuple[dict[str, str], str]] = {
    "misspelt": ({"subscribe": "<a>", "startingOffset": "latest"}, "Did you mean 'startingOffsets'"),
    "misspelt, kafka": ({"subscribe": "<a>", "kafka.fetch.min.byte": "1"}, "Did you mean 'kafka.fetch.min.bytes'"),
    "no such partition": ({"assign": '{"<a>":[0,9]}'}, "-a-9' does not exist"),
}


@pytest.mark.parametrize(
    "case", [it if it == "misspelt" else pytest.param(it, marks=LONG) for it in REJECTED_ON_PURPOSE]
)
def test_slips_are_rejected_on_purpose(spark: SparkSession, world: World, case: str) -> None:
    options, remedy = REJECTED_ON_PURPOSE[case]
    given = {name: world.fill(value) for name, value in options.items()}
    given["kafka.bootstrap.servers"] = world.bootstrap
    assert read(spark, SPARK, given).count()
    with pytest.raises(PySparkException, match=re.escape(remedy)):
        read(spark, STREAMGROUPS, given).count()


# ---- streaming -------------------------------------------------------------------------------------------------------


class Streamed:
    """The output of a streaming query with each source, batch by batch."""

    def __init__(self, spark: SparkSession, world: World, directory: Path, options: Mapping[str, str]) -> None:
        self._spark, self._directory = spark, directory
        self._options = {name: world.fill(value) for name, value in options.items()}
        self._options["kafka.bootstrap.servers"] = world.bootstrap
        self._group = uuid.uuid4().hex[:8]
        self.batches: dict[str, list[pa.Table]] = {SPARK: [], STREAMGROUPS: []}
        self.schemas: dict[str, Any] = {}

    def start(self, source: str, **trigger: Any) -> StreamingQuery:
        """Starts one query; a second call uses the same checkpoint and group."""

        def keep(batch: DataFrame, _number: int) -> None:
            table = batch.toArrow()
            if table.num_rows:
                self.batches[source].append(table)

        options = {**self._options, **({"group.id": self._group} if source == STREAMGROUPS else {})}
        frame = self._spark.readStream.format(source).options(**options).load()
        self.schemas[source] = frame.schema
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._directory / source))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def until_now(self) -> None:
        """Runs both with the trigger ``availableNow``."""
        for source in (SPARK, STREAMGROUPS):
            assert self.start(source, availableNow=True).awaitTermination(60)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, which are equal for both sources."""
        found = {}
        for source, tables in self.batches.items():
            found[source] = checked(pa.concat_tables(tables)) if tables else []
        assert self.schemas[STREAMGROUPS] == self.schemas[SPARK]
        assert found[STREAMGROUPS] == found[SPARK]
        return found[STREAMGROUPS]


STREAMS: dict[str, dict[str, str]] = {
    "several topics": {"subscribe": "<a>,<stamped>", "startingOffsets": "earliest", "includeHeaders": "true"},
    "pattern": {"subscribePattern": "<>[ab]", "startingTimestamp": f"{T0_MS + 30_000}"},
    "assign": {"assign": '{"<a>":[0,2],"<b>":[1]}', "startingOffsets": '{"<a>":{"0":4,"2":-2},"<b>":{"1":-1}}'},
    "read committed": {
        "subscribe": "<transactions>",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    },
    "read uncommitted": {"subscribe": "<transactions>", "startingOffsets": "earliest"},
    "offsets that are gone and to come": {
        "subscribe": "<deleted>",
        "startingOffsets": '{"<deleted>":{"0":2,"1":900,"2":9}}',
        "failOnDataLoss": "false",
    },
    "empty topic": {"subscribe": "<empty>", "startingOffsets": "earliest"},
}


#: Each stream starts two queries. This one has all columns.
USUAL = "several topics"


@pytest.mark.parametrize("case", [case if case == USUAL else pytest.param(case, marks=LONG) for case in STREAMS])
def test_a_stream_gives_the_same(spark: SparkSession, world: World, tmp_path: Path, case: str) -> None:
    streamed = Streamed(spark, world, tmp_path, STREAMS[case])
    streamed.until_now()
    assert streamed.rows() or case == "empty topic"


@LONG
def test_limits_make_as_many_batches(spark: SparkSession, world: World, tmp_path: Path) -> None:
    options = {"subscribe": "<a>,<b>", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    streamed = Streamed(spark, world, tmp_path, options)
    streamed.until_now()
    assert len(streamed.rows()) == 2 * RECORDS
    sizes = {source: [table.num_rows for table in tables] for source, tables in streamed.batches.items()}
    assert sizes[STREAMGROUPS] == sizes[SPARK] == [30] * 4


@pytest.fixture
def queries() -> Iterator[list[StreamingQuery]]:
    running: list[StreamingQuery] = []
    yield running
    for query in running:
        query.stop()


@LONG
def test_latest_gives_what_comes_after_the_start(
    spark: SparkSession, world: World, tmp_path: Path, new_topic: Callable[..., str], queries: list[StreamingQuery]
) -> None:
    topic = new_topic(PARTITIONS)
    produce(world.bootstrap, topic, 30, partitions=PARTITIONS)
    streamed = Streamed(spark, world, tmp_path, {"subscribe": topic})
    for source in (SPARK, STREAMGROUPS):
        # The second query starts while a query of another source runs in the application.
        queries.append(streamed.start(source))
        queries[-1].processAllAvailable()
    assert streamed.rows() == []
    produce(world.bootstrap, topic, 30, partitions=PARTITIONS, first=30)
    for query in queries:
        query.processAllAvailable()
    assert sorted(int(row["key"]) for row in streamed.rows()) == list(range(30, 60))


@LONG
@pytest.mark.parametrize("fail", [False, True])
def test_deleted_records(
    spark: SparkSession,
    world: World,
    tmp_path: Path,
    admin: AdminClient,
    new_topic: Callable[..., str],
    fail: bool,
) -> None:
    topic = new_topic(PARTITIONS)
    produce(world.bootstrap, topic, 30, partitions=PARTITIONS)
    options = {"subscribe": topic, "startingOffsets": "earliest", "failOnDataLoss": str(fail)}
    streamed = Streamed(spark, world, tmp_path, options)
    streamed.until_now()
    produce(world.bootstrap, topic, 30, partitions=PARTITIONS, first=30)
    delete_before(admin, topic, 14)
    if fail:
        for source in (SPARK, STREAMGROUPS):
            with pytest.raises(PySparkException):
                streamed.start(source, availableNow=True).awaitTermination(60)
        return
    streamed.until_now()
    assert len(streamed.rows()) == 30 + 6 * PARTITIONS
