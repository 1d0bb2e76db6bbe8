"""KIP-848 is rejected on brokers that do not support it, before a query joins."""

from __future__ import annotations

import pytest

from streamgroups_kafka.admin.group_protocol import supports_consumer_protocol


@pytest.mark.parametrize(("versions", "supported"), [({68: 1}, True), ({68: 2}, True), ({68: 0}, False), ({}, False)])
def test_the_version_of_the_heartbeat_decides(versions: dict[int, int], supported: bool) -> None:
    assert supports_consumer_protocol(versions) is supported
