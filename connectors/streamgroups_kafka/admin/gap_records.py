"""Records gaps where every host can read them: in the metadata group for the gaps of a group.

``streamgroups_spark.source.running_query`` creates one for a query, and ``range_reader`` one for a task; each records
the gaps that it finds. Gaps are rare, so each call opens and closes a connection. Source:
:mod:`streamgroups.groups.gaps`; SEMANTICS S7, O4.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import closing

from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.coordination.unreadable_entries import unreadable
from streamgroups.errors import NotAuthorized, StreamGroupsError
from streamgroups.groups.gaps import Gaps, PartitionGap
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Committed, MetadataStore
from streamgroups.printable import listed

logger = logging.getLogger(__name__)

#: Two tasks can read parts of one partition and record gaps of it at the same time. Each checks after this time that
#: its own gaps are still stored.
_CHECK_AFTER_S = 0.5
_MAX_ATTEMPTS = 5


class GapRecords:
    """The gaps of one group.

    Args:
        new_metadata_store: connects to the metadata groups.
        group_id: the group.
        clock: returns milliseconds since the epoch.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        new_metadata_store: Callable[[], MetadataStore],
        group_id: str,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._new_metadata_store, self._group_id, self._clock, self._sleep = new_metadata_store, group_id, clock, sleep

    def now_ms(self) -> int:
        """The time to record, in milliseconds since the epoch."""
        return self._clock()

    def record(self, gaps: Collection[PartitionGap], *, alone: bool = True) -> None:
        """Records gaps. If that fails, a warning lists them, and the query continues.

        Args:
            gaps: the gaps to record.
            alone: whether no other process can record gaps of these partitions at the same time.
        """
        if not gaps:
            return
        try:
            with closing(self._new_metadata_store()) as metadata_store:
                for attempt in range(1 if alone else _MAX_ATTEMPTS):
                    if attempt:
                        self._sleep(_CHECK_AFTER_S)
                    changed, rejected = self._add(metadata_store, gaps)
                    if not changed:
                        break
                if rejected:
                    self._warn(rejected)
        except StreamGroupsError as e:
            gaps_group = gaps_group_of(self._group_id)
            grant = f" Grant Read on group '{gaps_group}', or Read on the prefix '{self._group_id}'."
            logger.warning(
                "Group '%s': the gaps %s are not recorded in group '%s' (%s).%s",
                self._group_id,
                listed(gaps, separator="; "),
                gaps_group,
                e,
                grant if isinstance(e, NotAuthorized) else "",
            )

    def _warn(self, rejected: Collection[PartitionGap]) -> None:
        what, remedy = unreadable(gaps_group_of(self._group_id), {it.topic_partition for it in rejected})
        logger.warning(
            "Group '%s': the gaps %s are not recorded. %s They are not overwritten. %s",
            self._group_id,
            listed(rejected, separator="; "),
            what,
            remedy,
        )

    def _add(
        self, metadata_store: MetadataStore, gaps: Collection[PartitionGap]
    ) -> tuple[bool, Collection[PartitionGap]]:
        """Adds missing gaps. Returns whether any was missing, and the gaps of partitions whose entry cannot be read."""
        by_partition: defaultdict[TopicPartition, list[PartitionGap]] = defaultdict(list)
        for found in gaps:
            by_partition[found.topic_partition].append(found)
        read = metadata_store.read(gaps_group_of(self._group_id), sorted(by_partition))
        changed, rejected = {}, list[PartitionGap]()
        for tp, new in by_partition.items():
            before = Gaps.parse(read[tp].metadata) if tp in read else Gaps()
            if before is None:
                rejected += new
                continue
            after = before
            for found in new:
                after = after.plus(found.gap)
            if after != before:
                changed[tp] = Committed(new[-1].gap.to_offset, after.encode())
        metadata_store.write(gaps_group_of(self._group_id), changed)
        return bool(changed), rejected
