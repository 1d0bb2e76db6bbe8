"""Lets a running Spark query take part in offset resets of its group, without a restart.

Created by ``streamgroups_spark.source.running_query`` on the driver, once for each query that is a member of its group.
Called by ``streamgroups.query.micro_batches`` between two batches. Then nothing is in flight, so a query finishes its
reads and drops nothing. Its jobs run one after the other, by the given executor. The query waits for them for a bounded
time. A query without access to the metadata groups also works. Its group cannot be reset while it runs, and it logs one
warning about that. If it has had access before, it retries as after an outage: a permission that is missing for a moment must
not pause partitions for good. Source: SEMANTICS G8, S6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from streamgroups.coordination.reset_participant import OwnedPartition, ResetParticipant
from streamgroups.coordination.reset_protocol import MemberEntry, members_group_of, resets_group_of
from streamgroups.errors import NotAuthorized, StreamGroupsError
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.history import Kind, MemberEvent
from streamgroups.groups.membership import InFlight, NewPosition, Origin
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Clock, Cluster, Member, MetadataStore, Recorder, SerialExecutor
from streamgroups.printable import listed
from streamgroups.query.query_ports import Resets
from streamgroups.retry import comes_true

logger = logging.getLogger(__name__)

#: Reset requests are polled after this time or after this number of batches, so that a query applies them within two
#: batches. A poll is one request to a broker, about a fortieth of a small batch.
_POLL_EVERY_MS = 250
_POLL_EVERY_BATCHES = 2
_AGAIN_S, _SELDOM_S = 0.02, 0.2
#: The poll interval for an overdue request, which waits for other members longer than a batch takes. No batch waits for
#: it.
_OVERDUE_EVERY_MS = 2_000
#: The minimum interval between two writes of the ranges in flight, which are for operators only.
_ENTRY_INTERVAL_MS = 1_000
#: How long polls pause after the metadata groups could not be read.
_BACK_OFF_MS = 30_000

_T = TypeVar("_T")


class ResettableQuery:
    """The place of a query in its group: see :class:`streamgroups.coordination.reset_participant.ResettableMember`.

    Args:
        member: the member of the query.
        metadata_store: reads committed offsets of the group. It stays connected.
        group_id: the group.
        record: records offset resets.
        wait_timeout_ms: how long to wait for a commit.
    """

    def __init__(
        self,
        member: Member,
        metadata_store: MetadataStore,
        group_id: str,
        record: Recorder,
        *,
        wait_timeout_ms: int = 1_000,
    ) -> None:
        self._member, self._metadata_store, self._group_id, self._record = member, metadata_store, group_id, record
        self._wait_timeout_ms = wait_timeout_ms

    @property
    def member_id(self) -> str:
        """The id that the group has assigned to the member."""
        return self._member.member_id

    @property
    def owned(self) -> dict[TopicPartition, OwnedPartition]:
        """The partitions that may be planned."""
        membership = self._member.membership
        owned = {tp: membership.owned[tp] for tp in membership.plannable}
        return {
            tp: OwnedPartition(it.epoch, it.next_offset, it.reset, it.origin is Origin.FOREIGN)
            for tp, it in owned.items()
        }

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Does nothing: between two batches nothing is in flight."""

    def move(self, decided: Mapping[TopicPartition, OwnedPartition], *, detail: str) -> Collection[TopicPartition]:
        """Sets new positions, and waits for a bounded time until the group has committed them."""
        places = self._member.membership.plannable
        new = {
            tp: NewPosition(it.next_offset, it.ownership_epoch, state=it.state, reset=it.reset)
            for tp, it in decided.items()
            if tp in places
        }
        between = [
            OffsetRange(tp, *sorted((places[tp], it.next_offset)))
            for tp, it in new.items()
            if places[tp] != it.next_offset
        ]
        offsets = {tp: it.next_offset for tp, it in new.items()}
        ids = listed(sorted({it.reset.id for it in decided.values()}))
        self._record(MemberEvent(Kind.MOVED, offsets=offsets, ranges=tuple(between), detail=ids))
        moved = self._member.move(new, detail=detail)
        there: frozenset[TopicPartition] = frozenset()

        def all_there() -> bool:
            nonlocal there
            committed = self._metadata_store.read(self._group_id, moved)
            marks = {tp: CommitMark.parse(it.metadata) for tp, it in committed.items()}
            there = frozenset(tp for tp, mark in marks.items() if mark is not None and mark.reset == decided[tp].reset)
            return len(there) == len(moved)

        comes_true(all_there, self._wait_timeout_ms / 1000, every_s=_AGAIN_S, slowest_s=_SELDOM_S)
        return there


