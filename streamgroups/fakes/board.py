"""A board in memory. Implements :class:`streamgroups.ports.Board`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.errors import GroupRefused, StreamGroupsError
from streamgroups.fakes.cluster import MOST_METADATA_UNITS, FakeCluster, utf16_units
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed


class FakeBoard:
    """Notes, kept with the committed offsets of a :class:`~streamgroups.fakes.cluster.FakeCluster`.

    >>> board, tp = FakeBoard(FakeCluster(lambda: 0)), TopicPartition("flights", 0)
    >>> board.write("billing.streamgroups", {tp: Committed(5, "a note")})
    >>> board.read("billing.streamgroups", [tp])[tp].metadata
    'a note'
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """See :meth:`streamgroups.ports.Board.read`."""
        return self._cluster.committed(group_id, partitions)

    def write(self, group_id: str, notes: Mapping[TopicPartition, Committed]) -> None:
        """See :meth:`streamgroups.ports.Board.write`."""
        if self._cluster.describe(group_id).members:
            raise GroupRefused(f"Group '{group_id}' has members.", remedy="Stop them first.")
        # The client that members use ends each text with a NUL, which counts.
        if any(utf16_units(note.metadata) + 1 > MOST_METADATA_UNITS for note in notes.values()):
            raise StreamGroupsError(
                f"A metadata entry for group '{group_id}' is larger than a broker accepts.",
                remedy="Write fewer bytes for each partition.",
            )
        for tp, note in notes.items():
            self._cluster.commit(group_id, {tp: note.next_offset}, note.metadata)

    def close(self) -> None:
        """Nothing."""
