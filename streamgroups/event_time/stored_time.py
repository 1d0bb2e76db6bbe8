"""The event time of a group, for monitoring and for other groups: from what the owners of its partitions have stored.

:mod:`streamgroups.monitoring.monitor` calls this module for ``groups watch`` and ``groups describe --state``, and
:mod:`streamgroups.query.imported_time` for queries of other groups. Several queries can share the group, so no single
member has the time of all partitions. The watermark of a query never decreases; this module returns the current
watermark of the partitions. Source: SEMANTICS W2, W3, W5, W10, O3.

A query with ``sg.with_event_time`` stores it in metadata entries, which :mod:`streamgroups.event_time.time_entries` writes.
Windows of partitions store it in the states that their commits name: the watermark of the partition and, with
``time="group"``, the watermark of the group that the batch has used. The idle timeouts of the query are not in a commit. But
a partition that is behind a watermark of the group did not hold it back, so the group has excluded it as idle.

With ``time="group"``, for the watermark ``w`` of a partition and the latest watermark ``g`` that the group has used:

=========================================  =========================================================================
the partition                              its state
=========================================  =========================================================================
has available records                      it is not idle: ``holds back`` or ``ahead``
has none, and ``w`` is before ``g``        ``idle``, or ``no watermark`` before its first record
has none, and ``w`` is not before ``g``    ``holds back`` if ``w`` is the minimum, otherwise ``ahead``
=========================================  =========================================================================

With ``time="partition"`` no partition affects another one. A partition is ``idle`` if the idle timeout has advanced its
watermark and no record is available, otherwise ``active``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from streamgroups.event_time.source_time import together
from streamgroups.event_time.time_entries import decode_partition
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earliest, latest
from streamgroups.json_values import string
from streamgroups.metadata_entries import read_entry
from streamgroups.partitions import TopicPartition
from streamgroups.state.origins import Named, StateOrigin
from streamgroups.state.state_time import StateTime


class TimeState(Enum):
    """The effect of a partition on the watermark of its group. The value is the word in the output."""

    HOLDS_BACK = "holds back"
    AHEAD = "ahead"
    IDLE = "idle"
    NO_WATERMARK = "no watermark"
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
class StoredGroupTime:
    """A group.

    Args:
        watermark: the combined watermark of its partitions; ``None`` if each partition has a watermark of its own.
        partitions: each partition.
    """

    watermark: Watermark | None
    partitions: Mapping[TopicPartition, StoredTime]


def time_in_entries(
    entries: Mapping[TopicPartition, str], lag: Mapping[TopicPartition, int | None]
) -> StoredGroupTime | None:
    """Returns the event time of each partition of a group, from its metadata entries.

    Args:
        entries: the metadata entry of each partition.
        lag: the lag of each partition in records; ``None`` where it is unknown. A partition with lag is not idle,
            whatever its entry contains. A partition without an entry holds back the watermark until it has read
            records.

    Returns:
        ``None`` if the group has no event time.

    >>> from streamgroups.event_time.strategy import Generation
    >>> from streamgroups.event_time.source_time import PartitionTime
    >>> from streamgroups.event_time.time_entries import write_entry
    >>> from streamgroups.event_time.settings import TimeSettings
    >>> from streamgroups.event_time.watermark import At
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> settings = TimeSettings(Generation(), partition_idle_timeout_ms=30)
    >>> fast = write_entry(PartitionTime(900, At(900)), settings)
    >>> silent = write_entry(PartitionTime(300, At(300), idle_since_ms=0, seen_ms=40), settings)
    >>> found = time_in_entries({p0: fast, p1: silent}, {p0: 0, p1: 0})
    >>> str(found.watermark), found.partitions[p1].state.value
    ('1970-01-01T00:00:00.900Z', 'idle')
    >>> str(time_in_entries({p0: fast, p1: silent}, {p0: 0, p1: 7}).watermark)
    '1970-01-01T00:00:00.300Z'
    """
    known = {
        tp: found for tp, metadata in entries.items() if (found := _stored_time(metadata, lag.get(tp))) is not None
    }
    if not known:
        return None
    times = {tp: known.get(tp) or StoredTime(None, NOT_YET, TimeState.HOLDS_BACK) for tp in known.keys() | lag.keys()}
    # A partition without a watermark holds back no other one, as if it were idle.
    watermark = together([(time.asserts, time.state is not TimeState.HOLDS_BACK) for time in times.values()])
    return StoredGroupTime(
        watermark,
        {
            tp: StoredTime(time.event_time_ms, time.asserts, TimeState.AHEAD)
            if time.state is TimeState.HOLDS_BACK and time.asserts != watermark
            else time
            for tp, time in sorted(times.items())
        },
    )


def imported_groups(texts: Iterable[str]) -> frozenset[str]:
    """Returns the groups whose watermarks the queries of a group import.

    Args:
        texts: the metadata entries of the group.

    >>> from streamgroups.event_time.source_time import PartitionTime
    >>> from streamgroups.event_time.time_entries import write_entry
    >>> from streamgroups.event_time.settings import TimeSettings
    >>> sorted(imported_groups([write_entry(PartitionTime(900), TimeSettings(import_from="trades")), "by hand"]))
    ['trades']
    """
    return frozenset(group_id for metadata in texts if (group_id := _imported_group(metadata)) is not None)


def _imported_group(metadata: str) -> str | None:
    try:
        return string(read_entry(metadata)["import"])
    except (KeyError, ValueError):
        return None


def _stored_time(metadata: str, lag: int | None) -> StoredTime | None:
    """Returns one partition, as if no other one were ahead of it."""
    raw = read_entry(metadata)
    time = decode_partition(raw)
    if time is None:
        return None
    if not raw.get("asserts", True):
        state = TimeState.NO_WATERMARK
    else:
        state = TimeState.IDLE if raw.get("idle") and not lag else TimeState.HOLDS_BACK
    return StoredTime(time.event_time_ms, time.watermark, state)


def time_of(state: StateOrigin) -> StateTime | None:
    """Returns the event time of a state; ``None`` if it has none.

    >>> from streamgroups.state.origins import UNNAMED
    >>> time_of(UNNAMED) is None
    True
    """
    return state.time if isinstance(state, Named) else None


def time_in_states(
    states: Mapping[TopicPartition, StateOrigin], available: Collection[TopicPartition]
) -> StoredGroupTime | None:
    """Returns the event time of each partition of a group, from the states of its positions. See the table above.

    Args:
        states: the state of the position of each partition.
        available: the partitions with records after the position, including those of open transactions.

    Returns:
        ``None`` if no state has event time. With ``time="partition"`` the group has no watermark, and only partitions
        with event time are returned.

    >>> from streamgroups.state.file_names import StateFileName
    >>> from streamgroups.state.state_time import GroupWindows
    >>> file = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> fast = Named(file, 5, time=StateTime(900, 900, group=GroupWindows(700)))
    >>> slow = Named(file, 5, time=StateTime(300, 300, group=GroupWindows(300)))
    >>> found = time_in_states({p0: fast, p1: slow}, ())
    >>> str(found.watermark), [it.state.value for it in found.partitions.values()]
    ('1970-01-01T00:00:00.900Z', ['holds back', 'idle'])
    >>> [it.state.value for it in time_in_states({p0: fast, p1: slow}, {p1}).partitions.values()]
    ['ahead', 'holds back']
    """
    times = {tp: time_of(state) for tp, state in sorted(states.items())}
    known = {tp: time for tp, time in times.items() if time is not None}
    if not known:
        return None
    if any(time.group is not None for time in known.values()):
        return _of_group(times, available)
    own = {
        tp: StoredTime(
            time.event_time_ms,
            _at(time.watermark_ms),
            TimeState.IDLE if time.is_idle and tp not in available else TimeState.ACTIVE,
        )
        for tp, time in known.items()
    }
    return StoredGroupTime(None, own)


def _of_group(
    times: Mapping[TopicPartition, StateTime | None], available: Collection[TopicPartition]
) -> StoredGroupTime:
    watermarks: dict[TopicPartition, Watermark] = {
        tp: _at(time.watermark_ms) if time is not None and time.group is not None else NOT_YET
        for tp, time in times.items()
    }
    groups = [time.group for time in times.values() if time is not None and time.group is not None]
    used = latest(*(_at(group.watermark_ms) for group in groups))
    idle = {tp for tp, own in watermarks.items() if tp not in available and latest(own, used) != own}
    minimum = earliest(*(own for tp, own in watermarks.items() if tp not in idle))

    def state(tp: TopicPartition) -> TimeState:
        own = watermarks[tp]
        if tp in idle:
            return TimeState.NO_WATERMARK if own == NOT_YET else TimeState.IDLE
        return TimeState.HOLDS_BACK if own == minimum else TimeState.AHEAD

    watermark = latest(used, together([(own, tp in idle) for tp, own in watermarks.items()]))
    partitions = {
        tp: StoredTime(None if time is None else time.event_time_ms, watermarks[tp], state(tp))
        for tp, time in times.items()
    }
    return StoredGroupTime(watermark, partitions)


def _at(time_ms: int | None) -> Watermark:
    return NOT_YET if time_ms is None else At(time_ms)
