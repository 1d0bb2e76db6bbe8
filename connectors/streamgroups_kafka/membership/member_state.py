"""The state that the two threads of a member share: membership, due commits and failure, protected by one lock.

The base of :class:`~streamgroups_kafka.membership.member.KafkaMember`. The query's thread changes the state by the port
(``plan``, ``finish``, ``move``, ``close``). :class:`~streamgroups_kafka.membership.consumer_thread.ConsumerOwner` changes
it on behalf of the group (``assign``, ``revoke``, ``release``, ``committed``). The state never waits for a broker, and
calls only the recorder, and the ledger of a sink before a move. It records each change under the lock, so a history has
the order of the changes. Source: SEMANTICS G11, S2, S3, X2.

If a sink commits offsets in its transaction, the offsets of the group have two writers. The member commits between
batches and to detect whether it is still in the group. The sink commits at the end of a batch. If a commit of the
member arrived after that of the sink, it would reset the group to an earlier position than the output. So a sink gets
the consumer group metadata only while no commit of the member is in progress. From then on the member commits no offset
of that batch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from streamgroups.errors import StreamGroupsError
from streamgroups.groups import batch_lease
from streamgroups.groups.batch_lease import BatchLease, LeaseEffect, LeaseEvent
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.groups.membership import InFlight, Membership, NewPosition, Origin, Owned, States
from streamgroups.ledgers.fences import fenced_by_ledger
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Recorder
from streamgroups_kafka.client.clock import awake_s
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member_settings import MemberSettings

logger = logging.getLogger(__name__)

#: After a pause of the process this long, the group may have continued without the member. The member plans no batch
#: until the broker has accepted a commit again.
_SILENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """The state of a member that a sink needs to write the batch in flight.

    Args:
        in_flight: the batch without released partitions; ``None`` between two batches.
        group_metadata: the consumer group metadata; ``None`` if the group may have fenced the member.
        marks: the metadata with which the member commits the positions at which the ranges in flight begin. A partition whose
            position has changed is left out.
    """

    in_flight: InFlight | None
    group_metadata: ConsumerGroupMetadata | None
    marks: Mapping[TopicPartition, str] = field(default_factory=dict)


class Turn(Enum):
    """The next action of the owner thread."""

    CONTINUE = "continue"
    #: The query has ended: commit finished batches, and leave.
    CLOSE = "close"
    #: The member has failed. Leave at once, so that other members get the partitions before Spark stops the query.
    LEAVE_AT_ONCE = "leave at once"


class MemberState:
    """A :class:`streamgroups.ports.Member` without its thread. Every method takes the lock briefly; the ``await_``
    methods wait for a change.

    Args:
        settings: the settings of the member.
        record: records all changes.
        clock_s: a clock in seconds that advances while the machine is suspended.
    """

    def __init__(self, settings: MemberSettings, record: Recorder, clock_s: Callable[[], float] = awake_s) -> None:
        self._settings, self._record, self._clock_s = settings, record, clock_s
        self._form = settings.form
        self._changed = threading.Condition()
        self._membership = Membership()
        self._to_commit: dict[TopicPartition, int] = {}
        self._failure: StreamGroupsError | None = None
        self._closing = False
        self._doubtful = False
        self._last_seen_s = self._clock_s()
        self._lease: BatchLease = batch_lease.NoBatch()
        self._group_metadata: ConsumerGroupMetadata | None = None
        #: The number of the batch that a sink is committing, and of the last one that a sink has committed.
        self._given_to_sink: int | None = None
        self._written: int | None = None
        #: Committed offsets that are ahead of the position, because a sink committed them before a restart.
        self._rewound: dict[TopicPartition, int] = {}
        #: Committed offsets with the mark of a sink.
        self._sinks: dict[TopicPartition, int] = {}
        #: The last error, as the client reported it. Only the owner thread writes it.
        self.last_error = ""
        #: Whether a broker has rejected the login of the member since the last check of it.
        self.is_login_rejected = False

    # ---- the query's thread ------------------------------------------------------------------------------------------

    def await_assignment(self, timeout_s: float) -> bool:
        """Waits for the first assignment. Returns whether it has arrived.

        Raises:
            StreamGroupsError: if the member has failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._membership.assignments, timeout_s)
            self._raise_failure()
            return self._membership.assignments > 0

    @property
    def member_id(self) -> str:
        """See :attr:`streamgroups.ports.Member.member_id`."""
        with self._changed:
            return "" if self._group_metadata is None else self._group_metadata.member_id

    @property
    def membership(self) -> Membership:
        """See :attr:`streamgroups.ports.Member.membership`."""
        with self._changed:
            self._raise_failure()
            return self._accepted

    @property
    def owned(self) -> Mapping[TopicPartition, Owned]:
        """The owned partitions, also of a member that has failed."""
        with self._changed:
            return self._membership.owned

    def plan(self, number: int, ranges: Collection[OffsetRange]) -> InFlight:
        """See :meth:`streamgroups.ports.Member.plan`."""
        with self._changed:
            batch = InFlight(number, self._accepted.readable(ranges))
            self._membership = self._membership.plan(batch)
            self._record(MemberEvent(Kind.PLANNED, ranges=batch.ranges, batch=number))
            # An earlier plan of the same batch may have had ranges.
            self._step(batch_lease.Planned(number) if batch.ranges else batch_lease.Finished(number))
            return batch

    def finish(self, number: int, states: States = MappingProxyType({})) -> None:
        """See :meth:`streamgroups.ports.Member.finish`."""
        with self._changed:
            had = self._membership.in_flight
            self._membership, to_commit = self._membership.finish(number, states)
            if had is not self._membership.in_flight:
                self._record(MemberEvent(Kind.FINISHED, offsets=to_commit, batch=number))
            self._step(batch_lease.Finished(number))
            self._rewound = {}
            # Spark finishes a batch only after its sink has committed it, so a batch that a sink was given is written. The report of
            # the sink can be lost. A commit without the mark of the sink would then hide that the output is written.
            is_written = number in (self._written, self._given_to_sink)
            if is_written:
                self._sinks.update(to_commit)
            if is_written and to_commit and not self._doubtful:
                # The sink has committed these offsets to the group. In doubt, the member repeats the commit with the
                # mark of the sink: the response shows whether it is fenced.
                self._record(MemberEvent(Kind.COMMITTED, offsets=to_commit))
            else:
                self.commit_soon(to_commit)

    def written(self, number: int) -> None:
        """Records that a sink has committed the offsets of batch ``number`` together with its output. Safe to call from
        any thread.
        """
        with self._changed:
            self._written = number

    @property
    def snapshot(self) -> MemberSnapshot:
        """The state that a sink needs to write the batch in flight. Safe to read from any thread.

        The batch and the consumer group metadata are of one moment. After the member has released a partition, the
        group has a newer generation and rejects this metadata.

        Raises:
            StreamGroupsError: if the member has failed.
        """
        with self._changed:
            self._raise_failure()
            batch, owned = self._membership.in_flight, self._membership.owned
            begun = () if batch is None else batch.ranges
            marks = {
                r.topic_partition: self.mark_of(r.topic_partition, r.next_offset).encode()
                for r in begun
                if owned[r.topic_partition].next_offset == r.next_offset
            }
            return MemberSnapshot(batch, None if self._is_doubtful else self._group_metadata, marks)

    def snapshot_to_commit(self) -> MemberSnapshot:
        """Returns :attr:`snapshot` for a sink that commits the offsets of the batch next. From now on only the sink
        commits them.

        The snapshot has no consumer group metadata while a commit of the member for any of these partitions is in
        progress. That commit could arrive after the commit of the sink.

        Raises:
            StreamGroupsError: if the member has failed.
        """
        with self._changed:
            snapshot = self.snapshot
            if snapshot.in_flight is None or snapshot.group_metadata is None:
                return snapshot
            if not self._to_commit.keys().isdisjoint(snapshot.in_flight.topic_partitions):
                return replace(snapshot, group_metadata=None)
            self._given_to_sink = snapshot.in_flight.number
            return snapshot

    def rewind(self, decided: Mapping[TopicPartition, NewPosition]) -> None:
        """See :meth:`streamgroups.ports.Member.rewind`."""
        with self._changed:
            back = {
                tp: self._membership.owned[tp].next_offset
                for tp, it in self._membership.current(decided).items()
                if it.next_offset < self._membership.owned[tp].next_offset
            }
            self._rewound = back | self._rewound
            self._membership = self._membership.rewind(decided)

    def move(self, decided: Mapping[TopicPartition, NewPosition], *, detail: str) -> frozenset[TopicPartition]:
        """See :meth:`streamgroups.ports.Member.move`. If the ledger of a sink cannot move, no position changes."""
        if detail:
            logger.warning("%s: %s", self._settings.name, detail)
        # The ledger changes first: a batch that begins at the new position finds it there. The lock is free meanwhile, so the group
        # can reassign a partition: the ledger and the membership both compare the ownership epoch.
        accepted = self._settings.move_ledger(self.membership.current(decided))
        with self._changed:
            found = self._membership.current(decided)
            # A member that may be fenced detects it with its next commit, and joins again.
            if (rejected := found.keys() - accepted) and not self._is_doubtful:
                raise fenced_by_ledger(self._settings.group_id, rejected)
            moved = {tp: it for tp, it in found.items() if tp in accepted}
            self._membership = self._membership.move({tp: decided[tp] for tp in moved})
            self.commit_soon({tp: it.next_offset for tp, it in moved.items()})
            return frozenset(moved)

    def identify(self, found: Mapping[TopicPartition, Owned]) -> None:
        """See :meth:`streamgroups.ports.Member.identify`. The ledger of a sink receives them with the next batch."""
        with self._changed:
            self._membership = self._membership.identify(found)

    def clear_form(self) -> None:
        """See :meth:`streamgroups.ports.Member.clear_form`."""
        with self._changed:
            self._form = ""
            self.commit_soon({tp: it.next_offset for tp, it in self._membership.owned.items()})

    @property
    def is_closing(self) -> bool:
        """Whether the query has ended."""
        with self._changed:
            return self._closing

    def close(self) -> None:
        """Records that the query has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    @property
    def _accepted(self) -> Membership:
        """The membership for planning. After a pause of the process, the member may not plan batches on its partitions,
        which it may have lost.
        """
        if self._is_doubtful:
            return replace(self._membership, releasing=frozenset(self._membership.owned))
        return self._membership

    @property
    def _is_doubtful(self) -> bool:
        return self._doubtful or self._clock_s() - self._last_seen_s > _SILENCE_S

    def _raise_failure(self) -> None:
        if self._failure:
            raise self._failure

    @property
    def batch_ms(self) -> int | None:
        """How long a batch has been in flight, in milliseconds; ``None`` between two batches. Safe to read from any
        thread.
        """
        with self._changed:
            lease = self._lease
            return None if isinstance(lease, batch_lease.NoBatch) else max(self._now_ms - lease.began_ms, 0)

    # ---- the owner thread --------------------------------------------------------------------------------------------

    def judge_batch(self, event: LeaseEvent) -> tuple[LeaseEffect, ...]:
        """Returns the actions that are due for the batch in flight. A member that must leave has already released its
        partitions.
        """
        with self._changed:
            return self._step(event)

    @property
    def is_away(self) -> bool:
        """Whether the member has left its group until an expired batch ends."""
        with self._changed:
            return isinstance(self._lease, batch_lease.Left)

    def _step(self, event: LeaseEvent) -> tuple[LeaseEffect, ...]:
        if self._settings.lease is None:
            return ()
        self._lease, effects = batch_lease.step(self._lease, event, self._now_ms, self._settings.lease)
        for effect in effects:
            if isinstance(effect, batch_lease.Leave):
                # Release before the group is informed: from now on no sink writes the batch, and the member does not
                # commit it.
                self._group_metadata = None
                self.release(None, Kind.LEASE_EXPIRED, batch=effect.number)
        return effects

    @property
    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """The consumer group metadata of the last poll."""
        with self._changed:
            return self._group_metadata

    @group_metadata.setter
    def group_metadata(self, group_metadata: ConsumerGroupMetadata | None) -> None:
        with self._changed:
            self._group_metadata = group_metadata

    @property
    def has_been_assigned(self) -> bool:
        """Whether the member has received an assignment, possibly an empty one."""
        with self._changed:
            return self._membership.assignments > 0

    def await_turn(self, timeout_s: float) -> Turn:
        """Waits until a commit is due, the query ends, or the timeout expires. Returns the next action."""
        self.await_due(timeout_s)
        with self._changed:
            if self._failure:
                return Turn.LEAVE_AT_ONCE
            self._update_silence()
            return Turn.CLOSE if self._closing else Turn.CONTINUE

    def await_due(self, timeout_s: float) -> None:
        """Waits until a commit is due, the query ends, or the timeout expires."""
        with self._changed:
            self._changed.wait_for(lambda: self._to_commit or self._closing, timeout_s)

    def await_change(self, timeout_s: float) -> None:
        """Waits until the state changes or the timeout expires."""
        with self._changed:
            self._changed.wait(timeout_s)

    def assign(self, positions: Mapping[TopicPartition, Owned]) -> None:
        """Adds assigned partitions."""
        with self._changed:
            self._membership = self._membership.assign(positions)
            if positions:
                self._record(MemberEvent(Kind.ASSIGNED, offsets={tp: o.next_offset for tp, o in positions.items()}))
            self._sinks.update({tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.WRITTEN})
            # Commit starting positions at once, so that the next owner does not decide them again (G2).
            self.commit_soon({tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.STARTING})

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Marks partitions that the group revokes."""
        with self._changed:
            self._membership = self._membership.revoke(partitions)
            self._record(MemberEvent(Kind.REVOKING, offsets=self._next_offsets(frozenset(partitions))))

    def may_release(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether the member can release the partitions: no batch reads them and their offsets are committed, or the
        member ends.
        """
        with self._changed:
            # A process that was frozen while it waits for a batch can be fenced. Then its batch can never be committed.
            self._update_silence()
            finished = self._membership.releasable(partitions) == frozenset(partitions)
            settled = finished and self._to_commit.keys().isdisjoint(partitions)
            return settled or self._closing or self._failure is not None

    def release(
        self, partitions: Collection[TopicPartition] | None, kind: Kind, *, batch: int | None = None, detail: str = ""
    ) -> tuple[OffsetRange, ...]:
        """Removes released or lost partitions; ``None`` means all. Returns the ranges that were in flight on them."""
        with self._changed:
            gone = frozenset(self._membership.owned if partitions is None else partitions)
            offsets = self._next_offsets(gone)
            self._membership, abandoned = self._membership.release(gone)
            self._to_commit = {tp: n for tp, n in self._to_commit.items() if tp not in gone}
            self._rewound = {tp: n for tp, n in self._rewound.items() if tp not in gone}
            self._sinks = {tp: n for tp, n in self._sinks.items() if tp not in gone}
            self._doubtful = self._doubtful and bool(self._membership.owned)
            # Recorded before the group is informed, so that a history never shows two owners at the same time.
            self._record(MemberEvent(kind, offsets=offsets, ranges=abandoned, batch=batch, detail=detail))
            self._changed.notify_all()
            return abandoned

    def commit_soon(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Adds offsets that are due to be committed."""
        with self._changed:
            self._to_commit.update(next_offsets)
            self._changed.notify_all()

    def due(self) -> dict[TopicPartition, int]:
        """The offsets that are due to be committed, of owned partitions only."""
        with self._changed:
            self._to_commit = {tp: n for tp, n in self._to_commit.items() if tp in self._membership.owned}
            return dict(self._to_commit)

    def mark_of(self, topic_partition: TopicPartition, next_offset: int) -> CommitMark:
        """Returns the metadata of a commit. A commit that repeats the offset of a sink keeps the mark of the sink."""
        with self._changed:
            owned = self._membership.owned.get(topic_partition)
            is_of_a_sink = self._sinks.get(topic_partition) == next_offset
            if owned is None:
                return CommitMark(self._settings.exclusive, is_of_a_sink)
            return owned.mark(next_offset, exclusive=self._settings.exclusive, written=is_of_a_sink, form=self._form)

    def committed(
        self,
        next_offsets: Mapping[TopicPartition, int],
        marks: Mapping[TopicPartition, CommitMark] = MappingProxyType({}),
    ) -> None:
        """Records that the broker has accepted a commit, which proves that this client is still a member.

        Args:
            next_offsets: the offsets.
            marks: their metadata. An offset stays due if it has another state in the meantime: an operator can run
                without new records.
        """
        with self._changed:
            self._doubtful = False
            self._to_commit = {
                tp: n
                for tp, n in self._to_commit.items()
                if next_offsets.get(tp) != n or (tp in marks and marks[tp] != self.mark_of(tp, n))
            }
            self._record(MemberEvent(Kind.COMMITTED, offsets=next_offsets))
            self._changed.notify_all()

    def fail(self, failure: StreamGroupsError) -> None:
        """Records a permanent failure. Only the first failure counts."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def fail_unless_closing(self, failure: StreamGroupsError) -> None:
        """Calls :meth:`fail`, unless the query has ended: then no caller reads the failure."""
        with self._changed:
            if not self._closing:
                self.fail(failure)

    def _next_offsets(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: o.next_offset for tp, o in self._membership.owned.items() if tp in partitions}

    def _given_away(self) -> frozenset[TopicPartition]:
        """The partitions whose offsets a sink is committing."""
        batch = self._membership.in_flight
        return frozenset() if batch is None or batch.number != self._given_to_sink else batch.topic_partitions

    def _update_silence(self) -> None:
        now_s = self._clock_s()
        if now_s - self._last_seen_s > _SILENCE_S and self._membership.owned and self._settings.assign is None:
            self._doubtful = True
            logger.warning(
                "%s: was unresponsive for %.1f s; it plans no batch until the group accepts a commit again",
                self._settings.name,
                now_s - self._last_seen_s,
            )
        if self._doubtful:
            own_partitions = self._membership.owned.keys() - self._given_away()
            for tp, next_offset in self._next_offsets(own_partitions).items():
                # The commit repeats the committed offset of the group. Its response shows whether the member is fenced.
                self._to_commit.setdefault(tp, self._rewound.get(tp, next_offset))
        self._last_seen_s = now_s
