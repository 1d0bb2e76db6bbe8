"""Applies the reset requests of a group in one of its members: a Spark query or an instance of group cursors.

Created by ``streamgroups.query.reset_participation`` and by ``streamgroups_kafka.cursors.instance_session``, once for each
member, and used by one thread. :func:`streamgroups.coordination.reset_protocol.next_step` decides the next step. This
module reads the metadata groups and writes the result to them, and determines which reset requests are overdue, and when a
warning is logged. Source: SEMANTICS G8, G9, S6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from streamgroups.coordination.named_topics import NamedTopics
from streamgroups.coordination.reset_protocol import (
    MemberEntry,
    ResetRequest,
    Step,
    applied_ids,
    candidates,
    members_group_of,
    next_step,
    pending,
    resets_group_of,
)
from streamgroups.coordination.reset_requests import member_entries_in, reset_requests_in
from streamgroups.groups.applied_reset import NO_RESET, AppliedReset
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Cluster, Committed, MetadataStore
from streamgroups.printable import listed, printable
from streamgroups.state.origins import UNNAMED, StateOrigin

logger = logging.getLogger(__name__)
#: A member pauses within one batch. If a request takes longer, an operator must act.
OVERDUE_MS = 10_000
_WARN_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """A partition that a member owns.

    Args:
        ownership_epoch: distinguishes this assignment from others of the same member.
        next_offset: the committed offset of the group, or the one of the next commit.
        reset: the last reset that the offset contains.
        is_foreign: whether a client without requests has committed the position of the assignment.
        state: the state that a request names for the offset; ``None`` if it names none.
    """

    ownership_epoch: int
    next_offset: int
    reset: AppliedReset = NO_RESET
    is_foreign: bool = False
    state: StateOrigin | None = None


class ResettableMember(Protocol):
    """The place of a member in its group, as far as reset requests need it."""

    @property
    def member_id(self) -> str:
        """The id that the group has assigned to the member."""
        ...

    @property
    def owned(self) -> Mapping[TopicPartition, OwnedPartition]:
        """The partitions that the member may read now."""
        ...

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Pauses these partitions. Spark has none of them in flight.

        The member reads no more records of them, and commits nothing more of its earlier reads.
        """
        ...

    def move(self, decided: Mapping[TopicPartition, OwnedPartition], *, detail: str) -> Collection[TopicPartition]:
        """Sets new positions, and waits for a bounded time until the group has committed them.

        Args:
            decided: the new offset and its reset, in the ownership epoch in which the request was read. In a later one it changes
                nothing (SEMANTICS F3).
            detail: the reason, for the log.

        Returns:
            The partitions whose new position is committed, with its reset.
        """
        ...


