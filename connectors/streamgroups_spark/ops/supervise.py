"""``sg.supervise`` keeps a streaming query running until it ends, is stopped, or fails permanently. ``sg.supervision.retry_batches``
calls a function of ``foreachBatch`` again after it has failed, in the same run of the query.

Called by users, as the last line of a program and when they start a query. :mod:`streamgroups.supervision.policy` decides about
restarts and attempts. This module watches the runs, logs failures and handles signals. Spark computes a batch again from the
same offsets for each attempt, as for each action on the batch. A wait has short pieces. Python runs the handler of a signal
between two instructions, so a signal that arrives just before one long wait would have no effect until its end. Source:
Spark's ``StreamingQuery`` (a restarted query continues from its checkpoint), ``ForeachBatchSink`` and
``StreamExecution.stop``, which ends the query before it interrupts the batch; POSIX (orchestrators send SIGTERM); Python's
documentation, "signal" (execution of Python signal handlers).
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from tenacity import RetryCallState, Retrying, retry_if_result

from streamgroups.errors import InvalidOption, QueryGivenUp
from streamgroups.supervision.failure_causes import Failure
from streamgroups.supervision.policy import (
    Decision,
    Ended,
    EngineGone,
    Event,
    Failed,
    FailQuery,
    GiveUp,
    Restart,
    RestartPolicy,
    StopRequested,
    Supervision,
    after_failure,
    decide,
)
from streamgroups_kafka.client.clock import awake_ms
from streamgroups_spark.bridge.unstarted_checkpoint import NOT_EMPTY, clear_unstarted
from streamgroups_spark.bridge.user_process import is_running
from streamgroups_spark.internals.connect import require_classic
from streamgroups_spark.internals.private_spark import checkpoint_of, jvm_is_gone
from streamgroups_spark.ops.exception_causes import cause_of
from streamgroups_spark.ops.run_progress import RunProgress

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: The longest delay in the handling of a signal, and the longest time for which a query that is being stopped waits for the next
#: attempt. A failure is detected at once.
_POLL_S = 0.2
#: Spark's status messages of a query without new data. The first one lasts 10 ms (``spark.sql.streaming.pollingDelay``); between
#: two triggers with an interval it is the second one. Source: Spark's ``MicroBatchExecution``.
_IDLE = {"Waiting for data to arrive", "Waiting for next trigger"}


@dataclass(frozen=True, slots=True)
class SupervisedRun:
    """The result of a supervised query.

    Args:
        stopped_by_signal: whether a signal, or the event ``stop``, stopped it. Otherwise it ended itself or by
            ``query.stop()``.
        restarts: the number of restarts.
    """

    stopped_by_signal: bool
    restarts: int


def supervise(
    start_query: Callable[[], StreamingQuery],
    *,
    policy: RestartPolicy | None = None,
    stop: threading.Event | None = None,
    on_failure: Callable[[Failure], None] | None = None,
) -> SupervisedRun:
    """Starts a streaming query, and restarts it from its checkpoint after a failure. Returns when it has ended.

    Each failure is logged in one line at level WARNING, with the query, the error and the time of the restart. In the
    main thread, SIGTERM and SIGINT stop the query. A second signal runs the previous handler. Other threads can
    supervise more queries, each with an event that stops it.

    Args:
        start_query: starts the query and returns it. It is called for every restart, so it must use the same
            ``checkpointLocation`` each time. An exception that it raises counts as a failure.
        policy: the rules for restarts; see :class:`~streamgroups.supervision.policy.RestartPolicy`.
        stop: another thread sets it to stop the query, also during the wait before a restart.
        on_failure: called with the cause of each failure that a restart follows, before the wait. Its exceptions are
            logged.

    Returns:
        The result of the query.

    Raises:
        QueryGivenUp: if the error is permanent, if too many consecutive runs have failed without progress, or if
            Spark's JVM has ended. Its cause is the exception of the last run.

    Example::

        def start():
            departures = spark.readStream.format("streamgroups").options(**options).load()
            return departures.writeStream.foreachBatch(write).option("checkpointLocation", "/data/departures").start()

        sg.supervise(start)
    """
    return _Supervisor(start_query, policy or RestartPolicy(), stop or threading.Event(), on_failure).run()


class _Supervisor:
    """Applies the restart policy to the consecutive runs of one query."""

    def __init__(
        self,
        start_query: Callable[[], StreamingQuery],
        policy: RestartPolicy,
        stop_requested: threading.Event,
        on_failure: Callable[[Failure], None] | None,
    ) -> None:
        self._start_query, self._policy, self._stop_requested = start_query, policy, stop_requested
        self._on_failure = on_failure
        self._clock = awake_ms
        self._progress = RunProgress()
        self._state = Supervision()
        self._record_signals: Callable[[], None] = lambda: None
        self._name = "The query"
        self._runs = 0

    def run(self) -> SupervisedRun:
        """Returns when the query has ended. Raises when it is not restarted any more."""
        again = Retrying(
            retry=retry_if_result(lambda decision: isinstance(decision, Restart)),
            wait=_wait_s,
            sleep=self._sleep,
        )
        with _recording_signals(self._stop_requested) as self._record_signals:
            again(self._run_once)
        return SupervisedRun(self._stop_requested.is_set(), max(0, self._runs - 1))

    def _sleep(self, seconds: float) -> None:
        # Not ``Event.wait``: a signal can arrive while it holds the lock of the event, which the handler needs to set it.
        wait_unless_stopping(seconds, self._stop_requested.is_set, piece_s=_POLL_S)

    def _run_once(self) -> Decision:
        run = _Run(self._clock(), self._progress)
        cause = None
        event: Event
        try:
            event = self._watch(run)
        except Exception as e:
            event, cause = EngineGone() if jvm_is_gone() else run.failed(e, self._clock()), e
        if cause is not None and run.query is not None and NOT_EMPTY in str(cause):
            # If the killed run had no batch, Spark accepts the repaired checkpoint in the next run.
            clear_unstarted(checkpoint_of(run.query))
        if cause is not None and self._stop_requested.is_set():
            logger.warning("%s failed while it was being stopped: %s", self._name, cause_of(cause).what)
            event = StopRequested()
        self._state, decision = decide(self._state, event, self._clock(), self._policy, random.random())
        if cause is not None:
            self._log_decision(cause_of(cause), decision, cause)
        return decision

    def _watch(self, run: _Run) -> Ended | StopRequested:
        """Watches one run. Raises the exception with which it fails."""
        if self._stop_requested.is_set():
            return StopRequested()
        self._runs += 1
        try:
            query = self._start_query()
            run.begin(query)
        finally:
            # A Spark session that it has created has replaced the handler of SIGINT.
            self._record_signals()
        self._name = f"Query {query.name or query.id}"
        while not self._stop_requested.is_set():
            if query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # it takes fractions
                return Ended()
            status = query.status
            run.was_idle |= status["message"] in _IDLE and not status["isDataAvailable"]
            self._progress.poll()
        logger.info("%s was stopped.", self._name)
        query.stop()
        return StopRequested()

    def _log_decision(self, failure: Failure, decision: Decision, cause: Exception) -> None:
        if isinstance(decision, GiveUp):
            logger.error("%s failed and will not be restarted: %s. %s", self._name, decision.why, failure.what)
            raise QueryGivenUp(
                f"{self._name} will not be restarted: {decision.why}. {failure.what}",
                remedy="Fix the cause and start the program again: the query continues from its checkpoint.",
            ) from cause
        if isinstance(decision, Restart):
            after_s = decision.after_ms / 1_000
            message = "%s failed and restarts in %.1f s (%s): %s"
            logger.warning(message, self._name, after_s, self._counted(), failure.what)
            logger.debug("Traceback of the failure:", exc_info=cause)
            self._report(failure)

    def _report(self, failure: Failure) -> None:
        if self._on_failure is None:
            return
        try:
            self._on_failure(failure)
        except Exception:
            # Often the network is down, for the sink and for the alert. The restart must not depend on it.
            logger.exception("The function on_failure of %s failed; the query restarts nevertheless", self._name)

    def _counted(self) -> str:
        if not self._state.failures:
            return "it had finished batches"
        return f"failure {self._state.failures} of {self._policy.max_failures} without a finished batch"


@dataclass
class _Run:
    """The observations of one run."""

    began_ms: int
    progress: RunProgress
    query: StreamingQuery | None = None
    was_idle: bool = False

    def begin(self, query: StreamingQuery) -> None:
        """Begins to observe the query, which has started."""
        self.query = query
        self.progress.begin(query)

    def failed(self, error: Exception, now_ms: int) -> Failed:
        """Returns the event of the failure."""
        finished = self.query is not None and self.progress.has_finished_batch()
        return Failed(cause_of(error), now_ms - self.began_ms, finished, self.was_idle)


def _wait_s(call: RetryCallState) -> float:
    assert call.outcome is not None
    decision = call.outcome.result()
    assert isinstance(decision, Restart)
    return decision.after_ms / 1_000


@contextmanager
def _recording_signals(stop_requested: threading.Event) -> Iterator[Callable[[], None]]:
    """Makes the termination signals set the event, if this is the main thread, which receives signals.

    Yields a function that does so again if other code has replaced the handlers since.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before: dict[signal.Signals, Any] = {}
    is_recorded = False

    # The handler only sets the event: an exception during a call to the JVM would break the connection to it.
    def record(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_recorded
        is_recorded = True
        # A second signal then ends the process, whatever this one interrupts.
        restore()
        stop_requested.set()

    def install() -> None:
        for number in _SIGNALS:
            if not is_recorded and signal.getsignal(number) is not record:
                before[number] = signal.signal(number, record)
        if is_recorded:
            restore()

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            # None: it was not set by Python, so that Python cannot set it again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    install()
    try:
        yield install
    finally:
        restore()


def wait_unless_stopping(seconds: float, is_stopping: Callable[[], bool], *, piece_s: float) -> bool:
    """Waits. Returns ``False`` as soon as the query is being stopped.

    Args:
        seconds: how long to wait.
        is_stopping: whether the query is being stopped. It is called after each piece.
        piece_s: the longest piece, in seconds.

    >>> wait_unless_stopping(0.01, lambda: False, piece_s=0.005), wait_unless_stopping(60, lambda: True, piece_s=0.001)
    (True, False)
    """
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, piece_s))
        if is_stopping():
            return False
    return True


