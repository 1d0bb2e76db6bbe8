"""Limits how long a batch may be in flight: decides when a warning is due, and when the member leaves its group until
the batch ends.

Held by ``streamgroups_kafka.membership.member_state``. Carried out by ``streamgroups_kafka.membership.consumer_thread``, which
polls while Spark works. A batch can hang in a sink, in user code or in a task. Kafka still considers the query alive,
because a separate thread sends heartbeats, so the query would hold its partitions permanently. Every change is a
function ``(state, event, now) -> (state, effects)``. Source: SEMANTICS S8; KIP-62 (``max.poll.interval.ms``).

The life of a batch here::

    NoBatch ── planned ──▶ Running ── finished ──▶ NoBatch
                              │
                              └─ over, not done, others there ──▶ Left ── finished ──▶ NoBatch, and the member joins again

The lease alone does not decide, because its duration does not distinguish a batch that hangs from a long one. Two facts
are looked up first:

* Whether the batch is done. Spark reports that only with its next trigger, which may be hours away. Its commit log
  shows it at once.
* Whether the group has another member. Otherwise the partitions have no next owner, and the member would lose its batch
  without a benefit. So the last member never leaves, however long its batches are, and a group always makes progress.
  An exclusive query is the only member by definition. It leaves nevertheless, since another run can start only then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

#: The fraction of the rebalance timeout for which a rebalance waits for the batch in flight. The remaining time is for
#: the commit.
HANDOVER_PART = 0.8
#: The fraction of that time after which a warning is due.
_WARNING_PART = 0.5
#: The default of ``leaseTimeout`` in rebalance timeouts: an hour with Kafka's default of five minutes.
_DEFAULT_PARTS = 12
#: How often the two facts are looked up after the end of a lease: at this interval, or at a sixtieth of the lease if
#: that is longer.
_CHECK_EVERY_MS = 1_000
_CHECKS_PER_LEASE = 60


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """The time limits for the batches of a member.

    Args:
        rebalance_timeout_ms: ``max.poll.interval.ms``.
        lease_timeout_ms: the option ``leaseTimeout``; ``None`` if the time of a batch is not limited.
        is_exclusive: whether the member leaves although it is the only one.

    >>> LeaseLimits(300_000).handover_ms
    240000
    """

    rebalance_timeout_ms: int
    lease_timeout_ms: int | None = None
    is_exclusive: bool = False

    @property
    def handover_ms(self) -> int:
        """How long a rebalance waits for the batch in flight."""
        return round(self.rebalance_timeout_ms * HANDOVER_PART)


class LeaseWord(Enum):
    """The values of the option ``leaseTimeout`` that are not durations."""

    #: The option is not set.
    DEFAULT = "default"
    OFF = "off"


#: The default of ``max.poll.interval.ms`` in librdkafka and in Java's clients.
DEFAULT_REBALANCE_TIMEOUT_MS = 300_000


def lease_limits(
    choice: int | LeaseWord, rebalance_timeout_ms: int, *, is_exclusive: bool, sees_done: bool
) -> LeaseLimits:
    """The limits of a query.

    By default a lease is 12 rebalance timeouts. A batch that takes more than 0.8 of one timeout loses its partitions in
    the next rebalance. Queries that share a group should therefore have shorter batches. A lease of 12 timeouts leaves
    room to catch up.

    There is no default lease where it could harm a healthy query. That is a query that is the only member by
    definition, or one whose finished batches cannot be distinguished from hanging ones.

    Args:
        choice: the option ``leaseTimeout``, in milliseconds.
        rebalance_timeout_ms: ``max.poll.interval.ms``.
        is_exclusive: whether the query must be the only member of its group.
        sees_done: whether Spark's commit log can be read, which shows that a batch is done.

    >>> lease_limits(LeaseWord.DEFAULT, 300_000, is_exclusive=False, sees_done=True).lease_timeout_ms
    3600000
    >>> lease_limits(LeaseWord.DEFAULT, 300_000, is_exclusive=False, sees_done=False).lease_timeout_ms is None
    True
    """
    if isinstance(choice, int):
        lease_ms: int | None = choice
    elif choice is LeaseWord.OFF or is_exclusive or not sees_done:
        lease_ms = None
    else:
        lease_ms = _DEFAULT_PARTS * rebalance_timeout_ms
    return LeaseLimits(rebalance_timeout_ms, lease_ms, is_exclusive)


# ---- states ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoBatch:
    """No batch is in flight."""


@dataclass(frozen=True, slots=True)
class Running:
    """A batch is in flight.

    Args:
        number: the number of the batch.
        began_ms: when it was planned.
        next_check_ms: when the facts are looked up next, after the end of the lease.
        is_warned: whether its warning was logged.
    """

    number: int
    began_ms: int
    next_check_ms: int
    is_warned: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """A batch is in flight, and the member has left its group because of it.

    Args:
        number: the number of the batch.
        began_ms: when it was planned.
    """

    number: int
    began_ms: int


BatchLease: TypeAlias = NoBatch | Running | Left


# ---- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch begins. An earlier batch that was planned and not finished is dropped."""

    number: int


