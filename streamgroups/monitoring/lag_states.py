"""What a lag is doing: whether a group keeps up, falls behind, or has stopped reading; from a window of samples.

Called by ``groups watch`` and ``metrics``, which look at a group again and again. Source: the rules of Burrow, in its order (a lag
that was ever gone in the window is fine; then rewound, stopped, stalled, slow). They differ where the point of view does: Burrow
reads every commit, we see positions. A commit that repeats a position cannot be told from none, so who has stopped and
who is stalled is told by whether somebody owns the partition. And a window that is too short proves nothing: a query that commits once
a minute stands still in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from streamgroups.groups.lag import PartitionLag
from streamgroups.partitions import TopicPartition

#: How far back a window reaches; a verdict needs half of it.
WINDOW_MS = 180_000


class LagState(Enum):
    """What a partition's lag is doing, the worst first."""

    #: The position went back and has not come up to where it was.
    REWOUND = "rewound"
    #: There are unread records, and nobody reads them.
    STOPPED = "stopped"
    #: There are unread records, and their owner does not get on.
    STALLED = "stalled"
    #: The owner gets on, and the lag never shrinks.
    WARN = "warn"
    #: Not seen for long enough.
    UNKNOWN = "unknown"
    #: It is read, or being read.
    OK = "ok"


_WORST_FIRST = tuple(LagState)


@dataclass(frozen=True, slots=True)
class Sample:
    """A partition at one moment.

    Args:
        time_ms: when, in milliseconds since the epoch.
        committed_offset: the group's position.
        records: how many records were unread.
        end_offset: where the partition ended.
    """

    time_ms: int
    committed_offset: int
    records: int
    end_offset: int


def judge(samples: Sequence[Sample], *, owned: bool, window_ms: int = WINDOW_MS, allowed: int = 0) -> LagState:
    """What the lag of one partition is doing.

    Args:
        samples: the partition in the window, oldest first.
        owned: whether a live member owns it now.
        window_ms: how far back the window reaches.
        allowed: a lag of so many records is as good as none.

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
    """
    if any(sample.records <= allowed for sample in samples):
        return LagState.OK
    if len(samples) < 2 or samples[-1].time_ms - samples[0].time_ms < window_ms / 2:
        return LagState.UNKNOWN
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
    """Each sample with the one before it."""
    return zip(samples[1:], samples, strict=False)


def worst(states: Iterable[LagState]) -> LagState:
    """The state of a group whose partitions are in these states.

    >>> worst([LagState.OK, LagState.STALLED, LagState.WARN]), worst([])
    (<LagState.STALLED: 'stalled'>, <LagState.OK: 'ok'>)
    """
    return min(states, key=_WORST_FIRST.index, default=LagState.OK)


def read_per_s(samples: Sequence[Sample]) -> float | None:
    """How many offsets a second the group has moved forward; ``None`` if it was seen only once, or moved back.

    >>> read_per_s([Sample(0, 10, 0, 10), Sample(2_000, 30, 0, 30)])
    10.0
    """
    if len(samples) < 2 or samples[-1].time_ms <= samples[0].time_ms:
        return None
    moved = samples[-1].committed_offset - samples[0].committed_offset
    return None if moved < 0 else 1000 * moved / (samples[-1].time_ms - samples[0].time_ms)


def written_at_ms(samples: Sequence[Sample], offset: int) -> int | None:
    """About when an offset was written, by when the end of the partition passed it; ``None`` if that was not seen.

    A substitute for the record's own timestamp, where reading it would cost too much.

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
        window_ms: how far back it reaches.

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
        """Takes note of a group's partitions; those that are not there any more are forgotten."""
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
        """Forgets all other groups."""
        kept = set(group_ids)
        self._samples = {group_id: samples for group_id, samples in self._samples.items() if group_id in kept}

    def samples(self, group_id: str, topic_partition: TopicPartition) -> Sequence[Sample]:
        """The samples of one partition, oldest first."""
        return list(self._samples.get(group_id, {}).get(topic_partition, ()))

    def states(self, group_id: str, owned: Mapping[TopicPartition, object]) -> dict[TopicPartition, LagState]:
        """What the lag of each partition of a group is doing.

        Args:
            group_id: the group.
            owned: the partitions that live members own.
        """
        return {
            tp: judge(list(samples), owned=tp in owned, window_ms=self.window_ms)
            for tp, samples in self._samples.get(group_id, {}).items()
        }
