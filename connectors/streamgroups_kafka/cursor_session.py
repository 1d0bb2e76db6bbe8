"""One instance's stay in its group: from the requests of its cursors to decisions to the ports.

Made by ``group_cursors`` for each ``create_group_cursor``. All work of one instance is done on one thread of its own, which
therefore owns its consumers; callers wait for it. The lease and the end are kept under a lock, so that a heartbeat never waits
for a request. Decisions are :mod:`streamgroups.groups.cursors`; this module asks the ports and applies them, in the order that
SEMANTICS G4 gives: has the group changed, commit, read. Source: SEMANTICS G4-G8, G12.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from streamgroups.errors import FencedMember, StreamGroupsError
from streamgroups.groups.board import Note, Order, board_of, pending, resets_of
from streamgroups.groups.cursors.lease import Lease
from streamgroups.groups.cursors.message import Message
from streamgroups.groups.cursors.session import Covered, cover, in_flight, read_from
from streamgroups.groups.cursors.tokens import GroupCursor
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Board, Clock, Committed, Member, Recorder, Records
from streamgroups_kafka.cursor_member import CursorMember
from streamgroups_kafka.owner_thread import OwnerThread

logger = logging.getLogger(__name__)

#: A lease is noted on the board at most this often.
_NOTE_EVERY_MS = 1_000
_JOIN_AGAIN = "Its partitions go to the others, at the committed offsets. Join again with create_group_cursor."

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Outside:
    """What a session needs of the world.

    Args:
        board: the group's notes.
        records: reads messages; closed with the session.
        clock: the time now.
    """

    board: Board
    records: Records
    clock: Clock


class InstanceSession:
    """One instance, from its first cursor until it leaves.

    Args:
        identity: stream, group, instance, and the session's own name; covers nothing.
        new_member: makes the member, which tells the given recorder everything.
        outside: the ports.
        timeout_ms: how long the instance may be silent.
        commit_on_get: whether a request commits what the one before it returned.
        commit_timeout_ms: how long a commit may take.
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
    ) -> None:
        self.identity = identity
        self._outside, self._commit_on_get = outside, commit_on_get
        self._lock = threading.Lock()
        # Under _lock.
        self._lease = Lease(timeout_ms, outside.clock(), requests=1)
        self._end: FencedMember | None = None
        self._left: Future[None] | None = None
        self._owner = OwnerThread(f"streamgroups-{identity.instance}")
        self._member = CursorMember(new_member, on_assigned=self._note_soon, commit_timeout_ms=commit_timeout_ms)
        # The owner thread's: the tenure in which a partition's notes were read, and the last order obeyed for it.
        self._known: dict[TopicPartition, int] = {}
        self._obeyed: dict[TopicPartition, str] = {}
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
    def has_left(self) -> bool:
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
                f"Instance '{self.identity.instance}' left group '{self.identity.group}': it was silent for "
                f"{(now_ms - self._lease.renewed_ms) / 1000:.1f} s, longer than its timeout of "
                f"{self._lease.timeout_ms / 1000:g} s."
            )

    def _end_now(self, what: str) -> None:
        if self._end is None:
            self._end = FencedMember(what, remedy=_JOIN_AGAIN)
            self._left = self._owner.finish(self._leave)

    # ---- the owner thread --------------------------------------------------------------------------------------------

    def _get(self, cursor: GroupCursor, limit: int) -> tuple[tuple[Message, ...], GroupCursor]:
        self._obey()
        if self._commit_on_get:
            self._evicted(self._member.commit(cursor.covers))
        before = self._member.holdings()
        batch = self._outside.records.read(read_from(cursor.covers, before), limit)
        after = self._member.holdings()
        # What came and went meanwhile, or was asked back, is somebody else's to read.
        kept = {tp: n for tp, n in batch.reached.items() if tp in after and after[tp].tenure == before[tp].tenure}
        given = self._member.give_out(in_flight(cover(cursor.covers, after, kept), after))
        covers = cover(cursor.covers, after, {tp: n for tp, n in kept.items() if tp in given})
        self._note_lease()
        return tuple(m for m in batch.messages if m.topic_partition in given), replace(cursor, covers=covers)

    def _commit(self, cursor: GroupCursor) -> GroupCursor:
        self._obey()
        gone = self._member.commit(cursor.covers)
        self._evicted(gone)
        if gone:
            raise FencedMember(
                f"Instance '{self.identity.instance}' of group '{self.identity.group}' could not commit {_names(gone)}: "
                "another instance owns it now, or the group was moved.",
                remedy="What else the cursor covers is committed. Go on with get_messages: the cursor stays good.",
            )
        self._note_lease()
        return replace(cursor, covers=cover(cursor.covers, self._member.holdings(), {}))

    def _evicted(self, gone: Collection[Covered]) -> None:
        """An instance that the group went on without hears of it, loudly, and starts anew (G7)."""
        lost = [c for c in gone if self._member.was_lost(c)]
        if lost:
            what = (
                f"Group '{self.identity.group}' went on without instance '{self.identity.instance}': its commit of "
                f"{_names(lost)} was refused."
            )
            self.end(what)
            raise FencedMember(what, remedy=_JOIN_AGAIN)

    def _obey(self) -> None:
        """Moves where somebody has ordered it (G8), before anything is committed or read."""
        self._learn()
        group = self.identity.group
        found = self._outside.board.read(resets_of(group), self._member.holdings().keys())
        orders = {tp: Order.parse(c.next_offset, c.metadata) for tp, c in found.items()}
        due = pending({tp: order for tp, order in orders.items() if order is not None}, self._obeyed)
        if not due:
            return
        where = {tp: order.next_offset for tp, order in due.items()}
        places = ", ".join(f"{tp} to {n}" for tp, n in sorted(where.items()))
        self._member.move(where, note=f"group '{group}' was moved by update_group: {places}")
        moved = {tp: h.tenure for tp, h in self._member.holdings().items() if tp in due}
        self._known.update(moved)
        self._obeyed.update({tp: due[tp].id for tp in moved})
        self._note(moved)

    def _learn(self) -> None:
        """Reads what the last owner of new partitions noted, and notes who has them now."""
        holdings = self._member.holdings()
        new = {tp: h.tenure for tp, h in holdings.items() if self._known.get(tp) != h.tenure}
        self._known = {tp: tenure for tp, tenure in self._known.items() if tp in holdings} | new
        if new:
            for tp, c in self._outside.board.read(board_of(self.identity.group), new).items():
                note = Note.parse(c.metadata)
                self._obeyed[tp] = note.obeyed if note else ""
            self._note(new)

    def _note_soon(self) -> None:
        """From any thread."""
        try:
            self._owner.start(self._note_in_passing)
        except RuntimeError:
            # It is leaving.
            return

    def _note_in_passing(self) -> None:
        try:
            self._learn()
            self._note_lease()
        except StreamGroupsError as e:
            # The next request asks again, and tells the user.
            logger.debug("%s: %s", self.identity.instance, e)

    def _note_lease(self) -> None:
        now_ms = self._outside.clock()
        if self._noted_ms is None or now_ms - self._noted_ms >= _NOTE_EVERY_MS:
            self._note(self._known)

    def _note(self, partitions: Collection[TopicPartition]) -> None:
        """A note says until when this instance stays if it makes no other request, so it may be late, and never early."""
        lease, now_ms = self.lease, self._outside.clock()
        until_ms = (now_ms if lease.requests else lease.renewed_ms) + lease.timeout_ms
        notes = {
            tp: Committed(
                holding.next_offset,
                Note(self.identity.instance, lease.renewed_ms, until_ms, self._obeyed.get(tp, "")).encode(),
            )
            for tp, holding in self._member.holdings().items()
            if tp in partitions
        }
        self._outside.board.write(board_of(self.identity.group), notes)
        self._noted_ms = now_ms

    def _leave(self) -> None:
        try:
            self._member.close()
        finally:
            self._outside.records.close()


def _names(covers: Collection[Covered]) -> str:
    return ", ".join(f"{c.topic_partition} up to {c.next_offset}" for c in sorted(covers))
