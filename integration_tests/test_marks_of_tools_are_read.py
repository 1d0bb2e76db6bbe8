"""F2, S10, X2: a member reads each mark that a tool or a transaction has committed.

librdkafka returns such metadata without its end, so that bytes behind it in memory belong to the text. With a lost mark, a member
would continue as after a reset by an unknown client: a ledger would be set back, and a restored state not be used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer

from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import ToolMark
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.partition_conversion import committed_offsets

_PARTITIONS, _READS = 60, 20


def fill_free_memory(byte: int) -> None:
    """Fills blocks of the sizes of metadata, and frees them."""
    c = ctypes.CDLL(None)
    c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    blocks = [c.malloc(size) for size in range(24, 400, 8) for _ in range(20)]
    for n, block in enumerate(blocks):
        ctypes.memset(block, byte, 24 + 8 * (n // 20))
    for block in blocks:
        c.free(block)


@pytest.mark.parametrize("byte", [0xFF, 0xC3, ord("x"), ord(";")])
def test_F2_the_marks_of_tools_are_read_whatever_is_behind_them_in_memory(
    bootstrap: str, new_topic: Callable[..., str], group: str, byte: int
) -> None:
    topic = new_topic(_PARTITIONS)
    identity, reset = TopicIdentity("c1", "t1"), AppliedReset(1732334879123, "5f2c")
    # Each has another length.
    marks = {TopicPartition(topic, p): ToolMark(reset, identity, form="x" * (p + 1)) for p in range(_PARTITIONS)}
    config = ClientConfig.from_options({"bootstrap.servers": bootstrap})
    with closing(AdminSession(config)) as session:
        failed = KafkaGroupAdmin(session).alter_offsets(
            group, {tp: Committed(5, it.encode()) for tp, it in marks.items()}
        )
        assert not failed
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as consumer:
        for _ in range(_READS):
            fill_free_memory(byte)
            found = committed_offsets(consumer, marks, 30)
            assert {tp: ToolMark.parse(it.metadata) for tp, it in found.items()} == marks
