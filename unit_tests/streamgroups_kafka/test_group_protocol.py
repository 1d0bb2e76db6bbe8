"""KIP-848 is rejected on brokers that do not support it, before a query joins."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import GroupRejected
from streamgroups_kafka.admin.group_protocol import check_group_protocol, parse_versions, supports_consumer_protocol
from streamgroups_kafka.client.config import ClientConfig

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092", "group.protocol": "consumer"})
REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
Address = tuple[str, int]


def response(*versions: tuple[int, int]) -> bytes:
    """The response of a broker, with its length prefix."""
    body = struct.pack(">ihi", 1, 0, len(versions)) + b"".join(struct.pack(">hhh", key, 0, n) for key, n in versions)
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def broker() -> Iterator[Callable[[bytes], Address]]:
    """Starts a server that sends these bytes as its response to one request."""
    servers, threads = list[socket.socket](), list[threading.Thread]()

    def start(answer: bytes) -> Address:
        server = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as requests:
                assert requests.read(len(REQUEST)) == REQUEST
                connection.sendall(answer)

        servers.append(server)
        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        address: Address = server.getsockname()
        return address

    yield start
    for server in servers:
        server.close()
    for thread in threads:
        thread.join(5)


@pytest.mark.parametrize(("versions", "supported"), [({68: 1}, True), ({68: 2}, True), ({68: 0}, False), ({}, False)])
def test_the_version_of_the_heartbeat_decides(versions: dict[int, int], supported: bool) -> None:
    assert supports_consumer_protocol(versions) is supported


def test_the_first_broker_that_responds_decides(broker: Callable[[bytes], Address]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        unreachable: Address = closed.getsockname()
    others = [unreachable, broker(b""), broker(b"HTTP/1.1 400 Bad Request\r\n\r\n"), broker(response((18, 4))[:-1])]
    check_group_protocol(CONFIG, others)
    others = [unreachable, broker(b"")]
    check_group_protocol(CONFIG, [*others, broker(response((18, 4), (68, 1))), unreachable])
    with pytest.raises(GroupRejected, match=r"The brokers at broker:9092 do not support .*consumer' \(KIP-848\)"):
        check_group_protocol(CONFIG, [unreachable, broker(response((18, 3)))])


@given(st.binary(max_size=64))
def test_no_bytes_do_harm(data: bytes) -> None:
    for body in (data, struct.pack(">ih", 1, 0) + data):
        try:
            found = parse_versions(body)
        except ValueError:
            continue
        assert all(isinstance(version, int) for version in found.values())
