"""Reports the event times that tasks observe to the user's process, from where the source requests them.

``source.observed_times`` observes them in tasks. Source: SEMANTICS W2.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from streamgroups.event_time.observations import TaskObservation, merged
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.bridge.channel import Channel

Told: TypeAlias = list[tuple[str, TaskObservation]]

#: The limit of observations per partition. It is reached only if a source has ended and no longer takes them.
_MAX_SEEN = 10_000


class ObservationStore:
    """The observations of tasks that no source has taken yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, TopicPartition], dict[tuple[int, bool], TaskObservation]] = defaultdict(dict)

    def keep(self, told: Told) -> None:
        """Stores the observations of a task."""
        with self._lock:
            for reported_as, seen in told:
                kept = self._seen[reported_as, seen.topic_partition]
                # In order of the last report, so that the earliest is deleted first.
                before = kept.pop(seen.key, None)
                kept[seen.key] = seen if before is None else merged(before, seen)
                if len(kept) > _MAX_SEEN:
                    del kept[next(iter(kept))]

    def take(self, reported_as: str, ranges: tuple[OffsetRange, ...]) -> list[TaskObservation]:
        """Returns and removes the observations of these ranges. No later request includes them.

        >>> store, p0 = ObservationStore(), TopicPartition("flights", 0)
        >>> store.keep([("trades", TaskObservation(p0, 5, 1, 700))])
        >>> len(store.take("trades", (OffsetRange(p0, 5, 9),))), len(store.take("trades", (OffsetRange(p0, 5, 9),)))
        (1, 0)
        """
        taken = []
        with self._lock:
            for r in ranges:
                kept = self._seen.get((reported_as, r.topic_partition), {})
                own = [(offset, of) for offset, of in kept if r.next_offset <= offset < r.end_offset]
                taken += [kept.pop(key) for key in own]
        return taken


class Tell(Channel[tuple[str, TaskObservation]]):
    """The channel by which a task reports event times."""

    def __call__(self, reported_as: str, seen: Iterable[TaskObservation]) -> None:
        """Reports observations. Those of a failed task do not count."""
        self.send((reported_as, it) for it in seen)
