"""Three clocks: the wall clock, a monotonic one, and one that follows the wall clock without jumps.

Used by all connectors for Kafka. Implements :class:`streamgroups.ports.Clock`. Times that other processes read are those of the
wall clock, and durations those of the monotonic one, which also advances while the machine is suspended. Source: SEMANTICS G5,
G6; ``CLOCK_BOOTTIME`` of Linux.
"""

from __future__ import annotations

import threading
import time

from streamgroups.steady_time import SteadyTime

#: This clock advances while the machine is suspended, where the system has one: a suspended laptop is a pause too.
_AWAKE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def awake_s() -> float:
    """A monotonic clock that also advances while the machine is suspended, in seconds."""
    return time.clock_gettime(_AWAKE)


def awake_ms() -> int:
    """The clock of :func:`awake_s`, in milliseconds."""
    return time.clock_gettime_ns(_AWAKE) // 1_000_000


class SteadyClock:
    """Milliseconds since the epoch. It starts with the time of the wall clock, and approaches it without jumps
    (:mod:`streamgroups.steady_time`). Safe to call from any thread.

    >>> clock = SteadyClock()
    >>> clock() <= clock()
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._time = SteadyTime(time.time_ns(), time.clock_gettime_ns(_AWAKE))

    def __call__(self) -> int:
        """Returns milliseconds since the epoch."""
        with self._lock:
            self._time = self._time.after(time.time_ns(), time.clock_gettime_ns(_AWAKE))
            return self._time.now_ns // 1_000_000
