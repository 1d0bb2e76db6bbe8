"""Waits that end early if a query is being stopped.

Called by ``supervise`` before a restart, and by ``retry_batches`` before another attempt. A wait has short pieces. Python runs
the handler of a signal between two instructions, so a signal that arrives just before one long wait would have no effect
until its end. Source: Python's documentation, "signal" (execution of Python signal handlers).
"""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_unless_stopping(
    seconds: float, is_stopping: Callable[[], bool], *, piece_s: float, pause: Callable[[float], object] | None = None
) -> bool:
    """Waits. Returns ``False`` as soon as the query is being stopped.

    Args:
        seconds: how long to wait.
        is_stopping: whether the query is being stopped. It is called after each piece.
        piece_s: the longest piece, in seconds.
        pause: waits for one piece; by default ``time.sleep``.

    >>> wait_unless_stopping(0.01, lambda: False, piece_s=0.005), wait_unless_stopping(60, lambda: True, piece_s=0.001)
    (True, False)
    """
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        (pause or time.sleep)(min(left_s, piece_s))
        if is_stopping():
            return False
    return True