def retry_batches(
    write: Callable[[DataFrame, int], None], *, max_attempts: int = 3
) -> Callable[[DataFrame, int], None]:
    """Creates a function for ``foreachBatch`` that calls another one until it succeeds.

    The query keeps its process, its membership and its partitions, so another attempt costs only the batch. Without this
    function the query fails, and a restart (:func:`supervise`) takes a second or more. If all attempts fail, the query fails
    with the last error. The waits between attempts are 0.2 s, 0.4 s and so on, at most 10 s.

    An attempt can have written a part of the batch before it failed, as with a restart. A function with ``sg.ledgers.ledger`` skips
    a batch that is written. Errors of this library that are not transient, such as ``fenced_batch``, fail the query at once.

    Args:
        write: the function. It receives the same batch in each attempt.
        max_attempts: the maximum number of calls.

    Raises:
        InvalidOption: if ``max_attempts`` is below 1, or the session is one of Spark Connect.

    Example::

        def write(batch, batch_id):
            batch.write.format("jdbc").options(**database).mode("append").save()

        departures.writeStream.foreachBatch(sg.supervision.retry_batches(write)).option("checkpointLocation", "/data/departures").start()
    """
    if max_attempts < 1:
        raise InvalidOption(f"max_attempts is {max_attempts}.", remedy="It must be at least 1.")

    @wraps(write)
    def retried(batch: DataFrame, batch_id: int) -> None:
        require_classic(batch, "sg.supervision.retry_batches")
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        attempts = 0
        while True:
            try:
                return write(batch, batch_id)
            except Exception as e:
                attempts += 1
                failure, is_stopping = cause_of(e), not is_running(query_id)
                decision = after_failure(failure, attempts, max_attempts)
                if is_stopping or isinstance(decision, FailQuery):
                    if attempts > 1 and isinstance(decision, FailQuery):
                        logger.error("Batch %d fails: %s. %s", batch_id, decision.why, failure.what)
                    raise
                message = "Batch %d runs again in %.1f s, because attempt %d of %d has failed: %s"
                logger.warning(message, batch_id, decision.after_ms / 1_000, attempts, max_attempts, failure.what)
                logger.debug("Traceback of the failure:", exc_info=e)
                if not wait_unless_stopping(
                    decision.after_ms / 1_000, lambda: not is_running(query_id), piece_s=_POLL_S
                ):
                    raise

    return retried
