"""A connection without a listener ends a command at once. A process that waits for brokers retries it."""

from __future__ import annotations

import socket

import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups_kafka.admin import connection
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig


@pytest.fixture
def config() -> ClientConfig:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return ClientConfig((("bootstrap.servers", f"127.0.0.1:{unused.getsockname()[1]}"),))


def test_a_command_does_not_wait(config: ClientConfig) -> None:
    with pytest.raises(BrokerUnreachable, match=r"No broker can be reached. 127.0.0.1:\d+: connection refused."):
        AdminSession(config, timeout_s=3_600, waits_for_listener=False)


def test_a_query_waits_until_the_timeout(config: ClientConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_RETRY_TIMEOUT_S", 0.05)
    with pytest.raises(BrokerUnreachable, match=r"could not be reached within 0.2 s. No broker can be reached."):
        AdminSession(config, timeout_s=0.2)
