"""The session of this process: its key, its number of tasks, and whether it is registered.

``register`` sets it, and the functions of the API use it on the driver. Source: SEMANTICS S13.
"""

from __future__ import annotations

import logging
import tempfile
import uuid

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from streamgroups.errors import InvalidOption
from streamgroups_spark.internals.connect import require_classic

logger = logging.getLogger(__name__)

#: The setting of a session with its number of tasks. Spark copies it with the session, as it copies data sources.
_PARALLELISM = "spark.streamgroups.parallelism"
#: Its value if the user has set no number.
_OF_SPARK = "default"
#: Spark's default parallelism in a cluster before an executor registers. A cluster of two cores has it too.
_WITHOUT_EXECUTORS = 2
#: The applications and default parallelisms with a warning.
_warned: set[tuple[str, int]] = set()
_REMEDY = (
    "Call sg.register(spark) once, before spark.readStream and df.writeStream. A declarative pipeline does not support it: "
    "use a program or a processor (docs/pipelines.rst)."
)
#: The id of the Spark application whose session is registered. A process can run several, one after the other.
_application: str | None = None


def new_session() -> str:
    """Returns the name and key of a session: text that no other process can guess."""
    return uuid.uuid4().hex + uuid.uuid4().hex


#: Separates the key of a session from the directory of temporary files of its user's process.
_IN = "@"


def session_of_process() -> str:
    """Returns a new session whose user's process is this one.

    It contains the directory of temporary files of this process. Spark sets ``spark.executorEnv.TMPDIR`` for the processes of
    sources and sinks on the driver too, and they must find the socket of this process.
    """
    try:
        return f"{new_session()}{_IN}{tempfile.gettempdir()}"
    except FileNotFoundError:
        # Tasks import this module too, on hosts where no directory can be written. ``sg.register`` raises the error.
        return new_session()


def key_of(session: str) -> str:
    """Returns the key of a session.

    >>> key_of("5f2c@/tmp"), key_of("5f2c")
    ('5f2c', '5f2c')
    """
    return session.partition(_IN)[0]


def directory_in(session: str) -> str | None:
    """Returns the directory of temporary files of the user's process.

    ``None``: no user's process on this machine has registered the session.

    >>> directory_in("5f2c@/mnt/scratch@2"), directory_in("5f2c")
    ('/mnt/scratch@2', None)
    """
    return session.partition(_IN)[2] or None


#: Identifies this driver process, so that it receives no requests from the queries of another driver.
SESSION = session_of_process()


def set_registered(spark: SparkSession, parallelism: int | None) -> None:
    """Stores that a session of this process is registered.

    Args:
        spark: the session.
        parallelism: the number of tasks that can run at once. ``None``: Spark's default parallelism at each use.
    """
    global _application
    _application = spark.sparkContext.applicationId
    spark.conf.set(_PARALLELISM, _OF_SPARK if parallelism is None else str(parallelism))


def is_registered(spark: SparkSession) -> bool:
    """Returns whether this process has registered a session, or one from which it was copied."""
    return spark.conf.get(_PARALLELISM, None) is not None and _is_of_application(spark)


def parallelism_of(spark: SparkSession) -> int:
    """The number of tasks with which a session was registered, or its default parallelism at this moment.

    The sink to Kafka divides the partitions without a key among this number of tasks. So a query that it writes must not
    have more tasks.
    """
    given = spark.conf.get(_PARALLELISM, None)
    return default_parallelism(spark.sparkContext) if given in (None, _OF_SPARK) else int(str(given))


def default_parallelism(context: SparkContext) -> int:
    """Returns Spark's default parallelism for a query that starts. Logs a warning if it can be that of missing executors.

    Args:
        context: the context of the application.
    """
    tasks = context.defaultParallelism
    settings = context.getConf()
    is_given = settings.get("spark.default.parallelism", None) is not None or str(context.master).startswith("local")
    is_dynamic = str(settings.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
    known = context.applicationId, tasks
    if (why := why_few_tasks(tasks, is_given=is_given, is_dynamic=is_dynamic)) is not None and known not in _warned:
        _warned.add(known)
        logger.warning("%s", why)
    return tasks


def why_few_tasks(tasks: int, *, is_given: bool, is_dynamic: bool) -> str | None:
    """Returns a warning if executors that register later change Spark's default parallelism. ``None`` without a reason.

    Args:
        tasks: Spark's default parallelism.
        is_given: whether the user has set it, or the application runs in one process.
        is_dynamic: whether Spark starts executors on demand.

    >>> why_few_tasks(48, is_given=False, is_dynamic=False), why_few_tasks(2, is_given=True, is_dynamic=True)
    (None, None)
    >>> print(why_few_tasks(4, is_given=False, is_dynamic=True))
    A query starts with at most 4 tasks for each batch: Spark reports this number for the executors that have registered. \
With spark.dynamicAllocation.enabled, others can follow. Set the number of tasks: sg.register(spark, parallelism=...).
    """
    if is_given or not (is_dynamic or tasks <= _WITHOUT_EXECUTORS):
        return None
    others = (
        "With spark.dynamicAllocation.enabled, others can follow."
        if is_dynamic
        else "It is also Spark's number before an executor registers."
    )
    return (
        f"A query starts with at most {tasks} tasks for each batch: Spark reports this number for the executors that have "
        f"registered. {others} Set the number of tasks: sg.register(spark, parallelism=...)."
    )


def require_registered(called: str, df: DataFrame) -> None:
    """Rejects a call of the API before a session of the application is registered, and in a session of Spark Connect.

    Args:
        called: the function of the API, for the error.
        df: its argument.

    Raises:
        InvalidOption: if no session of its Spark application is registered, or the DataFrame belongs to Spark Connect. After
            ``spark.stop()`` a new session is another application.
    """
    require_classic(df, called)
    if not _is_of_application(df.sparkSession):
        raise needs_registration(called)


def _is_of_application(spark: SparkSession) -> bool:
    return _application is not None and spark.sparkContext.applicationId == _application


def needs_registration(what: str) -> InvalidOption:
    """Returns the error for a feature that needs the user's process.

    >>> print(needs_registration("Option 'maxDrift'"))
    Option 'maxDrift' needs the registration of this library with the Spark session. Call sg.register(spark) once, before \
spark.readStream and df.writeStream. A declarative pipeline does not support it: use a program or a processor \
(docs/pipelines.rst).
    """
    return InvalidOption(f"{what} needs the registration of this library with the Spark session.", remedy=_REMEDY)
