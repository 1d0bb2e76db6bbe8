"""The logs that a reader of cursors has fetched from: each message that it has prefetched belongs to one of them.

Used by ``reader``. A recreated topic has the same name and another id. An unclean election replaces records, also those
behind a position that is still in the log. In both cases the prefetched messages are no longer in the log. Source:
SEMANTICS S7, S11; KIP-101 (a leader epoch names one history of a log); KIP-516 (topic ids).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from streamgroups.identity import TopicIdentity
from streamgroups.partitions import LogEnds, TopicPartition
from streamgroups.ports import Cluster
from streamgroups_kafka.cursors.position_checks import TopicIds

#: How often the leader epochs are requested while a reader continues.
_CHECK_S = 5.0


class ReadLogs:
    """The topic id and the leader epoch of each partition since a reader began to fetch from it.

    Args:
        cluster: provides leader epochs.
        ids: provides topic ids, once per metadata refresh.
        now_s: the clock, in seconds. It never steps back.
    """

    def __init__(self, cluster: Cluster, ids: TopicIds, now_s: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._ids, self._now_s = cluster, ids, now_s
        self._identities: dict[TopicPartition, TopicIdentity] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._checked_s = now_s()

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """The reader begins to fetch from these partitions, and has no message of them."""
        identities = self._ids.of({tp.topic for tp in partitions})
        for tp in partitions:
            self._identities[tp] = identities[tp.topic]
            self._epochs.pop(tp, None)

    def observe(self, ends: LogEnds) -> None:
        """Stores the first leader epoch of each partition after :meth:`begin`."""
        self._epochs = {**ends.leader_epochs, **self._epochs}

    def replaced(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Returns the partitions whose log can be another one than at :meth:`begin`.

        Topic ids are compared in each call, and leader epochs once in a while. A partition without a known epoch counts as replaced
        then, because nothing shows that it is not.

        Args:
            partitions: the partitions with prefetched messages.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        identities = self._ids.of({tp.topic for tp in partitions})
        found = {tp for tp in partitions if self._identities[tp].differs_from(identities[tp.topic])}
        now_s = self._now_s()
        if partitions and now_s - self._checked_s >= _CHECK_S:
            epochs = self._cluster.log_ends(partitions).leader_epochs
            found |= {tp for tp in partitions if tp not in epochs or epochs[tp] != self._epochs.get(tp)}
            self._checked_s = now_s
        return found
