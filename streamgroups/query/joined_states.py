"""The states of a join: plans the partitions of both topics in pairs.

Created by ``streamgroups_spark.source.stage_states``. A join emits a pair of records in the batch that reads the later
one, so the positions of a left partition and of its right partner change together. A batch reads both or neither: the one
without new records as an empty range. Both are in one task, and in one commit. Source: SEMANTICS W18, S9, S10.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from streamgroups.groups.membership import Owned
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.operator_states import OperatorStates, TakeReports
from streamgroups.query.packing import Packing, pack_together
from streamgroups.query.state_search import StateSearch
from streamgroups.state.joined_lookup import is_together
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups.state.origins import Named
from streamgroups.state.state_lookup import Choice, OnMissingState, Position, Stored
from streamgroups.state.task_plan import RangePlan

logger = logging.getLogger(__name__)

#: How long records may wait for the partner of their partition until a warning. A rebalance takes less.
_WARN_AFTER_MS = 60_000


class JoinedStates(OperatorStates):
    """See :mod:`streamgroups.query.joined_states`.

    Args:
        topics: the topics of the join.
        location: where state files are.
        group_id: the group of the query.
        run_id: the id of the run.
        search: finds the states of positions that name none.
        take_reports: returns the reports of the tasks of a batch.
        now_ms: the time in milliseconds since the epoch.
        on_missing: what happens if no states lead to two positions.
        collect: deletes old states from time to time; called with the partitions of the member.
        operators: the operators of the query, in the order in which they process the records; the join is the last one.
    """

    def __init__(
        self,
        topics: JoinedTopics,
        location: str,
        group_id: str,
        run_id: str,
        search: StateSearch,
        take_reports: TakeReports,
        now_ms: Callable[[], int],
        on_missing: OnMissingState = OnMissingState.FAIL,
        collect: Callable[[Collection[TopicPartition]], None] = lambda _: None,
        operators: tuple[str, ...] = (),
    ) -> None:
        super().__init__(
            location,
            group_id,
            run_id,
            search,
            take_reports,
            now_ms,
            on_missing,
            collect,
            operators=operators,
        )
        self._topics = topics
        #: Since when the records of a partition wait for its partner, and whether a warning was logged.
        self._waiting: dict[TopicPartition, tuple[int, bool]] = {}

    def check(self, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`BatchStates.check` and :meth:`JoinedTopics.check`."""
        self._topics.check(partitions)

    def due(
        self, owned: Mapping[TopicPartition, Owned], next_offsets: Mapping[TopicPartition, int]
    ) -> tuple[OffsetRange, ...]:
        """A join has no clock, so it never runs without new records."""
        return ()

    def complete(
        self, ranges: Collection[OffsetRange], next_offsets: Mapping[TopicPartition, int]
    ) -> Collection[OffsetRange]:
        """See :meth:`BatchStates.complete`. Adds an empty range for a partner without new records.

        A partition whose partner cannot be read waits: after a rebalance one of them can arrive before the other.
        """
        by_partition = {r.topic_partition: r for r in ranges}
        found = dict(by_partition)
        waiting = set()
        for tp in by_partition:
            partner = self._topics.partner(tp)
            if partner in by_partition:
                continue
            if partner in next_offsets:
                at = next_offsets[partner]
                found[partner] = OffsetRange(partner, at, at)
            else:
                waiting.add(tp)
                del found[tp]
        if next_offsets:
            self._warn(waiting)
        return tuple(sorted(found.values()))

    def _warn(self, waiting: Collection[TopicPartition]) -> None:
        now_ms = self._now_ms()
        self._waiting = {tp: self._waiting.get(tp, (now_ms, False)) for tp in waiting}
        for tp, (since_ms, has_warned) in sorted(self._waiting.items()):
            if now_ms - since_ms >= _WARN_AFTER_MS and not has_warned:
                self._waiting[tp] = since_ms, True
                logger.warning(
                    "Group '%s': the records of %s have waited for %d s, because this query cannot read %s. A join reads "
                    "both partitions in one task. Check that the group assigns them to the same member "
                    "(kafka.group.remote.assignor=range), that both topics have the same number of partitions, and that "
                    "no reset request of one topic is pending.",
                    self._group_id,
                    tp,
                    (now_ms - since_ms) // 1000,
                    self._topics.partner(tp),
                )

    def pack(
        self,
        ranges: Sequence[OffsetRange],
        empty: Sequence[OffsetRange],
        packing: Packing,
        record_bytes: Mapping[TopicPartition, float],
    ) -> tuple[tuple[OffsetRange, ...], ...]:
        """See :meth:`BatchStates.pack`. Both partitions of a pair are in one task."""
        units: dict[int, list[OffsetRange]] = {}
        for r in (*ranges, *empty):
            units.setdefault(r.topic_partition.partition, []).append(r)
        return pack_together([tuple(unit) for unit in units.values()], packing, record_bytes)

    def _range_plans(self, task: Sequence[OffsetRange], owned: Mapping[TopicPartition, Owned]) -> tuple[RangePlan, ...]:
        by_partition = {r.topic_partition: r for r in task}
        plans: list[RangePlan] = []
        for tp in by_partition:
            if tp.topic == self._topics.left:
                pair = self._topics.pair(tp)
                plans += self._pair_plans([by_partition[it] for it in pair], [owned[it] for it in pair])
        return tuple(sorted(plans, key=lambda it: it.range))

    def _pair_plans(self, ranges: Sequence[OffsetRange], owned: Sequence[Owned]) -> list[RangePlan]:
        left, right = (
            Position(r.topic_partition, r.next_offset, it.state, it.identity)
            for r, it in zip(ranges, owned, strict=True)
        )
        if is_together(left, right):
            return [self._range_plan(r, it) for r, it in zip(ranges, owned, strict=True)]
        choices = self._search.find_both(left, right)
        return [self._chosen_plan(r, it, choice) for r, it, choice in zip(ranges, owned, choices, strict=True)]

    def _chosen_plan(self, r: OffsetRange, owned: Owned, choice: Choice) -> RangePlan:
        is_named = isinstance(choice, Stored) and isinstance(owned.state, Named) and choice.file == owned.state.file
        # A position names the state of an earlier offset if the records in between are lost.
        return self._range_plan(r, owned) if is_named else self._plan_of(r, owned, choice)
