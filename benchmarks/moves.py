"""The handovers of single partitions, from the histories of members and from their first reads.

Used by ``handover_load``. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamgroups.groups.history import Event, Kind

LEAVE, JOIN = "a query leaves", "a query joins"
_PER_S = 1_000


@dataclass(frozen=True, slots=True)
class Read:
    """A task has received records of a partition.

    Args:
        at_s: when, in seconds since the epoch.
        member: the member.
        partition: the partition.
    """

    at_s: float
    member: str
    partition: int


@dataclass(frozen=True, slots=True)
class Move:
    """A handover of one partition. All times are in seconds since the epoch.

    Args:
        cause: :data:`LEAVE` or :data:`JOIN`.
        partition: the partition.
        begun_s: when the query was stopped, or when the group began to revoke the partition for another query.
        released_s: when its owner released it.
        assigned_s: when the next owner received it.
        read_s: when a task of the next owner received the first record.
    """

    cause: str
    partition: int
    begun_s: float
    released_s: float
    assigned_s: float
    read_s: float

    @property
    def seconds(self) -> float:
        """How long the partition was not read."""
        return self.read_s - self.begun_s

    @property
    def phases(self) -> tuple[float, float, float]:
        """The seconds until it is released, then until it is assigned, then until it is read."""
        return self.released_s - self.begun_s, self.assigned_s - self.released_s, self.read_s - self.assigned_s


@dataclass(frozen=True, slots=True)
class _Pending:
    """A partition that its owner must release."""

    cause: str
    member: str
    begun_s: float
    released_s: float | None = None
    assigned_s: float | None = None
    next_member: str | None = None


def moves(events: Iterable[Event], reads: Iterable[Read], stopped_s: Mapping[str, float]) -> list[Move]:
    """Returns the handovers between two members, in the order of their ends.

    A partition that is assigned and not read before it moves again counts once, until its next read.

    Args:
        events: the history of all members.
        reads: the reads of all members.
        stopped_s: when members were stopped, in seconds since the epoch.

    >>> from streamgroups.partitions import TopicPartition
    >>> p0 = {TopicPartition("t", 0): 5}
    >>> history = [Event(at_ms, "g", member, "1", kind, p0) for at_ms, member, kind in (
    ...     (1_000, "ann", Kind.ASSIGNED), (5_000, "ann", Kind.REVOKING), (5_250, "ann", Kind.RELEASED),
    ...     (5_500, "bob", Kind.ASSIGNED))]
    >>> [move] = moves(history, [Read(1.5, "ann", 0), Read(6.0, "bob", 0)], {})
    >>> move.cause, move.seconds, move.phases
    ('a query joins', 1.0, (0.25, 0.25, 0.5))
    >>> [move] = moves(history, [Read(1.5, "ann", 0), Read(6.0, "bob", 0)], {"ann": 4.5})
    >>> move.cause, move.seconds
    ('a query leaves', 1.5)
    """
    steps: list[tuple[float, Event | Read]] = [(it.time_ms / _PER_S, it) for it in events]
    steps += [(it.at_s, it) for it in reads]
    pending: dict[int, _Pending] = {}
    found = []
    for at_s, step in sorted(steps, key=lambda it: it[0]):
        if isinstance(step, Read):
            move = pending.get(step.partition)
            if move is None or move.released_s is None or move.assigned_s is None or move.next_member != step.member:
                continue
            del pending[step.partition]
            if step.member != move.member:
                found.append(
                    Move(move.cause, step.partition, move.begun_s, move.released_s, move.assigned_s, step.at_s)
                )
            continue
        for tp in step.offsets:
            after = _after(pending.get(tp.partition), step, at_s, stopped_s)
            if after is not None:
                pending[tp.partition] = after
    return found


def _after(before: _Pending | None, event: Event, at_s: float, stopped_s: Mapping[str, float]) -> _Pending | None:
    if event.kind is Kind.REVOKING and before is None:
        if stopped_s.get(event.member, at_s + 1) <= at_s:
            return _Pending(LEAVE, event.member, stopped_s[event.member])
        return _Pending(JOIN, event.member, at_s)
    if event.kind is Kind.RELEASED and before is not None:
        return replace(before, released_s=at_s)
    if event.kind is Kind.ASSIGNED and before is not None:
        return replace(before, assigned_s=at_s, next_member=event.member)
    return before
