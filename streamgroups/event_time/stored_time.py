"""The event time of a group, for monitoring and for other groups: read from the metadata entries of the owners of its
partitions.

:mod:`streamgroups.monitoring.monitor` calls this module for ``groups watch``, and
:mod:`streamgroups.query.imported_time` for queries of other groups. For windows of partitions the commits contain the
event time (:mod:`streamgroups.event_time.state_times`). :mod:`streamgroups.event_time.observations` writes the entries.
Source: SEMANTICS W2, W3, W10, O3. Several queries can share the group, so no single member has the time of all
partitions. The watermark of a query never decreases; this module returns the current watermark of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroups.event_time.encoding import decode_partition
from streamgroups.event_time.source_time import together
from streamgroups.event_time.watermark import NOT_YET, Watermark
from streamgroups.json_values import string
from streamgroups.metadata_entries import read_entry
from streamgroups.partitions import TopicPartition


class TimeState(Enum):
    """The effect of a partition on the watermark of its group. The value is the word in the output."""

    HOLDS_BACK = "holds back"
    AHEAD = "ahead"
    IDLE = "idle"
    ASSERTS_NOTHING = "no watermark"
    #: It has a watermark of its own, which affects no other partition.
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class StoredTime:
    """One partition.

    Args:
        event_time_ms: the latest event time of its records, in milliseconds since the epoch; ``None`` before the first
            record.
        asserts: its watermark.
        state: its effect on the watermark.
    """

    event_time_ms: int | None
    asserts: Watermark
    state: TimeState


@dataclass(frozen=True, slots=True)
class GroupTime:
    """A group.

    Args:
        watermark: the combined watermark of its partitions; ``None`` if each partition has a watermark of its own.
        partitions: each partition.
    """

    watermark: Watermark | None
    partitions: Mapping[TopicPartition, StoredTime]


def group_time(notes: Mapping[TopicPartition, str], unread: Mapping[TopicPartition, int | None]) -> GroupTime | None:
    """Returns the effect of each partition of a group on its watermark.

    Args:
        notes: the metadata entry of each partition.
        unread: the lag of each partition in records; ``None`` where it is unknown. A partition with lag is not idle,
            whatever its entry contains. A partition without an entry holds back the watermark until it has read
            records.

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
    # A partition without a watermark holds back no other one, as if it were idle.
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


def imported_groups(notes: Iterable[str]) -> frozenset[str]:
    """Returns the groups whose watermarks the queries of a group import.

    Args:
        notes: the metadata entries of the group.

    >>> from streamgroups.event_time.partition_time import PartitionTime
    >>> from streamgroups.event_time.observations import write_entry
    >>> from streamgroups.event_time.settings import TimeSettings
    >>> sorted(imported_groups([write_entry(PartitionTime(900), TimeSettings(import_from="trades")), "by hand"]))
    ['trades']
    """
    return frozenset(group_id for note in notes if (group_id := _imported_group(note)) is not None)


def _imported_group(note: str) -> str | None:
    try:
        return string(read_entry(note)["import"])
    except (KeyError, ValueError):
        return None


def _noted(note: str, unread: int | None) -> StoredTime | None:
    """Returns one partition, as if no other one were ahead of it."""
    raw = read_entry(note)
    time = decode_partition(raw)
    if time is None:
        return None
    if not raw.get("asserts", True):
        state = TimeState.ASSERTS_NOTHING
    else:
        state = TimeState.IDLE if raw.get("idle") and not unread else TimeState.HOLDS_BACK
    return StoredTime(time.event_time_ms, time.watermark, state)
