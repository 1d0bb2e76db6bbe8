"""Waiting for something that can only be asked for again and again.

Used by the command line and by the connectors, where a broker or another member is waited for.
"""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_exponential


def comes_true(
    condition: Callable[[], bool], within_s: float, *, every_s: float, slowest_s: float | None = None
) -> bool:
    """Waits for a condition, for so long at most.

    Args:
        condition: asked at least once.
        within_s: how long, in seconds.
        every_s: seconds between two questions.
        slowest_s: the time between two questions doubles up to so many seconds; ``None`` if it stays the same.

    Returns:
        Whether it has come true.

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
