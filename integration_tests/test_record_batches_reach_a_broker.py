"""X2: a broker accepts the record batches of both encoders, and librdkafka and Java read them: every compression, every
identity.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest

from streamgroups.errors import RecordRejected
from streamgroups_kafka import native
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.native import ENCODER_VARIABLE
from streamgroups_kafka.write.compression import CODECS, Compression
from streamgroups_kafka.write.encoder import EncodedBatch, ProducerIdentity
from streamgroups_kafka.write.record_batches import BatchSettings, encode
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.waits import wait_until

NOW_MS = 1_700_000_000_000
OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, CORRUPT_MESSAGE, NOT_LEADER_OR_FOLLOWER = 45, 47, 2, 6
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Records = list[tuple[Any, ...]]


@pytest.fixture(scope="module", autouse=True)
def _native_is_built() -> None:
    """This suite requires a compiler, so a missing native encoder is an error."""
    assert native.encoder_status().available, native.encoder_status().reason


@pytest.fixture(autouse=True, params=["native", "plain"])
def using(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The encoder of the test."""
    monkeypatch.setenv(ENCODER_VARIABLE, request.param)
    return str(request.param)


@pytest.fixture
def new_topic(new_topic: Callable[..., str]) -> Callable[..., str]:
    """Creates topics that keep old records. The timestamps of these tests are older than the default retention."""
    return partial(new_topic, retention_ms="-1")


@pytest.fixture(scope="module")
def session(bootstrap: str) -> Iterator[AdminSession]:
    """Connections that send requests of a test; the only broker leads all partitions."""
    opened = AdminSession(ClientConfig.from_options({"bootstrap.servers": bootstrap}), timeout_s=20)
    yield opened
    opened.close()


def send(session: AdminSession, topic: str, batches: Sequence[EncodedBatch]) -> list[int]:
    """Sends batches in order; returns the error code of each."""
    request_topic = ProduceRequest.TopicProduceData
    codes = []
    for batch in batches:
        data = request_topic.PartitionProduceData(index=batch.partition, records=batch.data)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[request_topic(name=topic, partition_data=[data])],
            max_version=12,
        )
        codes.append(_sent(session, request))
    return codes


def _sent(session: AdminSession, request: ProduceRequest) -> int:
    """The error code of a request, which is retried while the broker does not yet lead a partition of a new topic."""
    code: int = NOT_LEADER_OR_FOLLOWER

    def is_led() -> bool:
        nonlocal code
        answer = session.run("producing", session.send, request)
        code = answer.responses[0].partition_responses[0].error_code
        return code != NOT_LEADER_OR_FOLLOWER

    wait_until(is_led, "the topic has a leader")
    return code


