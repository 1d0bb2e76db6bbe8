"""Registers the data source ``streamgroups`` with a Spark session.

Called by users, once per session, as ``sg.register(spark)``. Source: Spark's ``DataSourceRegistration``.
"""

from __future__ import annotations

import atexit
import threading
import uuid
from typing import Any

from pyspark.sql import SparkSession

from streamgroups_spark.event_time.messages import ObservationsRequest
from streamgroups_spark.event_time.observed_times import ObservationStore, Tell, new_tell
from streamgroups_spark.event_time.punctuation_source import TimeDataSource
from streamgroups_spark.internals.active_queries import ActiveQueries
from streamgroups_spark.internals.rpc import Answering
from streamgroups_spark.internals.shipping import shipped_class
from streamgroups_spark.source.data_source import StreamGroupsDataSource

#: Identifies this driver process, so that it receives no requests from the queries of another driver.
SESSION = uuid.uuid4().hex[:12]
#: The event times that tasks have reported.
SEEN = ObservationStore()
#: The reporting channel of each Spark application that this process has run.
_tells: dict[str, Tell] = {}
_lock = threading.Lock()
_queries: ActiveQueries | None = None
_answering: Answering | None = None


def register(spark: SparkSession, *, parallelism: int | None = None) -> None:
    """Registers the data source ``streamgroups`` with a session.

    Args:
        spark: the session.
        parallelism: the number of tasks that can run at once. A batch has at most this number of tasks, unless an
            option requires more. Default: ``spark.sparkContext.defaultParallelism``.

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
    cores = parallelism if parallelism is not None else spark.sparkContext.defaultParallelism
    # Spark creates the source in other processes, which have no session. Its settings are therefore attributes of the
    # class.
    told = {"parallelism": cores, "session": SESSION, "tell": tell_of(spark)}
    spark.dataSource.register(shipped_class(StreamGroupsDataSource, told))
    spark.dataSource.register(shipped_class(TimeDataSource, {"session": SESSION}))
    _answer_sources(spark)


def _answer_sources(spark: SparkSession) -> None:
    """Starts the server that answers requests of sources about their queries."""
    global _answering, _queries
    with _lock:
        # A process runs one application at a time, and the latest session belongs to it.
        _queries = ActiveQueries(spark)
        if _answering is None:
            _answering = Answering(SESSION, _answer)
            atexit.register(_answering.close)


def _answer(request: Any) -> Any:
    if isinstance(request, ObservationsRequest):
        return SEEN.take(request.reported_as, request.ranges)
    return None if _queries is None else _queries.answer(request)


def active_checkpoints() -> frozenset[str]:
    """The checkpoints of the active queries of this process, as Spark has resolved them."""
    return frozenset() if _queries is None else _queries.checkpoints()


def resolved_checkpoint(checkpoint: str) -> str:
    """Resolves a checkpoint as Spark does. Returns it unchanged if no session is registered."""
    return checkpoint if _queries is None else _queries.resolved(checkpoint)


def tell_of(spark: SparkSession) -> Tell:
    """The channel by which the tasks of a session report observed event times."""
    application = spark.sparkContext.applicationId
    if application not in _tells:
        _tells[application] = new_tell(spark, SEEN.keep)
    return _tells[application]
