"""The group metadata of librdkafka is parsed."""

from __future__ import annotations

import struct

import pytest
from confluent_kafka import Consumer

from streamgroups.errors import GroupRejected
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata


@pytest.mark.parametrize("instance_id", [None, "desk-1", ""])
@pytest.mark.parametrize("group_id", ["billing", "grüße"])
def test_what_this_librdkafka_writes(group_id: str, instance_id: str | None) -> None:
    settings = {"bootstrap.servers": "localhost:1", "group.id": group_id, "log_level": 0}
    if instance_id:
        settings["group.instance.id"] = instance_id
    consumer = Consumer(settings)
    try:
        group_metadata = ConsumerGroupMetadata.parse(consumer.consumer_group_metadata())
    finally:
        consumer.close()
    assert group_metadata == ConsumerGroupMetadata(group_id, None, "", instance_id or None)


def test_a_member() -> None:
    written = b"CGMDv2:" + struct.pack("=i", 258) + b"billing\0alice-1f\0\0desk-1\0"
    assert ConsumerGroupMetadata.parse(written) == ConsumerGroupMetadata("billing", 258, "alice-1f", "desk-1")


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"CGMDv1:billing\0",
        b"CGMDv2:",
        b"CGMDv2:\1\0\0\0billing",
        b"CGMDv2:\1\0\0\0billing\0alice\0",
        b"CGMDv2:\1\0\0\0billing\0alice\0\2",
        b"CGMDv2:\1\0\0\0billing\0alice\0\1more",
        b"CGMDv2:\1\0\0\0billing\0alice\0\0desk",
        b"CGMDv2:\1\0\0\0\xff\0alice\0\1",
    ],
)
def test_anything_else_is_rejected(written: bytes) -> None:
    with pytest.raises(GroupRejected, match="librdkafka returned consumer group metadata in an unknown format"):
        ConsumerGroupMetadata.parse(written)
