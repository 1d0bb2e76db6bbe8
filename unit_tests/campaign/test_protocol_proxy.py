"""The proxy that understands Kafka's framing, in front of a small broker that speaks only this framing."""

from __future__ import annotations

import doctest
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from integration_tests import protocol_rules
from integration_tests.protocol_proxy import ProtocolProxy
from integration_tests.protocol_rules import Action, ApiKey, Rule

TIMEOUT_S = 5.0


class FakeBroker:
    """Responds to each frame with its correlation id and a body, in the order of the requests.

    A request with the body ``no acknowledgments`` has no response. A response to Metadata has the given addresses.
    """

    def __init__(self, port: int = 0) -> None:
        self.requests: list[tuple[int, int, bytes]] = []
        self.metadata = b""
        self._sockets = [socket.create_server(("127.0.0.1", port))]
        self.port: int = self._sockets[0].getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def address_bytes(self) -> bytes:
        return b"127.0.0.1" + struct.pack(">i", self.port)

    def stop(self) -> None:
        for it in self._sockets:
            with suppress(OSError):
                it.shutdown(socket.SHUT_RDWR)
            it.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._sockets[0].accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, struct.error):
            while True:
                frame = receive(client)
                key, _, correlation_id = struct.unpack(">hhi", frame[:8])
                body = frame[8:]
                self.requests.append((key, correlation_id, body))
                if body == b"no acknowledgments":
                    continue
                content = self.metadata if key == ApiKey.METADATA else b"done " + body
                send(client, struct.pack(">i", correlation_id) + content)


def receive(of: socket.socket) -> bytes:
    """The next frame; empty at the end of the connection."""
    with_size = _exactly(of, 4)
    return _exactly(of, struct.unpack(">i", with_size)[0]) if with_size else b""


def _exactly(of: socket.socket, n: int) -> bytes:
    found = b""
    while len(found) < n:
        part = of.recv(n - len(found))
        if not part:
            return b""
        found += part
    return found


def send(to: socket.socket, frame: bytes) -> None:
    to.sendall(struct.pack(">i", len(frame)) + frame)


