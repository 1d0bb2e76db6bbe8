"""The session of one instance in its group: it translates requests into decisions, and decisions into calls of the
ports.

``group_cursors`` creates one for each ``create_group_cursor``. One thread does all work of an instance, so it owns the
consumers; callers wait for it. A lock protects the lease, so that a heartbeat never waits for a request. The thread never
acquires it. The end needs no lock: a signal handler or the garbage collector can call it on any thread, at any place.
:mod:`streamgroups.cursors` contains the decisions. This module applies them in the order of SEMANTICS G4: check the
group for changes, commit, read. Source: SEMANTICS G4-G8, G12.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from streamgroups.coordination.reset_participant import ResetParticipant
from streamgroups.coordination.reset_protocol import MemberEntry
from streamgroups.cursors.cursor_tokens import GroupCursor
from streamgroups.cursors.lease import Lease
from streamgroups.cursors.pending_ranges import PendingRange, in_flight, pending_ranges, read_from
from streamgroups.cursors.repeated_requests import Repeats
from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Batch, Clock, Cluster, Member, MetadataStore, Recorder, Records
from streamgroups.printable import listed
from streamgroups.retry import comes_true
from streamgroups_kafka.client.job_thread import Job, JobThread, ThreadEnded
from streamgroups_kafka.cursors.instance_member import CursorMember
from streamgroups_kafka.cursors.position_checks import TopicIds

logger = logging.getLogger(__name__)

#: How long a caller waits until an instance has left its group.
LEAVE_TIMEOUT_S = 45.0
#: The minimum interval between two metadata entries for a lease.
_ENTRY_INTERVAL_MS = 1_000
#: The minimum and maximum interval at which a request checks during a reset whether all members have paused.
_POLL_S, _SELDOM_S = 0.02, 0.2
_JOIN_AGAIN = "Other instances continue its partitions at the committed offsets. Join again with create_group_cursor."

_T = TypeVar("_T")
_FIRST = "first"


@dataclass(frozen=True, slots=True)
class Outside:
    """The ports that a session uses.

    Args:
        cluster: provides groups and topics.
        metadata_store: provides the metadata entries of the group.
        records: reads messages. The session closes it.
        clock: returns milliseconds since the epoch, without jumps.
        wall_clock: returns the time that other processes have, in milliseconds since the epoch.
        ids: provides topic ids.
    """

    cluster: Cluster
    metadata_store: MetadataStore
    records: Records
    clock: Clock
    wall_clock: Clock
    ids: TopicIds


class InstanceSession:
    """One instance, from its first cursor until it leaves.

    Args:
        identity: stream, group, instance and session id; covers no messages.
        new_member: creates the member, which reports all events to the given recorder.
        outside: the ports.
        lease_timeout_ms: the time without requests after which the instance leaves, in milliseconds.
        commit_on_get: whether a request commits the messages of the previous request.
        commit_timeout_ms: the timeout of a commit, in milliseconds.
        wait_timeout_ms: how long a request waits for other members to pause during a reset, in milliseconds.
    """

    def __init__(
        self,
        identity: GroupCursor,
        new_member: Callable[[Recorder], Member],
        outside: Outside,
        *,
        lease_timeout_ms: int = 30_000,
        commit_on_get: bool = True,
        commit_timeout_ms: int = 30_000,
        wait_timeout_ms: int = 2_000,
    ) -> None:
        self.identity = identity
        self._outside, self._commit_on_get, self._wait_timeout_ms = outside, commit_on_get, wait_timeout_ms
        # A request can be sent by a signal handler that interrupts another one.
        self._lock = threading.RLock()
        # Changed under _lock, and read without it.
        self._lease = Lease(lease_timeout_ms, outside.clock(), requests=1)
        self._heartbeat_ms = 0
        #: The first end of the session: only ``setdefault`` changes it.
        self._ends: dict[str, _End] = {}
        self._member = CursorMember(new_member, on_assigned=self._write_lease_soon, commit_timeout_ms=commit_timeout_ms)
        self._owner = JobThread(f"streamgroups-{identity.instance}")
        # Used by the thread that watches leases: its last poll of reset requests.
        self._applying_resets: Job[None] | None = None
        # Used by the owner thread.
        self._participant = ResetParticipant(
            outside.metadata_store, outside.cluster, identity.group, self._signed, outside.clock
        )
        # When the last entry was stored. A heartbeat reads it on its thread.
        self._stored_ms: int | None = None
        self._repeats = Repeats()

    # ---- any thread --------------------------------------------------------------------------------------------------

    def join(self, timeout_ms: int, stops: Callable[[], bool]) -> None:
        """Joins the group, and waits up to ``timeout_ms`` for the first assignment. It is the first request of a
        session.
        """
        try:
            self._run(lambda: self._member.join(timeout_ms, stops))
        finally:
            self._answered()

    def get(self, cursor: GroupCursor, limit: int) -> tuple[tuple[Message, ...], GroupCursor]:
        """Returns at most ``limit`` messages after those that the cursor covers, and the next cursor (G4)."""
        return self._request(lambda: self._get(cursor, limit))

    def commit(self, cursor: GroupCursor) -> GroupCursor:
        """Commits the messages that the cursor covers (G7)."""
        return self._request(lambda: self._commit(cursor))

    def heartbeat(self) -> None:
        """Extends the lease (G6). An iteration calls it for each message, so only one call a second stores the lease."""
        self._come_in()
        self._answered()
        with self._lock:
            now_ms = self._outside.clock()
            # The last entry may still be in progress.
            is_due = now_ms - max(self._heartbeat_ms, self._stored_ms or 0) >= _ENTRY_INTERVAL_MS
            if is_due:
                self._heartbeat_ms = now_ms
        if is_due:
            self._write_lease_soon()

    @property
    def lease(self) -> Lease:
        """The lease of the instance, with its end."""
        return self._lease

    @property
    def holds_up(self) -> bool:
        """Whether a rebalance waits for messages that this instance has not committed."""
        try:
            return self._member.holds_up
        except StreamGroupsError:
            return False

    @property
    def ended(self) -> FencedMember | None:
        """The reason why the instance is no longer in the group; ``None`` while it is."""
        end = self._ends.get(_FIRST)
        return None if end is None else end.error

    @property
    def has_departed(self) -> bool:
        """Whether the instance has left the group."""
        return bool(self._ends) and self._leaving().done()

    def end_if_silent(self) -> bool:
        """Leaves the group if the lease has expired. Returns whether the session has ended."""
        with self._lock:
            self._end_if_over()
            return bool(self._ends)

    def end(self, what: str, *, processed: GroupCursor | None = None) -> None:
        """Leaves the group in the background. The next owners read the uncommitted messages. Only the first end counts.

        Args:
            what: the reason, for errors of later requests with a cursor of this instance.
            processed: covers the messages that the instance commits before it leaves, unless its lease has expired; ``None`` to
                commit nothing.
        """
        self._end_if_over()
        self._end_now(what, processed)

    def wait_until_left(self, timeout_s: float = LEAVE_TIMEOUT_S) -> None:
        """Waits until the instance has left the group. Does not wait in the garbage collector, nor on a thread that must
        not wait.
        """
        if not self._ends:
            return
        try:
            self._owner.wait_for(self._leaving(), timeout_s)
        except Exception as e:
            logger.warning("%s: leaving group '%s' failed: %s", self.identity.instance, self.identity.group, e)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _request(self, job: Callable[[], _T]) -> _T:
        if self._owner.is_current:
            raise StreamGroupsError(
                f"A finalizer sent a request of instance '{self.identity.instance}'. The garbage collector runs it on the thread "
                "of the instance, which cannot wait for itself.",
                remedy="In a finalizer, call only leave_group or close.",
            )
        self._come_in()
        try:
            return self._run(lambda: self._end_if_failed(job))
        finally:
            self._answered()

    def _run(self, job: Callable[[], _T]) -> _T:
        try:
            return self._owner.start(job).result()
        except ThreadEnded:
            # The session ended before the job.
            self._raise_end()
            raise

    def _come_in(self) -> None:
        with self._lock:
            self._end_if_over()
            self._raise_end()
            self._lease = self._lease.begin(self._outside.clock())

    def _raise_end(self) -> None:
        if end := self.ended:
            raise FencedMember(end.what, remedy=end.remedy)

    def _answered(self) -> None:
        with self._lock:
            self._lease = self._lease.end(self._outside.clock())

    def _end_if_over(self) -> None:
        now_ms, lease = self._outside.clock(), self._lease
        if lease.is_over(now_ms):
            self._end_now(
                f"Instance '{self.identity.instance}' left group '{self.identity.group}': it sent no "
                f"request for {(now_ms - lease.renewed_ms) / 1000:.1f} s, longer than its timeout of "
                f"{lease.timeout_ms / 1000:g} s."
            )

    def _end_now(self, what: str, processed: GroupCursor | None = None) -> None:
        self._ends.setdefault(_FIRST, _End(FencedMember(what, remedy=_JOIN_AGAIN), processed))
        self._leaving()

    def _leaving(self) -> Job[None]:
        """The last job of the thread. It is submitted here too: this call can have interrupted the end of the session."""
        return self._owner.finish(self._leave)

    # ---- the owner thread --------------------------------------------------------------------------------------------

    def _end_if_failed(self, job: Callable[[], _T]) -> _T:
        try:
            return job()
        except StreamGroupsError as e:
            if self._member.has_failed:
                self.end(f"Instance '{self.identity.instance}' failed: {e.what}")
            raise

    def _get(self, cursor: GroupCursor, limit: int) -> tuple[tuple[Message, ...], GroupCursor]:
        stopped = self._apply()
        self._check_topics(stopped)
        if self._commit_on_get:
            self._evicted(self._member.commit(cursor.pending))
        before = {tp: holding for tp, holding in self._member.holdings().items() if tp not in stopped}
        positions = read_from(cursor.pending, before, self._member.given)
        batch = self._read(positions, limit, [tp for tp in positions if not before[tp].releasing])
        after = self._member.holdings()
        # Drop partitions that were revoked, or lost and assigned again: another instance may read them.
        kept = {
            tp: n
            for tp, n in batch.reached.items()
            if tp in after and after[tp].ownership_epoch == before[tp].ownership_epoch
        }
        given = self._member.reserve(in_flight(pending_ranges(cursor.pending, after, kept), after))
        pending = pending_ranges(cursor.pending, after, {tp: n for tp, n in kept.items() if tp in given})
        self._write_lease()
        messages = tuple(m for m in batch.messages if m.topic_partition in given)
        if messages:
            reached = {tp: n for tp, n in kept.items() if tp in given}
            committed = {tp: it.next_offset for tp, it in after.items()}
            self._repeats = self._repeats.after(positions, reached, limit, committed)
        return messages, replace(cursor, pending=pending)

    def _read(
        self, positions: Mapping[TopicPartition, int], limit: int, continued: Collection[TopicPartition]
    ) -> Batch:
        """Reads the messages of an earlier request from these positions first, and further ones up to a greater limit.

        Args:
            positions: where to read.
            limit: the maximum number of messages.
            continued: the partitions that were not revoked. Only they have further messages.
        """
        records, repeat = self._outside.records, self._repeats.of(positions, limit)
        if not repeat.end_offsets:
            return records.read({tp: positions[tp] for tp in continued}, limit)
        batch = records.read(positions, limit, repeat.end_offsets)
        if not repeat.has_room or len(batch.messages) >= limit:
            return batch
        more = records.read({tp: batch.reached[tp] for tp in continued}, limit - len(batch.messages))
        messages = sorted((*batch.messages, *more.messages), key=lambda m: (m.topic, m.partition, m.offset))
        return Batch(tuple(messages), {**batch.reached, **more.reached})

    def _commit(self, cursor: GroupCursor) -> GroupCursor:
        self._commit_pending(cursor, self._apply())
        self._write_lease()
        return replace(cursor, pending=pending_ranges(cursor.pending, self._member.holdings(), {}))

    def _commit_pending(self, cursor: GroupCursor, stopped: frozenset[TopicPartition]) -> None:
        self._check_topics(stopped)
        gone = self._member.commit(cursor.pending)
        self._evicted(gone)
        if gone:
            raise FencedMember(
                f"Instance '{self.identity.instance}' of group '{self.identity.group}' could not commit "
                f"{_names(gone)}: another instance owns these partitions now, or the offsets of the group "
                "were reset.",
                remedy=(
                    "The other partitions of the cursor are committed. Continue with get_messages: the cursor "
                    "stays valid."
                ),
            )

    def _evicted(self, gone: Collection[PendingRange]) -> None:
        """Ends the session with an error if the group fenced the instance. It must join again (G7)."""
        lost = [c for c in gone if self._member.was_lost(c)]
        if lost:
            what = (
                f"Group '{self.identity.group}' fenced instance '{self.identity.instance}': the broker "
                f"rejected its commit of {_names(lost)}."
            )
            self.end(what)
            raise FencedMember(what, remedy=_JOIN_AGAIN)

    def _apply(self) -> frozenset[TopicPartition]:
        """Applies reset requests (G8) before a commit or a read. Waits briefly until the other members have paused too.

        Returns:
            The partitions that must not be read, because some members have not paused yet.
        """
        stopped: frozenset[TopicPartition] = frozenset()

        def all_move() -> bool:
            nonlocal stopped
            stopped = self._participant.apply(self._member)
            return not stopped

        wait_timeout_ms = 0 if self._participant.is_overdue else self._wait_timeout_ms
        comes_true(all_move, wait_timeout_ms / 1000, every_s=_POLL_S, slowest_s=_SELDOM_S)
        return stopped

    def _apply_last(self) -> frozenset[TopicPartition]:
        """Applies reset requests before the last commit, if the metadata store can still be read.

        After its end, the store raises a ``RuntimeError``. Each commit names the last reset that its position follows, so the
        next owner applies a later one.
        """
        try:
            return self._apply()
        except (StreamGroupsError, RuntimeError) as e:
            # Without a broker, the commit would wait in vain too.
            if isinstance(e, StreamGroupsError) and e.retriable:
                raise
            logger.debug("%s: reset requests are left to the next owner: %s", self.identity.instance, e)
            return frozenset()

    def _check_topics(self, stopped: frozenset[TopicPartition]) -> None:
        """Checks that no topic was recreated, so that its old offsets are neither committed nor read (S11)."""
        self._member.check_topics(self._outside.ids, self.identity.group, without=stopped)

    def poll_reset_requests(self) -> Job[None] | None:
        """Applies reset requests between requests of the user, because other members wait for this instance. Does not
        block.

        Returns:
            The job; ``None`` if the instance is leaving.
        """
        if self._applying_resets is None or self._applying_resets.done():
            self._applying_resets = self._in_passing(lambda: self._participant.apply(self._member))
        return self._applying_resets

    def _write_lease_soon(self) -> None:
        """Stores the metadata entry in the background. Called on any thread."""

        def introduce() -> None:
            self._participant.introduce(self._member)
            self._write_lease()

        self._in_passing(introduce)

    def _in_passing(self, job: Callable[[], object]) -> Job[None] | None:
        def try_it() -> None:
            try:
                job()
            except StreamGroupsError as e:
                # The next request retries, and raises the error.
                logger.debug("%s: %s", self.identity.instance, e)

        try:
            return self._owner.start(try_it)
        except ThreadEnded:
            # The instance is leaving.
            return None

    def _write_lease(self) -> None:
        now_ms = self._outside.clock()
        if self._stored_ms is None or now_ms - self._stored_ms >= _ENTRY_INTERVAL_MS:
            self._participant.reading_until = {it.topic_partition: it.next_offset for it in self._member.given}
            self._participant.write_entries(self._member, self._participant.known)
            self._stored_ms = now_ms

    def _signed(self, member_id: str) -> MemberEntry:
        """Returns the metadata entry of the instance. Its expiry may be late, but never early: it assumes no further
        request.
        """
        lease, wall_ms = self.lease, self._outside.wall_clock()
        idle_ms = self._outside.clock() - lease.renewed_ms
        until_ms = wall_ms + lease.timeout_ms - (0 if lease.requests else idle_ms)
        return MemberEntry(self.identity.instance, member_id, wall_ms - idle_ms, until_ms)

    def _leave(self) -> None:
        """The last job: commits what the end of the session names, and leaves the group."""
        processed = self._ends[_FIRST].processed
        try:
            if processed is not None:
                self._commit_pending(processed, self._apply_last())
        except Exception as e:
            logger.warning("The last messages of instance '%s' were not committed: %s", self.identity.instance, e)
        finally:
            try:
                self._member.close()
            finally:
                self._outside.records.close()


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a session.

    Args:
        error: the reason.
        processed: covers the messages to commit before the instance leaves.
    """

    error: FencedMember
    processed: GroupCursor | None


def _names(pending: Collection[PendingRange]) -> str:
    return listed(f"{c.topic_partition} up to {c.next_offset}" for c in sorted(pending))
