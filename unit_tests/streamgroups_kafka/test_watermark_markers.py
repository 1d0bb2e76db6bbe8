"""W15: markers reach the partitions that a producer names, and all of them by default."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import streamgroups as sg
from streamgroups.errors import BrokerUnreachable, InvalidOption, StreamGroupsError, UnknownTopic
from streamgroups_kafka.write import watermark_markers

TIME = datetime(2013, 1, 1, 5, tzinfo=timezone.utc)


class Producer:
    """In the place of a client of confluent-kafka, with a queue of limited length.

    Args:
        room: the number of records that the queue accepts before a poll.
        frees: the number of records that a poll removes.
        error: the error of the topic.
    """

    def __init__(self, room: int = 100, frees: int = 1, error: KafkaError | None = None) -> None:
        self.room, self.frees, self.error = room, frees, error
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.polls = 0
        self.rejection: KafkaError | None = None

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {} if self.error is not None else dict.fromkeys([1, 0, 2])
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions, error=self.error)})

    def produce(self, topic: str, **record: Any) -> None:
        if self.rejection is not None:
            raise KafkaException(self.rejection)
        if not self.room:
            raise BufferError("Local: Queue full")
        self.room -= 1
        self.records.append((topic, record))

    def poll(self, timeout: float) -> int:
        self.polls += 1
        self.room += self.frees
        return 0


def send(producer: Producer, **arguments: Any) -> tuple[int, ...]:
    return sg.event_time.emit_watermark(producer, "flights", TIME, **arguments)  # type: ignore[arg-type]


def test_W15_a_marker_has_a_header_and_neither_key_nor_value() -> None:
    producer = Producer()
    assert send(producer) == (0, 1, 2)
    assert [topic for topic, _ in producer.records] == ["flights"] * 3
    header = ("streamgroups-watermark", b"1357016400000")
    assert [record for _, record in producer.records] == [
        {"partition": partition, "headers": [header], "timestamp": 1_357_016_400_000} for partition in range(3)
    ]
    assert producer.polls == 0


def test_W15_named_partitions_and_headers() -> None:
    def delivered(error: KafkaError | None, message: Any) -> None: ...

    producer = Producer()
    assert send(producer, partitions=[2, 0, 2], header="until", on_delivery=delivered) == (0, 2)
    assert [(r["partition"], r["headers"][0][0], r["on_delivery"]) for _, r in producer.records] == [
        (0, "until", delivered),
        (2, "until", delivered),
    ]


def test_W15_a_marker_of_a_later_time_is_not_in_the_future() -> None:
    producer, before_ms = Producer(), time.time_ns() // 1_000_000
    sg.event_time.emit_watermark(producer, "flights", before_ms + 3_600_000, partitions=[0])  # type: ignore[arg-type]
    [(_, record)] = producer.records
    assert before_ms <= record["timestamp"] <= time.time_ns() // 1_000_000
    assert record["headers"][0][1] == str(before_ms + 3_600_000).encode()


def test_W15_a_full_queue_is_polled() -> None:
    producer = Producer(room=1)
    assert send(producer) == (0, 1, 2)
    assert (len(producer.records), producer.polls) == (3, 2)


def test_W15_a_queue_that_stays_full_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 100, 10))
    monkeypatch.setattr(watermark_markers.clock, "monotonic", lambda: next(seconds))
    with pytest.raises(BrokerUnreachable, match=r"queue of the producer is still full after 30 s, so partition 0"):
        send(Producer(room=0, frees=0))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"partitions": []}, InvalidOption, "Option 'partitions' is empty"),
        ({"partitions": [0, 3]}, UnknownTopic, "Topic 'flights' has no partition 3. It has the partitions 0 to 2"),
        ({"partitions": [-1]}, UnknownTopic, "Topic 'flights' has no partition -1"),
        ({"header": ""}, InvalidOption, "which is empty"),
    ],
)
def test_W15_invalid_arguments_send_nothing(
    arguments: dict[str, Any], error: type[StreamGroupsError], message: str
) -> None:
    producer = Producer()
    with pytest.raises(error, match=message):
        send(producer, **arguments)
    assert producer.records == []


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        (lambda it: setattr(it, "error", KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), UnknownTopic),
        (lambda it: setattr(it, "rejection", KafkaError(KafkaError._STATE)), StreamGroupsError),
    ],
)
def test_W15_errors_of_kafka_name_the_topic(fails: Callable[[Producer], None], error: type[StreamGroupsError]) -> None:
    producer = Producer()
    fails(producer)
    with pytest.raises(error, match="'flights'") as raised:
        send(producer)
    assert raised.value.topic == "flights"
