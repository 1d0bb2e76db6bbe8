"""Plans the micro-batches of a streaming query: translates Spark's calls into decisions and calls of the ports.

Called by ``streamgroups_spark.source.readers`` on the driver, in the one thread of Spark's Python stream runner.
That thread has no timeout: a call that blocks hangs the query. Therefore every wait here is bounded. Source: Spark's
``DataSourceStreamReader``; SEMANTICS S1-S6.

The life of a query::

    initialOffset ─▶ check everything; join, or run a warm-up batch first if other members are reading
    latestOffset(start) ─▶ the batch that ended at `start` is done: commit it ─▶ admit ─▶ plan
    partitions(start, end) ─▶ the ranges of the plan, packed into tasks
    ... after a restart: first partitions(start, end) of the unfinished batch, or latestOffset(start) of a finished one
    stop ─▶ commit finished batches, including the last one if Spark's commit log contains it; leave the group
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.restart import (
    OnRestart,
    Resumption,
    left_ranges,
    resume_finished,
    resume_unfinished,
    unconfirmed,
)
from streamgroups.errors import GroupRejected, ProgramMismatch, StateMissing, StreamGroupsError
from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight, Owned
from streamgroups.groups.subscription import Partitions
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Member
from streamgroups.printable import listed
from streamgroups.query.alignment import EventTimes
from streamgroups.query.available_now import AvailableNow
from streamgroups.query.available_offsets import AvailableOffsets
from streamgroups.query.batch_ranges import BatchAdmission
from streamgroups.query.continuity import Continuity
from streamgroups.query.expired_offsets import ForgottenOffsets
from streamgroups.query.join_group import Joining
from streamgroups.query.logged_offsets import LoggedOffsets
from streamgroups.query.packing import Packing
from streamgroups.query.query_parts import QueryParts, QueryRun, QueryWaits
from streamgroups.query.query_ports import QuerySettings
from streamgroups.state.task_plan import TaskPlan

logger = logging.getLogger(__name__)

_Value = TypeVar("_Value")


class MicroBatches:
    """Plans the micro-batches of one streaming query.

    Args:
        settings: the options of the user.
        packing: how ranges are packed into tasks.
        parts: the clients, stores and recorders of the query.
        run: this run of it.
        waits: how long it waits.
    """

    def __init__(
        self,
        settings: QuerySettings,
        packing: Packing,
        parts: QueryParts,
        run: QueryRun = QueryRun(),  # noqa: B008
        waits: QueryWaits = QueryWaits(),  # noqa: B008
    ) -> None:
        assert settings.group_id is not None, "parse(streaming=True) demands it"
        self._settings, self._packing, self._cluster = settings, packing, parts.cluster
        self._group_id = settings.group_id
        self._record, self._commit_log = parts.record, parts.commit_log
        self._resets, self._left = parts.resets, parts.left
        self._times, self._states = parts.times, parts.states
        self._joining = Joining(
            settings,
            parts.cluster,
            parts.new_member,
            join_timeout_ms=waits.join_timeout_ms,
            whole_timeout_ms=waits.whole_timeout_ms,
            group_limit=parts.group_limit,
            form=run.form,
            rejects_added=parts.states.rejects_added,
        )
        self._offsets = LoggedOffsets(
            settings.group_id, run.run_id, run.form, settings.on_other_program, run.checkpoint
        )
        #: The end of the last batch that Spark has run, until the batch is known to be done.
        self._begun: tuple[dict[str, Any], BatchOffset] | None = None
        self._member: Member | None = None
        self._batch = BatchOffset(0)
        #: Its empty ranges, where an operator must run without new records. They are not logged: a restarted query
        #: continues with the state of the commit, and plans what is still due.
        self._due: tuple[OffsetRange, ...] = ()
        #: The batch that Spark runs: its end as Spark has logged it, its number, and the ranges that it reads.
        self._run: tuple[dict[str, Any], InFlight] | None = None
        #: The partitions of the member when it planned the batch.
        self._owned: Mapping[TopicPartition, Owned] = {}
        #: The batch whose output the sink had committed, at least in part, when the query was restarted.
        self.written = InFlight(0, ())
        self._is_cold = True
        self._resumed = False
        self._admission = BatchAdmission(settings.limits, self._group_id, parts.clock, parts.duration_ms)
        self._continuity = Continuity(
            parts.cluster,
            parts.clock,
            parts.record,
            settings.on_data_loss,
            self._group_id,
            gaps=parts.gaps,
            refresh_ms=waits.refresh_ms,
        )
        self._available = AvailableOffsets(parts.cluster, parts.clock, self._continuity, start=parts.start)
        self._now = AvailableNow(settings, parts.cluster, self._joining, self._available, waits.join_timeout_ms)
        self._commits_offsets = run.commits_offsets
        self._forgotten = ForgottenOffsets(
            parts.cluster,
            self._group_id,
            commits_offsets=run.commits_offsets,
            is_shared=settings.mode is MembershipMode.SHARED,
            joins=not isinstance(settings.subscription, Partitions),
        )

    # ---- calls from Spark --------------------------------------------------------------------------------------------

    def initial_offset(self) -> dict[str, Any]:
        """The offset before the first batch.

        All checks run here, so that an invalid query is rejected before anything changes.
        """
        offset = BatchOffset(0)
        if self._commits_offsets and self._commit_log.has_begun():
            # The first batch is not finished. A member of a new group would commit starting positions before it is known whether
            # the group is new, or has lost its offsets (SEMANTICS F5). The call for the batch follows.
            return self._offsets.encode(offset)
        self._check(offset)
        if not self._joining.others_read:
            self._start(offset)
        return self._offsets.encode(offset)

    def run_until_now(self) -> None:
        """Limits all later batches to the records that exist now (the trigger ``availableNow``). The last one flushes."""
        self._now.activate()

    def latest_offset(self, start_json: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """Plans the next batch. Returns ``start_json`` itself if there is nothing to read.

        Args:
            start_json: the end of the last batch. Everything before it is done, also after a restart.
            limited: whether the limits of the user apply (Spark lifts them for the trigger ``once``).

        Raises:
            StreamGroupsError: if the query must fail. The text is for the user.
        """
        start = self._offsets.decode(start_json)
        self._check(start)
        if self._is_to_warm_up(limited=limited):
            return self._offsets.encode(replace(start, warm_ups=start.warm_ups + 1))
        member = self._start(start)
        self._finish(member, start)
        self._admission.finished(start_json, start.number)
        self._begun = None
        if not self._resumed:
            self._resume(self._resume_finished, start)
        had_share = self._now.await_share(member)
        # Spark ends an ``availableNow`` query at the first trigger without new offsets.
        if not (self._now.is_active or self._available.may_request()):
            return start_json
        end = self._now.planned(lambda: self._next(member, start, start_json, had_share, limited=limited))
        return start_json if end is None else end

    def _next(
        self, member: Member, start: BatchOffset, start_json: dict[str, Any], had_share: bool, *, limited: bool
    ) -> dict[str, Any] | None:
        """Plans the next batch: see :meth:`latest_offset`. ``None`` if records wait for ranges that must be in their batch."""
        available = self._available.of(member, self._follow_reset_requests())
        next_offsets = {tp: n for tp, (n, _) in available.items()}
        self._times.polled(next_offsets, self._available.ends)
        self._owned = member.membership.owned
        ranges = self._admission.ranges(
            available, self._event_times(), is_limited=limited, is_bounded=self._now.is_active
        )
        to_read = {r.topic_partition for r in ranges}
        others = {tp: n for tp, n in next_offsets.items() if tp not in to_read}
        due = self._states.due(self._owned, others)
        if self._now.is_active and not (ranges or due):
            due = self._states.to_flush(self._owned, others)
        if not (ranges or due):
            is_end = self._now.is_end(member, had_share)
            return start_json if is_end else self.latest_offset(start_json, limited=limited)
        complete = self._states.complete((*ranges, *due), next_offsets)
        if not complete:
            return None if ranges else start_json
        self._forgotten.commit_first(member, [r.topic_partition for r in complete])
        batch = self._plan(member, start.number + 1, complete)
        if not batch.ranges:
            # The member has lost its partitions since.
            return start_json if not self._now.is_active else self.latest_offset(start_json, limited=limited)
        return self._begin(batch, next_offsets)

    def _begin(self, batch: InFlight, next_offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
        """Begins a planned batch. Returns its end as Spark logs it, with the positions of the partitions that it does not read."""
        self._resets.began(batch)
        self._due = tuple(r for r in batch.ranges if not len(r))
        read = tuple(sorted(r for r in batch.ranges if len(r)))
        are_read = {r.topic_partition for r in read}
        rest = {tp: n for tp, n in next_offsets.items() if tp not in are_read}
        resets = {tp: it.reset for tp, it in self._owned.items() if it.reset != NO_RESET}
        self._batch = BatchOffset(batch.number, read, rest, resets=resets).with_identities(self._continuity.identities)
        self._continuity.remember(self._batch)
        self._admission.planned(batch.number, batch.ranges)
        self._available.was_some()
        self._joining.was_read(batch.topic_partitions)
        self._available.request_sizes(read)
        return self._offsets.encode(self._batch)

    def tasks(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> tuple[tuple[OffsetRange, ...], ...]:
        """The ranges of the batch that ends at ``end_json``, packed into tasks.

        If this process has not planned the batch, an earlier run logged it and did not finish it.
        """
        tasks = self._tasks(start_json, end_json)
        ranges = tuple(sorted(r for task in tasks for r in task))
        self._run = (end_json, InFlight(self._offsets.decode(end_json).number, ranges))
        return tasks

    def task_plans(self, tasks: Sequence[tuple[OffsetRange, ...]]) -> Sequence[TaskPlan | None]:
        """The states of the tasks of the batch that Spark runs.

        Raises:
            StateMissing: if no state leads to a position.
            StateUnreachable: if the storage of states does not answer.
        """
        batch = InFlight(self._batch.number, (*self._batch.ranges, *self._due))
        return self._states.task_plans(batch, self._owned, tasks)

    def run(self, end_json: Mapping[str, Any]) -> InFlight | None:
        """The batch that Spark runs, if it ends at ``end_json``: its number and all ranges that it reads.

        Safe to call from any thread.
        """
        run = self._run
        return run[1] if run is not None and run[0] == end_json else None

    @property
    def owned_before(self) -> Mapping[TopicPartition, Owned]:
        """The partitions of the member when the last batch was planned. Safe to read from any thread."""
        return self._owned

    def _tasks(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> tuple[tuple[OffsetRange, ...], ...]:
        if start_json == end_json:
            return ()
        end = self._offsets.decode(end_json)
        if end.number == self._offsets.decode(start_json).number:
            # A warm-up: one task without records for each core, so that each core starts its Python worker.
            return ((),) * self._packing.cores
        if end.number != self._batch.number:
            member = self._start(end)
            self._resume(resume_unfinished, end)
            # A complete reset request is about to replace these positions, and the other members have paused.
            due = {*self._resets.due(), *self._available.continued(member)}
            self._owned = member.membership.owned
            again = [r for r in self._batch.ranges if r.topic_partition not in due]
            next_offsets = {tp: n for tp, n in member.membership.plannable.items() if tp not in due}
            ranges = self._plan(member, end.number, self._states.complete(again, next_offsets)).ranges
            self._due = tuple(r for r in ranges if not len(r))
            self._batch = replace(end, ranges=tuple(r for r in ranges if len(r)))
            done = {r.topic_partition for r in (*self._batch.ranges, *self.written.ranges)}
            self._left.record(end, {r.topic_partition for r in end.ranges if r.topic_partition not in done})
        self._begun = end_json, end
        sizes = self._available.sizes(self._batch.ranges)
        return self._states.pack(self._batch.ranges, self._due, self._packing, sizes)

    def is_done(self, number: int) -> bool:
        """Whether Spark has finished a batch; ``False`` if that is not known. Safe to call from any thread."""
        begun = self._begun
        return begun is not None and begun[1].number == number and self._commit_log.has_finished(begun[0])

    def report_latest_offset(self) -> dict[str, dict[str, int]] | None:
        """The end offsets of the last poll, for Spark's progress report."""
        return _by_topic(self._available.ends) or None

    @property
    def limits_report(self) -> dict[str, Any]:
        """The limits of the next batch, for Spark's progress report. Empty without ``targetBatchTime`` and ``maxDrift``.

        ``maxOffsets`` is its maximum number of offsets with ``targetBatchTime``. ``waiting`` contains the partitions that
        wait by ``maxDrift``, and their distance to the watermark in milliseconds.
        """
        limits = self._settings.limits
        most = {} if limits.target_batch_ms is None else {"maxOffsets": self._admission.max_offsets}
        return most if limits.max_drift_ms is None else {**most, "waiting": _by_topic(self.waiting)}

    @property
    def waiting(self) -> Mapping[TopicPartition, int | None]:
        """See :attr:`BatchAdmission.waiting`. Safe to call from any thread."""
        return self._admission.waiting

    def stop(self) -> None:
        """Commits finished batches and leaves the group. Idempotent."""
        if self._member is None:
            return
        begun, self._begun = self._begun, None
        if begun is not None and self._commit_log.has_finished(begun[0]):
            # A member that has failed cannot commit, and the query has already received its error.
            with suppress(StreamGroupsError):
                self._finish(self._member, begun[1])
        self._member.close()
        self._resets.close()

    def _plan(self, member: Member, number: int, ranges: Collection[OffsetRange]) -> InFlight:
        """Plans a batch. The group may have revoked a partition since its ranges were chosen: the member decides."""
        batch = member.plan(number, ranges)
        # Ranges that must be in one batch can lose each other. The batch has not begun, so it is replaced.
        while len(complete := self._states.complete(batch.ranges, {})) < len(batch.ranges):
            batch = member.plan(number, complete)
        return batch

    def _finish(self, member: Member, finished: BatchOffset) -> None:
        """Commits a batch that is done.

        Raises:
            StateMissing: if the sink has not read all rows of the batch. A later run reads it again.
        """
        membership = member.membership
        self._times.finished(membership, finished.number)
        batch = membership.in_flight
        try:
            states = self._states.finished(batch) if batch is not None and batch.number <= finished.number else {}
        except StateMissing:
            self._left.record_left_ranges(finished)
            raise
        member.finish(finished.number, states)

    # ---- starting ----------------------------------------------------------------------------------------------------

    def _check(self, checkpoint: BatchOffset) -> None:
        self._joining.check(checkpoint)
        self._states.check(self._joining.partitions)
        self._times.check()

    def _start(self, checkpoint: BatchOffset) -> Member:
        """Checks everything, then joins the group. Only the first call has an effect."""
        if self._member is not None:
            return self._member
        self._check(checkpoint)
        self._continuity.remember(self._joining.starting)
        member = self._member = self._joining.make_member()
        self._resets.join(member, self._joining.partitions)
        try:
            self._joining.join(member)
            self._joining.confirm_start(member)
        except (GroupRejected, ProgramMismatch):
            self.stop()
            raise
        self._resumed = checkpoint.number == 0
        return member

    def _is_to_warm_up(self, *, limited: bool) -> bool:
        """Whether a batch without records comes first, while the other members still read all partitions.

        Spark's first batch starts Python workers and compiles code, which takes seconds. The trigger ``once`` has only
        one batch.
        """
        if self._member is not None or self._now.is_active or not limited:
            return False
        cold, self._is_cold = self._is_cold, False
        return cold and self._joining.others_read

    # ---- resuming ----------------------------------------------------------------------------------------------------

    def _resume_finished(
        self, last: BatchOffset, owned: Mapping[TopicPartition, Owned], policy: OnRestart
    ) -> Resumption:
        unsure = unconfirmed(last, owned)
        stored = self._left.among(last, unsure) if unsure else ()
        left = left_ranges(last, owned, stored, self._states.is_written)
        if not_read := [it for it in last.ranges if it.topic_partition in left]:
            logger.warning(
                "Restart of group '%s': batch %d has not read %s", self._group_id, last.number, listed(not_read)
            )
        return resume_finished(last, owned, policy, left)

    def _resume(
        self,
        decide: Callable[[BatchOffset, Mapping[TopicPartition, Owned], OnRestart], Resumption],
        checkpoint: BatchOffset,
    ) -> None:
        """Applies the decision about a restart to the partitions of the first assignment."""
        assert self._member is not None
        owned = self._member.membership.owned
        self._continuity.remember(checkpoint)
        read_by_others = self._forgotten.check(checkpoint, owned, is_finished=decide != resume_unfinished)
        resumption = decide(checkpoint, owned, self._settings.on_restart)
        moved = resumption.to_commit(owned)
        differences = listed(resumption.differences, separator="; ")
        if differences:
            logger.warning("Restart of group '%s': checkpoint and group differ: %s", self._group_id, differences)
        self._continuity.check(self._member.membership, moved)
        if resumption.left:
            logger.warning(
                "Restart of group '%s': %s is skipped, because this member does not own the partition",
                self._group_id,
                listed(resumption.left),
            )
        self._record(
            MemberEvent(
                Kind.RESUMED,
                offsets=resumption.next_offsets,
                batch=checkpoint.number,
                detail=differences,
            )
        )
        self.written = InFlight(checkpoint.number, resumption.written)
        if resumption.written:
            written = listed(resumption.written)
            logger.info("Restart of group '%s': the output of %s was already written", self._group_id, written)
        self._member.identify({**read_by_others, **resumption.identified(owned)})
        if moved:
            self._member.move(moved, detail="")
        self._member.rewind(resumption.to_read_again(owned))
        self._batch = replace(checkpoint, ranges=resumption.replay)
        self._resumed = True
        self._joining.resumed()

    # ---- planning ----------------------------------------------------------------------------------------------------

    def _follow_reset_requests(self) -> Collection[TopicPartition]:
        """Applies reset requests. Returns the partitions that must not be read yet."""
        stopped = self._resets.follow()
        # An ``availableNow`` query has no later trigger that could return these offsets.
        if stopped and self._now.is_active:
            self._now.comes_true(lambda: not self._resets.follow())
            stopped = self._resets.follow()
        return stopped

    def _event_times(self) -> EventTimes | None:
        if self._settings.limits.max_drift_ms is None:
            return None
        return self._times.event_times() or self._states.event_times(self._owned)


def _by_topic(values: Mapping[TopicPartition, _Value]) -> dict[str, dict[str, _Value]]:
    """Values by topic and partition, as in JSON."""
    by_topic: dict[str, dict[str, _Value]] = {}
    for tp, value in sorted(values.items()):
        by_topic.setdefault(tp.topic, {})[str(tp.partition)] = value
    return by_topic
