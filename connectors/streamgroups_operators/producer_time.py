"""The watermarks of the producer of one partition while a batch runs, and the one before each record.

Used by ``windows.window_time`` and ``joins.side``. A watermark applies to the records after its own, so the result does
not depend on how batches cut the records. Source: SEMANTICS W15, S10.
"""

from __future__ import annotations

import numpy as np

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups_operators.operator import BEFORE_ALL, Numbers


class ProducerTime:
    """The watermarks of one producer, in milliseconds or in smaller units.

    Args:
        reached: the latest watermark in the state before the batch.
        units_per_ms: the units of all times in a millisecond.

    >>> from streamgroups.partitions import TopicPartition
    >>> time = ProducerTime(0)
    >>> time.add(ProducerWatermarks(TopicPartition("flights", 0), (5, 7), (100, 200)))
    >>> time.before(np.array([4, 5, 6, 7, 8])).tolist(), time.reached
    ([0, 0, 100, 100, 200], 200)
    """

    def __init__(self, reached: int, units_per_ms: int = 1) -> None:
        self._units_per_ms = units_per_ms
        self._offsets = np.zeros(0, np.int64)
        #: The watermark before the first of these offsets, and the one after each of them.
        self._times = np.array([reached], np.int64)

    @property
    def reached(self) -> int:
        """The latest watermark."""
        return int(self._times[-1])

    @property
    def is_used(self) -> bool:
        """Whether the producer has emitted a watermark."""
        return len(self._offsets) > 0 or self.reached > BEFORE_ALL

    def add(self, watermarks: ProducerWatermarks) -> None:
        """Adds later watermarks. Their offsets are after those of all earlier ones."""
        times = np.maximum(np.array(watermarks.times_ms, np.int64) * self._units_per_ms, self.reached)
        self._offsets = np.concatenate([self._offsets, np.array(watermarks.offsets, np.int64)])
        self._times = np.concatenate([self._times, times])

    def before(self, offsets: Numbers) -> Numbers:
        """Returns the watermark before each record.

        Args:
            offsets: their offsets, ascending, and after those of all earlier calls.
        """
        if not len(offsets):
            return np.zeros(0, np.int64)
        if not len(self._offsets):
            return np.full(len(offsets), self.reached)
        passed = np.searchsorted(self._offsets, offsets, "left")
        times = self._times[passed]
        # No later record is before these watermarks.
        self._offsets, self._times = self._offsets[passed[-1] :], self._times[passed[-1] :]
        return times


class PendingWatermarks:
    """The watermarks of one producer that an operator has not received, because records before them come first."""

    def __init__(self) -> None:
        self._parts: list[ProducerWatermarks] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, watermarks: ProducerWatermarks) -> None:
        """Adds watermarks. Their offsets are after those of all earlier ones."""
        self._parts.append(watermarks)

    def take(self, next_offset: int) -> list[ProducerWatermarks]:
        """Removes and returns the watermarks before an offset."""
        split = [it.split(next_offset) for it in self._parts]
        self._parts = [later for _, later in split if later is not None]
        return [early for early, _ in split if early is not None]
