"""Registers the data source ``streamgroups`` with a Spark session.

Called by users, once per session, as ``sg.register(spark)``. It replaces the source of ``pyspark_streamgroups``, which has
no connection to this process. Source: Spark's ``DataSourceRegistration``.
"""

from __future__ import annotations

import atexit
import threading
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streamgroups.monitoring.query_time import UnreadableWatermarks
from streamgroups.ports import Clock
from streamgroups.query.operator_states import StateReport
from streamgroups_kafka.native import warn_if_plain
from streamgroups_spark.bridge.active_queries import ActiveQueries
from streamgroups_spark.bridge.channel import Channel
from streamgroups_spark.bridge.letter_counts import LETTERS
from streamgroups_spark.bridge.rpc import SessionServer, new_session
from streamgroups_spark.bridge.state_reports import ReportedStates, StateReports, StateReportsRequest
from streamgroups_spark.bridge.unreadable_watermarks import UnreadableCounts
from streamgroups_spark.event_time.punctuation_source import TimeDataSource
from streamgroups_spark.formats.connect_source import ConnectDataSource
from streamgroups_spark.formats.unregistered import needs_registration
from streamgroups_spark.internals.active_session import active, write_in_any_thread
from streamgroups_spark.internals.connect import is_connect, require_classic
from streamgroups_spark.internals.shipping import shipped_class
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_spark.messages.batch import LettersWritten
from streamgroups_spark.messages.time import Observations, ObservationsRequest
from streamgroups_spark.source.data_source import StreamGroupsDataSource
from streamgroups_spark.source.observed_times import ObservationStore, Tell

#: Identifies this driver process, so that it receives no requests from the queries of another driver.
SESSION = new_session()
#: The event times that tasks have reported.
SEEN = ObservationStore()
#: The state files that tasks have reported.
STATES = StateReports()
#: The unreadable watermarks of producers that tasks have reported.
UNREADABLE = UnreadableCounts()
#: The setting of a session with its number of tasks. Spark copies it with the session, as it copies data sources.
_PARALLELISM = "spark.streamgroups.parallelism"
#: The reporting channels of each Spark application that this process has run.
_tells: dict[str, Tell] = {}
_state_channels: dict[str, Channel[StateReport]] = {}
_unreadable_channels: dict[str, Channel[UnreadableWatermarks]] = {}
_lock = threading.Lock()
_queries: ActiveQueries | None = None
_rpc_server: SessionServer | None = None


def register(spark: SparkSession, *, parallelism: int | None = None, clock: Clock | None = None) -> None:
    """Registers the data source ``streamgroups`` with a session.

    Args:
        spark: the session.
        parallelism: the number of tasks that can run at once. A batch has at most this number of tasks, unless an
            option requires more. ``sg.exactly_once`` and ``sg.write`` write to Kafka with at most this number of tasks.
            Default: ``spark.sparkContext.defaultParallelism``, or the cores of the server with Spark Connect.
        clock: for tests: returns the time of windows by processing time and of idle timeouts, in milliseconds since the
            epoch. It is pickled. Queries that start later use it. Default: the clock of the machine.
            ``streamgroups_testkit.controlled_clock`` sets one.

    Example::

        import streamgroups as sg
        sg.register(spark)
        flights = (
            spark.readStream.format("streamgroups")
            .option("kafka.bootstrap.servers", "localhost:9092")
            .option("group.id", "flight-board")
            .option("subscribe", "flights")
            .load()
        )
    """
    if is_connect(spark):
        if not FEATURES.passes_start:
            raise FEATURES.needs("Spark Connect", "4.2", otherwise="use a classic session")
        _register_connect(spark, parallelism, clock)
        return
    warn_if_plain()
    cores = parallelism if parallelism is not None else spark.sparkContext.defaultParallelism
    # Spark creates the source in other processes, which have no session. Its settings are therefore attributes of the
    # class.
    application = spark.sparkContext.applicationId
    told = {
        "parallelism": cores,
        "session": SESSION,
        "application": application,
        "tell": tell_of(spark),
        "unreadable": _unreadable_channel_of(spark),
        "clock": None if clock is None else staticmethod(clock),
    }
    # Spark would reject a name that is registered with the active session, if that is another one.
    with active(spark):
        spark.dataSource.register(shipped_class(StreamGroupsDataSource, told))
        spark.dataSource.register(shipped_class(TimeDataSource, {"session": SESSION}))
    write_in_any_thread()
    spark.conf.set(_PARALLELISM, str(cores))
    _answer_sources(spark)


