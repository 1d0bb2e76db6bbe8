"""Waits for a condition with a deadline and a description. Called by tests and by the other modules."""

from __future__ import annotations

import time
from collections.abc import Callable


class NotInTime(AssertionError):
    """A condition was not true before its deadline."""


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 120, interval_s: float = 0.1) -> None:
    """Waits for a condition; fails with its description after a timeout.

    Raises:
        NotInTime: after the timeout.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise NotInTime(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(interval_s)
