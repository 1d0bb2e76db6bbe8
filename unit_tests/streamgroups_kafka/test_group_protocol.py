"""KIP-848 is rejected on brokers that do not support it, before a query joins."""

from __future__ import annotations

import pytest

from streamgroups_kafka.admin import group_protocol
from streamgroups_kafka.admin.group_protocol import check_group_protocol, supports_consumer_protocol
from streamgroups_kafka.client.config import ClientConfig

SERVERS = {"bootstrap.servers": "broker:9092"}


@pytest.mark.parametrize(("versions", "supported"), [({68: 1}, True), ({68: 2}, True), ({68: 0}, False), ({}, False)])
def test_the_version_of_the_heartbeat_decides(versions: dict[int, int], supported: bool) -> None:
    assert supports_consumer_protocol(versions) is supported


def test_the_classic_protocol_needs_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(group_protocol, "AdminSession")
    check_group_protocol(ClientConfig.from_options(SERVERS))