def _register_connect(spark: SparkSession, parallelism: int | None, clock: Clock | None) -> None:
    """Registers the source and the sink with a session of Spark Connect (``formats.connect_source``)."""
    # A session of its own: no process of this machine answers requests about the queries of the server.
    told: dict[str, Any] = {"session": new_session(), "clock": None if clock is None else staticmethod(clock)}
    if parallelism is not None:
        told["parallelism"] = parallelism
    spark.dataSource.register(shipped_class(ConnectDataSource, told))


def _answer_sources(spark: SparkSession) -> None:
    """Starts the server that answers requests of sources about their queries."""
    global _rpc_server, _queries
    with _lock:
        # A process runs one application at a time, and the latest session belongs to it.
        _queries = ActiveQueries(spark)
        if _rpc_server is None:
            _rpc_server = SessionServer(SESSION, _answer)
            atexit.register(_rpc_server.close)


def _answer(request: Any) -> Any:
    if isinstance(request, ObservationsRequest):
        return Observations(tuple(SEEN.take(request.reported_as, request.ranges)))
    if isinstance(request, StateReportsRequest):
        return ReportedStates(tuple(STATES.take(request.run_id, request.batch)))
    if isinstance(request, LettersWritten):
        LETTERS.add(request)
        return None
    return None if _queries is None else _queries.answer(request)


def require_registered(called: str, df: DataFrame) -> None:
    """Rejects a call of the API before a session is registered, and in a session of Spark Connect.

    Args:
        called: the function of the API, for the error.
        df: its argument.

    Raises:
        InvalidOption: if no session of this process is registered, or the DataFrame belongs to Spark Connect.
    """
    require_classic(df, called)
    if _queries is None:
        raise needs_registration(called)


def parallelism_of(spark: SparkSession) -> int:
    """The number of tasks with which a session was registered, or its default parallelism.

    The sink to Kafka divides the partitions without a key among this number of tasks. So a query that it writes must not
    have more tasks.
    """
    return int(spark.conf.get(_PARALLELISM, None) or spark.sparkContext.defaultParallelism)


def active_checkpoints() -> frozenset[str]:
    """The checkpoints of the active queries of this process, as Spark has resolved them."""
    return frozenset() if _queries is None else _queries.checkpoints()


def is_running(query_id: str) -> bool:
    """Whether a query of this process runs and is not being stopped. ``True`` if no session is registered.

    Args:
        query_id: Spark's id of the query.
    """
    return _queries is None or _queries.is_running(query_id)


def resolved_checkpoint(checkpoint: str) -> str:
    """Resolves a checkpoint as Spark does. Returns it unchanged if no session is registered."""
    return checkpoint if _queries is None else _queries.resolved(checkpoint)


def tell_of(spark: SparkSession) -> Tell:
    """The channel by which the tasks of a session report observed event times."""
    application = spark.sparkContext.applicationId
    if application not in _tells:
        _tells[application] = Tell(spark, SEEN.keep)
    return _tells[application]


def state_channel_of(spark: SparkSession) -> Channel[StateReport]:
    """The channel by which the tasks of a session report state files."""
    application = spark.sparkContext.applicationId
    if application not in _state_channels:
        _state_channels[application] = Channel(spark, STATES.keep)
    return _state_channels[application]


def _unreadable_channel_of(spark: SparkSession) -> Channel[UnreadableWatermarks]:
    application = spark.sparkContext.applicationId
    if application not in _unreadable_channels:
        _unreadable_channels[application] = Channel(spark, UNREADABLE.keep)
    return _unreadable_channels[application]
