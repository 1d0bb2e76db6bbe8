"""Finds the cause of an exception that Spark or user code has raised in the user's process.

Called by ``ops.supervise`` and ``ops.last_line``. Source: :mod:`streamgroups.supervision.failure_causes`.
"""

from __future__ import annotations

from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamgroups.errors import StreamGroupsError
from streamgroups.supervision.failure_causes import MAX_CHARACTERS, Failure, failure_in, failure_of
from streamgroups_kafka.client.jaas import redacted


def cause_of(error: Exception, max_characters: int = MAX_CHARACTERS) -> Failure:
    """Returns why a query or its batch failed, without secrets.

    Args:
        error: the exception.
        max_characters: the longest description of an error in a text of Spark.

    >>> cause_of(ConnectionError("sink:5432 is down")).what
    'ConnectionError: sink:5432 is down'
    """
    found = _found(error, max_characters)
    # Messages of Java can contain options of any source or sink.
    return replace(found, what=redacted(found.what, ()))


def _found(error: Exception, max_characters: int) -> Failure:
    if isinstance(error, StreamGroupsError):
        return failure_of(error)
    if isinstance(error, PySparkException | Py4JError):
        return failure_in(str(error), max_characters)
    return Failure(f"{type(error).__name__}: {error}")
