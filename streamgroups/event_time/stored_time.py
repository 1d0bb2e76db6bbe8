"""How far a group's event time has come, seen from outside: by the notes that the owners of its partitions leave on the board.

Called by :mod:`streamgroups.monitoring.monitor` for ``groups watch``; the notes are those of :mod:`streamgroups.event_time.observations`. Source: SEMANTICS W2,
W3, O3. Several queries may share the group, so nobody else sees all of it. A query never takes back what it has asserted; this is what the
partitions assert now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroups.event_time.encoding import decode_partition
from streamgroups.event_time.source_time import together
from streamgroups.event_time.watermark import NOT_YET, Watermark
from streamgroups.metadata_entries import read_entry
from streamgroups.partitions import TopicPartition


class TimeState(Enum):
    """What a partition does to the watermark of its group; the value is the word for it."""

    HOLDS_BACK = "holds back"
    AHEAD = "ahead"
    IDLE = "idle"
    ASSERTS_NOTHING = "no watermark"


@dataclass(frozen=True, slots=True)
class StoredTime:
    """One partition.

    Args:
        event_time_ms: the latest event time of its records, in milliseconds since the epoch; ``None`` before the first.
        asserts: what it asserts.
        state: what it does to the watermark.
    """

    event_time_ms: int | None
    asserts: Watermark
    state: TimeState


@dataclass(frozen=True, slots=True)
class GroupTime:
    """A group.

    Args:
        watermark: what its partitions assert together.
        partitions: each of them.
    """

    watermark: Watermark
    partitions: Mapping[TopicPartition, StoredTime]


def group_time(notes: Mapping[TopicPartition, str], unread: Mapping[TopicPartition, int | None]) -> GroupTime | None:
    """What the partitions of a group do to its watermark.

    Args:
        notes: what is noted for each partition.
        unread: how many records of each are unread; ``None`` where nobody knows. One with unread records is not idle, whatever was noted. One
            without a note holds the watermark back until its records tell the time.

    Returns:
        ``None`` if the group has no event time.

    >>> from streamgroups.event_time.strategy import Generation
    >>> from streamgroups.event_time.partition_time import PartitionTime
    >>> from streamgroups.event_time.observations import write_entry
    >>> from streamgroups.event_time.settings import TimeSettings
    >>> from streamgroups.event_time.watermark import At
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> settings = TimeSettings(Generation(), partition_idle_timeout_ms=30)
    >>> fast = write_entry(PartitionTime(900, At(900)), settings)
    >>> silent = write_entry(PartitionTime(300, At(300), idle_since_ms=0, seen_ms=40), settings)
    >>> found = group_time({p0: fast, p1: silent}, {p0: 0, p1: 0})
    >>> str(found.watermark), found.partitions[p1].state.value
    ('1970-01-01T00:00:00.900Z', 'idle')
    >>> str(group_time({p0: fast, p1: silent}, {p0: 0, p1: 7}).watermark)
    '1970-01-01T00:00:00.300Z'
    """
    known = {tp: found for tp, note in notes.items() if (found := _noted(note, unread.get(tp))) is not None}
    if not known:
        return None
    times = {
        tp: known.get(tp) or StoredTime(None, NOT_YET, TimeState.HOLDS_BACK) for tp in known.keys() | unread.keys()
    }
    # Who asserts nothing holds nothing back, as if it were idle.
    watermark = together([(time.asserts, time.state is not TimeState.HOLDS_BACK) for time in times.values()])
    return GroupTime(
        watermark,
        {
            tp: StoredTime(time.event_time_ms, time.asserts, TimeState.AHEAD)
            if time.state is TimeState.HOLDS_BACK and time.asserts != watermark
            else time
            for tp, time in sorted(times.items())
        },
    )


def _noted(note: str, unread: int | None) -> StoredTime | None:
    """One partition, as if none were ahead of it."""
    raw = read_entry(note)
    time = decode_partition(raw)
    if time is None:
        return None
    if not raw.get("asserts", True):
        state = TimeState.ASSERTS_NOTHING
    else:
        state = TimeState.IDLE if raw.get("idle") and not unread else TimeState.HOLDS_BACK
    return StoredTime(time.event_time_ms, time.watermark, state)
