"""How long a batch may be in flight: when that is a warning, and when the member leaves its group until the batch ends.

Held by ``streamgroups_kafka.membership.state``; carried out by ``streamgroups_kafka.membership.consumer_thread``, which polls while Spark works. A query whose batch
hangs (a sink, user code, a stuck task) is alive to Kafka, for a thread of its own sends heartbeats; so it would hold its partitions for ever.
Every change is a function ``(state, event, now) -> (state, effects)``. Source: SEMANTICS S8; KIP-62 (``max.poll.interval.ms``).

The life of a batch here::

    NoBatch ── planned ──▶ Running ── finished ──▶ NoBatch
                              │
                              └─ over, not done, others there ──▶ Left ── finished ──▶ NoBatch, and the member joins again

The lease alone does not decide, because time does not tell a batch that hangs from a long one. Two facts are looked up first:

* Whether the batch is done. Spark reports that only with its next trigger, which may be hours away; its commit log shows it at once.
* Whether the group has another member. Without one the partitions have no next owner, and the batch would be lost for nothing. So the last
  member never leaves, however long its batches are, and a group always makes progress. An exclusive query is alone by definition and
  leaves all the same: another run can start only then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

#: Of the rebalance timeout, the part for which a rebalance waits for the batch in flight. The rest is for the commit.
HANDOVER_PART = 0.8
#: Of that, the part after which a batch is a warning.
_WARNING_PART = 0.5
#: The default of ``leaseTimeout`` in rebalance timeouts: an hour with Kafka's default of five minutes.
_DEFAULT_PARTS = 12
#: How often the two facts are looked up while a lease is over: this often, or at a sixtieth of the lease if that is longer.
_CHECK_EVERY_MS = 1_000
_CHECKS_PER_LEASE = 60


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """What a member's batches are measured by.

    Args:
        rebalance_timeout_ms: ``max.poll.interval.ms``.
        lease_timeout_ms: the option ``leaseTimeout``; ``None``: a batch may take any time.
        is_exclusive: whether the member leaves although it is the only one.

    >>> LeaseLimits(300_000).handover_ms
    240000
    """

    rebalance_timeout_ms: int
    lease_timeout_ms: int | None = None
    is_exclusive: bool = False

    @property
    def handover_ms(self) -> int:
        """For how long a rebalance waits for the batch in flight."""
        return round(self.rebalance_timeout_ms * HANDOVER_PART)


class LeaseWord(Enum):
    """What the option ``leaseTimeout`` is if it is no duration."""

    #: It was not given.
    DEFAULT = "default"
    OFF = "off"


def lease_limits(
    choice: int | LeaseWord, rebalance_timeout_ms: int, *, is_exclusive: bool, sees_done: bool
) -> LeaseLimits:
    """The limits of a query.

    By default a lease is 12 rebalance timeouts. A batch that takes more than 0.8 of one loses its partitions with the next rebalance, so
    queries that share a group are meant to have shorter ones, and twelve times that leaves room for catching up. A query has none by default
    where it could do harm to a query that is well: if it is alone by definition, and if a batch that waits for its next trigger cannot be
    told from one that hangs.

    Args:
        choice: the option ``leaseTimeout``, in milliseconds.
        rebalance_timeout_ms: ``max.poll.interval.ms``.
        is_exclusive: whether the query needs its group alone.
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
        number: which.
        began_ms: when it was planned.
        next_check_ms: when the facts are looked up next, once the lease is over.
        is_warned: whether its warning was given.
    """

    number: int
    began_ms: int
    next_check_ms: int
    is_warned: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """A batch is in flight, and the member has left its group because of it.

    Args:
        number: which.
        began_ms: when it was planned.
    """

    number: int
    began_ms: int


BatchLease: TypeAlias = NoBatch | Running | Left


# ---- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch begins; one that was planned before and not finished is forgotten."""

    number: int


@dataclass(frozen=True, slots=True)
class Finished:
    """This batch, and all before it, have ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Passed:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The facts that a :class:`LookUp` has asked for.

    Args:
        number: the batch they are about.
        is_done: whether Spark has written it off as done already.
        has_others: whether the group has another member.
    """

    number: int
    is_done: bool
    has_others: bool


LeaseEvent: TypeAlias = Planned | Finished | Passed | LookedUp


# ---- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Warn:
    """The batch has used half of the time for which a rebalance waits."""

    number: int
    batch_ms: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find out whether the batch is done and who else is in the group, and answer with :class:`LookedUp`."""

    number: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Give up all partitions and leave the group."""

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
    """What follows from an event.

    Args:
        state: before it.
        event: what has happened.
        now_ms: when, by a clock that only goes forward.
        limits: the member's.

    Returns:
        The state after it, and what is to be done.

    >>> limits = LeaseLimits(300_000, lease_timeout_ms=600_000)
    >>> state, _ = step(NoBatch(), Planned(7), 0, limits)
    >>> state, effects = step(state, Passed(), 120_000, limits)
    >>> effects
    (Warn(number=7, batch_ms=120000),)
    >>> state, effects = step(state, Passed(), 600_001, limits)
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
    if isinstance(event, Passed):
        return _passed(state, now_ms, limits)
    return _looked_up(state, event, now_ms, limits)


def _passed(state: Running, now_ms: int, limits: LeaseLimits) -> tuple[BatchLease, tuple[LeaseEffect, ...]]:
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
    # The batch may have ended and another one begun while the facts were looked up.
    is_of_this = found.number == state.number and _is_over(state, now_ms, limits)
    if not is_of_this or found.is_done or not (found.has_others or limits.is_exclusive):
        return state, ()
    return Left(state.number, state.began_ms), (Leave(state.number, now_ms - state.began_ms),)


def _is_over(state: Running, now_ms: int, limits: LeaseLimits) -> bool:
    return limits.lease_timeout_ms is not None and now_ms - state.began_ms > limits.lease_timeout_ms
