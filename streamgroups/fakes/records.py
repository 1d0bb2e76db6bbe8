"""A reader in memory. Implements :class:`streamgroups.ports.Records`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from streamgroups.errors import DataLoss
from streamgroups.fakes.cluster import FakeCluster
from streamgroups.message import Message
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Batch

_NO_END: Mapping[TopicPartition, int] = MappingProxyType({})


class FakeRecords:
    """Reads the records of a :class:`~streamgroups.fakes.cluster.FakeCluster`, one partition after the other.

    >>> cluster, tp = FakeCluster(lambda: 0), TopicPartition("flights", 0)
    >>> cluster.create_topic("flights")
    >>> print(cluster.produce(tp, 3))
    flights-0[0,3)
    >>> batch = FakeRecords(cluster).read({tp: 1}, limit=10)
    >>> [m.offset for m in batch.messages], batch.reached[tp]
    ([1, 2], 3)
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        #: Called after the read and before the result is returned: for tests of events in between.
        self.before_answer: Callable[[], None] = lambda: None

    def read(
        self, positions: Mapping[TopicPartition, int], limit: int, until: Mapping[TopicPartition, int] = _NO_END
    ) -> Batch:
        """See :meth:`streamgroups.ports.Records.read`."""
        messages: list[Message] = []
        reached = dict(positions)
        high_watermarks = self._cluster.high_watermarks(positions)
        for tp, beginning in self._cluster.beginning_offsets(positions).items():
            if not beginning <= positions[tp] <= high_watermarks[tp]:
                raise DataLoss(
                    f"{tp} has no offset {positions[tp]}: the available offsets are [{beginning}, {high_watermarks[tp]}).",
                    remedy="Read an available offset.",
                )
        ends = self._cluster.end_offsets(positions)
        for tp in sorted(until or positions):
            end = min(ends[tp], until.get(tp, ends[tp]))
            for record in self._cluster.read(OffsetRange(tp, positions[tp], max(end, positions[tp]))):
                if len(messages) == limit:
                    break
                messages.append(record)
                reached[tp] = record.offset + 1
            else:
                reached[tp] = max(end, positions[tp])
        self.before_answer()
        return Batch(tuple(messages), reached)

    def close(self) -> None:
        """See :meth:`streamgroups.ports.Records.close`."""
