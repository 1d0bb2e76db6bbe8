"""The request ApiVersions: a response of Kafka 4.1.2 is parsed, anything else is rejected and never hangs."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.doctor.cluster import release_of
from streamgroups_kafka.probes.api_versions import NotKafka, parse, request, request_versions

GOLDEN = bytes.fromhex((Path(__file__).parents[1] / "golden" / "api_versions_4.1.2.hex").read_text())
#: Error 35, then an array of requests in version 0: the response of brokers before 2.4 to an unsupported version.
OLD = struct.pack(">ihi3h3h", 1, 35, 2, 9, 0, 5, 18, 0, 2)


def test_an_answer_of_kafka_4_1() -> None:
    supported = parse(GOLDEN)
    assert release_of(supported.features["metadata.version"]) == "4.1"
    assert supported.finalized["group.version"] == 1
    assert supported.apis[9] == 9
    assert supported.apis[68] == 1


def test_an_answer_of_an_old_broker() -> None:
    supported = parse(OLD)
    assert (supported.apis, supported.features, supported.finalized) == ({9: 5, 18: 2}, {}, {})


def test_the_request_has_the_length_in_its_header() -> None:
    (length,) = struct.unpack(">i", request()[:4])
    assert length == len(request()) - 4


@pytest.mark.parametrize("whole", [GOLDEN, OLD])
def test_a_truncated_response_is_rejected(whole: bytes) -> None:
    for length in range(len(whole)):
        with pytest.raises(NotKafka):
            parse(whole[:length])


@given(st.binary(max_size=64))
def test_no_bytes_do_harm(data: bytes) -> None:
    with suppress(NotKafka):
        parse(struct.pack(">ih", 1, 0) + data)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (struct.pack(">i", len(GOLDEN)) + GOLDEN, None),
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not in Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", "not in Kafka's protocol"),
        (struct.pack(">i", 100) + b"short", "closed the connection"),
        (struct.pack(">iih", 6, 2, 0), "unexpected correlation id"),
        (struct.pack(">iih", 6, 1, 41), "error 41"),
    ],
)
def test_who_answers(answer: bytes, message: str | None) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        if message is None:
            assert request_versions(ours) == parse(GOLDEN)
            return
        with pytest.raises(NotKafka, match=message):
            request_versions(ours)
