"""The event time of the state of one partition, as a commit names it.

The owner of a partition writes it beside the committed offset (``streamgroups.state.origins``). All queries of the group
read it to compute the watermark of the group (``streamgroups.query.group_time``), and people see it in ``groups watch``
and ``groups describe --state`` (:mod:`streamgroups.event_time.stored_time`). Windows by event time have it. Source:
SEMANTICS W2, W5, S10.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupWindows:
    """The part that only windows with ``time="group"`` have.

    Args:
        watermark_ms: the latest watermark of the group that a batch of the partition has used, in milliseconds since
            the epoch. ``None`` before the first one.
        next_end_ms: the earliest end of a window that is not emitted yet. ``None`` without such a window. When the
            watermark of the group reaches it, the operator must run, also without new records.
    """

    watermark_ms: int | None = None
    next_end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StateTime:
    """The event time of a state.

    Args:
        watermark_ms: the watermark of the partition by its own records and its producer, in milliseconds since the epoch;
            or the end of a window that the idle timeout has closed, if that is later. ``None`` before the first one.
        event_time_ms: the latest event time of its records. ``None`` before the first one.
        is_idle: whether the watermark is that of the idle timeout, which is later than that of the records.
        group: with ``time="group"`` the part of the group. ``None``: the partition has a watermark of its own.
    """

    watermark_ms: int | None = None
    event_time_ms: int | None = None
    is_idle: bool = False
    group: GroupWindows | None = None
