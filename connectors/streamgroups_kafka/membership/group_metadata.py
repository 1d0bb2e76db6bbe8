"""The consumer group metadata of a member, which the broker checks when a transaction commits offsets.

The driver parses the result of librdkafka's ``Consumer.consumer_group_metadata``, and
:mod:`streamgroups_kafka.transactions` uses it. The format is private to librdkafka. It is parsed here because
librdkafka's producer cannot share a transaction with other processes. Source: KIP-447;
``rd_kafka_consumer_group_metadata_write`` of librdkafka (version 2 of the format).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from streamgroups.errors import GroupRejected

_MAGIC = b"CGMDv2:"
_NO_INSTANCE = 1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The identity of a member for the broker.

    Args:
        group_id: the group.
        generation: the generation of the group, or the member epoch of KIP-848. ``None`` before the member has joined.
        member_id: the id that the group assigned to the member; empty before it has joined.
        instance_id: the ``group.instance.id`` of the member, if it has one.
    """

    group_id: str
    generation: int | None
    member_id: str
    instance_id: str | None = None

    @classmethod
    def parse(cls, metadata: bytes) -> ConsumerGroupMetadata:
        """Parses the result of ``Consumer.consumer_group_metadata()``.

        Raises:
            GroupRejected: if this version of librdkafka uses another format.

        >>> ConsumerGroupMetadata.parse(b"CGMDv2:" + struct.pack("=i", 7) + b"billing\\0member-1\\0\\1")
        ConsumerGroupMetadata(group_id='billing', generation=7, member_id='member-1', instance_id=None)
        """
        try:
            if not metadata.startswith(_MAGIC):
                raise ValueError("unknown magic")
            # The bytes never leave the machine, so the number has the byte order of the machine.
            (generation,) = struct.unpack_from("=i", metadata, len(_MAGIC))
            group_id, member_id, rest = metadata[len(_MAGIC) + 4 :].split(b"\0", 2)
            if rest[0] == _NO_INSTANCE and len(rest) == 1:
                instance_id = None
            elif rest[0] == 0 and rest.endswith(b"\0") and rest.count(b"\0") == 2:
                instance_id = rest[1:-1].decode()
            else:
                raise ValueError("unknown instance")
            return cls(group_id.decode(), None if generation < 0 else generation, member_id.decode(), instance_id)
        except (ValueError, IndexError, struct.error) as e:
            raise GroupRejected(
                f"librdkafka returned consumer group metadata in an unknown format ({e}).",
                remedy="Use a version of confluent-kafka that this release was tested with.",
            ) from None
