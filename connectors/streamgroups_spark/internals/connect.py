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
