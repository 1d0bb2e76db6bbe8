"""One streaming query's side of its group: from Spark's calls to decisions to the ports.

Called by ``source`` on the driver, from the one thread of Spark's Python stream runner, without a time limit: a call that
blocks hangs the query, so every wait here is bounded. Source: Spark's ``DataSourceStreamReader``; SEMANTICS S1-S6.

The life of a query::

    initialOffset ─▶ start: check everything, then join
    latestOffset(start) ─▶ the batch that ended at `start` is done: commit it ─▶ admit ─▶ plan
    partitions(start, end) ─▶ the ranges of the plan, packed into tasks
    ... after a restart: partitions(start, end) of the unfinished batch comes first, or latestOffset(start) of a finished one
    stop ─▶ commit what is done (the last batch too, if Spark's commit log says so), leave the group
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from streamgroups.batches.admission import UNLIMITED, Limits, admit
from streamgroups.batches.offset_json import BatchOffset, decode, encode
from streamgroups.batches.packing import Packing, pack
from streamgroups.batches.resuming import OnRestart, Resumption, resume_finished, resume_unfinished
from streamgroups.errors import DataLoss, GroupRefused, StreamGroupsError
from streamgroups.groups.history import Kind
from streamgroups.groups.joining import MembershipMode, check_may_join
from streamgroups.groups.membership import Origin, Owned
from streamgroups.groups.subscription import Partitions, Pattern, Subscription, partitions_of, topics_of
from streamgroups.lookup import offsets_of, record_bytes
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Clock, Groups, Log, Member, Recorder
from streamgroups.positions import Positions

logger = logging.getLogger(__name__)

#: How long an exclusive query waits until it has all partitions.
_WHOLE_TIMEOUT_S = 30
#: End offsets are asked for at most this often: Spark asks every 10 ms when there is nothing to do.
_ASK_EVERY_MS = 40
#: How large records are is asked for at most this often, and for partitions that are new.
_SIZE_EVERY_MS = 600_000


class Cluster(Log, Groups, Protocol):
    """What a query needs of the cluster."""

    def check_reachable(self) -> None:
        """Raises :class:`~streamgroups.errors.BrokerUnreachable`, quickly, if no broker answers."""
        ...


class NewMember(Protocol):
    """Makes a member; called once per query."""

    def __call__(
        self,
        *,
        topics: Callable[[], Collection[str]],
        first_positions: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Owned]],
    ) -> Member: ...


class CommitLog(Protocol):
    """What Spark notes of the query's batches (``streamgroups_spark.commit_log``)."""

    def begun(self, offset: Mapping[str, Any]) -> int | None:
        """The id of the batch that has begun and ends at ``offset``, if that can be known."""
        ...

    def is_done(self, batch_id: int) -> bool:
        """Whether the output of a batch is written."""
        ...


class QuerySettings(Protocol):
    """The part of the options that decides here (``streamgroups_spark.options.SourceOptions`` has it)."""

    @property
    def group_id(self) -> str | None: ...
    @property
    def subscription(self) -> Subscription: ...
    @property
    def starting(self) -> Positions: ...
    @property
    def mode(self) -> MembershipMode: ...
    @property
    def on_restart(self) -> OnRestart: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def fail_on_data_loss(self) -> bool: ...


