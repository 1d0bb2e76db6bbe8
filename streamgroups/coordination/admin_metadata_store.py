"""The metadata store of the command line: it accesses metadata groups through the existing admin connection.

Implements :class:`streamgroups.ports.MetadataStore` over :class:`streamgroups.ports.GroupAdmin`. ``streamgroups_cli``
creates it, and :mod:`streamgroups.fakes` uses it. The consumers of ``streamgroups_kafka.admin.metadata_store`` take
longer to connect than a command may take. Source: Kafka's OffsetFetch and OffsetCommit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, GroupAdmin


class AdminMetadataStore:
    """See :class:`streamgroups.ports.MetadataStore`.

    Args:
        groups: the groups of the cluster. The caller closes it.

    >>> from streamgroups.fakes import FakeAdmin, FakeCluster
    >>> metadata_store, tp = AdminMetadataStore(FakeAdmin(FakeCluster(lambda: 0))), TopicPartition("flights", 0)
    >>> metadata_store.read("billing.streamgroups", [tp])
    {}
    """

    def __init__(self, groups: GroupAdmin) -> None:
        self._groups = groups

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.MetadataStore.read`."""
        return self._groups.committed_offsets([group_id], partitions)[group_id]

    def write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        """See :meth:`streamgroups.ports.MetadataStore.write`."""
        # Members read through confluent-kafka, which requires a NUL at the end of a text.
        ended = {tp: Committed(entry.next_offset, f"{entry.metadata}\0") for tp, entry in entries.items()}
        for failure in self._groups.alter_offsets(group_id, ended).values():
            raise failure

    def close(self) -> None:
        """Does nothing: the caller owns the connection."""
