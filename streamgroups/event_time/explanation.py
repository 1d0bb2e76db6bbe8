"""Explains which partitions hold back the watermark: the event time of each, and its effect on the watermark.

``streamgroups_spark.event_time.explain`` calls this module, and for windows with ``time="group"``
``streamgroups.query.group_time``. Source: SEMANTICS W2, W3;
:func:`streamgroups.event_time.source_time.generated` has the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamgroups.event_time.imported_watermark import ImportStatus
from streamgroups.event_time.partition_time import PartitionTime
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime
from streamgroups.event_time.watermark import NOT_YET, oldest
from streamgroups.partitions import TopicPartition
from streamgroups.times import utc


@dataclass(frozen=True, slots=True)
class Explained:
    """One partition.

    Args:
        topic_partition: the partition.
        event_time: the latest event time of its records.
        asserts: its watermark.
        doing: its effect on the watermark of the source.
    """

    topic_partition: TopicPartition
    event_time: str
    asserts: str
    doing: str


def explain(state: SourceTime, settings: TimeSettings) -> list[Explained]:
    """Returns the effect of each partition on the watermark.

    Args:
        state: the time of the source.
        settings: the event-time settings.

    >>> from streamgroups.event_time.strategy import Generation
    >>> from streamgroups.event_time.watermark import At
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> state = SourceTime(At(300), {p0: PartitionTime(900, At(900)), p1: PartitionTime(300, At(300))})
    >>> [it.doing for it in explain(state, TimeSettings(Generation()))]
    ['ahead', 'holds back the watermark']
    """
    timeout_ms = settings.partition_idle_timeout_ms
    active = [time.watermark for time in state.partitions.values() if not time.is_idle(timeout_ms)]
    least = oldest(*active)

    def doing(time: PartitionTime) -> str:
        if not settings.has_own_watermark:
            return "emits no watermark: event time is imported"
        if time.is_idle(timeout_ms):
            return f"idle for {_quiet_s(time)} s: does not hold back the watermark"
        said = "ahead" if time.watermark != least else "holds back the watermark"
        if time.event_time_ms is None and time.watermark == NOT_YET:
            return f"{said}: no event time yet"
        return said if time.idle_since_ms is None else f"{said}; no available records for {_quiet_s(time)} s"

    return [
        Explained(tp, utc(time.event_time_ms) or "none yet", str(time.watermark), doing(time))
        for tp, time in sorted(state.partitions.items())
    ]


def as_text(
    group_id: str, member: str, state: SourceTime, lines: Sequence[Explained], imported: ImportStatus | None = None
) -> str:
    """Returns the explanation as a table.

    Args:
        group_id: the consumer group.
        member: the member of the group.
        state: the time of the source.
        lines: the explanation of each partition.
        imported: the watermark that the query imports; ``None`` if it imports no watermark.

    >>> print(as_text("board", "alice", SourceTime(), [Explained(TopicPartition("t", 0), "none yet", "none yet", "ahead")]))
    Group 'board', member 'alice': the watermark is none yet.
    partition  event time  watermark  state
    t-0        none yet    none yet   ahead
    """
    heading = f"Group '{group_id}', member '{member}': the watermark is {state.watermark}."
    return as_table(heading if imported is None else f"{heading}\n{imported}", lines)


def as_table(heading: str, lines: Sequence[Explained]) -> str:
    """Returns an explanation as a table below a heading.

    >>> print(as_table("Two partitions.", []))
    Two partitions.
    partition  event time  watermark  state
    """
    rows = [("partition", "event time", "watermark", "state")]
    rows += [(str(it.topic_partition), it.event_time, it.asserts, it.doing) for it in lines]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([heading, *table])


def _quiet_s(time: PartitionTime) -> int:
    assert time.idle_since_ms is not None
    assert time.seen_ms is not None
    return max(0, time.seen_ms - time.idle_since_ms) // 1_000
