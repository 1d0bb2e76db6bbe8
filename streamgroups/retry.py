"""Repeats requests after transient errors, and waits for a condition that can only be polled.

Used by the query engine, the command line and the connectors to wait for a broker or another member. Source:
``tenacity``.
"""

from __future__ import annotations

from collections.abc import Callable

from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_exponential,
)

from streamgroups.errors import StreamGroupsError


def retrying(
    stop: float | Callable[[RetryCallState], bool],
    *,
    every_s: float,
    slowest_s: float | None = None,
    on: type[Exception] | None = None,
) -> Retrying:
    """Creates a function that calls another one until it raises no transient error.

    Args:
        stop: how long to retry, in seconds; or a stop condition of ``tenacity``. Then the last error is raised.
        every_s: seconds between two calls.
        slowest_s: the interval between two calls doubles up to this number of seconds; ``None`` if it is constant.
        on: the errors to retry; ``None`` for retriable errors of this library.

    >>> retrying(10, every_s=0, on=IndexError)([lambda: 1, lambda: 2].pop)()
    2
    """
    return Retrying(
        retry=retry_if_exception(_is_retriable) if on is None else retry_if_exception_type(on),
        stop=stop if callable(stop) else stop_after_delay(stop),
        wait=wait_exponential(multiplier=every_s, max=every_s if slowest_s is None else slowest_s),
        reraise=True,
    )


def _is_retriable(error: BaseException) -> bool:
    return isinstance(error, StreamGroupsError) and error.retriable


def comes_true(
    condition: Callable[[], bool], within_s: float, *, every_s: float, slowest_s: float | None = None
) -> bool:
    """Waits for a condition, at most for a given time.

    Args:
        condition: called at least once.
        within_s: how long to wait, in seconds.
        every_s: seconds between two calls.
        slowest_s: the interval between two calls doubles up to this number of seconds; ``None`` if it is constant.

    Returns:
        Whether the condition has come true.

    >>> comes_true(lambda: True, 0, every_s=0.1), comes_true(lambda: False, 0, every_s=0.1)
    (True, False)
    """
    until_timeout = Retrying(
        retry=retry_if_result(lambda done: not done),
        stop=stop_after_delay(within_s),
        wait=wait_exponential(multiplier=every_s, max=every_s if slowest_s is None else slowest_s),
    )
    try:
        return until_timeout(condition)
    except RetryError:
        return False
