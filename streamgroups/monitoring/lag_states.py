"""Lag states: whether a group keeps up, falls behind, or has stopped reading, from a window of samples.

``groups watch`` and ``metrics``, which poll groups repeatedly, use this module. Source: the rules of Burrow, in its
order. A lag that was 0 at any time in the window is OK; then rewound, stopped, stalled, slow. The rules differ where
the data differs: Burrow reads every commit, this module samples positions. A commit that repeats a position is not
visible in a sample. So the owner of the partition distinguishes a stopped group from a stalled one. A window that is
too short proves nothing, because a query that commits once a minute has the same position in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from streamgroups.groups.lag import PartitionLag
from streamgroups.partitions import TopicPartition

#: The length of a window. A lag state requires half of it.
WINDOW_MS = 180_000


class LagState(Enum):
    """The state of a partition's lag, the worst first."""

    #: The position has moved back and has not reached its former value.
    REWOUND = "rewound"
    #: Records are available, and no member owns the partition.
    STOPPED = "stopped"
    #: Records are available, and the owner makes no progress.
    STALLED = "stalled"
    #: The owner makes progress, and the lag never decreases.
    WARN = "warn"
    #: The samples do not cover enough time.
    UNKNOWN = "unknown"
    #: All records are read, or the lag decreases.
    OK = "ok"


_WORST_FIRST = tuple(LagState)


@dataclass(frozen=True, slots=True)
class Sample:
    """A partition at one moment.

    Args:
        time_ms: the time, in milliseconds since the epoch.
        committed_offset: the group's position.
        records: the lag in records.
        end_offset: the end of the partition.
    """

    time_ms: int
    committed_offset: int
    records: int
    end_offset: int


def judge(
    samples: Sequence[Sample],
    *,
    owned: bool,
    has_members: bool = True,
    window_ms: int = WINDOW_MS,
) -> LagState:
    """Returns the lag state of one partition.

    Args:
        samples: the samples of the partition in the window, in ascending order of time.
        owned: whether a live member owns it now.
        has_members: whether the group has members. Without them, lag is certain to remain unless a program commits.
        window_ms: the length of the window.

    >>> def seen(*positions: tuple[int, int]) -> list[Sample]:
    ...     return [Sample(60_000 * i, at, end - at, end) for i, (at, end) in enumerate(positions)]
    >>> judge(seen((0, 9), (5, 12), (12, 12)), owned=True)
    <LagState.OK: 'ok'>
    >>> judge(seen((5, 9), (5, 12), (5, 15)), owned=True)
    <LagState.STALLED: 'stalled'>
    >>> judge(seen((5, 9), (5, 12), (5, 15)), owned=False)
    <LagState.STOPPED: 'stopped'>
    >>> judge(seen((5, 9), (7, 12), (8, 15)), owned=True)
    <LagState.WARN: 'warn'>
    >>> judge(seen((8, 9), (3, 12), (7, 15)), owned=True)
    <LagState.REWOUND: 'rewound'>
    >>> judge(seen((5, 9)), owned=False, has_members=False), judge(seen((5, 9)), owned=False)
    (<LagState.STOPPED: 'stopped'>, <LagState.UNKNOWN: 'unknown'>)
    """
    if any(sample.records <= 0 for sample in samples):
        return LagState.OK
    if len(samples) < 2 or samples[-1].time_ms - samples[0].time_ms < window_ms / 2:
        is_still = all(sample.committed_offset == samples[0].committed_offset for sample in samples)
        return LagState.STOPPED if samples and is_still and not has_members else LagState.UNKNOWN
    first, last = samples[0], samples[-1]
    if last.committed_offset < max(sample.committed_offset for sample in samples):
        return LagState.REWOUND
    moved_ms = max(
        (s.time_ms for s, before in _steps(samples) if s.committed_offset != before.committed_offset), default=None
    )
    if moved_ms is None or last.time_ms - moved_ms > max(moved_ms - first.time_ms, window_ms / 2):
        return LagState.STALLED if owned else LagState.STOPPED
    if all(sample.records >= before.records for sample, before in _steps(samples)):
        return LagState.WARN
    return LagState.OK


