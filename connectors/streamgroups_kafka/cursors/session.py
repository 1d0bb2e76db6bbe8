"""One instance's stay in its group: from the requests of its cursors to decisions to the ports.

Made by ``group_cursors`` for each ``create_group_cursor``. All work of one instance is done on one thread of its own, which
therefore owns its consumers; callers wait for it. The lease and the end are kept under a lock, so that a heartbeat never waits
for a request. Decisions are :mod:`streamgroups.cursors`; this module asks the ports and applies them, in the order that
SEMANTICS G4 gives: has the group changed, commit, read. Source: SEMANTICS G4-G8, G12.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from streamgroups.coordination.reset_participant import Cluster, ResetParticipant
from streamgroups.coordination.reset_protocol import MemberEntry
from streamgroups.cursors.lease import Lease
from streamgroups.cursors.session import Covered, cover, in_flight, read_from
from streamgroups.cursors.tokens import GroupCursor
from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Member, MetadataStore, Recorder, Records
from streamgroups.retry import comes_true
from streamgroups_kafka.client.owner_thread import OwnerThread
from streamgroups_kafka.cursors.member import CursorMember
from streamgroups_kafka.cursors.positions import TopicIds

logger = logging.getLogger(__name__)

#: A lease is noted on the board at most this often.
_NOTE_EVERY_MS = 1_000
#: How often a request looks whether all have stopped, when the group is moved.
_POLL_S, _SELDOM_S = 0.02, 0.2
_JOIN_AGAIN = "Other instances continue its partitions at the committed offsets. Join again with create_group_cursor."

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Outside:
    """What a session needs of the world.

    Args:
        cluster: its groups and topics.
        board: the group's notes.
        records: reads messages; closed with the session.
        clock: the time now.
        ids: the ids of topics.
    """

    cluster: Cluster
    metadata_store: MetadataStore
    records: Records
    clock: Clock
    ids: TopicIds


class InstanceSession:
    """One instance, from its first cursor until it leaves.

    Args:
        identity: stream, group, instance, and the session's own name; covers nothing.
        new_member: makes the member, which tells the given recorder everything.
        outside: the ports.
        timeout_ms: how long the instance may be silent.
        commit_on_get: whether a request commits what the one before it returned.
        commit_timeout_ms: how long a commit may take.
        wait_timeout_ms: how long a request waits for other members to stop when the group is moved.
    """

    def __init__(
        self,
        identity: GroupCursor,
        new_member: Callable[[Recorder], Member],
        outside: Outside,
        *,
        timeout_ms: int = 30_000,
        commit_on_get: bool = True,
        commit_timeout_ms: int = 30_000,
        wait_timeout_ms: int = 2_000,
    ) -> None:
        self.identity = identity
        self._outside, self._commit_on_get, self._wait_timeout_ms = outside, commit_on_get, wait_timeout_ms
        self._lock = threading.Lock()
        # Under _lock.
        self._lease = Lease(timeout_ms, outside.clock(), requests=1)
        self._end: FencedMember | None = None
        self._left: Future[None] | None = None
        self._owner = OwnerThread(f"streamgroups-{identity.instance}")
        self._member = CursorMember(new_member, on_assigned=self._note_soon, commit_timeout_ms=commit_timeout_ms)
        # The keeper's: its last look at the orders.
        self._looking: Future[None] | None = None
        # The owner thread's.
        self._participant = ResetParticipant(
            outside.metadata_store, outside.cluster, identity.group, self._signed, outside.clock
        )
        self._noted_ms: int | None = None

    # ---- any thread --------------------------------------------------------------------------------------------------

    def join(self, timeout_ms: int, give_up: Callable[[], bool]) -> None:
        """Asks to join and waits, for so long at most, for the first assignment. The first request of a session."""
        try:
            self._owner.run(lambda: self._member.join(timeout_ms, give_up))
        finally:
            self._answered()

    def get(self, cursor: GroupCursor, limit: int) -> tuple[tuple[Message, ...], GroupCursor]:
        """Up to ``limit`` messages after what the cursor covers, and the next cursor (G4)."""
        return self._request(lambda: self._get(cursor, limit))

    def commit(self, cursor: GroupCursor) -> GroupCursor:
        """Commits what the cursor covers (G7)."""
        return self._request(lambda: self._commit(cursor))

    def heartbeat(self) -> None:
        """Extends the lease (G6)."""
        self._come_in()
        self._answered()
        self._note_soon()

    @property
    def lease(self) -> Lease:
        """Until when it is in the group."""
        with self._lock:
            return self._lease

    @property
    def holds_up(self) -> bool:
        """Whether the group waits for something that this instance has not committed."""
        try:
            return self._member.holds_up
        except StreamGroupsError:
            return False

    @property
    def ended(self) -> FencedMember | None:
        """Why it is no longer in the group; ``None`` while it is."""
        with self._lock:
            return self._end

    @property
    def has_departed(self) -> bool:
        """Whether the group has been told that it is gone."""
        with self._lock:
            return self._left is not None and self._left.done()

    def end_if_silent(self) -> bool:
        """Leaves the group if the lease is over. Returns whether the session has ended."""
        with self._lock:
            self._end_if_over()
            return self._end is not None

    def end(self, what: str) -> None:
        """Leaves the group, in the background. What was not committed is left to whoever is next.

        Args:
            what: why, for whoever uses one of its cursors later.
        """
        with self._lock:
            self._end_now(what)

    def wait_until_left(self, timeout_s: float) -> None:
        """Waits until the group has been told."""
        with self._lock:
            left = self._left
        if left is not None:
            try:
                left.result(timeout_s)
            except Exception as e:
                logger.warning("%s: leaving group '%s' failed: %s", self.identity.instance, self.identity.group, e)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _request(self, job: Callable[[], _T]) -> _T:
        self._come_in()
        try:
            return self._start(job).result()
        except StreamGroupsError as e:
            if self._member.has_failed:
                self.end(f"Instance '{self.identity.instance}' failed: {e.what}")
            raise
        finally:
            self._answered()

    def _start(self, job: Callable[[], _T]) -> Future[_T]:
        try:
            return self._owner.start(job)
        except RuntimeError:
            # It ended between coming in and now.
            with self._lock:
                self._raise_end()
            raise

    def _come_in(self) -> None:
        with self._lock:
            self._end_if_over()
            self._raise_end()
            self._lease = self._lease.begin(self._outside.clock())

    def _raise_end(self) -> None:
        if self._end is not None:
            raise FencedMember(self._end.what, remedy=self._end.remedy)

    def _answered(self) -> None:
        with self._lock:
            self._lease = self._lease.end(self._outside.clock())

    def _end_if_over(self) -> None:
        now_ms = self._outside.clock()
        if self._lease.is_over(now_ms):
            self._end_now(
                f"Instance '{self.identity.instance}' left group '{self.identity.group}': it sent no "
                f"request for {(now_ms - self._lease.renewed_ms) / 1000:.1f} s, longer than its timeout of "
                f"{self._lease.timeout_ms / 1000:g} s."
            )

    def _end_now(self, what: str) -> None:
        if self._end is None:
            self._end = FencedMember(what, remedy=_JOIN_AGAIN)
            self._left = self._owner.finish(self._leave)

    # ---- the owner thread --------------------------------------------------------------------------------------------

    def _get(self, cursor: GroupCursor, limit: int) -> tuple[tuple[Message, ...], GroupCursor]:
        stopped = self._apply()
        self._check_topics(stopped)
        if self._commit_on_get:
            self._evicted(self._member.commit(cursor.covers))
        before = {tp: holding for tp, holding in self._member.holdings().items() if tp not in stopped}
        batch = self._outside.records.read(read_from(cursor.covers, before), limit)
        after = self._member.holdings()
        # What came and went meanwhile, or was asked back, is somebody else's to read.
        kept = {
            tp: n
            for tp, n in batch.reached.items()
            if tp in after and after[tp].ownership_epoch == before[tp].ownership_epoch
        }
        given = self._member.give_out(in_flight(cover(cursor.covers, after, kept), after))
        covers = cover(cursor.covers, after, {tp: n for tp, n in kept.items() if tp in given})
        self._note_lease()
        return tuple(m for m in batch.messages if m.topic_partition in given), replace(cursor, covers=covers)

    def _commit(self, cursor: GroupCursor) -> GroupCursor:
        self._check_topics(self._apply())
        gone = self._member.commit(cursor.covers)
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
        self._note_lease()
        return replace(cursor, covers=cover(cursor.covers, self._member.holdings(), {}))

    def _evicted(self, gone: Collection[Covered]) -> None:
        """An instance that the group went on without hears of it, loudly, and starts anew (G7)."""
        lost = [c for c in gone if self._member.was_lost(c)]
        if lost:
            what = (
                f"Group '{self.identity.group}' fenced instance '{self.identity.instance}': the broker "
                f"rejected its commit of {_names(lost)}."
            )
            self.end(what)
            raise FencedMember(what, remedy=_JOIN_AGAIN)

    def _apply(self) -> frozenset[TopicPartition]:
        """Follows orders (G8), before anything is committed or read. Waits a moment for the others to stop too.

        Returns:
            What must not be read: somebody has not stopped yet.
        """
        stopped: frozenset[TopicPartition] = frozenset()

        def all_move() -> bool:
            nonlocal stopped
            stopped = self._participant.apply(self._member)
            return not stopped

        wait_timeout_ms = 0 if self._participant.is_overdue else self._wait_timeout_ms
        comes_true(all_move, wait_timeout_ms / 1000, every_s=_POLL_S, slowest_s=_SELDOM_S)
        return stopped

    def _check_topics(self, stopped: frozenset[TopicPartition]) -> None:
        """Neither commits nor reads offsets of a topic that was recreated (S11)."""
        self._member.check_topics(self._outside.ids, self.identity.group, without=stopped)

    def poll_reset_requests(self) -> Future[None] | None:
        """Follows orders between requests: the others wait for this instance to stop, whatever its user does. Does not wait.

        Returns:
            When it is done; ``None`` if the instance is leaving.
        """
        if self._looking is None or self._looking.done():
            self._looking = self._in_passing(lambda: self._participant.apply(self._member))
        return self._looking

    def _note_soon(self) -> None:
        """From any thread."""

        def introduce() -> None:
            self._participant.introduce(self._member)
            self._note_lease()

        self._in_passing(introduce)

    def _in_passing(self, job: Callable[[], object]) -> Future[None] | None:
        def try_it() -> None:
            try:
                job()
            except StreamGroupsError as e:
                # The next request asks again, and tells the user.
                logger.debug("%s: %s", self.identity.instance, e)

        try:
            return self._owner.start(try_it)
        except RuntimeError:
            # It is leaving.
            return None

    def _note_lease(self) -> None:
        now_ms = self._outside.clock()
        if self._noted_ms is None or now_ms - self._noted_ms >= _NOTE_EVERY_MS:
            self._participant.reading_until = self._member.given
            self._participant.note(self._member, self._participant.known)
            self._noted_ms = now_ms

    def _signed(self) -> MemberEntry:
        """A note says until when this instance stays if it makes no other request, so it may be late, and never early."""
        lease, now_ms = self.lease, self._outside.clock()
        until_ms = (now_ms if lease.requests else lease.renewed_ms) + lease.timeout_ms
        return MemberEntry(self.identity.instance, lease.renewed_ms, until_ms)

    def _leave(self) -> None:
        try:
            self._member.close()
        finally:
            self._outside.records.close()


def _names(covers: Collection[Covered]) -> str:
    return ", ".join(f"{c.topic_partition} up to {c.next_offset}" for c in sorted(covers))
