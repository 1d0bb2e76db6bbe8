"""A member's claim to its group, as the broker checks it when offsets are committed within a transaction.

Made on the driver from what librdkafka says of the member (``Consumer.consumer_group_metadata``), and used by ``transactions``. The bytes
are librdkafka's own and are read here because its producer, for which they are meant, cannot share a transaction with others.
Source: KIP-447; librdkafka's ``rd_kafka_consumer_group_metadata_write`` (version 2 of its format).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from streamgroups.errors import GroupRejected

_MAGIC = b"CGMDv2:"
_NO_INSTANCE = 1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Who a member is, to the broker.

    Args:
        group_id: its group.
        generation: the group's generation that it knows (KIP-848: its member epoch); ``None`` before it has joined.
        member_id: the id the group gave it, empty before.
        instance_id: its ``group.instance.id``, if it has one.
    """

    group_id: str
    generation: int | None
    member_id: str
    instance_id: str | None = None

    @classmethod
    def parse(cls, metadata: bytes) -> ConsumerGroupMetadata:
        """Reads what ``Consumer.consumer_group_metadata()`` returns.

        Raises:
            GroupRejected: if this librdkafka writes it in another way.

        >>> ConsumerGroupMetadata.parse(b"CGMDv2:" + struct.pack("=i", 7) + b"billing\\0member-1\\0\\1")
        ConsumerGroupMetadata(group_id='billing', generation=7, member_id='member-1', instance_id=None)
        """
        try:
            if not metadata.startswith(_MAGIC):
                raise ValueError("unknown magic")
            # The bytes never leave the machine, so the number is in its own order.
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
