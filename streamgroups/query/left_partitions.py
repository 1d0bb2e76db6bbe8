"""Detects that partitions have left a query because their topic was deleted.

Used by ``streamgroups.query.continuity`` before each batch, on the thread of the query. A group revokes the partitions of a
deleted topic, often before the query reads their end offsets again. Without this check a query with ``onDataLoss=fail``
would continue as if another member had them. Source: SEMANTICS S7.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Cluster
from streamgroups.query.data_loss import LossPolicies, OnDataLoss, deleted
from streamgroups.query.missing_partitions import missing_partitions

logger = logging.getLogger(__name__)

#: How long after their release the topics of partitions are read, and the interval. Brokers receive a deletion at
#: different times.
_WATCHED_MS, _INTERVAL_MS = 10_000, 1_000


class LeftPartitions:
    """The partitions that have left a query lately.

    Args:
        cluster: the topics of the cluster.
        clock: a monotonic clock in milliseconds.
        policies: how a loss is handled.
        group_id: the group, for the text of an error.
    """

    def __init__(self, cluster: Cluster, clock: Clock, policies: LossPolicies, group_id: str) -> None:
        self._cluster, self._clock, self._policies, self._group_id = cluster, clock, policies, group_id
        self._owned: Mapping[TopicPartition, Owned] = {}
        #: The positions of partitions that have left, and until when their topics are read.
        self._left: dict[TopicPartition, tuple[int, int]] = {}
        self._next_ms = 0

    def check(self, owned: Mapping[TopicPartition, Owned]) -> None:
        """Reads whether the topics of partitions that have left still exist.

        Args:
            owned: the partitions of the member.

        Raises:
            UnknownTopic: if one was deleted, and the policy is to fail.
            NotAuthorized: if this user may not describe one any more.
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        if owned is self._owned and not self._left:
            return
        now_ms = self._clock()
        left = self._owned.keys() - owned.keys()
        if left:
            self._left |= {tp: (self._owned[tp].next_offset, now_ms + _WATCHED_MS) for tp in left}
            self._next_ms = now_ms
        self._owned = owned
        if not self._left or now_ms < self._next_ms:
            return
        missing = missing_partitions(self._cluster, self._left.keys() - owned.keys())
        gone = {tp: n for tp, (n, _) in self._left.items() if tp in missing}
        failing = {tp: n for tp, n in gone.items() if self._policies.of(tp) is OnDataLoss.FAIL}
        if failing:
            raise deleted(failing, self._group_id)
        self._next_ms = now_ms + _INTERVAL_MS
        for tp in sorted(gone):
            logger.warning(
                "Group '%s': the topic of %s was deleted; the query continues without it (onDataLoss=%s)",
                self._group_id,
                tp,
                self._policies.of(tp).value,
            )
        self._left = {tp: it for tp, it in self._left.items() if tp not in gone and tp not in owned and now_ms < it[1]}
