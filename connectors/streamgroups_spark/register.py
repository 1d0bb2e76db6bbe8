"""Registers the data source ``streamgroups`` with a Spark session.

Called by users, once per session, as ``sg.register(spark)``. It replaces the source of ``pyspark_streamgroups``, which has
no connection to this process. Source: Spark's ``DataSourceRegistration``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streamgroups.connections.config_file import config_path_for_others
from streamgroups.errors import InvalidOption
from streamgroups.ports import Clock
from streamgroups_kafka.native import warn_if_plain
from streamgroups_spark.bridge.user_process import SEEN, UNREADABLE, answer, answer_sources, channel_of
from streamgroups_spark.event_time.punctuation_source import TimeDataSource
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.formats.unregistered import ConnectDataSource
from streamgroups_spark.internals.active_session import session_active
from streamgroups_spark.internals.connect import is_connect
from streamgroups_spark.internals.pickle_checks import shipped_class
from streamgroups_spark.internals.private_spark import register_source
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_spark.messages.query import ParallelismRequest
from streamgroups_spark.ops.last_line import show_last_lines
from streamgroups_spark.session import SESSION, default_parallelism, new_session, set_registered


def register(spark: SparkSession, *, parallelism: int | None = None, clock: Clock | None = None) -> None:
    """Registers the data source ``streamgroups`` with a session.

    Args:
        spark: the session.
        parallelism: the number of tasks that can run at once. A batch has at most this number of tasks, unless an
            option requires more. ``sg.exactly_once`` and ``sg.write`` write to Kafka with at most this number of tasks.
            Default: ``spark.sparkContext.defaultParallelism`` when a query starts, and for a query with output to Kafka when
            ``sg.exactly_once`` is called; or the cores of the server with Spark Connect. With
            ``spark.dynamicAllocation.enabled`` this counts only the executors at that moment.
        clock: for tests: returns the time of windows by processing time and of idle timeouts, in milliseconds since the
            epoch. It is pickled. Queries that start later use it. Default: the clock of the machine.
            ``streamgroups_testkit.controlled_clock`` sets one.

    Raises:
        InvalidOption: if ``parallelism`` is not above 0.

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
    if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
        raise InvalidOption(
            f"Option 'parallelism' is {parallelism!r}.", remedy="It must be a whole number of at least 1."
        )
    show_last_lines()
    if is_connect(spark):
        if not FEATURES.passes_start:
            raise FEATURES.needs("Spark Connect", "4.2", otherwise="use a classic session")
        _register_connect(spark, parallelism, clock)
        return
    warn_if_plain()
    context = spark.sparkContext
    # Spark creates the source in other processes, which have no session. Its settings are therefore attributes of the
    # class.
    application = context.applicationId
    class_attributes = {
        "parallelism": context.defaultParallelism if parallelism is None else parallelism,
        "follows_executors": parallelism is None,
        "session": SESSION,
        "application": application,
        "event_time_channel": channel_of(spark, SEEN),
        "unreadable": channel_of(spark, UNREADABLE),
        "clock": None if clock is None else staticmethod(clock),
        "connections_file": config_path_for_others(),
    }
    # Spark would reject a name that is registered with the active session, if that is another one.
    with session_active(spark):
        register_source(spark, shipped_class(StreamGroupsDataSource, class_attributes))
        register_source(spark, shipped_class(TimeDataSource, {"session": SESSION}))
    set_registered(spark, parallelism)
    answer_sources(spark)
    answer(ParallelismRequest, lambda _: default_parallelism(context))


def _register_connect(spark: SparkSession, parallelism: int | None, clock: Clock | None) -> None:
    """Registers the source and the sink with a session of Spark Connect (``formats.unregistered``)."""
    # A session of its own: no process of this machine answers requests about the queries of the server.
    class_attributes: dict[str, Any] = {
        "session": new_session(),
        "clock": None if clock is None else staticmethod(clock),
    }
    if parallelism is not None:
        class_attributes["parallelism"] = parallelism
    spark.dataSource.register(shipped_class(ConnectDataSource, class_attributes))
