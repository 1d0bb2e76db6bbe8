"""A clock that stands still until a test moves it. Implements :class:`streamgroups.ports.Clock`."""

from __future__ import annotations


class FakeClock:
    """Milliseconds since the epoch.

    Args:
        now_ms: the time it shows at first.

    >>> clock = FakeClock(1_000)
    >>> clock.advance(250)
    >>> clock()
    1250
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, duration_ms: int) -> None:
        """Lets time pass."""
        self.now_ms += duration_ms