class ResetParticipant:
    """Applies the reset requests of a group to the partitions of one member.

    Args:
        metadata_store: the metadata entries of the group.
        cluster: describes the group, and the partitions of topics.
        group_id: the group.
        signed: creates a current metadata entry of the member with this id, without the applied requests.
        clock: a monotonic clock in milliseconds.
    """

    def __init__(
        self,
        metadata_store: MetadataStore,
        cluster: Cluster,
        group_id: str,
        signed: Callable[[str], MemberEntry],
        clock: Clock,
    ) -> None:
        self._metadata_store, self._cluster, self._group_id, self._signed = metadata_store, cluster, group_id, signed
        self._clock, self._unapplied, self._topics = clock, Unapplied(), NamedTopics()
        #: The ownership epoch in which the entry of a partition was read.
        self._known: dict[TopicPartition, int] = {}
        self._applied: dict[TopicPartition, str] = {}
        self._stopped: dict[TopicPartition, str] = {}
        #: The ends of the ranges in flight, for the next entries.
        self.reading_until: Mapping[TopicPartition, int] = {}

    @property
    def known(self) -> Collection[TopicPartition]:
        """The partitions whose last metadata entry has been read."""
        return self._known.keys()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions whose entries can state that they have paused, for a request that is not applied."""
        return frozenset(tp for tp, id_ in self._stopped.items() if id_ and id_ != self._applied.get(tp))

    def introduce(self, member: ResettableMember) -> None:
        """Reads the entries that the last owner of new partitions has written, and writes entries of the new owner."""
        owned = member.owned
        new = {
            tp: owned_partition.ownership_epoch
            for tp, owned_partition in owned.items()
            if self._known.get(tp) != owned_partition.ownership_epoch
        }
        if new:
            read = self._metadata_store.read(members_group_of(self._group_id), new)
            entries = member_entries_in(members_group_of(self._group_id), read)
            for tp in new:
                entry = entries.get(tp)
                of_entry = entry.applied if entry is not None and owned[tp].is_foreign else ""
                self._applied[tp] = of_entry or owned[tp].reset.id
                self._stopped[tp] = "" if entry is None else entry.stopped
        self._known = {tp: ownership_epoch for tp, ownership_epoch in self._known.items() if tp in owned} | new
        # Another member now owns the others. Its commits contain the resets that it has applied.
        self._applied = {tp: id_ for tp, id_ in self._applied.items() if tp in self._known}
        self._stopped = {tp: id_ for tp, id_ in self._stopped.items() if tp in self._known}
        self.write_entries(member, new)

    def write_entries(self, member: ResettableMember, partitions: Collection[TopicPartition]) -> None:
        """Writes the metadata entries of those partitions that the member still owns."""
        signed = self._signed(member.member_id)
        entries = {
            tp: Committed(
                owned_partition.next_offset,
                replace(
                    signed,
                    applied=self._applied.get(tp, ""),
                    stopped=self._stopped.get(tp, ""),
                    reading_until=self.reading_until.get(tp, 0),
                ).encode(),
            )
            for tp, owned_partition in member.owned.items()
            if tp in partitions
        }
        self._metadata_store.write(members_group_of(self._group_id), entries)

    def due(self, member: ResettableMember) -> frozenset[TopicPartition]:
        """The partitions whose reset requests are complete and not applied yet."""
        _, due = self._pending(member)
        incomplete = self._step(member, due).incomplete if due else {}
        return frozenset(tp for tp, order in due.items() if order.id not in incomplete)

    @property
    def is_overdue(self) -> bool:
        """Whether a request is overdue, so that it is polled less often."""
        return self._unapplied.is_overdue(self._clock())

    def apply(self, member: ResettableMember) -> frozenset[TopicPartition]:
        """Executes the next step of all reset requests for the partitions of the member.

        Returns:
            The partitions that must not be read, because other members have not paused yet.
        """
        owned, due = self._pending(member)
        if not due:
            self._unapplied = Unapplied()
            return frozenset()
        step = self._step(member, due)
        if step.stop:
            member.stop(step.stop.keys())
            # A partition revoked in the meantime is paused by its new owner. If it returns, its position shows whether that owner
            # has applied a reset. A pause can begin another ownership epoch, but it changes no reset.
            owned = {tp: it for tp, it in member.owned.items() if tp in due and it.reset == owned[tp].reset}
            known = {tp: owned[tp].ownership_epoch for tp in step.stop if tp in owned}
            self._known.update(known)
            self._stopped.update({tp: step.stop[tp] for tp in known})
            self.write_entries(member, known)
            step = self._step(member, due)
        if step.resume:
            self._stopped.update(dict.fromkeys(step.resume, ""))
            self.write_entries(member, step.resume)
        moved = self._move(member, owned, step.move)
        self._warn(step)
        return frozenset(tp for tp, order in due.items() if order.id not in step.incomplete) - moved

    def _pending(
        self, member: ResettableMember
    ) -> tuple[Mapping[TopicPartition, OwnedPartition], dict[TopicPartition, ResetRequest]]:
        """The pending requests, and the ownership epochs in which they were read."""
        self.introduce(member)
        # A partition that was assigned again since has an unknown last request.
        owned = {tp: it for tp, it in member.owned.items() if self._known.get(tp) == it.ownership_epoch}
        return owned, pending(self._resets(owned.keys()), self._applied)

    def _step(self, member: ResettableMember, due: Mapping[TopicPartition, ResetRequest]) -> Step:
        named = {topic for request in due.values() for topic in request.moves}
        counts = self._topics.counts(named, self._cluster.topics(), self._clock())
        about = due.keys() | candidates(due.values(), counts)
        # Requests are read first: an entry can only refer to a request that existed before it.
        resets = self._resets(about)
        entries = member_entries_in(
            members_group_of(self._group_id), self._metadata_store.read(members_group_of(self._group_id), resets.keys())
        )
        others = resets.keys() - due.keys()
        committed = self._metadata_store.read(self._group_id, others) if others else {}
        applied = applied_ids(committed, {tp: it for tp, it in entries.items() if tp in others})
        group = self._cluster.describe(self._group_id)
        return next_step(resets, entries, {**applied, **self._applied}, due.keys(), group, counts, me=member.member_id)

    def _warn(self, step: Step) -> None:
        self._unapplied, due = self._unapplied.after([*step.incomplete, *step.waiting], self._clock())
        for request_id in due:
            logger.warning(
                "Reset request %s of group '%s' is not applied after %.0f s: %s. %s",
                printable(request_id),
                self._group_id,
                OVERDUE_MS / 1000,
                step.incomplete.get(request_id) or step.waiting[request_id],
                "The group continues at its current offsets. Reset it again."
                if request_id in step.incomplete
                else "The other partitions of the request stay paused. Stop or restart the member that has not paused.",
            )

    def _move(
        self,
        member: ResettableMember,
        owned: Mapping[TopicPartition, OwnedPartition],
        requests: Mapping[TopicPartition, ResetRequest],
    ) -> frozenset[TopicPartition]:
        decided = {
            tp: replace(
                owned[tp],
                next_offset=request.next_offset,
                reset=owned[tp].reset.then(request.id),
                state=None if request.state == UNNAMED else request.state,
            )
            for tp, request in requests.items()
            if tp in owned
        }
        if not decided:
            return frozenset()
        places = listed(f"{tp} to {it.next_offset}" for tp, it in sorted(decided.items()))
        there = frozenset(member.move(decided, detail=f"the offsets of group '{self._group_id}' were reset: {places}"))
        if there:
            now = member.owned
            self._known.update({tp: now[tp].ownership_epoch for tp in there if tp in now})
            self._applied.update({tp: requests[tp].id for tp in there})
            self.write_entries(member, there)
        return there

    def _resets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ResetRequest]:
        return reset_requests_in(
            resets_group_of(self._group_id), self._metadata_store.read(resets_group_of(self._group_id), partitions)
        )


@dataclass(frozen=True, slots=True)
class Unapplied:
    """The reset requests that a member cannot apply yet.

    Args:
        since_ms: when each request was first polled.
        next_warning_ms: when the next warning of each request is due.
    """

    since_ms: Mapping[str, int] = field(default_factory=dict)
    next_warning_ms: Mapping[str, int] = field(default_factory=dict)

    def after(self, requests: Collection[str], now_ms: int) -> tuple[Unapplied, tuple[str, ...]]:
        """The state after one more poll.

        Args:
            requests: the ids of the requests that cannot be applied now. All others are forgotten.
            now_ms: the time of a monotonic clock.

        Returns:
            The new state, and the ids for which a warning is due: 10 s after the first poll, then every minute.

        >>> first, due = Unapplied().after(["5f2c"], 0)
        >>> second, due_later = first.after(["5f2c"], 10_000)
        >>> due, due_later, second.after(["5f2c"], 20_000)[1], second.after(["5f2c"], 70_000)[1]
        ((), ('5f2c',), (), ('5f2c',))
        """
        since_ms = {number: self.since_ms.get(number, now_ms) for number in requests}
        next_ms = {n: self.next_warning_ms.get(n, first_ms + OVERDUE_MS) for n, first_ms in since_ms.items()}
        due = tuple(sorted(n for n, at_ms in next_ms.items() if now_ms >= at_ms))
        return Unapplied(since_ms, next_ms | dict.fromkeys(due, now_ms + _WARN_EVERY_MS)), due

    def is_overdue(self, now_ms: int) -> bool:
        """Whether a request has waited for 10 s or longer.

        >>> Unapplied({"5f2c": 0}).is_overdue(10_000), Unapplied().is_overdue(10_000)
        (True, False)
        """
        return any(now_ms - first_ms >= OVERDUE_MS for first_ms in self.since_ms.values())
