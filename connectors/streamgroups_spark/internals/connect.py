"""Detects Spark Connect, and rejects what it cannot do.

Called by ``register``, ``bridge.plan`` and the functions of the API that need Spark's objects in this process. A client
of Spark Connect has no JVM: it has neither the plan of a DataFrame, nor accumulators, nor the running queries. Source:
Spark's ``pyspark.sql.connect``, where ``_jdf``, ``_jvm`` and ``sparkContext`` raise ``JVM_ATTRIBUTE_NOT_SUPPORTED``.
"""

from __future__ import annotations

from typing import Any

from streamgroups.errors import InvalidOption

_MODULE = "pyspark.sql.connect"
_REMEDY = (
    "Create the session on the driver, without SparkSession.builder.remote and without SPARK_REMOTE. A declarative pipeline "
    "always uses Spark Connect: use a program or a processor (docs/pipelines.rst)."
)


def is_connect(thing: Any) -> bool:
    """Returns whether a session or a DataFrame belongs to Spark Connect.

    Its classes cannot be imported for the check: they need packages that a classic session does not.

    Args:
        thing: the session or the DataFrame.

    >>> is_connect(object())
    False
    """
    return any(cls.__module__.startswith(f"{_MODULE}.") for cls in type(thing).__mro__)


def is_in_flow(thing: Any) -> bool:
    """Returns whether the caller runs in the function of a flow of a declarative pipeline.

    Spark marks the requests of this thread then, and rejects those that analyze a DataFrame.

    Args:
        thing: a DataFrame.

    >>> is_in_flow(object())
    False
    """
    if not is_connect(thing):
        return False
    from pyspark.sql.connect import proto

    # PySpark before 4.1 has no pipelines.
    contexts = getattr(proto, "PipelineAnalysisContext", None)
    marks = getattr(thing.sparkSession.client.thread_local, "user_context_extensions", ())
    if contexts is None or not marks:
        return False
    found = contexts()
    return any(mark.Unpack(found) and found.HasField("flow_name") for _, mark in marks)


def reject_in_flow(df: Any, called: str) -> None:
    """Rejects a call that needs the columns of a DataFrame in the function of a flow, where Spark does not provide them.

    Args:
        df: the DataFrame.
        called: the function of the API, for the error.

    Raises:
        InvalidOption: in the function of a flow.
    """
    if is_in_flow(df):
        raise InvalidOption(
            f"{called} needs the columns of its DataFrame, which Spark does not provide in the function of a flow of a "
            "declarative pipeline.",
            remedy="Use functions of Spark there. Or use a program or a processor (docs/pipelines.rst).",
        )


def needs_classic(what: str) -> InvalidOption:
    """Returns the error for a feature that Spark Connect does not support.

    Args:
        what: the feature, as the subject of a sentence.

    >>> print(needs_classic("sg.exactly_once"))
    sg.exactly_once needs a classic Spark session; this one uses Spark Connect. Create the session on the driver, \
without SparkSession.builder.remote and without SPARK_REMOTE. A declarative pipeline always uses Spark Connect: use a \
program or a processor (docs/pipelines.rst).
    """
    return InvalidOption(f"{what} needs a classic Spark session; this one uses Spark Connect.", remedy=_REMEDY)


def require_classic(thing: Any, called: str) -> None:
    """Rejects a session or a DataFrame of Spark Connect.

    Args:
        thing: the session or the DataFrame.
        called: the function of the API, for the error.

    Raises:
        InvalidOption: if it belongs to Spark Connect.
    """
    if is_connect(thing):
        raise needs_classic(called)
