"""Makes a session the active one of a thread, so that Spark finds the data sources that are registered with it.

Called by ``register``. Spark searches the format of a write, and checks the name of a new data source, in the active
session of the calling thread and not in the session of the DataFrame. A thread of Python has none: its thread in the
JVM inherits none, also that of ``pyspark.InheritableThread``. Source: Spark's ``DataSource.lookupDataSource``;
PySpark's pinned threads (``PYSPARK_PIN_THREAD``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

#: The methods of PySpark that search the format of a write, with the class of each.
_SEARCHING = ((DataStreamWriter, "start"), (DataFrameWriter, "save"))
_MARK = "_streamgroups_activates_session"
_lock = threading.Lock()


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes a session the active one in the calling thread for the time of a block.

    Args:
        spark: the session.
    """
    assert spark._jvm is not None
    sessions: Any = SparkSession._get_j_spark_session_class(spark._jvm)
    # PySpark has one variable for all threads. In foreachBatch, the session of the thread in the JVM is another one.
    in_jvm, in_python = sessions.getActiveSession(), SparkSession._activeSession
    SparkSession._activeSession = spark
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        SparkSession._activeSession = in_python
        if in_jvm.isDefined():
            sessions.setActiveSession(in_jvm.get())
        else:
            sessions.clearActiveSession()


def write_in_any_thread() -> None:
    """Makes PySpark's writers search their format in the session of their DataFrame, for all threads of this process.

    The methods of PySpark are replaced, once. They then activate the session, and behave as before otherwise.
    """
    with _lock:
        for writer, name in _SEARCHING:
            method = getattr(writer, name)
            if not hasattr(method, _MARK):
                setattr(writer, name, _activating(method))


def _activating(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def activating(writer: Any, *arguments: Any, **settings: Any) -> Any:
        with active(writer._spark):
            return method(writer, *arguments, **settings)

    setattr(activating, _MARK, True)
    return activating
