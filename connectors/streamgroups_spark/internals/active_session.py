"""``sg.supervision.session_active(spark)``: makes a session the active one of a thread.

Called by users around the start of a query in another thread, and by ``register`` and ``sinks``. Spark searches the
format of a write, and checks the name of a new data source, in the active session of the calling thread and not in the
session of the DataFrame. A thread of Python has none: its thread in the JVM inherits none, also that of
``pyspark.InheritableThread``. Reads are different: Spark resolves their format in the session of the reader. Source:
Spark's ``DataSource.lookupDataSource`` and ``Dataset.ofRows``; PySpark's pinned threads (``PYSPARK_PIN_THREAD``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from streamgroups_spark.internals.connect import is_connect
from streamgroups_spark.internals.private_spark import active_in_thread


@contextmanager
def session_active(spark: SparkSession) -> Iterator[None]:
    """Makes a session the active one of the calling thread for the time of a block.

    Spark finds ``format("streamgroups")`` of a write only in the active session of the thread, and a thread that Python
    has started has none. The writers of :func:`exactly_once` and :func:`repartition`, and :func:`write`, need no such
    block. With Spark Connect the block has no effect: each call of a client names its session.

    Args:
        spark: the session, for which :func:`register` was called.

    Example::

        def start():
            with sg.supervision.session_active(spark):
                return rows.writeStream.format("streamgroups").options(**options).start()

        threading.Thread(target=sg.supervise, args=[start]).start()
    """
    if is_connect(spark):
        yield
        return
    with active_in_thread(spark):
        yield
