"""P5: a redrive reports the record that the broker has rejected, whenever the rejection arrives."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamgroups.dlq.redrive import RedrivenRecord
from streamgroups.errors import BrokerUnreachable, RecordRejected
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.dlq.redriving import KafkaRedrive

CONFIG = ClientConfig.from_options({"bootstrap.servers": "127.0.0.1:1"})
RECORDS = [RedrivenRecord(f"letter-{n}", "flights", None, b"k", b"v", ()) for n in range(3)]


class ScriptedProducer:
    """The broker rejects the first record: the calls from number ``rejects_after`` on fail, as the transaction has."""

    def __init__(self, rejects_after: int) -> None:
        self._rejects_after = rejects_after
        self._reports: list[tuple[str, Callable[[KafkaError, Any], None]]] = []
        self.calls: list[str] = []

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce(self, topic: str, *, on_delivery: Callable[[KafkaError, Any], None], **_more: Any) -> None:
        if len(self._reports) == self._rejects_after:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._reports.append((topic, on_delivery))

    def poll(self, _timeout_s: float) -> None: ...

    def flush(self, _timeout_s: float) -> None:
        for number, (topic, report) in enumerate(self._reports):
            code = KafkaError.MSG_SIZE_TOO_LARGE if number == 0 else KafkaError._PURGE_QUEUE
            report(KafkaError(code), SimpleNamespace(topic=lambda topic=topic: topic))

    def abort_transaction(self, _timeout_s: float) -> None:
        self.calls.append("abort")


@pytest.mark.parametrize("rejects_after", [1, 2, 3, 6])
def test_the_record_is_named_if_the_transaction_fails_while_records_are_added(rejects_after: int) -> None:
    producer = ScriptedProducer(rejects_after)
    redrive = KafkaRedrive(producer, CONFIG, "letters", 30)  # type: ignore[arg-type]
    with pytest.raises(RecordRejected, match="The record of the letter 'letter-0' could not be sent"):
        redrive.send(RECORDS)
    assert producer.calls == ["begin", "abort"]


class FullProducer(ScriptedProducer):
    """Its queue is full."""

    def produce(self, topic: str, *, on_delivery: Callable[[KafkaError, Any], None], **_more: Any) -> None:
        raise BufferError("Local: Queue full")


def test_P5_a_full_queue_aborts_the_transaction() -> None:
    producer = FullProducer(0)
    with pytest.raises(BrokerUnreachable, match="the queue of the producer is full"):
        KafkaRedrive(producer, CONFIG, "letters", 30).send(RECORDS)  # type: ignore[arg-type]
    assert producer.calls == ["begin", "abort"]
