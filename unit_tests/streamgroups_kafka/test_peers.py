"""Answers of peers that are no broker, or of another program: they cost no more than they must."""

from __future__ import annotations

import pytest

from streamgroups.errors import LoginRejected
from streamgroups_kafka.admin.connection_settings import admin_settings
from streamgroups_kafka.client.client_credentials import ClientCredentials
from streamgroups_kafka.client.config import ClientConfig


def test_a_peer_cannot_announce_more_memory_than_librdkafka_accepts() -> None:
    config = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
    assert admin_settings(config, timeout_s=2)["receive_message_max_bytes"] == 100_000_000
    more = ClientConfig.from_options({"bootstrap.servers": "broker:9092", "receive.message.max.bytes": "200000000"})
    assert admin_settings(more, timeout_s=2)["receive_message_max_bytes"] == 200_000_000


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff", b'{"access_token": "t", "expires_in": Infinity}', b"7"])
def test_an_answer_that_is_no_token_is_rejected(body: bytes) -> None:
    endpoint = object.__new__(ClientCredentials)
    with pytest.raises(LoginRejected, match="returned no token"):
        ClientCredentials._token(endpoint, body, 0)
