"""Options of a batch read are in the requests that a broker gets. A relay before librdkafka's own broker records them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.packing import Packing
from streamgroups_kafka import native
from streamgroups_spark.source.readers import BatchReader, RangesPartition
from streamgroups_spark.source.source_options import parse
from unit_tests.raw_broker import RawBroker, batch, record
from unit_tests.request_relay import FETCH, FIND_COORDINATOR, Relay

P0 = TopicPartition("flights", 0)
SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def relay() -> Iterator[Relay]:
    with closing(RawBroker()) as broker:
        broker.create_topic("flights")
        broker.append("flights", batch(record(0), record(1)))
        with closing(Relay(broker.bootstrap)) as relay:
            yield relay


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Chooses a reader."""

    def forget() -> None:
        native.status.cache_clear()
        native._uses_native.cache_clear()

    def choose(reader: str) -> None:
        monkeypatch.setenv(native.READER_VARIABLE, reader)
        forget()
        if reader == "native" and not native.status().available:
            pytest.skip(native.status().reason)

    yield choose
    monkeypatch.undo()
    forget()


def read(relay: Relay, **options: str) -> None:
    given = {"kafka.bootstrap.servers": relay.bootstrap, "subscribe": "flights"}
    parsed = parse({**given, **{name.replace("__", "."): value for name, value in options.items()}}, streaming=False)
    batches = BatchReader(parsed, SCHEMA, Packing(1)).read(RangesPartition((OffsetRange(P0, 0, 2),)))
    assert sum(it.num_rows for it in batches) == 2


@pytest.mark.parametrize("reader", ["native", "plain"])
def test_client_rack(reader: str, relay: Relay, choose: Callable[[str], None]) -> None:
    choose(reader)
    read(relay, kafka__client__rack="eu-1a")
    fetches = relay.of(FETCH)
    assert fetches
    assert all(b"eu-1a" in request for request in fetches)


def test_group_id_prefix(relay: Relay, choose: Callable[[str], None]) -> None:
    """The native reader sends no request that names a group."""
    choose("plain")
    relay.awaits_group = True
    read(relay, groupIdPrefix="ours")
    assert any(b"ours-" in request for request in relay.of(FIND_COORDINATOR))
