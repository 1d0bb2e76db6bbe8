"""When a failed query is restarted, when supervision ends with an error, and when a failed batch runs again in the same run.

Pure rules, which ``streamgroups_spark.ops.supervise`` applies and ``docs/supervision.rst`` documents. A restart costs
little, and continues at the positions of the group, ledger or checkpoint. So most failures justify a restart. The
exceptions are failures that are certain to repeat, and failures that have repeated too often.

Another attempt of a batch costs only the batch: a restart of the query also starts a Python process and joins the group
again. An error that a restart handles better ends the run. Source: Spark's ``foreachBatch``, whose function may evaluate the
batch more than once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from streamgroups.errors import (
    CheckpointMismatch,
    DataLoss,
    InvalidOption,
    InvalidProcessor,
    LoginRejected,
    MissingExtra,
    NotAuthorized,
    OffsetFormat,
    PartitionsAdded,
    PositionsDiffer,
    ProgramMismatch,
    RecordRejected,
    SchemaRejected,
    SinkRejected,
    StateDamaged,
    StateMismatch,
    StateMissing,
    StreamGroupsError,
    TooManyDeadLetters,
    UnknownGroup,
    UnknownTopic,
)
from streamgroups.supervision.failure_causes import Failure

#: The next run fails with these at the same place, until the user changes something.
NEVER_PASS: frozenset[type[StreamGroupsError]] = frozenset(
    {
        InvalidOption,
        InvalidProcessor,
        OffsetFormat,
        CheckpointMismatch,
        ProgramMismatch,
        PositionsDiffer,
        DataLoss,
        RecordRejected,
        TooManyDeadLetters,
        StateMissing,
        StateDamaged,
        StateMismatch,
        PartitionsAdded,
        MissingExtra,
    }
)
#: Before the first success these are mistakes in the settings. Later they can be maintenance of the cluster.
NEVER_PASS_AT_FIRST: frozenset[type[StreamGroupsError]] = frozenset(
    {NotAuthorized, LoginRejected, UnknownTopic, UnknownGroup, SinkRejected, SchemaRejected}
)

#: The maximum part that is added to a wait, so that queries that fail together do not restart together.
_MAX_JITTER = 0.25
#: The wait before the second attempt. Each further wait is twice as long, up to the maximum.
_FIRST_WAIT_MS = 200
_MAX_WAIT_MS = 10_000


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The limits of the rule.

    Args:
        first_wait_ms: the wait between a failure and the restart. Each further wait is twice as long.
        max_backoff_ms: the maximum wait.
        reset_after_ms: after a run of at least this duration that has finished a batch, the next wait is the first one
            again.
        max_failures: the maximum number of consecutive runs that fail before they finish a batch with records.
        give_up_after_ms: for an error that can pass by itself (``retriable``), how long these failures must continue,
            too.

    Raises:
        InvalidOption: if a limit is below 1, or ``first_wait_ms`` exceeds ``max_backoff_ms``.
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
    """The state of supervision: the earlier runs of a query.

    Args:
        has_worked: whether any run has made progress.
        failures: the number of consecutive runs that failed without progress.
        failing_since_ms: when the first of them failed; ``None`` without failures.
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
        failure: the cause.
        ran_ms: the duration of the run.
        finished_batches: whether it has finished a batch with records.
        was_idle: whether it has waited for records because none were available.
    """

    failure: Failure
    ran_ms: int
    finished_batches: bool = False
    was_idle: bool = False


@dataclass(frozen=True, slots=True)
class EngineGone:
    """The Spark session has ended, so that no other run can start."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The query has ended by itself, or the user has stopped it."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The program was requested to end."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The query is to be restarted.

    Args:
        after_ms: how long to wait before the restart.
    """

    after_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The query is not to be restarted.

    Args:
        why: the part of the rule that applies.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """Supervision ends."""


Event: TypeAlias = Failed | EngineGone | Ended | StopRequested
Decision: TypeAlias = Restart | GiveUp | Done


def decide(
    state: Supervision, event: Event, now_ms: int, policy: RestartPolicy, jitter: float
) -> tuple[Supervision, Decision]:
    """Decides how supervision continues after a run.

    Args:
        state: the earlier runs.
        event: the result of this run.
        now_ms: the time now.
        policy: the limits.
        jitter: a random number from 0 to 1; the wait increases by that part of a quarter.

    Returns:
        The new state and the decision.

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
    # A run that has just started can find nothing to read and fail on its first records, which is not progress.
    progressed = event.finished_batches or (event.was_idle and is_steady)
    if progressed:
        state = Supervision(has_worked=True, waits=0 if is_steady else state.waits)
    else:
        since_ms = now_ms if state.failing_since_ms is None else state.failing_since_ms
        state = replace(state, failures=state.failures + 1, failing_since_ms=since_ms)
    why = _hopeless(state, event.failure, now_ms, policy)
    if why is not None:
        return state, GiveUp(why)
    wait_ms = backoff_ms(policy.first_wait_ms, policy.max_backoff_ms, state.waits)
    return replace(state, waits=state.waits + 1), Restart(wait_ms + round(wait_ms * _MAX_JITTER * jitter))


def backoff_ms(first_ms: int, max_ms: int, waits: int) -> int:
    """Returns the next wait: each one is twice as long as the one before, up to a maximum.

    Args:
        first_ms: the first wait.
        max_ms: the maximum.
        waits: the number of waits so far.

    >>> [backoff_ms(200, 1_000, waits) for waits in range(4)]
    [200, 400, 800, 1000]
    """
    # Larger exponents always result in the maximum wait, and are slower to compute.
    wait_ms: int = min(max_ms, first_ms * 2 ** min(waits, 63))
    return wait_ms


def _hopeless(state: Supervision, failure: Failure, now_ms: int, policy: RestartPolicy) -> str | None:
    """Returns why another run is useless; ``None`` if it is not."""
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


@dataclass(frozen=True, slots=True)
class RunAgain:
    """The function is called again with the same batch.

    Args:
        after_ms: how long to wait before the call.
    """

    after_ms: int


@dataclass(frozen=True, slots=True)
class FailQuery:
    """The query fails with the error of the function.

    Args:
        why: the part of the rule that applies.
    """

    why: str


def after_failure(failure: Failure, attempts: int, max_attempts: int) -> RunAgain | FailQuery:
    """Decides how a query continues after its batch has failed.

    Args:
        failure: the cause.
        attempts: the number of attempts so far.
        max_attempts: the maximum number of attempts.

    >>> after_failure(Failure("ConnectionError: the sink is down"), attempts=2, max_attempts=3)
    RunAgain(after_ms=400)
    >>> after_failure(Failure("ConnectionError: the sink is down"), attempts=3, max_attempts=3)
    FailQuery(why='3 of 3 attempts failed')
    >>> from streamgroups.errors import FencedBatch
    >>> after_failure(Failure("FencedBatch: the ledger is ahead", FencedBatch), attempts=1, max_attempts=3)
    FailQuery(why='another attempt would fail with fenced_batch, too')
    """
    error = failure.error
    if error is not None and not error.retriable:
        return FailQuery(f"another attempt would fail with {error.code}, too")
    if attempts >= max_attempts:
        return FailQuery(f"{attempts} of {max_attempts} attempts failed")
    return RunAgain(backoff_ms(_FIRST_WAIT_MS, _MAX_WAIT_MS, attempts - 1))
