"""X2: the output partition of a key is the one that librdkafka selects with Java's partitioner."""

from __future__ import annotations

import random
from collections.abc import Callable

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer

from streamgroups_kafka.native import ENCODER_VARIABLE
from streamgroups_kafka.write.partitioner import partitions_of_keys

PARTITIONS = 7


def test_keys_go_where_librdkafka_puts_them(
    bootstrap: str, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(PARTITIONS)
    dice = random.Random(0)
    keys = sorted({dice.randbytes(dice.randint(0, 40)) for _ in range(2_000)})
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 50})
    for key in keys:
        producer.produce(topic, key=key)
    assert producer.flush(30) == 0

    found = partitions_by_key(bootstrap, topic, len(keys))
    for encoder in ("native", "plain"):
        monkeypatch.setenv(ENCODER_VARIABLE, encoder)
        partitions = partitions_of_keys(pa.array(keys), PARTITIONS).to_pylist()
        assert dict(zip(keys, partitions, strict=True)) == found


def partitions_by_key(bootstrap: str, topic: str, count: int) -> dict[bytes, int]:
    """The partition of each key in a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading"})
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found: dict[bytes, int] = {}
    n_read = 0
    try:
        while n_read < count:
            messages = consumer.consume(count, 30)
            assert messages, f"{n_read} of {count} records came"
            n_read += len(messages)
            found |= {message.key() or b"": message.partition() or 0 for message in messages}
    finally:
        consumer.close()
    return found
