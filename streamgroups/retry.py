"""Waits for a condition that can only be polled.

Used by the query engine, the command line and the connectors to wait for a broker or another member. Source:
``tenacity``.
"""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_exponential


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
    patient = Retrying(
        retry=retry_if_result(lambda done: not done),
        stop=stop_after_delay(within_s),
        wait=wait_exponential(multiplier=every_s, max=every_s if slowest_s is None else slowest_s),
    )
    try:
        return patient(condition)
    except RetryError:
        return False
