"""The private parts of Spark and PySpark on which this library depends: attributes, fields and objects of the JVM.

No other module of this library reads a private attribute of PySpark, or calls an object of Spark behind py4j, with these
exceptions: ``bridge.plan``, ``bridge.direct`` and ``bridge.active_queries`` call public methods of plans and queries, whose
operators are in ``internals.logical_operators``; ``internals.pickle_checks`` depends on the order in which ``cloudpickle`` pickles,
and ``internals.python_worker`` on Spark's Python processes. A house rule checks it.
``component_tests/test_spark_facts.py`` checks each fact with the installed PySpark, and ``make test-matrix`` with all
others. Seen with PySpark 4.0.5, 4.1.4, 4.2.1 and 4.3.0.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, cloudpickle

from streamgroups_spark.internals.kept_progress import RETENTION

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType

#: The module that Spark runs as the process of a Python source. Its name is that of ``__main__``.
SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
#: All modules that Spark runs as a Python process have names with this prefix.
PROCESSES = "pyspark."
#: The master without a configuration: a task for each core.
ALL_CORES = "local[*]"
#: The class of the sink of a query whose format is in Python.
PYTHON_SINK = "PythonTable"
#: The class of the sink of ``foreachBatch``.
FOREACH_BATCH = "ForeachBatchSink"

# ---- sessions ----------------------------------------------------------------------------------------------------------


class _ActiveInPython:
    """The active session of PySpark: one variable for all threads, whose blocks end in any order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: The sessions of the blocks of all threads, in the order of their start.
        self._entered: dict[object, SparkSession] = {}
        self._before: SparkSession | None = None

    @contextmanager
    def set_to(self, spark: SparkSession) -> Iterator[None]:
        """Sets it for the time of a block. The last block of all threads restores the session before the first one."""
        from pyspark.sql import SparkSession

        block = object()
        with self._lock:
            if not self._entered:
                self._before = SparkSession._activeSession
            self._entered[block] = SparkSession._activeSession = spark
        try:
            yield
        finally:
            with self._lock:
                del self._entered[block]
                SparkSession._activeSession = next(reversed(self._entered.values()), self._before)
                if not self._entered:
                    self._before = None


_active_in_python = _ActiveInPython()


@contextmanager
def active_in_thread(spark: SparkSession) -> Iterator[None]:
    """Makes a session the active one of the calling thread, in Python and in the JVM, for the time of a block."""
    from pyspark.sql import SparkSession

    assert spark._jvm is not None
    of_jvm: Any = SparkSession._get_j_spark_session_class(spark._jvm)
    # In foreachBatch, the session of the thread in the JVM is another one than that of PySpark.
    in_jvm = of_jvm.getActiveSession()
    with _active_in_python.set_to(spark):
        of_jvm.setActiveSession(spark._jsparkSession)
        try:
            yield
        finally:
            if in_jvm.isDefined():
                of_jvm.setActiveSession(in_jvm.get())
            else:
                of_jvm.clearActiveSession()


def qualified_path(spark: SparkSession, path: str) -> str:
    """Resolves a path as Spark does: to an absolute path on the default file system of the application."""
    in_jvm: Any = spark
    hadoop = in_jvm._jvm.org.apache.hadoop.fs.Path(path)
    files = hadoop.getFileSystem(in_jvm._jsparkSession.sessionState().newHadoopConf())
    return str(files.makeQualified(hadoop).toString())


