"""Deletes old state files in the background of a running query.

Created by ``source.running_query``. Of all members of a group, the owner of the first partition collects. Source:
SEMANTICS S10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from streamgroups.errors import StreamGroupsError
from streamgroups.groups.commit_metadata import position_of
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Cluster
from streamgroups.query.available_offsets import Start
from streamgroups_operators.collection import Collector
from streamgroups_operators.shared_files import collect_all

logger = logging.getLogger(__name__)

#: A collection lists all files, and reads the manifests of new ones.
_EVERY_MS = 60_000


class StateCollection:
    """Collects from time to time.

    Args:
        collectors: the files of each operator of the query.
        group_id: the group of the query.
        cluster: the committed offsets of the group.
        partitions: returns all partitions that the group reads.
        clock: a monotonic clock in milliseconds.
        start: runs a job in the background.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        group_id: str,
        cluster: Cluster,
        partitions: Callable[[], Collection[TopicPartition]],
        clock: Clock,
        start: Start,
    ) -> None:
        self._collectors, self._group_id, self._cluster = collectors, group_id, cluster
        self._partitions, self._clock, self._start = partitions, clock, start
        self._next_ms = clock() + _EVERY_MS

    def __call__(self, owned: Collection[TopicPartition]) -> None:
        """Starts a collection if one is due.

        Args:
            owned: the partitions of the member.
        """
        if self._clock() < self._next_ms:
            return
        # Not before this one has ended.
        self._next_ms = self._clock() + 1_000 * _EVERY_MS
        mine = frozenset(owned)
        self._start(lambda: self._run(mine))

    def _run(self, owned: frozenset[TopicPartition]) -> None:
        try:
            partitions = self._partitions()
            if partitions and min(partitions) in owned:
                committed = self._cluster.committed(self._group_id, partitions)
                positions = [position_of(tp, it.next_offset, it.metadata) for tp, it in committed.items()]
                gone = collect_all(self._collectors, positions)
                logger.debug("Group '%s': %d state files deleted", self._group_id, len(gone))
        except StreamGroupsError as e:
            logger.warning("Old state files of group '%s' are not deleted: %s", self._group_id, e)
        finally:
            self._next_ms = self._clock() + _EVERY_MS