class Client:
    """A client with one connection, which numbers its requests."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._n = 0

    def request(self, key: int, body: bytes = b"") -> int:
        self._n += 1
        send(self._socket, struct.pack(">hhi", key, 0, self._n) + body)
        return self._n

    def response(self) -> tuple[int, bytes] | None:
        """The correlation id and the body of the next response; ``None`` at the end of the connection."""
        with suppress(ConnectionError):
            if frame := receive(self._socket):
                return struct.unpack(">i", frame[:4])[0], frame[4:]
        return None

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    yield made
    made.stop()


@pytest.fixture
def proxy(broker: FakeBroker) -> Iterator[ProtocolProxy]:
    with ProtocolProxy(broker.address) as made:
        yield made


@pytest.fixture
def connect() -> Iterator[Callable[[str], Client]]:
    """Connects clients, which are closed at the end."""
    with ExitStack() as stack:
        yield lambda address: stack.enter_context(closing(Client(address)))


@pytest.fixture
def client(proxy: ProtocolProxy, connect: Callable[[str], Client]) -> Client:
    return connect(proxy.bootstrap)


def wait_for(proxy: ProtocolProxy, key: ApiKey, action: Action, n: int = 1) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while proxy.rules.counts[key, action] < n:
        assert time.monotonic() < deadline_s, proxy.rules.counts
        time.sleep(0.001)


def test_requests_and_responses_are_forwarded_and_counted(
    broker: FakeBroker, proxy: ProtocolProxy, client: Client
) -> None:
    large = b"x" * 300_000
    for body in (b"a", large):
        client.request(ApiKey.PRODUCE, body)
    # A key without a name here.
    client.request(36, b"c")
    assert [client.response() for _ in range(3)] == [(1, b"done a"), (2, b"done " + large), (3, b"done c")]
    assert [key for key, _, _ in broker.requests] == [0, 0, 36]
    assert proxy.rules.requests == {0: 2, 36: 1}
    assert not proxy.rules.counts


def test_addresses_of_all_nodes_are_rewritten(connect: Callable[[str], Client]) -> None:
    nodes = [FakeBroker(), FakeBroker()]
    addresses = b"".join(node.address_bytes for node in nodes)
    nodes[0].metadata = b"<" + addresses + b">"
    with ProtocolProxy(",".join(node.address for node in nodes)) as proxy:
        first, second = proxy.bootstrap.split(",")
        client = connect(first)
        client.request(ApiKey.METADATA)
        # A record can contain the bytes of an address.
        client.request(ApiKey.OFFSET_FETCH, addresses)
        own = b"".join(b"127.0.0.1" + struct.pack(">i", int(it.partition(":")[2])) for it in (first, second))
        assert client.response() == (1, b"<" + own + b">")
        assert client.response() == (2, b"done " + addresses)
        other = connect(second)
        other.request(ApiKey.FETCH, b"f")
        assert other.response() == (1, b"done f")
        assert [it[2] for it in nodes[1].requests] == [b"f"]
    assert (client.response(), other.response()) == (None, None)
    for node in nodes:
        node.stop()


def test_a_lost_response_ends_the_connection_after_the_earlier_ones(
    broker: FakeBroker, proxy: ProtocolProxy, client: Client, connect: Callable[[str], Client]
) -> None:
    with proxy.rules.applying(Rule(Action.LOSE, ApiKey.END_TXN)) as applied:
        client.request(ApiKey.FETCH)
        client.request(ApiKey.END_TXN)
        assert client.response() == (1, b"done ")
        assert client.response() is None
        assert applied.done == 1
        again = connect(proxy.bootstrap)
        again.request(ApiKey.END_TXN)
        assert again.response() == (1, b"done ")
    assert [it[0] for it in broker.requests] == [1, 26, 26]
    assert proxy.rules.counts == {(26, Action.LOSE): 1}


def test_a_dropped_response_leaves_the_connection_open(
    broker: FakeBroker, proxy: ProtocolProxy, client: Client
) -> None:
    proxy.rules.add(Rule(Action.DROP, ApiKey.END_TXN))
    client.request(ApiKey.END_TXN)
    wait_for(proxy, ApiKey.END_TXN, Action.DROP)
    client.request(ApiKey.END_TXN)
    assert client.response() == (2, b"done ")
    assert len(broker.requests) == 2


def test_a_cut_request_does_not_arrive(
    broker: FakeBroker, proxy: ProtocolProxy, client: Client, connect: Callable[[str], Client]
) -> None:
    proxy.rules.add(Rule(Action.CUT, ApiKey.PRODUCE))
    client.request(ApiKey.PRODUCE)
    assert client.response() is None
    assert broker.requests == []
    again = connect(proxy.bootstrap)
    again.request(ApiKey.PRODUCE)
    assert again.response() == (1, b"done ")


def test_a_delayed_response_keeps_its_place(proxy: ProtocolProxy, client: Client) -> None:
    proxy.rules.add(Rule(Action.DELAY, ApiKey.FETCH, delay_ms=50))
    began_s = time.monotonic()
    for key in (ApiKey.FETCH, ApiKey.HEARTBEAT):
        client.request(key)
    assert [client.response() for _ in range(2)] == [(1, b"done "), (2, b"done ")]
    assert time.monotonic() - began_s >= 0.05
    assert proxy.rules.counts == {(1, Action.DELAY): 1}


def test_delays_of_one_connection_do_not_add_up(proxy: ProtocolProxy, client: Client) -> None:
    with proxy.rules.applying(Rule(Action.DELAY, None, count=None, delay_ms=200)) as applied:
        began_s = time.monotonic()
        for _ in range(20):
            client.request(ApiKey.FETCH)
        assert [client.response() for _ in range(20)] == [(n, b"done ") for n in range(1, 21)]
    assert applied.done == 20
    assert 0.2 <= time.monotonic() - began_s < 4


def test_only_the_first_response_to_a_duplicate_reaches_the_client(
    broker: FakeBroker, proxy: ProtocolProxy, client: Client
) -> None:
    proxy.rules.add(Rule(Action.DUPLICATE, ApiKey.PRODUCE))
    for body in (b"a", b"b"):
        client.request(ApiKey.PRODUCE, body)
    assert [client.response() for _ in range(2)] == [(1, b"done a"), (2, b"done b")]
    assert [it[2] for it in broker.requests] == [b"a", b"a", b"b"]
    assert proxy.rules.counts == {(0, Action.DUPLICATE): 1}


def test_a_duplicate_without_a_response_is_not_counted(proxy: ProtocolProxy, client: Client) -> None:
    with proxy.rules.applying(Rule(Action.DUPLICATE, ApiKey.PRODUCE)) as applied:
        client.request(ApiKey.PRODUCE, b"no acknowledgments")
        client.request(ApiKey.METADATA)
        assert client.response() == (2, b"")
        assert (applied.done, applied.taken) == (0, 0)
        client.request(ApiKey.PRODUCE, b"b")
        assert client.response() == (3, b"done b")
        wait_for(proxy, ApiKey.PRODUCE, Action.DUPLICATE)


def test_each_response_with_a_number_is_lost(proxy: ProtocolProxy, connect: Callable[[str], Client]) -> None:
    lost = []
    with proxy.rules.applying(Rule(Action.LOSE, ApiKey.PRODUCE, count=None, every=3)):
        for _ in range(9):
            client = connect(proxy.bootstrap)
            client.request(ApiKey.PRODUCE)
            lost.append(client.response() is None)
    assert lost == [False, False, True] * 3


def test_a_node_can_be_down_and_start_again(
    broker: FakeBroker, proxy: ProtocolProxy, client: Client, connect: Callable[[str], Client]
) -> None:
    client.request(ApiKey.FETCH)
    assert client.response() == (1, b"done ")
    broker.stop()
    assert client.response() is None
    assert connect(proxy.bootstrap).response() is None
    restarted = FakeBroker(broker.port)
    again = connect(proxy.bootstrap)
    again.request(ApiKey.FETCH)
    assert again.response() == (1, b"done ")
    restarted.stop()


def test_the_names_are_those_of_the_protocol_guide() -> None:
    assert doctest.testmod(protocol_rules)[0] == 0
    assert all(ApiKey.of(key.title) is key for key in ApiKey)
    with pytest.raises(ValueError, match="'Commit' is not one of Produce, Fetch, ListOffsets"):
        ApiKey.of("Commit")