#: Held while the environment of a SparkContext is another one.
_registration = threading.Lock()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Registers a data source whose queries can start at the same time.

    All queries of a registered source share one map of environment variables. Spark puts its own variables into it when a
    query starts, without a lock, and serializes it with each task. Two puts at once can damage a ``HashMap`` for good: its
    tasks then fail with ``java.io.OptionalDataException``. So this map is a ``ConcurrentHashMap``. A sink needs none: its
    format belongs to one query.
    """
    context: Any = spark.sparkContext
    with _registration:
        environment = context.environment
        context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(environment)
        try:
            spark.dataSource.register(source)
        finally:
            context.environment = environment


def has_stopped(spark: SparkSession) -> bool:
    """Returns whether the application of a session has ended: by a stop in Python, or in the JVM after an error."""
    jsc: Any = spark.sparkContext._jsc
    return jsc is None or bool(jsc.sc().isStopped())


def registered_executors(spark: SparkSession) -> int:
    """Returns the number of executors that are registered at the driver, without the driver itself."""
    jsc: Any = spark.sparkContext._jsc
    return len(jsc.sc().statusTracker().getExecutorInfos()) - 1


def configured_master(settings: Mapping[str, str]) -> str:
    """Returns the master of an application; without a configuration ``local[*]``. Starts the JVM of the driver.

    Args:
        settings: the settings of the application, which the JVM needs at its start. Those of ``spark-submit`` and of
            ``spark-defaults.conf`` are added.
    """
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))
    return SparkConf().get("spark.master", ALL_CORES)


def jvm_is_gone() -> bool:
    """Returns whether a JVM existed and does not respond.

    Py4J reports this by many errors, which user code can raise too.
    """
    gateway = SparkContext._gateway
    if gateway is None:
        return False
    try:
        gateway.jvm.System.nanoTime()
    except (Py4JError, OSError):
        return True
    return False


# ---- plans and queries -------------------------------------------------------------------------------------------------


def analyzed_plan(df: DataFrame) -> Any:
    """Returns Spark's object of the analyzed plan of a DataFrame."""
    in_jvm: Any = df
    return in_jvm._jdf.queryExecution().analyzed()


@contextmanager
def view_of(df: DataFrame, name: str) -> Iterator[None]:
    """The rows of a DataFrame are a temporary view of its session for the time of a block.

    A temporary view of the user with this name exists again after the block. It is the same object, so its text is not lost, and
    a cached view remains cached. The public methods would replace or drop its cached rows.
    """
    in_jvm: Any = df
    views = in_jvm.sparkSession._jsparkSession.sessionState().catalog()
    before = views.getRawTempView(name)
    views.dropTempView(name)
    try:
        df.createOrReplaceTempView(name)
        yield
    finally:
        views.dropTempView(name)
        if before.isDefined():
            views.createTempView(name, before.get(), True)


def checkpoint_of(query: StreamingQuery) -> str:
    """Returns the checkpoint of a query, as Spark has resolved it."""
    in_jvm: Any = query
    return str(in_jvm._jsq.streamingQuery().resolvedCheckpointRoot())


def progress_retention(query: StreamingQuery) -> int | None:
    """Returns for how many batches a query keeps their progress, plus one; ``None`` for a query of Spark Connect."""
    in_jvm: Any = getattr(query, "_jsq", None)
    return None if in_jvm is None else int(in_jvm.sparkSession().conf().get(RETENTION))


def committed_offsets(query: StreamingQuery) -> list[str | None]:
    """Returns the end offset of each source in the last finished batch, as JSON; ``None`` for a source without one.

    Empty if no batch is finished, or Spark has not read the checkpoint yet.
    """
    in_jvm: Any = query
    execution = in_jvm._jsq.streamingQuery()
    committed = execution.committedOffsets()
    found = [committed.get(it) for it in _iterated(execution.sources().iterator())]
    offsets = [str(it.get().json()) if it.isDefined() else None for it in found]
    return offsets if any(it is not None for it in offsets) else []


def active_queries(spark: SparkSession) -> Iterator[Any]:
    """Yields Spark's objects of the active queries of all sessions of an application."""
    in_jvm: Any = spark
    queries = in_jvm._jsparkSession.sharedState().activeStreamingQueries().elements()
    while queries.hasMoreElements():
        yield queries.nextElement()


