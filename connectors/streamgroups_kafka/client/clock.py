"""The wall clock, and a monotonic clock that also advances while the machine is suspended. Leases expire by the latter.

Used by all connectors for Kafka. Implements :class:`streamgroups.ports.Clock`. Source: SEMANTICS G5, G6; ``CLOCK_BOOTTIME`` of
Linux.
"""

from __future__ import annotations

import time

#: This clock advances while the machine is suspended, where the system has one: a suspended laptop is a pause too.
_AWAKE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def awake_s() -> float:
    """A monotonic clock that also advances while the machine is suspended, in seconds."""
    return time.clock_gettime(_AWAKE)


class SteadyClock:
    """Milliseconds since the epoch. It starts with the time of the wall clock, and never jumps.

    >>> clock = SteadyClock()
    >>> clock() <= clock()
    True
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(_AWAKE)

    def __call__(self) -> int:
        """Returns milliseconds since the epoch."""
        return (self._offset_ns + time.clock_gettime_ns(_AWAKE)) // 1_000_000
