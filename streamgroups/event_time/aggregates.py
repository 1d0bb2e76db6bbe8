"""Aggregates of windows: the ones of Spark SQL that can be kept in a state of our own, and those that users write in Python.

Called by ``streamgroups_spark.windows.api``. Source: Spark SQL's ``count``, ``sum``, ``avg``, ``min`` and ``max``, which can be made of parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroups.errors import InvalidOption

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_EVERYTHING = "*"


class Function(Enum):
    """What can be made of parts: batch by batch, and session by session."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


_FUNCTIONS = {**{f.value: f for f in Function}, "mean": Function.AVG}


@dataclass(frozen=True, slots=True)
class SqlAggregate:
    """A call of one function.

    Args:
        function: which.
        argument: an expression of Spark SQL over the columns of a record; ``None`` for ``count(*)``.
    """

    function: Function
    argument: str | None


@dataclass(frozen=True, slots=True)
class PythonAggregate:
    """See :func:`python_aggregate`."""

    function: Callable[[list[Any]], Any]
    argument: str
    returns: str


def python_aggregate(function: Callable[[list[Any]], Any], argument: str, *, returns: str) -> PythonAggregate:
    """An aggregate in Python, for what Spark SQL's ``count``, ``sum``, ``avg``, ``min`` and ``max`` cannot say.

    All values of a window are kept until it closes, in no particular order. The function is called whenever the window is told.

    Args:
        function: takes the list of the window's values, nulls included, and returns a value or ``None``. It is sent to Spark's workers.
        argument: an expression of Spark SQL over the columns of a record: what the values are.
        returns: the type of what it returns, as Spark SQL writes it: ``double``, ``string``.

    >>> import statistics
    >>> python_aggregate(statistics.median, "delay", returns="double").argument
    'delay'
    """
    return PythonAggregate(function, argument, returns)


def parse_aggregate(name: str, text: str) -> SqlAggregate:
    """Reads a call of one function.

    Args:
        name: of the column, for the error.
        text: as Spark SQL writes it.

    Raises:
        InvalidOption: if it is none that can be made of parts.

    >>> parse_aggregate("worst", "max(delay - 5)")
    SqlAggregate(function=<Function.MAX: 'max'>, argument='delay - 5')
    >>> parse_aggregate("flights", "COUNT(*)")
    SqlAggregate(function=<Function.COUNT: 'count'>, argument=None)
    """
    match = _CALL.fullmatch(text)
    function = _FUNCTIONS.get(match[1].lower()) if match else None
    argument = match[2].strip() if match else ""
    if function is None or not argument or not _is_one(argument) or argument.lower().startswith("distinct "):
        raise InvalidOption(
            f"Aggregate '{name}' is '{text}'. With late records, updates, an idle timeout, Python aggregates or processing time, "
            f"an aggregate must be one call of {', '.join(f.value for f in Function)}.",
            remedy="Combine such aggregates in a later step, or write a Python aggregate with sg.python_aggregate.",
        )
    if argument == _EVERYTHING:
        if function is not Function.COUNT:
            raise InvalidOption(f"Aggregate '{name}' is '{text}'.", remedy="Only count accepts all columns.")
        return SqlAggregate(function, None)
    return SqlAggregate(function, argument)


def _is_one(argument: str) -> bool:
    """Whether the parentheses around it belong together, so that this is one argument of one call."""
    depth, quote = 0, ""
    for character in argument:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character == "," and depth == 0:
            return False
        else:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                return False
    return depth == 0 and not quote