class MicroBatches:
    """Plans the micro-batches of one streaming query.

    Args:
        settings: the user's options.
        packing: how to make tasks.
        cluster: where topics and groups are asked for.
        new_member: makes the member when the query starts.
        clock: the time now, in milliseconds.
        record: takes note of what happens.
        join_timeout_ms: how long a start waits for the first assignment. Other members may finish their batches first,
            and a killed one counts until its session times out.
        commit_log: where to look whether the last batch is done; ``None`` if nobody has said where it is.
    """

    def __init__(
        self,
        settings: QuerySettings,
        packing: Packing,
        cluster: Cluster,
        new_member: NewMember,
        clock: Clock,
        record: Recorder,
        *,
        join_timeout_ms: int = 360_000,
        commit_log: CommitLog | None = None,
    ) -> None:
        assert settings.group_id is not None, "parse(streaming=True) demands it"
        self._settings, self._packing, self._cluster = settings, packing, cluster
        self._group_id = settings.group_id
        self._new_member, self._clock, self._record = new_member, clock, record
        self._join_timeout_ms, self._commit_log = join_timeout_ms, commit_log
        #: The batch in flight by our number and by Spark's id.
        self._begun: tuple[int, int] | None = None
        self._member: Member | None = None
        self._starting: dict[TopicPartition, int] = {}
        self._batch = BatchOffset(0)
        self._resumed = False
        self._until_now = False
        self._targets: dict[TopicPartition, int] | None = None
        self._last_batch_ms: int | None = None
        self._last_asked_ms: int | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._record_bytes: Mapping[TopicPartition, float] = {}
        self._sized: frozenset[TopicPartition] = frozenset()
        self._sized_ms: int | None = None

    # ---- what Spark calls --------------------------------------------------------------------------------------------

    def initial_offset(self) -> dict[str, Any]:
        """The offset before the first batch. The group is joined here, so that a refusal comes before anything else."""
        offset = BatchOffset(0)
        self._start(offset)
        return encode(offset)

    def run_until_now(self) -> None:
        """From now on, read only what is there now (the trigger ``availableNow``)."""
        self._until_now = True

    def latest_offset(self, start_json: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """Plans the next batch; returns ``start_json`` itself if there is nothing to read.

        Args:
            start_json: where the last batch ended; everything before it is done, on restart too.
            limited: whether the user's limits hold (Spark lifts them for the trigger ``once``).

        Raises:
            StreamGroupsError: what makes the query fail, in words for the user.
        """
        start = decode(start_json)
        member = self._start(start)
        member.finish(start.number)
        if not self._resumed:
            self._resume(resume_finished, start)
        self._await_share(member)
        if not self._may_ask():
            return start_json
        available = self._available(member)
        ranges = admit(available, self._limits(limited), last_batch_ms=self._last_batch_ms, now_ms=self._clock())
        if not ranges:
            return start_json
        # The group may have asked for a partition since; the member has the last word.
        batch = member.plan(start.number + 1, {r.topic_partition: (r.next_offset, r.end_offset) for r in ranges})
        if not batch.ranges:
            return start_json
        read = batch.topic_partitions
        self._batch = BatchOffset(
            batch.number, batch.ranges, {tp: n for tp, (n, _) in available.items() if tp not in read}
        )
        self._last_batch_ms = self._clock()
        self._last_asked_ms = None
        # What has been read has a position of its own; should it lose that, it is a new partition.
        self._starting = {tp: n for tp, n in self._starting.items() if tp not in read}
        return encode(self._batch)

    def tasks(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> tuple[tuple[OffsetRange, ...], ...]:
        """The ranges of the batch that ends at ``end_json``, packed into tasks.

        A batch that this process has not planned is one that an earlier run logged and did not finish.
        """
        end = decode(end_json)
        if start_json == end_json:
            return ()
        if end.number != self._batch.number:
            member = self._start(end)
            self._resume(resume_unfinished, end)
            again = {r.topic_partition: (r.next_offset, r.end_offset) for r in self._batch.ranges}
            self._batch = BatchOffset(end.number, member.plan(end.number, again).ranges, end.resting)
        if self._commit_log is not None:
            batch_id = self._commit_log.begun(end_json)
            self._begun = None if batch_id is None else (end.number, batch_id)
        return pack(self._batch.ranges, self._packing, self._sizes())

    def _sizes(self) -> Mapping[TopicPartition, float]:
        """How large records are, asked for now and then: what is stored changes slowly."""
        now_ms = self._clock()
        partitions = self._sized | {r.topic_partition for r in self._batch.ranges}
        if self._sized_ms is None or now_ms - self._sized_ms >= _SIZE_EVERY_MS or partitions != self._sized:
            self._sized_ms, self._sized = now_ms, partitions
            self._record_bytes = record_bytes(self._cluster, partitions)
        return self._record_bytes

    def report_latest_offset(self) -> dict[str, dict[str, int]] | None:
        """The end offsets that were last seen, for Spark's progress report."""
        by_topic: dict[str, dict[str, int]] = {}
        for tp, end in sorted(self._ends.items()):
            by_topic.setdefault(tp.topic, {})[str(tp.partition)] = end
        return by_topic or None

    def stop(self) -> None:
        """Commits what is done and leaves the group. Idempotent."""
        if self._member is None:
            return
        begun, self._begun = self._begun, None
        if begun is not None and self._commit_log is not None and self._commit_log.is_done(begun[1]):
            # A member that has failed cannot commit, and the query knows why already.
            with suppress(StreamGroupsError):
                self._member.finish(begun[0])
        self._member.close()

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _start(self, checkpoint: BatchOffset) -> Member:
        """Checks everything, then joins; only the first call does anything."""
        if self._member is not None:
            return self._member
        settings = self._settings
        self._cluster.check_reachable()
        existing = self._cluster.topics()
        topics = topics_of(settings.subscription, existing)
        joins = not isinstance(settings.subscription, Partitions)
        group = self._cluster.describe(self._group_id)
        by_pattern = isinstance(settings.subscription, Pattern)
        check_may_join(group, topics, by_pattern=by_pattern, mode=settings.mode if joins else None)
        partitions = partitions_of(settings.subscription, existing)
        # A group that has committed anything here is not new: what it has not committed was added later (G2).
        is_new = not self._cluster.committed(self._group_id, partitions)
        if is_new and checkpoint.number == 0:
            self._starting = offsets_of(
                self._cluster, settings.starting, partitions, fail_on_data_loss=settings.fail_on_data_loss
            )
        member = self._new_member(topics=self._topics_now, first_positions=self._first_positions)
        self._member = member
        member.join(self._join_timeout_ms)
        if joins and settings.mode is MembershipMode.EXCLUSIVE:
            self._await_all(member, partitions)
        self._resumed = checkpoint.number == 0
        return member

    def _topics_now(self) -> Collection[str]:
        return topics_of(self._settings.subscription, self._cluster.topics())

    def _first_positions(self, missing: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
        """Runs on the member's thread: where partitions start that the group has no committed offset for."""
        known = {tp: Owned(self._starting[tp], Origin.STARTING) for tp in missing if tp in self._starting}
        added = [tp for tp in missing if tp not in known]
        oldest = self._cluster.beginning_offsets(added) if added else {}
        return {**known, **{tp: Owned(n, Origin.OLDEST) for tp, n in oldest.items()}}

    def _await_all(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """An exclusive query begins when it owns everything: the checkpoint decides about all of it at once.

        Two of them may have joined at the same moment, each seeing an empty group.
        """
        whole = _comes_true(lambda: set(partitions) <= member.membership.owned.keys(), _WHOLE_TIMEOUT_S)
        members = self._cluster.describe(self._group_id).members
        if not whole or len(members) > 1:
            self.stop()
            raise GroupRefused(
                f"Group '{self._group_id}' has {len(members)} members; membership=exclusive needs it alone.",
                remedy="Start one of them with another group.id.",
            )

    def _await_share(self, member: Member) -> None:
        """``availableNow`` must not end because the group has not yet given this member its share."""
        if not self._until_now or self._targets is not None:
            return
        partitions = partitions_of(self._settings.subscription, self._cluster.topics())

        def settled() -> bool:
            if member.membership.plannable or not partitions:
                return True
            group = self._cluster.describe(self._group_id)
            return group.settled and partitions <= group.owned

        if not _comes_true(settled, self._join_timeout_ms / 1000):
            logger.warning("Group '%s' did not settle; ending with nothing read", self._group_id)
        self._targets = self._cluster.end_offsets(partitions)

    # ---- resuming ----------------------------------------------------------------------------------------------------

    def _resume(
        self,
        decide: Callable[[BatchOffset, Mapping[TopicPartition, Owned], OnRestart], Resumption],
        checkpoint: BatchOffset,
    ) -> None:
        """Applies what a restart means for the partitions that came with the first assignment."""
        assert self._member is not None
        owned = self._member.membership.owned
        resumption = decide(checkpoint, owned, self._settings.on_restart)
        for difference in resumption.differences:
            logger.warning("Restart of group '%s': %s", self._group_id, difference)
        for left in resumption.left:
            logger.warning("Restart of group '%s': %s is left to the group", self._group_id, left)
        self._record(
            Kind.RESUMED,
            offsets=resumption.next_offsets,
            batch=checkpoint.number,
            note="; ".join(map(str, resumption.differences)),
        )
        moved = {tp: n for tp, n in resumption.next_offsets.items() if owned[tp].next_offset != n}
        if moved:
            self._member.move(moved, note="")
        self._batch = BatchOffset(checkpoint.number, resumption.replay, checkpoint.resting)
        self._resumed = True

    # ---- planning ----------------------------------------------------------------------------------------------------

    def _limits(self, limited: bool) -> Limits:
        if not limited:
            return UNLIMITED
        # What is there now is read now: nothing will come to make it more.
        return replace(self._settings.limits, min_offsets=None) if self._until_now else self._settings.limits

    def _may_ask(self) -> bool:
        """Whether enough time has passed since the log was asked in vain. An ``availableNow`` ends with one such answer."""
        if self._until_now:
            return True
        now_ms = self._clock()
        if self._last_asked_ms is not None and 0 <= now_ms - self._last_asked_ms < _ASK_EVERY_MS:
            return False
        self._last_asked_ms = now_ms
        return True

    def _available(self, member: Member) -> dict[TopicPartition, tuple[int, int]]:
        """Next offset and end offset of every partition that may be read."""
        next_offsets = member.membership.plannable
        ends = self._cluster.end_offsets(next_offsets.keys())
        self._ends = ends
        next_offsets |= self._refuse_or_skip_loss(member, next_offsets, ends)
        if self._targets is not None:
            ends = {tp: min(end, self._targets.get(tp, 0)) for tp, end in ends.items()}
        return {tp: (n, ends[tp]) for tp, n in next_offsets.items()}

    def _refuse_or_skip_loss(
        self, member: Member, next_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """A partition that ends before the next offset was truncated or made anew. Returns where such ones go on."""
        ahead = {tp: n for tp, n in next_offsets.items() if ends[tp] < n}
        if not ahead:
            return {}
        # Under read_committed the end stands before open transactions, which others may have read past.
        ends = self._cluster.high_watermarks(ahead)
        lost = {tp: n for tp, n in ahead.items() if ends[tp] < n}
        if not lost:
            return {}
        told = ", ".join(f"{tp} (next offset {n}, but it ends at {ends[tp]})" for tp, n in sorted(lost.items()))
        if self._settings.fail_on_data_loss:
            raise DataLoss(
                f"Records are gone: {told}: the topic was truncated or deleted and made again.",
                remedy="Set failOnDataLoss=false to go on with the oldest record, or move the group.",
            )
        oldest = self._cluster.beginning_offsets(lost)
        self._record(Kind.GAP, offsets=oldest, note=told)
        member.move(oldest, note=f"Records are gone: {told}; going on with the oldest (failOnDataLoss=false)")
        return oldest


def _comes_true(condition: Callable[[], bool], within_s: float) -> bool:
    """Waits for a condition, asking five times a second."""
    patient = Retrying(
        retry=retry_if_result(lambda done: not done), stop=stop_after_delay(within_s), wait=wait_fixed(0.2)
    )
    try:
        return patient(condition)
    except RetryError:
        return False
