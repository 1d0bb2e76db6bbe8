"""Whether a batch whose function has failed runs again in the same run of the query, and after which wait.

A pure rule, which ``streamgroups_spark.ops.retry_batches`` applies. Such an attempt costs only the batch: a restart of the
query also starts a Python process and joins the group again. An error that a restart handles better ends the run:
:mod:`streamgroups.supervision.policy` decides about the restart. Source: Spark's ``foreachBatch``, whose function may
evaluate the batch more than once.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.supervision.failure_causes import Failure
from streamgroups.supervision.policy import backoff_ms

#: The wait before the second attempt. Each further wait is twice as long, up to the maximum.
_FIRST_WAIT_MS = 200
_MAX_WAIT_MS = 10_000


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
