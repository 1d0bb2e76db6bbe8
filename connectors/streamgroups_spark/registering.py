"""Makes ``format("streamgroups")`` known to a Spark session.

Called by users, once per session, as ``sg.register(spark)``.
"""

from __future__ import annotations

import uuid

from pyspark.sql import SparkSession

from streamgroups_spark.seen_times import SeenStore, Tell, new_tell
from streamgroups_spark.shipping import shipped_class
from streamgroups_spark.source import StreamGroupsDataSource
from streamgroups_spark.time_source import TimeDataSource

#: One for each driver: a query that another driver has left behind must not take part.
SESSION = uuid.uuid4().hex[:12]
#: What tasks have told.
SEEN = SeenStore()
#: One for each Spark application of this process, one after the other.
_tells: dict[str, Tell] = {}


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


def tell_of(spark: SparkSession) -> Tell:
    """How the tasks of a session tell what event times they read."""
    application = spark.sparkContext.applicationId
    if application not in _tells:
        _tells[application] = new_tell(spark, SEEN.keep)
    return _tells[application]
