"""Options of a batch read are in the requests that a broker gets. A relay before librdkafka's own broker records them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.packing import Packing
from streamgroups_kafka import native
from streamgroups_spark.source.options import parse
from streamgroups_spark.source.readers import BatchReader, RangesPartition
from unit_tests.raw_broker import RawBroker, batch, record

P0 = TopicPartition("flights", 0)
FETCH, FIND_COORDINATOR = 1, 10
SCHEMA = StructType([StructField("value", BinaryType())])


class Relay:
    """Passes requests on to a broker and records them. Clients find the relay in the broker's metadata.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: RawBroker) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self._named = threading.Event()
        self.awaits_group = False
        host, port = broker.bootstrap.rsplit(":", 1)
        self._broker = host, int(port)
        self._listener = socket.create_server((host, 0))
        self._port = self._listener.getsockname()[1]
        self.bootstrap = f"{host}:{self._port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections."""
        # A close alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def of(self, api_key: int) -> list[bytes]:
        """The requests of one kind so far."""
        return [request for key, request in self.requests if key == api_key]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                # The broker has stopped, and a client connects once more.
                client.close()
                continue
            threading.Thread(target=self._pass, args=(client, broker, self._record), daemon=True).start()
            threading.Thread(target=self._pass, args=(broker, client, self._readdress), daemon=True).start()

    def _record(self, request: bytes) -> bytes:
        (api_key,) = struct.unpack_from(">h", request)
        self.requests.append((api_key, request))
        if api_key == FIND_COORDINATOR:
            self._named.set()
        elif api_key == FETCH and self.awaits_group:
            # A read of two records can end before librdkafka names the group.
            self._named.wait(10)
        return request

    def _readdress(self, response: bytes) -> bytes:
        return response.replace(struct.pack(">i", self._broker[1]), struct.pack(">i", self._port))

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
        with source, target, source.makefile("rb") as frames:
            try:
                while len(size := frames.read(4)) == 4:
                    frame = change(frames.read(struct.unpack(">i", size)[0]))
                    target.sendall(struct.pack(">i", len(frame)) + frame)
            except OSError:
                # The other side has closed the connection.
                pass


@pytest.fixture
def relay() -> Iterator[Relay]:
    with closing(RawBroker()) as broker:
        broker.create_topic("flights")
        broker.append("flights", batch(record(0), record(1)))
        with closing(Relay(broker)) as relay:
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
