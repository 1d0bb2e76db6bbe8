"""The end of the bridge in the user's process: the reports of tasks, and the replies to the requests of other processes.

``register`` starts it, and ``sinks`` and ``ops`` read what it has received. A source is in another process, which has neither
the plan of its query nor the reports of its tasks. Source: SEMANTICS S9, S10, W2.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from streamgroups_spark.bridge.active_queries import ActiveQueries
from streamgroups_spark.bridge.channel import Channel
from streamgroups_spark.bridge.rpc import USER, SessionServer
from streamgroups_spark.bridge.task_reports import ObservationStore, OutputCounter, StateReports, UnreadableCounts
from streamgroups_spark.messages.batch import OutputWritten
from streamgroups_spark.messages.query import QueryFacts, ReportedStates, StateReportsRequest
from streamgroups_spark.messages.time import Observations, ObservationsRequest
from streamgroups_spark.session import SESSION

#: The event times that tasks have reported.
SEEN = ObservationStore()
#: The state files that tasks have reported.
STATES = StateReports()
#: The unreadable watermarks of producers that tasks have reported.
UNREADABLE = UnreadableCounts()
#: The counts of the output that sinks have reported.
OUTPUT = OutputCounter()
#: The reporting channels of each Spark application that this process has run, by the store of their reports.
_channels: dict[tuple[str, object], Channel[Any]] = {}
_lock = threading.Lock()
_queries: ActiveQueries | None = None
_rpc_server: SessionServer | None = None
#: The answers to requests of sources by their class, beside those of this module.
_answers: dict[type, Callable[[Any], Any]] = {}


def answer_sources(spark: SparkSession) -> None:
    """Starts to answer requests of sources about their queries."""
    global _queries
    # A process runs one application at a time, and the latest registered session belongs to it.
    _queries = ActiveQueries(spark)
    _start_server()


def answer(request: type, function: Callable[[Any], Any]) -> None:
    """Starts to answer requests of a class.

    Args:
        request: the class.
        function: returns the reply to a request.
    """
    _answers[request] = function
    _start_server()


def _start_server() -> None:
    global _rpc_server
    with _lock:
        if _rpc_server is None:
            _rpc_server = SessionServer(SESSION, USER, _answer)
            atexit.register(_rpc_server.close)


def _answer(request: Any) -> Any:
    if (function := _answers.get(type(request))) is not None:
        return function(request)
    if isinstance(request, ObservationsRequest):
        return Observations(tuple(SEEN.reply_to(request)))
    if isinstance(request, StateReportsRequest):
        return ReportedStates(tuple(STATES.take(request.run_id, request.batch)))
    if isinstance(request, OutputWritten):
        OUTPUT.add(request)
        return None
    queries = _active_queries()
    reply = None if queries is None else queries.answer(request)
    if isinstance(reply, QueryFacts) and reply.time is not None:
        # A source requests the facts once, before the first batch of its run. All runs of a DataFrame report under one name. A
        # batch that an earlier run has not finished can have read other records at the same offsets, or more of them. If
        # another run is in a batch now, its watermark advances one batch later.
        SEEN.discard(reply.time.reported_as)
    return reply


def _active_queries() -> ActiveQueries | None:
    """The active queries of the registered application. ``None`` without one, and after its end.

    Another application of this process can run already, and its sessions are not registered.
    """
    return None if _queries is None or _queries.has_ended else _queries


def active_checkpoints() -> frozenset[str]:
    """The checkpoints of the active queries of this process, as Spark has resolved them."""
    queries = _active_queries()
    return frozenset() if queries is None else queries.checkpoints()


def is_running(query_id: str) -> bool:
    """Whether a query of this process runs and is not being stopped. ``True`` if no session of a running application is
    registered.

    Args:
        query_id: Spark's id of the query.
    """
    queries = _active_queries()
    return queries is None or queries.is_running(query_id)


def resolved_checkpoint(checkpoint: str) -> str:
    """Resolves a checkpoint as Spark does. Returns it unchanged if no session of a running application is registered."""
    queries = _active_queries()
    return checkpoint if queries is None else queries.resolved(checkpoint)


def channel_of(spark: SparkSession, store: ObservationStore | StateReports | UnreadableCounts) -> Channel[Any]:
    """The channel by which the tasks of a session report to a store of this module."""
    key = spark.sparkContext.applicationId, store
    if key not in _channels:
        _channels[key] = Channel(spark, store.keep)
    return _channels[key]
