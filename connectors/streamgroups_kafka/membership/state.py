"""What a member's two threads share: its membership, what is to be committed, why it failed; under one lock.

Changed by :class:`~streamgroups_kafka.membership.member.KafkaMember` on the query's thread (``plan``, ``finish``, ``move``, ``close``) and
by :class:`~streamgroups_kafka.membership.consumer_thread.ConsumerOwner` for the group (``assign``, ``revoke``, ``let_go``, ``committed``). It
calls nobody but the recorder, waits for no broker, and records each change while it holds the lock: a history tells things in
the order in which they happened. Source: SEMANTICS G11, S2, S3, X2.

The group's offsets have two writers where a sink commits them in its transaction: the member, between batches and to learn whether it is still in
its group, and the sink, at the end of a batch. A commit of the member's that reached the broker after the sink's would take the group back
behind what is written. So a sink that is about to commit is told by which claim only when no commit of the member's is under way, and from then on the
member commits nothing of that batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from streamgroups.errors import StreamGroupsError
from streamgroups.groups import batch_lease
from streamgroups.groups.batch_lease import BatchLease, LeaseEffect, LeaseEvent
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import InFlight, Membership, Origin, Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Recorder
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.settings import MemberSettings

logger = logging.getLogger(__name__)

#: After a silence this long (the process was stopped or starved) the group may have gone on without us: nothing is planned
#: until a commit has been accepted again.
_SILENCE_S = 3.0
#: Goes on while the machine sleeps, where there is such a clock: a laptop's lid is a silence too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _awake_s() -> float:
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """What a sink has to know of the member whose batch it writes.

    Args:
        in_flight: the batch, without what has been let go meanwhile; ``None`` between two batches.
        claim: by which the group knows the member; ``None`` if nobody can be sure that it still does.
    """

    in_flight: InFlight | None
    group_metadata: ConsumerGroupMetadata | None


class Turn(Enum):
    """What the owner thread has to do next."""

    GO_ON = "go on"
    #: The query has ended: commit what is done, and leave.
    CLOSE = "close"
    #: The query will fail; until Spark hears of it, the partitions are better in other hands.
    LEAVE_AT_ONCE = "leave at once"


class MemberState:
    """The shared state of one member. Every method takes the lock, for a moment; those named ``await_`` wait for a change.

    Args:
        settings: whose state it is.
        record: takes note of every change.
        clock_s: seconds that go on while the machine sleeps.
    """

    def __init__(self, settings: MemberSettings, record: Recorder, clock_s: Callable[[], float] = _awake_s) -> None:
        self._settings, self._record, self._clock_s = settings, record, clock_s
        self._changed = threading.Condition()
        self._membership = Membership()
        self._to_commit: dict[TopicPartition, int] = {}
        self._failure: StreamGroupsError | None = None
        self._closing = False
        self._doubtful = False
        self._last_seen_s = self._clock_s()
        self._lease: BatchLease = batch_lease.NoBatch()
        self._group_metadata: ConsumerGroupMetadata | None = None
        #: The batch that a sink commits, or has committed.
        self._given_to_sink: int | None = None
        self._written: int | None = None
        #: Where the group stands, ahead of what is read: a sink wrote that before a restart.
        self._rewound: dict[TopicPartition, int] = {}
        #: Committed offsets that are a sink's, and have its mark.
        self._sinks: dict[TopicPartition, int] = {}
        #: What went wrong last, in the words of the client; written by the owner thread only.
        self.last_error = ""

    # ---- the query's thread ------------------------------------------------------------------------------------------

    def await_assignment(self, timeout_s: float) -> bool:
        """Waits for the first assignment. Returns whether it has come.

        Raises:
            StreamGroupsError: if the member has failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._membership.assignments, timeout_s)
            self._raise_failure()
            return self._membership.assignments > 0

    @property
    def membership(self) -> Membership:
        """See :attr:`streamgroups.ports.Member.membership`."""
        with self._changed:
            self._raise_failure()
            return self._believed

    def plan(self, number: int, ranges: Iterable[OffsetRange]) -> InFlight:
        """A batch begins, of those ranges that may still be read."""
        with self._changed:
            batch = InFlight(number, self._believed.readable(ranges))
            self._membership = self._membership.plan(batch)
            self._record(Kind.PLANNED, ranges=batch.ranges, batch=number)
            if batch.ranges:
                self._step(batch_lease.Planned(number))
            return batch

    def finish(self, number: int) -> None:
        """Batch ``number`` is done; what it read is due to be committed."""
        with self._changed:
            had = self._membership.in_flight
            self._membership, to_commit = self._membership.finish(number)
            if had is not self._membership.in_flight:
                self._record(Kind.FINISHED, offsets=to_commit, batch=number)
            self._step(batch_lease.Finished(number))
            self._rewound = {}
            is_written = self._written == number
            if is_written:
                self._sinks.update(to_commit)
            if is_written and not self._doubtful:
                # The sink's commit is the group's; in doubt it is repeated, with its mark, for the answer's sake.
                self._record(Kind.COMMITTED, offsets=to_commit)
            else:
                self.commit_soon(to_commit)

    def written(self, number: int) -> None:
        """A sink has committed what batch ``number`` read, together with its output. Told on any thread."""
        with self._changed:
            self._written = number

    @property
    def snapshot(self) -> MemberSnapshot:
        """What a sink has to know that writes the batch in flight. Asked on any thread.

        What is in flight and by which claim it is held are of one moment: once a partition has been let go, the group has a newer
        generation, and refuses this claim.

        Raises:
            StreamGroupsError: if the member has failed.
        """
        with self._changed:
            self._raise_failure()
            return MemberSnapshot(self._membership.in_flight, None if self._is_doubtful else self._group_metadata)

    def snapshot_to_commit(self) -> MemberSnapshot:
        """The same, for a sink that commits the batch's offsets next: from now on nobody else commits them.

        There is no claim while a commit of the member's is under way for any of them: it could arrive after the sink's.

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

    def rewind(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Positions of owned partitions change, and the group's do not."""
        with self._changed:
            stands = self._next_offsets(next_offsets)
            back = {tp: n for tp, n in stands.items() if next_offsets[tp] < n}
            self._rewound = back | self._rewound
            self._membership = self._membership.move(next_offsets)

    def move(
        self,
        next_offsets: Mapping[TopicPartition, int],
        identities: Mapping[TopicPartition, TopicIdentity] = MappingProxyType({}),
    ) -> None:
        """Positions of owned partitions change without reading, and are due to be committed."""
        with self._changed:
            moved = {tp: identities.get(tp, UNKNOWN) for tp in next_offsets}
            self._membership = self._membership.move(next_offsets).identify(moved)
            self.commit_soon({tp: n for tp, n in next_offsets.items() if tp in self._membership.owned})

    def identify(self, identities: Mapping[TopicPartition, TopicIdentity]) -> None:
        """The topics that the positions of owned partitions are of become known."""
        with self._changed:
            self._membership = self._membership.identify(identities)

    @property
    def is_closing(self) -> bool:
        """Whether the query has ended."""
        with self._changed:
            return self._closing

    def close(self) -> None:
        """The query has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    @property
    def _believed(self) -> Membership:
        """What may be relied on: after a silence nothing may be planned on what may no longer be ours."""
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
        """For how long a batch has been in flight; ``None`` between two batches. Asked on any thread."""
        with self._changed:
            lease = self._lease
            return None if isinstance(lease, batch_lease.NoBatch) else max(self._now_ms - lease.began_ms, 0)

    # ---- the owner thread --------------------------------------------------------------------------------------------

    def judge_batch(self, event: LeaseEvent) -> tuple[LeaseEffect, ...]:
        """What the batch in flight gives reason to do now. A member that is to leave has given up its partitions when this returns."""
        with self._changed:
            return self._step(event)

    @property
    def is_away(self) -> bool:
        """Whether the member is out of its group until a batch ends that has taken too long."""
        with self._changed:
            return isinstance(self._lease, batch_lease.Left)

    def _step(self, event: LeaseEvent) -> tuple[LeaseEffect, ...]:
        if self._settings.lease is None:
            return ()
        self._lease, effects = batch_lease.step(self._lease, event, self._now_ms, self._settings.lease)
        for effect in effects:
            if isinstance(effect, batch_lease.Leave):
                # Before the group hears of it: from now on no sink writes the batch, and no commit of it is made.
                self._group_metadata = None
                self.let_go(None, Kind.LEASE_EXPIRED, batch=effect.number)
        return effects

    @property
    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """Who the member was to the broker when it last asked."""
        with self._changed:
            return self._group_metadata

    @group_metadata.setter
    def group_metadata(self, group_metadata: ConsumerGroupMetadata | None) -> None:
        with self._changed:
            self._group_metadata = group_metadata

    @property
    def has_been_assigned(self) -> bool:
        """Whether there has been an assignment, of nothing perhaps."""
        with self._changed:
            return self._membership.assignments > 0

    def await_turn(self, timeout_s: float) -> Turn:
        """Waits until something is to be committed or the query ends, or the time is up. Says what to do."""
        self.await_due(timeout_s)
        with self._changed:
            if self._failure:
                return Turn.LEAVE_AT_ONCE
            self._note_silence()
            return Turn.CLOSE if self._closing else Turn.GO_ON

    def await_due(self, timeout_s: float) -> None:
        """Waits until something is to be committed or the query ends, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._to_commit or self._closing, timeout_s)

    def await_change(self, timeout_s: float) -> None:
        """Waits until anything changes, or the time is up."""
        with self._changed:
            self._changed.wait(timeout_s)

    def assign(self, positions: Mapping[TopicPartition, Owned]) -> None:
        """Partitions came in."""
        with self._changed:
            self._membership = self._membership.assign(positions)
            if positions:
                self._record(Kind.ASSIGNED, offsets={tp: o.next_offset for tp, o in positions.items()})
            self._sinks.update({tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.WRITTEN})
            # What has just been decided is committed at once: the next to ask must not decide anew (G2).
            self.commit_soon({tp: o.next_offset for tp, o in positions.items() if o.origin is Origin.STARTING})

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """The group wants partitions back."""
        with self._changed:
            self._membership = self._membership.revoke(partitions)
            self._record(Kind.REVOKING, offsets=self._next_offsets(partitions))

    def may_let_go(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether no batch in flight reads the partitions and what was read is committed; or waiting for it is idle."""
        with self._changed:
            self._last_seen_s = self._clock_s()
            finished = all(map(self._membership.may_release, partitions))
            settled = finished and not any(tp in self._to_commit for tp in partitions)
            return settled or self._closing or self._failure is not None

    def let_go(
        self, partitions: Collection[TopicPartition] | None, kind: Kind, *, batch: int | None = None, note: str = ""
    ) -> tuple[OffsetRange, ...]:
        """Partitions are given back or lost; ``None`` for all. Returns what was in flight on them."""
        with self._changed:
            gone = frozenset(self._membership.owned if partitions is None else partitions)
            offsets = self._next_offsets(gone)
            self._membership, abandoned = self._membership.release(gone)
            self._to_commit = {tp: n for tp, n in self._to_commit.items() if tp not in gone}
            self._rewound = {tp: n for tp, n in self._rewound.items() if tp not in gone}
            self._sinks = {tp: n for tp, n in self._sinks.items() if tp not in gone}
            self._doubtful = self._doubtful and bool(self._membership.owned)
            # Recorded before the group hears of it, so that histories never show two owners where there was one.
            self._record(kind, offsets=offsets, ranges=abandoned, batch=batch, note=note)
            self._changed.notify_all()
            return abandoned

    def commit_soon(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets are due to be committed."""
        with self._changed:
            self._to_commit.update(next_offsets)
            self._changed.notify_all()

    def due(self) -> dict[TopicPartition, int]:
        """What is to be committed, of what is still owned."""
        with self._changed:
            self._to_commit = {tp: n for tp, n in self._to_commit.items() if tp in self._membership.owned}
            return dict(self._to_commit)

    def mark_of(self, topic_partition: TopicPartition, next_offset: int) -> CommitMark:
        """What a commit carries. One that repeats what a sink has committed must not lose the sink's mark."""
        with self._changed:
            owned = self._membership.owned.get(topic_partition)
            is_of_a_sink = self._sinks.get(topic_partition) == next_offset
            return CommitMark(self._settings.exclusive, is_of_a_sink, owned.identity if owned else UNKNOWN)

    def committed(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """The group has accepted a commit: so we are still a member."""
        with self._changed:
            self._doubtful = False
            self._to_commit = {tp: n for tp, n in self._to_commit.items() if next_offsets.get(tp) != n}
            self._record(Kind.COMMITTED, offsets=next_offsets)
            self._changed.notify_all()

    def fail(self, failure: StreamGroupsError) -> None:
        """The member has failed for good; the first failure counts."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def fail_unless_closing(self, failure: StreamGroupsError) -> None:
        """As :meth:`fail`, but of a query that has ended nobody asks any more."""
        with self._changed:
            if not self._closing:
                self.fail(failure)

    def _next_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: o.next_offset for tp, o in self._membership.owned.items() if tp in partitions}

    def _given_away(self) -> frozenset[TopicPartition]:
        """The partitions whose offsets a sink commits just now."""
        batch = self._membership.in_flight
        return frozenset() if batch is None or batch.number != self._given_to_sink else batch.topic_partitions

    def _note_silence(self) -> None:
        now_s = self._clock_s()
        if now_s - self._last_seen_s > _SILENCE_S and self._membership.owned and self._settings.assign is None:
            self._doubtful = True
            logger.warning(
                "%s: was unresponsive for %.1f s; it plans no batch until the group accepts a commit again",
                self._settings.name,
                now_s - self._last_seen_s,
            )
        if self._doubtful:
            ours = self._membership.owned.keys() - self._given_away()
            for tp, next_offset in self._next_offsets(ours).items():
                # Where the group stands already, for the answer's sake.
                self._to_commit.setdefault(tp, self._rewound.get(tp, next_offset))
        self._last_seen_s = now_s