class PrivateFields:
    """Reads private fields of Spark's objects by reflection.

    Args:
        spark: any session.
    """

    def __init__(self, spark: SparkSession) -> None:
        # Each part of a class name is a round trip to the JVM. It happens here, so that no query waits for it.
        jvm: Any = spark._jvm
        self._fields: Any = jvm.org.apache.commons.lang3.reflect.FieldUtils

    def logical_plan(self, query: Any) -> Any:
        """The plan of a query; ``None`` while Spark plans it.

        The method of the same name would wait for the thread of the query, which can be waiting for a reply.
        """
        return self._read(query, "logicalPlan")

    def sink_options(self, query: Any) -> dict[str, str]:
        """The options of the sink of a query."""
        options = _iterated(self._read(query, "extraOptions").iterator())
        return {str(it._1()): str(it._2()) for it in options}

    def process_ids(self, source: Any) -> Iterator[int]:
        """Yields the ids of the processes of a Python source.

        Raises Py4J's and PySpark's errors for any other source.
        """
        factory = self._read(self._read(source, "runner"), "pythonWorkerFactory")
        for process in _iterated(self._read(factory.get(), "simpleWorkers").values().iterator()):
            yield int(process.pid())

    def _read(self, of: Any, name: str) -> Any:
        return self._fields.readField(of, name, True)


def number_for_each_task(tasks: int) -> list[int]:
    """Returns a number for each task of a shuffle: ``repartition`` by a column of these numbers sends each to its task.

    Spark has no function for it before 4.1 (``repartitionById``). A row has the task ``pmod(hash(number), tasks)``, and ``hash`` is
    Murmur3 with the seed 42. So numbers are tried until each task has one.

    Args:
        tasks: the number of tasks, at least 1.

    >>> number_for_each_task(2), number_for_each_task(5)
    ([2, 0], [22, 0, 4, 1, 2])
    """
    numbers, tried = [-1] * tasks, 0
    while -1 in numbers:
        candidates = np.arange(tried, tried + 4 * tasks, dtype=np.uint32)
        found, first = np.unique(_hash_of_int(candidates).astype(np.int64) % tasks, return_index=True)
        for task, i in zip(found.tolist(), first.tolist(), strict=True):
            numbers[task] = int(candidates[i]) if numbers[task] == -1 else numbers[task]
        tried += 4 * tasks
    return numbers


def _hash_of_int(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Returns Spark's ``hash`` of ints."""

    def rotated(x: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
        turned: npt.NDArray[np.uint32] = (x << np.uint32(by)) | (x >> np.uint32(32 - by))
        return turned

    k = rotated(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    h = rotated(np.uint32(42) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    # Four bytes were hashed.
    h ^= np.uint32(4)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    found: npt.NDArray[np.int32] = (h ^ (h >> np.uint32(16))).view(np.int32)
    return found


def _iterated(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


# ---- Python ------------------------------------------------------------------------------------------------------------


def main_module() -> str:
    """Returns the name of the module that this process runs as ``__main__``. Empty if it has none."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else str(spec.name)


def local_directory() -> Path | None:
    """Returns a local directory of the executor of this task, which Spark deletes with the executor. ``None`` outside of a task."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(first) if first else None


def pickled(value: Any) -> bytes:
    """Pickles an object as Spark does: classes and functions of ``__main__`` by value."""
    return bytes(cloudpickle.dumps(value))


def unpickled(value: bytes) -> Any:
    """Returns the object of :func:`pickled`."""
    return cloudpickle.loads(value)


def type_of(sql: str) -> DataType:
    """Parses the SQL text of a type. Needs an active session."""
    from pyspark.sql.types import _parse_datatype_string

    return _parse_datatype_string(sql)


def from_arrow_type(of: pa.DataType, *, prefer_timestamp_ntz: bool = False) -> DataType:
    """Returns the type of Spark for a type of Arrow."""
    from pyspark.sql.pandas import types

    return types.from_arrow_type(of, prefer_timestamp_ntz=prefer_timestamp_ntz)
