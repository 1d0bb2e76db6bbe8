"""Finds the records of a batch that a function cannot process.

Called by ``streamgroups_spark.dlq`` in tasks, and by ``streamgroups_sinks.postgres`` on the driver. A function of a batch raises
one error for all its records. So after an error it is called for both halves of the batch, until single records remain.
Source: SEMANTICS P4; the binary search of ``git bisect``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

_Result = TypeVar("_Result")

#: Classes of errors.
ErrorClasses: TypeAlias = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Processed(Generic[_Result]):
    """Adjacent records that were processed in one call.

    Args:
        first: the number of the first record.
        end: the number after that of the last record.
        result: the result of the call.
    """

    first: int
    end: int
    result: _Result


@dataclass(frozen=True, slots=True)
class Failed:
    """A record for which the function raises an error.

    Args:
        at: the number of the record.
        error: the error.
    """

    at: int
    error: Exception


def isolate(
    count: int,
    process: Callable[[int, int], _Result],
    fail_on: ErrorClasses = (),
    isolate_on: tuple[type[Exception], ...] = (Exception,),
) -> Iterator[Processed[_Result] | Failed]:
    """Processes a batch, and isolates the records that fail. Each record is in one outcome, in the order of the records.

    For *k* failed records of *n*, there are at most ``1 + 2 * k * ceil(log2(n))`` calls. A record can be in several calls.

    Args:
        count: the number of records. For 0, nothing is called.
        process: processes the records from a number to another one, exclusive.
        fail_on: errors that are not about single records. They are raised, and so are errors with such a cause.
        isolate_on: errors that are about single records. All others are raised.

    >>> def inverse(first, end):
    ...     return [1 / it for it in [4, 2, 0, 1][first:end]]
    >>> for outcome in isolate(4, inverse):
    ...     print(outcome)
    Processed(first=0, end=2, result=[0.25, 0.5])
    Failed(at=2, error=ZeroDivisionError('division by zero'))
    Processed(first=3, end=4, result=[1.0])
    """
    waiting = [(0, count)] if count else []
    while waiting:
        first, end = waiting.pop()
        try:
            result = process(first, end)
        except fail_on:
            raise
        except isolate_on as e:
            if is_from(e, fail_on):
                raise
            if end - first == 1:
                yield Failed(first, e)
            else:
                middle = (first + end) // 2
                waiting += [(middle, end), (first, middle)]
        else:
            yield Processed(first, end, result)


def is_from(error: BaseException, classes: ErrorClasses) -> bool:
    """Returns whether an error is of one of the classes, or has such a cause (``raise ... from``).

    Clients wrap the errors of a connection in classes of their own. An error that is only raised while another one is handled counts
    by its own class: a function can handle a missing file, and then find that the record is bad.

    >>> def priced(flight):
    ...     try:
    ...         raise ConnectionError("refused")
    ...     except ConnectionError as e:
    ...         raise ValueError("no price") from e
    >>> try:
    ...     priced("UA 15")
    ... except ValueError as e:
    ...     is_from(e, (OSError,)), is_from(e, (ImportError,))
    (True, False)
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, classes):
            return True
        seen.add(id(current))
        current = current.__cause__
    return False
