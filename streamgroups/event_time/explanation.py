"""Explains which partitions hold back the watermark: the event time of each, and its effect on the watermark.

``streamgroups_spark.event_time.explain`` calls this module, and for windows of partitions ``streamgroups.query.group_time``
and ``streamgroups.query.operator_time``. Source: SEMANTICS W2, W3;
:func:`streamgroups.event_time.source_time.generated` has the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.event_time.imported_watermark import ImportStatus
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime, SourceTime
from streamgroups.event_time.stored_time import time_of
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earliest
from streamgroups.partitions import TopicPartition
from streamgroups.printable import printable
from streamgroups.state.origins import Named, StateOrigin
from streamgroups.tables import Column, Table, html
from streamgroups.times import utc

_COLUMNS = tuple(map(Column, ("partition", "event time", "watermark", "state")))
_NONE_YET = "none yet"


@dataclass(frozen=True, slots=True)
class PartitionExplanation:
    """The event time of one partition.

    Args:
        topic_partition: the partition.
        event_time_ms: the latest event time of its records, in milliseconds since the epoch; ``None`` before the first.
        watermark_ms: its watermark, in milliseconds since the epoch; ``None`` before the first.
        state: its effect on the watermark, in words.
        holds_back: whether the watermark of the stream is that of this partition.
    """

    topic_partition: TopicPartition
    event_time_ms: int | None
    watermark_ms: int | None
    state: str
    holds_back: bool = False


@dataclass(frozen=True, slots=True)
class StreamExplanation:
    """The event time of a stream that a member reads.

    Args:
        group_id: the consumer group.
        member: the member of the group.
        partitions: its partitions, in order; with ``time="group"`` all partitions of the group.
        watermark_ms: the watermark, in milliseconds since the epoch. ``None`` before the first, and if each partition has
            a watermark of its own.
        is_by_partition: whether each partition has a watermark of its own.
        imported: the watermark that the query imports, as a sentence; ``None`` if it imports no watermark.

    >>> print(StreamExplanation("board", "alice", (PartitionExplanation(TopicPartition("t", 0), None, 7, "ahead"),)))
    Group 'board', member 'alice': the watermark is none yet.
    partition  event time  watermark                 state
    t-0        none yet    1970-01-01T00:00:00.007Z  ahead
    """

    group_id: str
    member: str
    partitions: tuple[PartitionExplanation, ...]
    watermark_ms: int | None = None
    is_by_partition: bool = False
    imported: str | None = None

    @property
    def heading(self) -> str:
        """The group, the member and the watermark, as a sentence."""
        watermark = utc(self.watermark_ms) or _NONE_YET
        what = "each partition has a watermark of its own" if self.is_by_partition else f"the watermark is {watermark}"
        return f"Group '{self.group_id}', member '{self.member}': {what}."

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """The partitions as the rows of a table."""
        return [
            (
                str(it.topic_partition),
                utc(it.event_time_ms) or _NONE_YET,
                utc(it.watermark_ms) or _NONE_YET,
                it.state,
            )
            for it in self.partitions
        ]

    def __str__(self) -> str:
        rows = [tuple(column.name for column in _COLUMNS), *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return printable("\n".join([self.heading, *([self.imported] if self.imported else []), *table]), keep="\n")


@dataclass(frozen=True, slots=True)
class TimeExplanation:
    """The event time of a query. :func:`streamgroups.event_time.explain_time` returns it.

    ``print`` shows it as tables of text, and a notebook displays it as tables.

    Args:
        streams: the event time of each of its streams.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> slow = PartitionExplanation(p1, 300, 300, "holds back the watermark", holds_back=True)
    >>> found = TimeExplanation((StreamExplanation("board", "alice", (PartitionExplanation(p0, 900, 900, "ahead"), slow), 300),))
    >>> [str(it.topic_partition) for it in found.streams[0].partitions if it.holds_back]
    ['flights-1']
    """

    streams: tuple[StreamExplanation, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.streams))

    def _repr_html_(self) -> str:
        return "".join(
            html(Table(_COLUMNS, it.rows, it.heading if it.imported is None else f"{it.heading} {it.imported}"))
            for it in self.streams
        )


def explain(state: SourceTime, settings: TimeSettings) -> list[PartitionExplanation]:
    """Returns the effect of each partition on the watermark.

    Args:
        state: the time of the source.
        settings: the event-time settings.

    >>> from streamgroups.event_time.strategy import Generation
    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> state = SourceTime(At(300), {p0: PartitionTime(900, At(900)), p1: PartitionTime(300, At(300))})
    >>> [it.state for it in explain(state, TimeSettings(Generation()))]
    ['ahead', 'holds back the watermark']
    """
    timeout_ms = settings.partition_idle_timeout_ms
    active = [time.watermark for time in state.partitions.values() if not time.is_idle(timeout_ms)]
    least = earliest(*active)

    def holds_back(time: PartitionTime) -> bool:
        return settings.has_own_watermark and not time.is_idle(timeout_ms) and time.watermark == least

    def doing(time: PartitionTime) -> str:
        if not settings.has_own_watermark:
            return "emits no watermark: event time is imported"
        if time.is_idle(timeout_ms):
            return f"idle for {_idle_s(time)} s: does not hold back the watermark"
        effect = "holds back the watermark" if holds_back(time) else "ahead"
        if time.event_time_ms is None and time.watermark == NOT_YET:
            return f"{effect}: no event time yet"
        return effect if time.idle_since_ms is None else f"{effect}; no available records for {_idle_s(time)} s"

    return [
        PartitionExplanation(tp, time.event_time_ms, time_ms(time.watermark), doing(time), holds_back(time))
        for tp, time in sorted(state.partitions.items())
    ]


def stream_explanation(
    group_id: str, member: str, state: SourceTime, settings: TimeSettings, imported: ImportStatus | None = None
) -> StreamExplanation:
    """Explains a stream with one watermark.

    Args:
        group_id: the consumer group.
        member: the member of the group.
        state: the time of the source.
        settings: the event-time settings.
        imported: the watermark that the query imports; ``None`` if it imports no watermark.
    """
    partitions = tuple(explain(state, settings))
    sentence = None if imported is None else str(imported)
    return StreamExplanation(group_id, member, partitions, time_ms(state.watermark), imported=sentence)


def time_ms(watermark: Watermark) -> int | None:
    """Returns the time of a watermark, in milliseconds since the epoch; ``None`` before the first."""
    return watermark.time_ms if isinstance(watermark, At) else None


def _idle_s(time: PartitionTime) -> int:
    assert time.idle_since_ms is not None
    assert time.seen_ms is not None
    return max(0, time.seen_ms - time.idle_since_ms) // 1_000


def explain_partitions(group_id: str, member: str, states: Mapping[TopicPartition, StateOrigin]) -> StreamExplanation:
    """Explains windows with ``time="partition"``: the watermark of each partition, and when its idle timeout expires.

    Args:
        group_id: the consumer group.
        member: the member of the group.
        states: the states of the partitions that the member owns.

    >>> from streamgroups.state.file_names import StateFileName
    >>> from streamgroups.state.state_time import StateTime
    >>> file = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> idle = Named(file, 5, time=StateTime(360_000, 300_000, is_idle=True))
    >>> active = Named(file, 5, 420_000, StateTime(300_000, 300_000))
    >>> print(explain_partitions("board", "alice", {TopicPartition("t", 0): idle, TopicPartition("t", 1): active}))
    Group 'board', member 'alice': each partition has a watermark of its own.
    partition  event time                watermark                 state
    t-0        1970-01-01T00:05:00.000Z  1970-01-01T00:06:00.000Z  idle: the idle timeout has advanced the watermark
    t-1        1970-01-01T00:05:00.000Z  1970-01-01T00:05:00.000Z  active; the idle timeout expires at 1970-01-01T00:07:00.000Z
    """
    lines = tuple(_line_of_state(tp, state) for tp, state in sorted(states.items()))
    return StreamExplanation(group_id, member, lines, is_by_partition=True)


def _line_of_state(tp: TopicPartition, state: StateOrigin) -> PartitionExplanation:
    time = time_of(state)
    if time is None:
        return PartitionExplanation(tp, None, None, "no state yet")
    due_ms = state.due_ms if isinstance(state, Named) else None
    doing = "idle: the idle timeout has advanced the watermark" if time.is_idle else "active"
    expiry = "" if due_ms is None else f"; the idle timeout expires at {utc(due_ms)}"
    return PartitionExplanation(tp, time.event_time_ms, time.watermark_ms, doing + expiry)
