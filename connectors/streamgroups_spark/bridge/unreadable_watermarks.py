"""Counts the watermarks of producers that tasks could not read, in the user's process.

Tasks report them by a channel (``register``), and ``ops.metrics_listener`` exports the counts. Source: SEMANTICS W15.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from streamgroups.monitoring.member_reports import UnreadableWatermarks
from streamgroups.partitions import TopicPartition

#: The limit of counted partitions of members. Each run of a query is another member.
_MAX_PLACES = 10_000


class UnreadableCounts:
    """The number of unreadable watermarks of each partition and member. Thread-safe.

    >>> counts, p0 = UnreadableCounts(), TopicPartition("flights", 0)
    >>> counts.keep([UnreadableWatermarks("board", "carol", p0, 2), UnreadableWatermarks("board", "carol", p0, 1)])
    >>> [it.count for it in counts.all()]
    [3]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, TopicPartition], int] = {}

    def keep(self, reported: Iterable[UnreadableWatermarks]) -> None:
        """Adds the report of a task."""
        with self._lock:
            for it in reported:
                key = it.group_id, it.member, it.topic_partition
                # In order of the last report, so that the earliest is deleted first.
                self._counts[key] = self._counts.pop(key, 0) + it.count
                if len(self._counts) > _MAX_PLACES:
                    del self._counts[next(iter(self._counts))]

    def all(self) -> list[UnreadableWatermarks]:
        """Returns all counts."""
        with self._lock:
            return [UnreadableWatermarks(*key, count) for key, count in self._counts.items()]
