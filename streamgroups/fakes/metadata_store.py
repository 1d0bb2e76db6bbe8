"""A metadata store in memory. Implements :class:`streamgroups.ports.MetadataStore`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.errors import GroupRejected, StreamGroupsError
from streamgroups.fakes.cluster import MAX_METADATA_UNITS, FakeCluster, utf16_units
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed


class FakeMetadataStore:
    """Metadata entries, stored with the committed offsets of a :class:`~streamgroups.fakes.cluster.FakeCluster`.

    >>> metadata_store, tp = FakeMetadataStore(FakeCluster(lambda: 0)), TopicPartition("flights", 0)
    >>> metadata_store.write("billing.streamgroups", {tp: Committed(5, "a note")})
    >>> metadata_store.read("billing.streamgroups", [tp])[tp].metadata
    'a note'
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.MetadataStore.read`."""
        return self._cluster.committed(group_id, partitions)

    def write(self, group_id: str, notes: Mapping[TopicPartition, Committed]) -> None:
        """See :meth:`streamgroups.ports.MetadataStore.write`."""
        if self._cluster.describe(group_id).members:
            raise GroupRejected(f"Group '{group_id}' has members.", remedy="Stop them first.")
        # The real client ends each text with a NUL, which counts.
        if any(utf16_units(note.metadata) + 1 > MAX_METADATA_UNITS for note in notes.values()):
            raise StreamGroupsError(
                f"A metadata entry for group '{group_id}' is larger than a broker accepts.",
                remedy="Write fewer bytes for each partition.",
            )
        for tp, note in notes.items():
            self._cluster.commit(group_id, {tp: note.next_offset}, note.metadata)

    def close(self) -> None:
        """Does nothing."""
