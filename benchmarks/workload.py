"""The input: topics with records that are equal in every run, and a steady stream of new records.

Spark's own Kafka sink, the fastest available writer, writes topics once per shape. Their end offsets are checked. A
record is JSON, and its key is the number of the record; keys are not part of a record's size. Values are as
compressible as such JSON: names repeat, hashes do not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.rounds import WrongCount

#: The columns that ``from_json`` extracts from a record of at least 100 bytes.
JSON_SCHEMA = "id long, carrier string, origin string, delay int"
#: One in five records passes this filter.
DELAYED = "delay >= 140"
#: The header with the event time of a record: its ``id``, as milliseconds since the epoch.
EVENT_TIME_HEADER = "time"
#: Smaller records are not JSON, only digits.
MIN_JSON_BYTES = 100
#: Clients do not log the end of the broker.
_NO_LOGS = {"log_level": 0}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The specification of a topic to write.

    Args:
        records: the number of records in all partitions.
        partitions: the number of partitions, which are written round robin.
        value_bytes: the size of each value.
        compression: the compression type of Kafka's producers.
        has_time_header: whether each record also has its event time in a header (:data:`EVENT_TIME_HEADER`).
    """

    records: int
    partitions: int = 8
    value_bytes: int = 100
    compression: str = "none"
    has_time_header: bool = False

    @property
    def name(self) -> str:
        """
        >>> TopicSpec(1000).name
        'r1000-p8-b100-none'
        """
        shape = f"r{self.records}-p{self.partitions}-b{self.value_bytes}-{self.compression}"
        return f"{shape}-time" if self.has_time_header else shape


def records(spark: SparkSession, spec: TopicSpec) -> DataFrame:
    """The records of a topic: ``key``, ``value``, ``partition``, and optionally ``headers``."""
    columns = [
        F.col("id").cast("string").cast("binary").alias("key"),
        F.expr(_value(spec.value_bytes)).cast("binary").alias("value"),
        F.expr(f"cast(id % {spec.partitions} as int)").alias("partition"),
    ]
    if spec.has_time_header:
        header = F.struct(
            F.lit(EVENT_TIME_HEADER).alias("key"), F.col("id").cast("string").cast("binary").alias("value")
        )
        columns.append(F.array(header).alias("headers"))
    return spark.range(0, spec.records, 1, 2).select(*columns)


def delayed(spark: SparkSession, spec: TopicSpec) -> int:
    """The number of a topic's records that pass the filter, by the formula of their creation."""
    return spark.range(spec.records).where(f"{_DELAY} >= 140").count()


_DELAY = "(pmod(hash(id), 200) - 20)"


def _value(size_bytes: int) -> str:
    if size_bytes < MIN_JSON_BYTES:
        return f"lpad(cast(id as string), {size_bytes}, '0')"
    head = f"""'{{"id":', id, ',"carrier":"', elt(pmod(id, 4) + 1, 'AA', 'B6', 'DL', 'UA'),
        '","origin":"', elt(pmod(hash(id), 3) + 1, 'EWR', 'JFK', 'LGA'), '","delay":', {_DELAY}, ',"note":"'"""
    hashes = ", ".join(f"sha2(concat(id, '{letter}'), 256)" for letter in ("a" if size_bytes <= 120 else "abc"))
    return f"concat(rpad(concat({head}, {hashes}), {size_bytes - 2}, sha2(cast(id as string), 256)), '\"}}')"


def write(spark: SparkSession, bootstrap: str, spec: TopicSpec) -> str:
    """Creates and fills a topic.

    Returns:
        the name of the topic.

    Raises:
        WrongCount: if the topic has another number of records.
    """
    create(bootstrap, spec.name, spec.partitions)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": spec.name,
        "kafka.linger.ms": "20",
        "kafka.batch.size": "65536",
        "kafka.buffer.memory": str(128 * 2**20),
        "kafka.compression.type": spec.compression,
        # The count is checked below. With many new partitions an idempotent producer sometimes fails.
        "kafka.enable.idempotence": "false",
        "kafka.acks": "1",
        # The first write to hundreds of partitions makes the broker create and sync files for each, in one request.
        "kafka.request.timeout.ms": "120000",
        "kafka.delivery.timeout.ms": "300000",
    }
    records(spark, spec).write.format("kafka").options(**options).save()
    written = sum(ends(bootstrap, spec.name, spec.partitions).values())
    if written != spec.records:
        raise WrongCount(f"topic {spec.name} holds {written} records")
    return spec.name


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Creates an empty topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **_NO_LOGS})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)


def ends(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The end offset of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **_NO_LOGS})
    try:
        return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(partitions)}
    finally:
        consumer.close()


class SteadyLoad:
    """Writes records at a steady rate in the background during the ``with`` block, evenly to all partitions.

    Args:
        bootstrap: the bootstrap servers.
        topic: the topic to write to.
        partitions: the number of partitions.
        per_s: the rate in records per second.
        key: the key of a record, by its number. Default: no key.
        value_bytes: the size of each value.
    """

    _TICK_S = 0.02

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        per_s: int,
        key: Callable[[int], str] | None = None,
        value_bytes: int = 100,
    ) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, **_NO_LOGS})
        self._topic, self._partitions, self._per_s = topic, partitions, per_s
        self._key, self._value = key, b"x" * value_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-load", daemon=True)
        self.count = 0

    def __enter__(self) -> SteadyLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)
        self._producer.flush(30)

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._stopped.wait(self._TICK_S):
            due = int((time.monotonic() - began_s) * self._per_s)
            while self.count < due:
                key = None if self._key is None else self._key(self.count)
                try:
                    self._producer.produce(self._topic, self._value, key, self.count % self._partitions)
                except BufferError:
                    break
                self.count += 1
            self._producer.poll(0)
