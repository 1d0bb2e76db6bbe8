"""A time that follows the wall clock without its jumps.

Used by ``streamgroups_kafka.client.clock``. NTP or a user can set the wall clock, and a hypervisor can pause the machine
without a trace in the monotonic clock. Leases and idle timeouts must not expire by a jump, and times since the epoch must become
right again. So the time approaches the wall clock slowly. Source: ``adjtime(3)``; SEMANTICS G6, W5.
"""

from __future__ import annotations

from dataclasses import dataclass

#: The time advances by this part more, or less, than the monotonic clock.
_RATE = 10


@dataclass(frozen=True, slots=True)
class SteadyTime:
    """The time at one moment.

    Args:
        now_ns: the time in nanoseconds since the epoch; at first that of the wall clock.
        monotonic_ns: the monotonic clock at this moment, in nanoseconds.
    """

    now_ns: int
    monotonic_ns: int

    def after(self, wall_ns: int, monotonic_ns: int) -> SteadyTime:
        """The time at a later moment.

        A difference to the wall clock changes by at most a tenth of the duration in between: one of an hour disappears in ten
        hours.

        Args:
            wall_ns: the wall clock, in nanoseconds since the epoch.
            monotonic_ns: the monotonic clock, in nanoseconds.

        >>> time, hour_ns = SteadyTime(now_ns=0, monotonic_ns=0), 3600 * 10**9
        >>> time.after(wall_ns=100, monotonic_ns=100).now_ns
        100
        >>> time.after(wall_ns=hour_ns, monotonic_ns=100).now_ns, time.after(wall_ns=-hour_ns, monotonic_ns=100).now_ns
        (110, 90)
        """
        elapsed_ns = max(0, monotonic_ns - self.monotonic_ns)
        now_ns, most_ns = self.now_ns + elapsed_ns, elapsed_ns // _RATE
        return SteadyTime(now_ns + max(-most_ns, min(most_ns, wall_ns - now_ns)), self.monotonic_ns + elapsed_ns)
