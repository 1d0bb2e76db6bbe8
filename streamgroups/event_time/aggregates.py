"""Aggregates of windows: those of Spark SQL that a custom state can store, and those that users write in Python.

``streamgroups_spark.windows.windows`` calls this module. Source: Spark SQL's ``count``, ``sum``, ``avg``, ``min`` and
``max``, which can be computed from partial results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamgroups.errors import InvalidOption

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_EVERYTHING = "*"


class Function(Enum):
    """Functions that can be computed from partial results: batch by batch, and session by session."""

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
        function: the function.
        argument: a Spark SQL expression over the columns of a record; ``None`` for ``count(*)``.
        wraps: whether a sum of integers wraps around, as with ``spark.sql.ansi.enabled=false``. Otherwise it is an error.
    """

    function: Function
    argument: str | None
    wraps: bool = field(default=False, repr=False)

    def __str__(self) -> str:
        return f"{self.function.value}({self.argument or _EVERYTHING})"


@dataclass(frozen=True, slots=True)
class PythonAggregate:
    """See :func:`python_aggregate`."""

    function: Callable[[list[Any]], Any]
    argument: str
    returns: str


def python_aggregate(function: Callable[[list[Any]], Any], argument: str, *, returns: str) -> PythonAggregate:
    """Returns an aggregate in Python, for functions other than ``count``, ``sum``, ``avg``, ``min`` and ``max``.

    The state stores all values of a window until it closes, in no particular order. The function is called whenever a
    pane of the window is emitted.

    Args:
        function: takes the list of the window's values, nulls included, and returns a value or ``None``. It is sent to
            Spark's workers.
        argument: a Spark SQL expression over the columns of a record, which returns the values.
        returns: the return type of the function in Spark SQL: ``double``, ``string``.

    >>> import statistics
    >>> python_aggregate(statistics.median, "delay", returns="double").argument
    'delay'
    """
    return PythonAggregate(function, argument, returns)


def parse_aggregate(name: str, text: str) -> SqlAggregate:
    """Parses a call of one function.

    Args:
        name: the name of the column, for the error.
        text: the call in Spark SQL.

    Raises:
        InvalidOption: if the call cannot be computed from partial results.

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
            remedy="Combine such aggregates in a later step, or write a Python aggregate with sg.shapes.python_aggregate.",
        )
    if argument == _EVERYTHING:
        if function is not Function.COUNT:
            raise InvalidOption(f"Aggregate '{name}' is '{text}'.", remedy="Only count accepts all columns.")
        return SqlAggregate(function, None)
    return SqlAggregate(function, argument)


def _is_one(argument: str) -> bool:
    """Returns whether the outer parentheses belong together, so that this is one argument of one call."""
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
