"""The probe of a cluster recognizes a server without Kafka's protocol, and no response harms it."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.doctor.cluster_checks import ClusterUnreachable
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.probes.cluster_probe import probe_cluster, strangeness

GOLDEN = bytes.fromhex((Path(__file__).parents[1] / "golden" / "api_versions_4.1.2.hex").read_text())
#: The response of brokers before 2.4 to an unsupported version: error 35, then an array in version 0.
OLD = struct.pack(">ihi3h3h", 1, 35, 2, 9, 0, 5, 18, 0, 2)


def judged(response: bytes) -> str:
    from_confluent, to_confluent = socket.socketpair()
    with from_confluent, to_confluent:
        to_confluent.sendall(response)
        to_confluent.shutdown(socket.SHUT_WR)
        return strangeness(from_confluent)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (struct.pack(">i", len(GOLDEN)) + GOLDEN, ""),
        (struct.pack(">i", len(OLD)) + OLD, ""),
        (b"", "the server closed the connection"),
        (struct.pack(">i", 100), "the server closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the response is not in Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x0a\x00", "the response is not in Kafka's protocol"),
        (struct.pack(">iih", 100, 2, 0), "the response is not in Kafka's protocol"),
    ],
)
def test_servers(response: bytes, message: str) -> None:
    assert judged(response) == message


@given(st.binary(max_size=64))
def test_any_bytes(response: bytes) -> None:
    is_kafka = len(response) >= 8 and struct.unpack(">ii", response[:8])[1] == 1 and response[0] == 0
    assert is_kafka or judged(response)


def test_a_server_that_does_not_respond_is_left_to_librdkafka() -> None:
    from_confluent, to_confluent = socket.socketpair()
    with from_confluent, to_confluent:
        from_confluent.settimeout(0.01)
        assert strangeness(from_confluent) == ""


@pytest.mark.parametrize("host", ["kafka..internal", f"{'a' * 64}.internal", ".kafka"])
def test_an_invalid_name_is_an_unknown_host(host: str) -> None:
    found = probe_cluster(ClientConfig((("bootstrap.servers", f"{host}:9092"),)))
    assert isinstance(found, ClusterUnreachable)
    assert found.what == f"No broker can be reached. {host}:9092: unknown host."
