"""A board in memory. Implements :class:`streamgroups.ports.Board`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.errors import GroupRefused
from streamgroups.fakes.cluster import FakeCluster
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
        for tp, note in notes.items():
            self._cluster.commit(group_id, {tp: note.next_offset}, note.metadata)

    def close(self) -> None:
        """Nothing."""
