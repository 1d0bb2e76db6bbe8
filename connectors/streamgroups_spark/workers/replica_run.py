"""One replica of a processor in a worker: a thread with ``sg.supervise``, a session, and a pool of Spark's fair scheduler.

Created by ``worker_process``. Source: SEMANTICS P2; Spark's "Job Scheduling" (pools are a property of the thread that starts a
query); ``sg.supervise``.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from streamgroups.errors import QueryGivenUp
from streamgroups.instances.entries import Definition, Observation, Observed, Placement, Progress
from streamgroups.instances.instance_state import InstanceState
from streamgroups.monitoring.query_progress import read_progress
from streamgroups.processors.reading import processor_of
from streamgroups.supervision.failure_causes import Failure
from streamgroups_kafka.client.clock import now_ms
from streamgroups_spark.internals.kept_progress import MIN_RETENTION, RETENTION
from streamgroups_spark.internals.private_spark import jvm_is_gone, progress_retention
from streamgroups_spark.ops.exception_causes import cause_of
from streamgroups_spark.processors.running import run_processor
from streamgroups_spark.register import register
from streamgroups_spark.workers.imported_code import ImportedCode
from streamgroups_spark.workers.shared_states import check_shared

logger = logging.getLogger(__name__)

#: Runs a replica in a session until the event is set, it completes, or it fails. It passes each query to the last argument but
#: one, and to the last one the reason when no query runs.
RunReplica: TypeAlias = Callable[
    [SparkSession, Definition, Placement, threading.Event, Callable[[StreamingQuery], None], Callable[[Failure], None]],
    object,
]

_POOL = "spark.scheduler.pool"
_MAX_ERROR = 2_000
#: PySpark has one active session for all threads, so one session is registered at a time.
_registering = threading.Lock()


def declared_replica(instance: str, host: str, state: Callable[[], InstanceState]) -> RunReplica:
    """Returns the function that runs a replica by the definition of its processor.

    Args:
        instance: the name of the instance.
        host: the host of the worker.
        state: returns the state of the instance.
    """
    code = ImportedCode()

    def run(
        session: SparkSession,
        definition: Definition,
        placement: Placement,
        stop: threading.Event,
        started: Callable[[StreamingQuery], None],
        waits: Callable[[Failure], None],
    ) -> object:
        declared = processor_of(json.loads(definition.document))
        member = placement.replica.index
        code.check(declared)
        check_shared(declared, declared.group_id(instance), host, state())
        return run_processor(
            declared, session, instance=instance, member=member, is_placed=True, stop=stop, started=started, waits=waits
        )

    return run


@dataclass(frozen=True, slots=True)
class _Ended:
    state: Observed
    error_code: str | None = None
    error: str | None = None


class ReplicaRun:
    """Runs a replica until it is stopped, completes, or fails.

    Args:
        spark: the session of the worker.
        placement: the placement.
        definition: the definition of the processor.
        run: runs it.
        listener: a listener of the queries; ``None`` without one.
        parallelism: returns the number of its tasks that can run at once, and may call the JVM; ``None``: all of Spark's.
    """

    def __init__(
        self,
        spark: SparkSession,
        placement: Placement,
        definition: Definition,
        run: RunReplica,
        listener: StreamingQueryListener | None = None,
        parallelism: Callable[[], int] | None = None,
    ) -> None:
        self.placement, self._definition, self._parallelism = placement, definition, parallelism
        self._spark, self._run_replica, self._listener = spark, run, listener
        self._stop = threading.Event()
        self._query: StreamingQuery | None = None
        self._ended: _Ended | None = None
        self._waits_for: Failure | None = None
        self._since_ms = now_ms()
        self.has_lost_spark = False
        # A daemon: a query that cannot be stopped does not keep the process.
        self._thread = threading.Thread(target=self._run, name=f"processor {placement.replica}", daemon=True)
        self._thread.start()

    @property
    def is_stopping(self) -> bool:
        """Whether it was requested to stop."""
        return self._stop.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether no query runs any more."""
        return self._ended is not None

    def stop(self, reason: str) -> None:
        """Requests the end of the query, after its batch or in it. Does not wait."""
        logger.info("Processor %s stops: %s.", self.placement.replica, reason)
        self._stop.set()
        self._since_ms = now_ms()

    def join(self, timeout_s: float) -> bool:
        """Waits for the end. Returns whether it has ended."""
        self._thread.join(timeout_s)
        return self.has_ended

    def observation(self) -> Observation:
        """The state now, without its progress."""
        ended = self._ended
        if ended is not None:
            state = ended.state
        elif self._stop.is_set():
            state = Observed.STOPPING
        else:
            state = Observed.STARTING if self._query is None else Observed.RUNNING
        revision = self._definition.revision
        error_code, error = (ended.error_code, ended.error) if ended is not None else (None, None)
        waits_for = self._waits_for
        if state is Observed.STARTING and waits_for is not None:
            error_code, error = waits_for.code, waits_for.what[:_MAX_ERROR]
        return Observation(self.placement, state, self._since_ms, revision, error_code, error)

    def progress(self) -> Progress | None:
        """The last batch; ``None`` before the first one. It calls the JVM."""
        query = self._query
        last: Any = None if query is None else query.lastProgress
        return None if last is None else progress_of(last.json)

    def _run(self) -> None:
        ended = _Ended(Observed.FAILED, error="The thread of the processor has ended.")
        try:
            with _registering:
                session = self._spark.newSession()
                register(session, parallelism=None if self._parallelism is None else self._parallelism())
                if self._listener is not None:
                    session.streams.addListener(self._listener)
            session.sparkContext.setLocalProperty(_POOL, str(self.placement.replica))
            self._run_replica(session, self._definition, self.placement, self._stop, self._started, self._waits)
            ended = _Ended(Observed.STOPPED if self._stop.is_set() else Observed.COMPLETED)
        except QueryGivenUp as e:
            cause = e.__cause__ if isinstance(e.__cause__, Exception) else e
            ended = _failed(cause)
        except Exception as e:
            logger.debug("Traceback of the failure:", exc_info=e)
            ended = _failed(e)
        finally:
            self.has_lost_spark = ended.state is Observed.FAILED and jvm_is_gone()
            self._since_ms = now_ms()
            self._ended = ended

    def _started(self, query: StreamingQuery) -> None:
        if self._query is None:
            self._since_ms = now_ms()
        self._query, self._waits_for = query, None
        retention = progress_retention(query)
        if retention is not None and retention < MIN_RETENTION:
            logger.warning(
                "Processor %s has no progress in its status, because %s is %d. Set it to at least %d.",
                self.placement.replica,
                RETENTION,
                retention,
                MIN_RETENTION,
            )

    def _waits(self, failure: Failure) -> None:
        if self._query is not None:
            self._since_ms = now_ms()
        self._query, self._waits_for = None, failure


def progress_of(event: str) -> Progress | None:
    """Returns the progress of a query as an entry contains it; ``None`` if Spark's event cannot be read.

    Args:
        event: Spark's ``StreamingQueryProgress`` as JSON.

    >>> progress_of("{}") is None
    True
    """
    try:
        found = read_progress(event)
    except ValueError:
        return None
    lags = [
        max(end - source.next_offsets.get(tp, end), 0)
        for source in found.sources
        if source.report is not None
        for tp, end in source.report.end_offsets.items()
    ]
    rate = found.processed_rows_per_s or 0.0
    duration_ms = None if found.duration_ms is None else max(found.duration_ms, 0)
    return Progress(found.batch_id, max(round(rate), 0), sum(lags) if lags else None, found.watermark_ms, duration_ms)


def _failed(error: Exception) -> _Ended:
    failure = cause_of(error, _MAX_ERROR)
    return _Ended(Observed.FAILED, failure.code, failure.what[:_MAX_ERROR])