class ResetParticipation(Resets):
    """Applies reset requests in one query.

    Args:
        metadata_store: the metadata entries of all groups. :meth:`close` closes it.
        cluster: describes the group and its topics.
        group_id: the group of the query.
        name: the name of the member.
        executor: runs all jobs that read or write metadata entries, one after the other.
        record: records offset resets.
        clock: a monotonic clock in milliseconds.
        now_ms: milliseconds since the epoch, for metadata entries.
        wait_timeout_ms: how long a query waits for other members to pause and for its own commit. After that it polls
            again at its next trigger.
    """

    def __init__(
        self,
        metadata_store: MetadataStore,
        cluster: Cluster,
        group_id: str,
        name: str,
        executor: SerialExecutor,
        record: Recorder,
        clock: Clock,
        now_ms: Clock,
        *,
        wait_timeout_ms: int = 1_000,
    ) -> None:
        self._metadata_store, self._group_id = metadata_store, group_id
        self._record, self._clock, self._wait_timeout_ms = record, clock, wait_timeout_ms
        self._participant = ResetParticipant(
            metadata_store, cluster, group_id, lambda id_: MemberEntry(name, id_, now_ms(), None), clock
        )
        self._owner = executor
        self._place: ResettableQuery | None = None
        self._stopped: frozenset[TopicPartition] = frozenset()
        self._next_poll_ms: int | None = None
        self._batches_since_poll = 0
        self._left_alone_until_ms: int | None = None
        self._next_entry_ms: int | None = None
        #: Whether a poll has read and written metadata entries.
        self._had_access = False
        self._off = False

    def listen(self, record: Recorder) -> Recorder:
        """See :meth:`streamgroups.query.query_ports.Resets.listen`. It writes the metadata entries of the member."""

        def is_notified(event: MemberEvent) -> None:
            record(event)
            if event.kind is Kind.ASSIGNED:
                self._owner.start(partial(self._try, self._participant.introduce, None))

        return is_notified

    def join(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """See :meth:`streamgroups.query.query_ports.Resets.join`."""
        self._place = ResettableQuery(
            member, self._metadata_store, self._group_id, self._record, wait_timeout_ms=self._wait_timeout_ms
        )
        # The connection is established while the member joins.
        self._owner.start(partial(self._try, partial(self._connect, sorted(partitions)[:1]), None))

    def due(self) -> frozenset[TopicPartition]:
        """See :meth:`streamgroups.query.query_ports.Resets.due`."""
        nothing: frozenset[TopicPartition] = frozenset()
        return self._owner.run(partial(self._try, self._participant.due, nothing))

    def follow(self) -> frozenset[TopicPartition]:
        """See :meth:`streamgroups.query.query_ports.Resets.follow`."""
        now_ms = self._clock()
        if self._is_due(now_ms):
            stopped = self._owner.run(partial(self._try, self._apply, None))
            self._stopped = self._stopped if stopped is None else stopped
            every_ms = _OVERDUE_EVERY_MS if self._participant.is_overdue else _POLL_EVERY_MS
            self._next_poll_ms, self._batches_since_poll = now_ms + every_ms, 0
        return self._stopped

    def _is_due(self, now_ms: int) -> bool:
        if self._is_left_alone(now_ms):
            return False
        is_time = self._next_poll_ms is None or now_ms >= self._next_poll_ms
        return is_time or (self._batches_since_poll >= _POLL_EVERY_BATCHES and not self._participant.is_overdue)

    def _is_left_alone(self, now_ms: int) -> bool:
        return self._left_alone_until_ms is not None and now_ms < self._left_alone_until_ms

    def began(self, batch: InFlight) -> None:
        """See :meth:`streamgroups.query.query_ports.Resets.began`."""
        self._batches_since_poll += 1
        now_ms = self._clock()
        if self._is_left_alone(now_ms):
            return
        if self._next_entry_ms is None or now_ms >= self._next_entry_ms:
            self._next_entry_ms = now_ms + _ENTRY_INTERVAL_MS
            self._owner.start(partial(self._try, partial(self._write_entries, batch), None))

    def close(self) -> None:
        """Closes the metadata store in the background, after the jobs."""
        self._owner.finish(self._metadata_store.close)

    # ---- jobs --------------------------------------------------------------------------------------------------------

    def _connect(self, partitions: Collection[TopicPartition], _place: ResettableQuery) -> None:
        for group in (members_group_of(self._group_id), resets_group_of(self._group_id)):
            self._metadata_store.read(group, partitions)

    def _write_entries(self, batch: InFlight, place: ResettableQuery) -> None:
        self._participant.reading_until = {r.topic_partition: r.end_offset for r in batch.ranges}
        self._participant.write_entries(place, self._participant.known)

    def _apply(self, place: ResettableQuery) -> frozenset[TopicPartition]:
        stopped: frozenset[TopicPartition] = frozenset()

        def all_move() -> bool:
            nonlocal stopped
            stopped = self._participant.apply(place)
            self._had_access = self._had_access or bool(self._participant.known)
            return not stopped

        wait_timeout_ms = 0 if self._participant.is_overdue else self._wait_timeout_ms
        try:
            have_moved = comes_true(all_move, wait_timeout_ms / 1000, every_s=_AGAIN_S, slowest_s=_SELDOM_S)
        except StreamGroupsError:
            # The poll can have failed after it has written that these have paused.
            self._stopped |= self._participant.paused & place.owned.keys()
            raise
        if not have_moved:
            logger.info(
                "Offset reset of group '%s': %s not read until the other members have paused",
                self._group_id,
                f"{len(stopped)} partition{' is' if len(stopped) == 1 else 's are'}",
            )
        return stopped

    def _try(self, job: Callable[[ResettableQuery], _T], otherwise: _T) -> _T:
        if self._place is None or self._off:
            return otherwise
        try:
            return job(self._place)
        except StreamGroupsError as e:
            # A rejected login is another error: it can be an outage.
            if isinstance(e, NotAuthorized) and not self._had_access and not self._stopped:
                self._off = True
                logger.warning("The offsets of group '%s' cannot be reset while this query runs: %s", self._group_id, e)
            else:
                self._retry_later(e)
        return otherwise

    def _retry_later(self, error: StreamGroupsError) -> None:
        """A pending reset waits for this member. Reads and commits continue, except those of partitions that have paused for it.

        The other members can have reset theirs already, because these have paused.
        """
        self._left_alone_until_ms = self._clock() + _BACK_OFF_MS
        paused = f" Until then these partitions stay paused for a reset: {listed(sorted(self._stopped))}."
        logger.warning(
            "The metadata entries of group '%s' could not be read or written. They are read again in %d s: %s%s",
            self._group_id,
            _BACK_OFF_MS // 1_000,
            error,
            paused if self._stopped else "",
        )
