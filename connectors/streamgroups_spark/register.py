"""Makes ``format("streamgroups")`` known to a Spark session.

Called by users, once per session, as ``sg.register(spark)``.
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

#: One for each driver: a query that another driver has left behind must not take part.
SESSION = uuid.uuid4().hex[:12]
#: What tasks have told.
SEEN = ObservationStore()
#: One for each Spark application of this process, one after the other.
_tells: dict[str, Tell] = {}
_lock = threading.Lock()
_queries: ActiveQueries | None = None
_answering: Answering | None = None


def register(spark: SparkSession, *, parallelism: int | None = None) -> None:
    """Registers the data source ``streamgroups`` with a session.

    Args:
        spark: the session.
        parallelism: tasks that can run at once; a batch is packed into no more unless asked for. Default: what the session
            says (``spark.sparkContext.defaultParallelism``).

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
    # Spark creates the source in other processes, which do not see the session: what it says travels with the class.
    told = {"parallelism": cores, "session": SESSION, "tell": tell_of(spark)}
    spark.dataSource.register(shipped_class(StreamGroupsDataSource, told))
    spark.dataSource.register(shipped_class(TimeDataSource, {"session": SESSION}))
    _answer_sources(spark)


def _answer_sources(spark: SparkSession) -> None:
    """From now on sources of the session's application can request facts about their queries."""
    global _answering, _queries
    with _lock:
        # A process has one application at a time, and the newest session is of the one that runs.
        _queries = ActiveQueries(spark)
        if _answering is None:
            _answering = Answering(SESSION, _answer)
            atexit.register(_answering.close)


def _answer(request: Any) -> Any:
    if isinstance(request, ObservationsRequest):
        return SEEN.take(request.reported_as, request.ranges)
    return None if _queries is None else _queries.answer(request)


def active_checkpoints() -> frozenset[str]:
    """The checkpoints of the queries that run in this process now, as Spark has resolved them."""
    return frozenset() if _queries is None else _queries.checkpoints()


def resolved_checkpoint(checkpoint: str) -> str:
    """A checkpoint as Spark resolves it; without a session that is registered it is as it was given."""
    return checkpoint if _queries is None else _queries.resolved(checkpoint)


def tell_of(spark: SparkSession) -> Tell:
    """How the tasks of a session tell what event times they read."""
    application = spark.sparkContext.applicationId
    if application not in _tells:
        _tells[application] = new_tell(spark, SEEN.keep)
    return _tells[application]