@dataclass(frozen=True, slots=True)
class Finished:
    """This batch, and all earlier ones, have ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The facts that a :class:`LookUp` has requested.

    Args:
        number: the batch of these facts.
        is_done: whether the batch is in Spark's commit log.
        has_others: whether the group has another member.
    """

    number: int
    is_done: bool
    has_others: bool


LeaseEvent: TypeAlias = Planned | Finished | Tick | LookedUp


# ---- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Warn:
    """The batch has used half of the time for which a rebalance waits."""

    number: int
    batch_ms: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up whether the batch is done and whether the group has another member, and return a :class:`LookedUp`."""

    number: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Release all partitions and leave the group."""

    number: int
    batch_ms: int


@dataclass(frozen=True, slots=True)
class JoinAgain:
    """The batch that made the member leave has ended."""

    number: int


LeaseEffect: TypeAlias = Warn | LookUp | Leave | JoinAgain


# ---- the function ----------------------------------------------------------------------------------------------------


def step(
    state: BatchLease, event: LeaseEvent, now_ms: int, limits: LeaseLimits
) -> tuple[BatchLease, tuple[LeaseEffect, ...]]:
    """The effects of an event.

    Args:
        state: the state before the event.
        event: the event.
        now_ms: the time of the event, of a monotonic clock.
        limits: the limits of the member.

    Returns:
        The state after the event, and the effects to carry out.

    >>> limits = LeaseLimits(300_000, lease_timeout_ms=600_000)
    >>> state, _ = step(NoBatch(), Planned(7), 0, limits)
    >>> state, effects = step(state, Tick(), 120_000, limits)
    >>> effects
    (Warn(number=7, batch_ms=120000),)
    >>> state, effects = step(state, Tick(), 600_001, limits)
    >>> effects
    (LookUp(number=7),)
    >>> state, effects = step(state, LookedUp(7, is_done=False, has_others=True), 600_002, limits)
    >>> effects
    (Leave(number=7, batch_ms=600002),)
    >>> step(state, Finished(7), 900_000, limits)
    (NoBatch(), (JoinAgain(number=7),))
    """
    if isinstance(event, Planned):
        back = (JoinAgain(state.number),) if isinstance(state, Left) else ()
        return Running(event.number, now_ms, now_ms), back
    if isinstance(state, NoBatch):
        return state, ()
    if isinstance(event, Finished):
        if event.number < state.number:
            return state, ()
        return NoBatch(), (JoinAgain(state.number),) if isinstance(state, Left) else ()
    if isinstance(state, Left):
        return state, ()
    if isinstance(event, Tick):
        return _on_tick(state, now_ms, limits)
    return _looked_up(state, event, now_ms, limits)


def _on_tick(state: Running, now_ms: int, limits: LeaseLimits) -> tuple[BatchLease, tuple[LeaseEffect, ...]]:
    effects: tuple[LeaseEffect, ...] = ()
    batch_ms = now_ms - state.began_ms
    if not state.is_warned and batch_ms >= limits.handover_ms * _WARNING_PART:
        effects = (Warn(state.number, batch_ms),)
        state = replace(state, is_warned=True)
    if _is_over(state, now_ms, limits) and now_ms >= state.next_check_ms:
        effects = (*effects, LookUp(state.number))
        assert limits.lease_timeout_ms is not None, "it is over"
        pause_ms = max(_CHECK_EVERY_MS, limits.lease_timeout_ms // _CHECKS_PER_LEASE)
        state = replace(state, next_check_ms=now_ms + pause_ms)
    return state, effects


def _looked_up(
    state: Running, found: LookedUp, now_ms: int, limits: LeaseLimits
) -> tuple[BatchLease, tuple[LeaseEffect, ...]]:
    # The batch may have ended, and another one begun, while the facts were looked up.
    is_of_this = found.number == state.number and _is_over(state, now_ms, limits)
    if not is_of_this or found.is_done or not (found.has_others or limits.is_exclusive):
        return state, ()
    return Left(state.number, state.began_ms), (Leave(state.number, now_ms - state.began_ms),)


def _is_over(state: Running, now_ms: int, limits: LeaseLimits) -> bool:
    return limits.lease_timeout_ms is not None and now_ms - state.began_ms > limits.lease_timeout_ms
