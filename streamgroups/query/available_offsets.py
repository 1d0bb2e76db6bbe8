"""Determines the offsets that a query could read now: from the positions of its member to the ends of the partitions.

Used by ``streamgroups.query.micro_batches`` once for each batch, on the thread of the query. Source: SEMANTICS G13, S4,
S7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import TypeAlias

from streamgroups.errors import UnknownTopic
from streamgroups.partitions import LogEnds, OffsetRange, TopicPartition
from streamgroups.ports import Clock, Cluster, Member
from streamgroups.query.continuity import Continuity, until_known
from streamgroups.query.data_loss import OnDataLoss
from streamgroups.query.offset_lookup import record_bytes

#: The minimum interval between two reads of end offsets: without new offsets Spark polls every 10 ms.
_POLL_INTERVAL_MS = 40
#: Record sizes are read at most this often, and for new partitions.
_SIZE_EVERY_MS = 600_000

#: Runs a job, now or in another thread. A job raises nothing.
Start: TypeAlias = Callable[[Callable[[], None]], None]


def at_once(job: Callable[[], None]) -> None:
    """Runs a job before it returns."""
    job()


class AvailableOffsets:
    """The available offsets of a query, as of the last read of the log.

    Args:
        cluster: the topics of the cluster.
        clock: a monotonic clock in milliseconds.
        continuity: handles positions whose records no longer exist.
        start: runs the jobs that read record sizes.
    """

    def __init__(self, cluster: Cluster, clock: Clock, continuity: Continuity, *, start: Start = at_once) -> None:
        self._cluster, self._clock, self._continuity, self._start = cluster, clock, continuity, start
        self._targets: dict[TopicPartition, int] | None = None
        self._last_request_ms: int | None = None
        #: The end offsets of the last poll.
        self.ends: Mapping[TopicPartition, int] = {}
        self._record_bytes: Future[Mapping[TopicPartition, float]] | None = None
        self._sized: frozenset[TopicPartition] = frozenset()
        self._sized_ms: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the query reads only the records that existed at a certain time."""
        return self._targets is not None

    def limit_to(self, targets: Mapping[TopicPartition, int]) -> None:
        """Excludes these offsets and all later ones from now on."""
        self._targets = dict(targets)

    def may_request(self) -> bool:
        """Whether enough time has passed since the last poll that found no records."""
        now_ms = self._clock()
        if self._last_request_ms is not None and 0 <= now_ms - self._last_request_ms < _POLL_INTERVAL_MS:
            return False
        self._last_request_ms = now_ms
        return True

    def was_some(self) -> None:
        """Records that the last poll found records."""
        self._last_request_ms = None

    def of(self, member: Member, stopped: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Next offset and end offset of every partition that may be read, except paused ones.

        Args:
            member: the owner of the positions.
            stopped: the paused partitions.

        Raises:
            DataLoss: if records at a position no longer exist and the policy is to fail.
            UnknownTopic: if a topic was deleted and the policy is to fail.
        """
        try:
            return self._read(member, stopped)
        except UnknownTopic:
            # A topic was deleted between two requests. The second read leaves it out, or fails by the policy.
            return self._read(member, stopped)

    def _read(self, member: Member, stopped: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        next_offsets = {tp: n for tp, n in member.membership.plannable.items() if tp not in stopped}
        log_ends = self._ends(next_offsets)
        self.ends = ends = log_ends.offsets
        next_offsets = {tp: n for tp, n in next_offsets.items() if tp in ends}
        next_offsets |= self._continuity.settle(member, next_offsets, log_ends)
        if self._targets is not None:
            ends = {tp: min(end, self._targets.get(tp, 0)) for tp, end in ends.items()}
        return {tp: (n, ends[tp]) for tp, n in next_offsets.items()}

    def continued(self, member: Member) -> frozenset[TopicPartition]:
        """The partitions whose positions have changed because of data loss.

        Called before a batch of an earlier run is planned.

        Raises:
            DataLoss: if records at a position no longer exist and the policy is to fail.
        """
        next_offsets = member.membership.plannable
        return frozenset(self._continuity.settle(member, next_offsets, self._cluster.log_ends(next_offsets)))

    def _ends(self, next_offsets: Mapping[TopicPartition, int]) -> LogEnds:
        """The ends of partitions.

        A deleted topic is left out if the query continues when the topic is recreated.

        Raises:
            UnknownTopic: if a topic was deleted and the policy is to fail.
        """
        try:
            return self._cluster.log_ends(next_offsets)
        except UnknownTopic:
            there = self._cluster.topics()
            gone = {tp for tp in next_offsets if tp.partition >= there.get(tp.topic, 0)}
            failing = {tp: next_offsets[tp] for tp in gone if self._continuity.policy_of(tp) is OnDataLoss.FAIL}
            if failing:
                raise self._continuity.deleted(failing) from None
        if gone:
            return self._cluster.log_ends(next_offsets.keys() - gone)
        # The topic was recreated in between, and not every broker has its metadata yet.
        return until_known(self._cluster.log_ends, next_offsets)

    def request_sizes(self, ranges: Collection[OffsetRange]) -> None:
        """Starts a read of record sizes from time to time: the stored size changes slowly.

        Spark writes its log between the planning of a batch and its packing, so the result is available by then.
        """
        now_ms = self._clock()
        partitions = self._sized | {r.topic_partition for r in ranges}
        if self._sized_ms is not None and now_ms - self._sized_ms < _SIZE_EVERY_MS and partitions == self._sized:
            return
        self._sized_ms, self._sized = now_ms, partitions
        answer = self._record_bytes = Future[Mapping[TopicPartition, float]]()

        def request() -> None:
            try:
                answer.set_result(record_bytes(self._cluster, partitions))
            except BaseException as e:
                answer.set_exception(e)

        self._start(request)

    def sizes(self, ranges: Collection[OffsetRange]) -> Mapping[TopicPartition, float]:
        """The average record size of partitions, in bytes.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        self.request_sizes(ranges)
        return self._record_bytes.result() if self._record_bytes is not None else {}
