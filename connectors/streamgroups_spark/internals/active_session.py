"""Makes a session the active one of a thread, so that Spark finds the data sources that are registered with it.

Called by ``register``, ``sinks.exactly_once`` and ``ops.supervise``. Spark searches the sink of a query, and checks the name
of a new data source, in the active session of the calling thread and not in the session of the DataFrame. A thread of
Python has none: its thread in the JVM inherits none. Source: Spark's ``DataSource.lookupDataSource``; PySpark's
pinned threads (``PYSPARK_PIN_THREAD``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes a session the active one in the calling thread for the time of a block.

    Args:
        spark: the session.
    """
    before = SparkSession.getActiveSession()
    _activate(spark)
    try:
        yield
    finally:
        if before is None:
            _sessions(spark).clearActiveSession()
        else:
            _activate(before)


class SessionWriter(DataStreamWriter):
    """A writer that any thread can start.

    Args:
        df: the DataFrame that it writes.
    """

    def __init__(self, df: DataFrame) -> None:
        super().__init__(df)
        self._session = df.sparkSession

    def start(self, *args: Any, **settings: Any) -> StreamingQuery:
        """Starts the query, as ``DataStreamWriter.start`` does."""
        with active(self._session):
            return super().start(*args, **settings)


def _activate(spark: SparkSession) -> None:
    SparkSession._activeSession = spark
    _sessions(spark).setActiveSession(spark._jsparkSession)


def _sessions(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return SparkSession._get_j_spark_session_class(spark._jvm)
