"""When a query that failed is started again, and when it is given up.

A pure rule, applied by ``streamgroups_spark.ops.supervise``; ``docs/supervision.rst`` states it for users. A restart costs little and loses
nothing, since a query goes on from its checkpoint; so most failures are worth one. Not worth it are those that come again for
certain, and those that have come again often enough.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from streamgroups.errors import (
    DataLoss,
    InvalidOption,
    NotAuthorized,
    OffsetFormat,
    PositionsDiffer,
    RecordRejected,
    SinkRejected,
    StreamGroupsError,
    UnknownGroup,
    UnknownTopic,
)
from streamgroups.supervision.failures import Failure

#: The next run meets them at the same place, until somebody has changed something.
NEVER_PASS: frozenset[type[StreamGroupsError]] = frozenset(
    {InvalidOption, OffsetFormat, PositionsDiffer, DataLoss, RecordRejected}
)
#: Before anything has ever worked they are mistakes in the settings. Later somebody is at work on the cluster.
NEVER_PASS_AT_FIRST: frozenset[type[StreamGroupsError]] = frozenset(
    {NotAuthorized, UnknownTopic, UnknownGroup, SinkRejected}
)

#: What is added to a wait at most, so that queries that fail together do not come back together.
_MAX_JITTER = 0.25


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The limits of the rule.

    Args:
        first_wait_ms: between a failure and the restart after it. Every further wait is twice as long,
        max_backoff_ms: but no longer than this.
        steady_ms: a run that has finished a batch and lasted so long makes the next wait the first one again.
        max_failures: this many runs in a row that fail before a batch with records is finished are too many,
        give_up_after_ms: unless the error is one that passes by itself (``retriable``): then they must have gone on for so long, too.

    Raises:
        InvalidOption: if a limit is below 1, or the first wait is longer than the longest.
    """

    first_wait_ms: int = 200
    max_backoff_ms: int = 60_000
    reset_after_ms: int = 60_000
    max_failures: int = 10
    give_up_after_ms: int = 900_000

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InvalidOption(f"{field.name} is {getattr(self, field.name)}.", remedy="It must be at least 1.")
        if self.first_wait_ms > self.max_backoff_ms:
            raise InvalidOption(
                f"first_wait_ms is {self.first_wait_ms}, which is greater than max_backoff_ms ({self.max_backoff_ms}).",
                remedy="Set a shorter first wait or a longer maximum.",
            )


@dataclass(frozen=True, slots=True)
class Supervision:
    """What is remembered of a query's runs.

    Args:
        has_worked: whether any run has made progress.
        failures: runs in a row that failed without progress.
        failing_since_ms: when the first of them failed; ``None`` if there is none.
        waits: restarts since the last steady run.
    """

    has_worked: bool = False
    failures: int = 0
    failing_since_ms: int | None = None
    waits: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """A run has failed, or could not be started.

    Args:
        failure: why.
        ran_ms: how long the run has lasted.
        finished_batches: whether it has finished a batch with records.
        was_idle: whether it was seen waiting for records, there being none.
    """

    failure: Failure
    ran_ms: int
    finished_batches: bool = False
    was_idle: bool = False


@dataclass(frozen=True, slots=True)
class EngineGone:
    """What queries run on is gone: there is nothing to start another run on."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The query has ended by itself, or somebody has stopped it."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The program was asked to end."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The query is to be started again.

    Args:
        after_ms: how long to wait before.
    """

    after_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The query is to be left alone.

    Args:
        why: by which part of the rule.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """There is nothing more to do."""


Event: TypeAlias = Failed | EngineGone | Ended | StopRequested
Decision: TypeAlias = Restart | GiveUp | Done


def decide(
    state: Supervision, event: Event, now_ms: int, policy: RestartPolicy, jitter: float
) -> tuple[Supervision, Decision]:
    """What comes after a run.

    Args:
        state: what is remembered of earlier runs.
        event: how this one went.
        now_ms: the time now.
        policy: the limits.
        jitter: a random number from 0 to 1; the wait grows by that part of a quarter.

    Returns:
        What is to be remembered, and what to do.

    >>> down = Failed(Failure("ConnectionError: the sink is down"), ran_ms=500)
    >>> state, decision = decide(Supervision(), down, 0, RestartPolicy(), jitter=0)
    >>> decision
    Restart(after_ms=200)
    >>> decide(state, down, 700, RestartPolicy(), jitter=0)[1]
    Restart(after_ms=400)
    >>> decide(state, Ended(), 700, RestartPolicy(), jitter=0)[1]
    Done()
    """
    if isinstance(event, EngineGone):
        return state, GiveUp("Spark's JVM has stopped, so the query cannot be started")
    if not isinstance(event, Failed):
        return state, Done()
    is_steady = event.ran_ms >= policy.reset_after_ms
    # A run that has just been started may find nothing to read, and die of the first records: that is no progress yet.
    progressed = event.finished_batches or (event.was_idle and is_steady)
    if progressed:
        state = Supervision(has_worked=True, waits=0 if is_steady else state.waits)
    else:
        since_ms = now_ms if state.failing_since_ms is None else state.failing_since_ms
        state = replace(state, failures=state.failures + 1, failing_since_ms=since_ms)
    why = _hopeless(state, event.failure, now_ms, policy)
    if why is not None:
        return state, GiveUp(why)
    # From some exponent on it is the longest anyway; larger numbers are only slower.
    wait_ms = min(policy.max_backoff_ms, policy.first_wait_ms * 2 ** min(state.waits, 63))
    return replace(state, waits=state.waits + 1), Restart(wait_ms + round(wait_ms * _MAX_JITTER * jitter))


def _hopeless(state: Supervision, failure: Failure, now_ms: int, policy: RestartPolicy) -> str | None:
    """Why another run is not worth it; ``None`` if it is."""
    error = failure.error
    if error in NEVER_PASS:
        return "this error is not transient"
    if error in NEVER_PASS_AT_FIRST and not state.has_worked:
        return "this error is not transient, and the query has not finished a batch yet"
    if state.failures < policy.max_failures or state.failing_since_ms is None:
        return None
    failing_ms = now_ms - state.failing_since_ms
    if error is not None and error.retriable and failing_ms < policy.give_up_after_ms:
        return None
    return f"{state.failures} consecutive runs failed before they finished a batch, over {failing_ms / 1_000:.0f} s"
