"""A clock that only a test advances. Implements :class:`streamgroups.ports.Clock`."""

from __future__ import annotations


class FakeClock:
    """Milliseconds since the epoch.

    Args:
        now_ms: the initial time.

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
        """Advances the time."""
        self.now_ms += duration_ms