def identity(session: AdminSession) -> ProducerIdentity:
    """A producer id of the broker, after the broker can assign one."""

    async def request() -> ProducerIdentity:
        answer = await session.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        session.check(answer.error_code, "No producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return session.run("No producer id", request)


def read(bootstrap: str, topic: str, partitions: int, count: int) -> Records:
    """The records that librdkafka reads with checksums checked, by partition: (partition, offset, timestamp, key,
    value, headers).
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading", "check.crcs": True})
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
    found: Records = []
    try:
        while len(found) < count:
            messages = consumer.consume(count, 30)
            assert messages, f"{len(found)} of {count} records came"
            for m in messages:
                assert m.error() is None, m.error()
                found.append((m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers()))
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record[:2])


def some_rows(count: int, partitions: int, seed: int) -> tuple[pa.RecordBatch, Records]:
    """Rows with all kinds of columns, and the expected records."""
    dice = random.Random(seed)
    rows = [
        (
            dice.randrange(partitions),
            NOW_MS + dice.randint(-5_000, 5_000),
            dice.choice([None, b"", b"key", dice.randbytes(9)]),
            dice.choice([None, b"", b"of some flight " * dice.randint(1, 80), dice.randbytes(dice.randint(1, 300))]),
            dice.choice([None, [("a", b"1")], [("a", None), ("ü", b""), ("a", dice.randbytes(5))]]),
        )
        for _ in range(count)
    ]
    partition, timestamp, key, value, headers = zip(*rows, strict=True)
    listed = [None if h is None else [{"key": name, "value": of} for name, of in h] for h in headers]
    batch = pa.record_batch(
        {
            "partition": pa.array(partition, pa.int32()),
            "timestamp": pa.array(timestamp, pa.timestamp("ms", "UTC")),
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
            "headers": pa.array(listed, _HEADERS),
        }
    )
    by_partition: list[Records] = [[] for _ in range(partitions)]
    for row in rows:
        by_partition[row[0]].append((row[0], len(by_partition[row[0]]), *row[1:]))
    return batch, [record for records in by_partition for record in records]


@pytest.mark.parametrize("codec", list(CODECS))
def test_what_was_encoded_is_read(
    bootstrap: str, session: AdminSession, new_topic: Callable[..., str], codec: str
) -> None:
    """Batches of several sizes: the broker decompresses and checks each, and librdkafka reads the original rows."""
    topic = new_topic(3)
    rows, expected = some_rows(4_000, 3, seed=CODECS[codec])
    batches = encode(rows, BatchSettings(150_000, compression=Compression(codec)), topic=topic, now_ms=0)
    assert len(batches) > 3
    assert set(send(session, topic, batches)) == {0}
    assert read(bootstrap, topic, 3, len(expected)) == expected


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_the_broker_can_compress_it_again(
    bootstrap: str, session: AdminSession, new_topic: Callable[..., str], codec: str
) -> None:
    """For a topic with another compression, Java reads and compresses every record."""
    topic = new_topic(1, compression_type="gzip" if codec != "gzip" else "zstd")
    rows, expected = some_rows(1_500, 1, seed=5)
    batches = encode(rows, BatchSettings(compression=Compression(codec)), topic=topic, now_ms=0)
    assert set(send(session, topic, batches)) == {0}
    assert read(bootstrap, topic, 1, len(expected)) == expected


def test_kafkas_own_tool_reads_it(
    kafka: Broker, session: AdminSession, new_topic: Callable[..., str], using: str
) -> None:
    """Java's consumer reads all compressions."""
    topic = new_topic(1)
    expected = []
    for codec in CODECS:
        values = [f"{codec}-{i}-" + "x" * 1_000 for i in range(200)]
        rows = pa.record_batch({"partition": [0] * len(values), "value": values})
        batches = encode(rows, BatchSettings(compression=Compression(codec)), topic=topic, now_ms=NOW_MS)
        assert set(send(session, topic, batches)) == {0}
        expected += values
    read_by_java = kafka.run_tool(
        "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", str(len(expected))
    )
    assert read_by_java.stdout.splitlines() == expected, read_by_java.stderr


def test_sequences_continue_from_call_to_call(
    bootstrap: str, session: AdminSession, new_topic: Callable[..., str]
) -> None:
    """An idempotent producer: the broker accepts each batch once and in order."""
    topic = new_topic(2)
    who = identity(session)
    next_sequences: dict[int, int] = {}
    expected: Records = []
    for turn in range(3):
        rows, of_turn = some_rows(200, 2, seed=turn)
        batches = encode(
            rows, BatchSettings(10_000), topic=topic, now_ms=0, producer=who, next_sequences=next_sequences
        )
        assert len(batches) > 4
        assert set(send(session, topic, batches)) == {0}
        # The broker caches the last batches of each partition. It ignores duplicates of them and returns their offsets.
        assert send(session, topic, batches[-1:]) == [0]
        next_sequences |= {batch.partition: batch.next_sequence or 0 for batch in batches}
        for partition in range(2):
            first = sum(record[0] == partition for record in expected)
            expected += [(p, first + offset, *rest) for p, offset, *rest in of_turn if p == partition]
    assert read(bootstrap, topic, 2, 600) == sorted(expected, key=lambda record: record[:2])


def test_a_sequence_that_leaves_a_gap_and_an_old_epoch_are_rejected(
    session: AdminSession, new_topic: Callable[..., str]
) -> None:
    """The negative control: the broker checks the identity and the sequence."""
    topic = new_topic(1)
    who = identity(session)
    rows, _ = some_rows(10, 1, seed=1)

    def send_as(producer: ProducerIdentity, sequence: int) -> list[int]:
        next_sequences = {0: sequence}
        batches = encode(rows, BatchSettings(), topic=topic, now_ms=0, producer=producer, next_sequences=next_sequences)
        return send(session, topic, batches)

    newer = ProducerIdentity(who.producer_id, who.epoch + 1)
    assert send_as(newer, 0) == [0]
    assert send_as(newer, 15) == [OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert send_as(newer, 10) == [0]
    assert send_as(who, 0) == [INVALID_PRODUCER_EPOCH]


def test_sequences_begin_again_at_zero(bootstrap: str, session: AdminSession, new_topic: Callable[..., str]) -> None:
    """After the largest int32, also within a batch."""
    topic = new_topic(1)
    who = identity(session)
    rows, expected = some_rows(30, 1, seed=2)
    batches = encode(rows, BatchSettings(1_500), topic=topic, now_ms=0, producer=who, next_sequences={0: 2**31 - 15})
    assert any((b.base_sequence or 0) > (b.next_sequence or 0) > 0 for b in batches)
    assert set(send(session, topic, batches)) == {0}
    assert read(bootstrap, topic, 1, 30) == expected


def test_a_batch_that_was_altered_is_rejected(session: AdminSession, new_topic: Callable[..., str]) -> None:
    """The negative control: the broker checks the checksum."""
    topic = new_topic(1)
    (batch,) = encode(some_rows(5, 1, seed=3)[0], BatchSettings(), topic=topic, now_ms=0)
    altered = bytearray(batch.data)
    altered[-1] ^= 1
    assert send(session, topic, [EncodedBatch(0, 0, 5, None, bytes(altered))]) == [CORRUPT_MESSAGE]


def test_the_largest_batch_that_is_let_through_is_the_largest_that_is_taken(
    bootstrap: str, admin: AdminClient, session: AdminSession, new_topic: Callable[..., str]
) -> None:
    """``max_message_bytes`` is the topic's ``max.message.bytes``, to the byte."""
    topic = new_topic(1, max_message_bytes="2000")
    how = BatchSettings(max_message_bytes=2_000)
    overhead = len(encode(one_value(1_000), how, topic=topic, now_ms=0)[0].data) - 1_000
    (largest,) = encode(one_value(2_000 - overhead), how, topic=topic, now_ms=0)
    assert len(largest.data) == 2_000
    assert send(session, topic, [largest]) == [0]
    with pytest.raises(
        RecordRejected, match=rf"Row 0, for {topic}-0, makes a record batch of 2,001 bytes; the maximum is 2,000"
    ):
        encode(one_value(2_001 - overhead), how, topic=topic, now_ms=0)


def one_value(size: int) -> pa.RecordBatch:
    """A row with a value of this size in bytes."""
    return pa.record_batch({"partition": [0], "value": ["x" * size]})
