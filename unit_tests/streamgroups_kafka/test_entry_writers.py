"""P2: the entries of an instance, with a producer that accepts no more records."""

from __future__ import annotations

from typing import Any

import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups.instances.entries import Desired
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.instances import entry_writers
from streamgroups_kafka.instances.entry_writers import KafkaEntryWriter, KafkaManagerWriter

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})


class FullProducer:
    """A producer whose queue is full."""

    calls: list[str]

    def __init__(self, *_: Any, **__: Any) -> None:
        FullProducer.calls = []

    def produce(self, *_: Any, **__: Any) -> None:
        raise BufferError("Local: Queue full")

    def init_transactions(self, _: float) -> None: ...
    def begin_transaction(self) -> None: ...

    def abort_transaction(self, _: float) -> None:
        self.calls.append("abort")


@pytest.fixture(autouse=True)
def producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_writers, "Producer", FullProducer)


def test_P2_a_full_queue_can_be_retried() -> None:
    with pytest.raises(BrokerUnreachable, match="the queue of the producer is full"):
        KafkaEntryWriter(CONFIG, "entries", 1.0).write([Desired("late", True, 1)])


def test_P2_a_full_queue_aborts_the_transaction_of_a_manager() -> None:
    with pytest.raises(BrokerUnreachable, match="the queue of the producer is full"):
        KafkaManagerWriter(CONFIG, "board", 1.0).write([Desired("late", True, 1)])
    assert FullProducer.calls == ["abort"]
