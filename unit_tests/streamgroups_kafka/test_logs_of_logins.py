"""P3: no level of logging shows the login of a connection of kafka-python. With its real classes, without a broker."""

from __future__ import annotations

import socket
import struct
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeResponse

from streamgroups.errors import StreamGroupsError
from streamgroups_kafka.admin import connection
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.logs import ClientLog, take_over_logs

_PASSWORD = "hunter2"
_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
_SALT = b64encode(b"salt of ann").decode()


@contextmanager
def _broker_that_rejects_logins(handshake_version: int, seen: list[bytes]) -> Iterator[str]:
    """A listener that answers until the last message of a login, and then closes the connection.

    Args:
        handshake_version: with 0, the messages of the login have no header.
        seen: receives the messages of logins.
    """

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, client.makefile("rb") as stream:
                while request := stream.read(4):
                    frame = stream.read(*struct.unpack(">i", request))
                    answer = _answer(frame, handshake_version, seen)
                    if not answer:
                        break
                    client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _answer(frame: bytes, handshake_version: int, seen: list[bytes]) -> bytes:
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    if key == _API_VERSIONS:
        keys = [(_API_VERSIONS, 0, 3), (_SASL_HANDSHAKE, 0, handshake_version), (_SASL_AUTHENTICATE, 0, 2), (3, 0, 12)]
        listed = [ApiVersionsResponse.ApiVersion(*it) for it in keys]
        response = ApiVersionsResponse(version=version, error_code=0, api_keys=listed, throttle_time_ms=0)
    elif key == _SASL_HANDSHAKE and version <= 1:
        mechanisms = ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]
        response = SaslHandshakeResponse(version=version, error_code=0, mechanisms=mechanisms)
    else:
        seen.append(frame)
        nonce = frame.partition(b",r=")[2].rstrip(b"\0")
        if b"n,,n=" not in frame:
            return b""
        challenge = b"r=" + nonce + f"server,s={_SALT},i=4096".encode()
        if handshake_version == 0:
            return struct.pack(">i", len(challenge)) + challenge
        response = SaslAuthenticateResponse(version=version, error_code=0, error_message=None, auth_bytes=challenge)
    response.with_header(correlation_id=correlation_id)
    return bytes(response.encode(framed=True, header=True))


@pytest.mark.parametrize("handshake_version", [0, 1])
@pytest.mark.parametrize(
    ("mechanism", "secrets"),
    [("PLAIN", [_PASSWORD]), ("SCRAM-SHA-256", [_SALT, "n,,n=ann", "c=biws,r="])],
)
def test_P3_no_level_of_logging_shows_a_login(
    mechanism: str,
    secrets: list[str],
    handshake_version: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without the diagnosis, which is a second client.
    monkeypatch.setattr(connection, "_RETRY_TIMEOUT_S", 60.0)
    seen = list[bytes]()
    with caplog.at_level(1), _broker_that_rejects_logins(handshake_version, seen) as servers:
        config = ClientConfig.from_options(
            {
                "bootstrap.servers": servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": "ann",
                "sasl.password": _PASSWORD,
            }
        )
        with pytest.raises(StreamGroupsError):
            AdminSession(config, timeout_s=0.5)
    sent = b"".join(seen)
    assert any(it.encode() in sent for it in secrets), "the login was sent"
    shown = caplog.text
    assert "SaslHandshakeRequest" in shown, "other requests are logged"
    assert [it for it in secrets if it in shown] == []


def test_P3_clients_of_the_user_log_all_their_requests(caplog: pytest.LogCaptureFixture) -> None:
    login = SaslAuthenticateRequest(version=1, auth_bytes=b"\x00ann\x00hunter2")

    def send() -> None:
        parser = KafkaProtocol(client_id="c", ident="i")
        parser.send_request(login)
        parser.send_bytes()
        parser.send_request(MetadataRequest(version=1, topics=None))
        parser.send_bytes()

    def send_as_library() -> None:
        take_over_logs(ClientLog("b:9092", lambda: 0))
        send()

    with caplog.at_level(1), ThreadPoolExecutor() as threads:
        threads.submit(send_as_library).result(10)
        lines = [record.getMessage() for record in caplog.records if record.name == "kafka.protocol.parser"]
        caplog.clear()
        send()
    assert [line.split("(")[0] for line in lines] == ["i Sending request 2 MetadataRequest"]
    assert caplog.text.count(_PASSWORD) == 2