def _steps(samples: Sequence[Sample]) -> Iterable[tuple[Sample, Sample]]:
    """Returns each sample with the one before it."""
    return zip(samples[1:], samples, strict=False)


def worst(states: Iterable[LagState]) -> LagState:
    """Returns the state of a group whose partitions are in these states.

    >>> worst([LagState.OK, LagState.STALLED, LagState.WARN]), worst([])
    (<LagState.STALLED: 'stalled'>, <LagState.OK: 'ok'>)
    """
    return min(states, key=_WORST_FIRST.index, default=LagState.OK)


def read_per_s(samples: Sequence[Sample]) -> float | None:
    """Returns the offsets read per second; ``None`` with one sample, or if the group was reset backwards.

    >>> read_per_s([Sample(0, 10, 0, 10), Sample(2_000, 30, 0, 30)])
    10.0
    """
    if len(samples) < 2 or samples[-1].time_ms <= samples[0].time_ms:
        return None
    moved = samples[-1].committed_offset - samples[0].committed_offset
    return None if moved < 0 else 1000 * moved / (samples[-1].time_ms - samples[0].time_ms)


def written_at_ms(samples: Sequence[Sample], offset: int) -> int | None:
    """Returns approximately when an offset was written; ``None`` if the samples do not contain that time.

    That is the time when the end of the partition passed the offset. It replaces the timestamp of the record where it
    would cost too much to read the record.

    >>> written_at_ms([Sample(0, 0, 10, 10), Sample(1_000, 0, 20, 20)], 15)
    500
    >>> written_at_ms([Sample(0, 0, 10, 10), Sample(1_000, 0, 20, 20)], 5) is None
    True
    """
    for sample, before in reversed(list(_steps(samples))):
        if before.end_offset <= offset < sample.end_offset:
            passed = (offset - before.end_offset) / (sample.end_offset - before.end_offset)
            return before.time_ms + round(passed * (sample.time_ms - before.time_ms))
    return None


class LagHistory:
    """The samples of all partitions of all groups within the window.

    Args:
        window_ms: the length of the window.

    >>> from streamgroups.partitions import Bounds
    >>> history, tp = LagHistory(10_000), TopicPartition("flights", 0)
    >>> for second in range(0, 20, 5):
    ...     history.add("board", 1_000 * second, [PartitionLag(tp, 3, Bounds(0, 9))])
    >>> [sample.time_ms for sample in history.samples("board", tp)]
    [5000, 10000, 15000]
    """

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self.window_ms = window_ms
        self._samples: dict[str, dict[TopicPartition, deque[Sample]]] = {}

    def add(self, group_id: str, time_ms: int, lags: Iterable[PartitionLag]) -> None:
        """Adds samples of a group's partitions. Partitions that no longer exist are removed."""
        known = self._samples.get(group_id, {})
        now: dict[TopicPartition, deque[Sample]] = {}
        for lag in lags:
            samples = known.get(lag.topic_partition, deque())
            if lag.committed_offset is not None and lag.records is not None and lag.end_offset is not None:
                samples.append(Sample(time_ms, lag.committed_offset, lag.records, lag.end_offset))
            while samples and samples[0].time_ms < time_ms - self.window_ms:
                samples.popleft()
            now[lag.topic_partition] = samples
        self._samples[group_id] = now

    def keep_only(self, group_ids: Iterable[str]) -> None:
        """Removes all other groups."""
        kept = set(group_ids)
        self._samples = {group_id: samples for group_id, samples in self._samples.items() if group_id in kept}

    def samples(self, group_id: str, topic_partition: TopicPartition) -> Sequence[Sample]:
        """Returns the samples of one partition, in ascending order of time."""
        return list(self._samples.get(group_id, {}).get(topic_partition, ()))

    def states(
        self, group_id: str, owned: Mapping[TopicPartition, object], *, has_members: bool = True
    ) -> dict[TopicPartition, LagState]:
        """Returns the lag state of each partition of a group.

        Args:
            group_id: the group.
            owned: the partitions that live members own.
            has_members: whether it has live members.
        """
        return {
            tp: judge(list(samples), owned=tp in owned, has_members=has_members, window_ms=self.window_ms)
            for tp, samples in self._samples.get(group_id, {}).items()
        }
