"""A clock that goes on while the machine sleeps and never goes back: by it leases and cursors run out.

Used by ``group_cursors``. Implements :class:`streamgroups.ports.Clock`.
"""

from __future__ import annotations

import time

#: Goes on while the machine sleeps, where there is such a clock: a laptop's lid is a silence too.
_AWAKE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SteadyClock:
    """Milliseconds since the epoch, as the wall clock showed them when this one was made, and steady since.

    >>> clock = SteadyClock()
    >>> clock() <= clock()
    True
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(_AWAKE)

    def __call__(self) -> int:
        """The time now."""
        return (self._offset_ns + time.clock_gettime_ns(_AWAKE)) // 1_000_000
