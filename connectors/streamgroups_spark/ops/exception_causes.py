"""Finds the cause of an exception that Spark or user code has raised in the user's process.

Called by ``ops.supervise`` and ``ops.last_line``. Source: :mod:`streamgroups.supervision.failure_causes`.
"""

from __future__ import annotations

from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamgroups.connections.redaction import redacted
from streamgroups.errors import StreamGroupsError
from streamgroups.printable import printable
from streamgroups.supervision.failure_causes import MAX_CHARACTERS, Failure, failure_in, failure_of


def cause_of(error: Exception, max_characters: int = MAX_CHARACTERS) -> Failure:
    r"""Returns why a query or its batch failed, without secrets.

    Args:
        error: the exception.
        max_characters: the longest description of an error in a text of Spark.

    >>> cause_of(ConnectionError("sink:5432 is down")).what
    'ConnectionError: sink:5432 is down'
    >>> print(cause_of(ValueError("bad \udcff")).what)
    ValueError: bad \udcff
    """
    found = _found(error, max_characters)
    # Messages of Java can contain options of any source or sink.
    # Any text can be there, such as half of a surrogate pair. No UTF-8 file, log or entry has it.
    return replace(found, what=printable(redacted(found.what, ()), keep="\n\t"))


def _found(error: Exception, max_characters: int) -> Failure:
    if isinstance(error, StreamGroupsError):
        return failure_of(error)
    if isinstance(error, PySparkException | Py4JError):
        return failure_in(str(error), max_characters)
    return Failure(f"{type(error).__name__}: {error}")
