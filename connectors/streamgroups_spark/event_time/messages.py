"""What the processes of a session ask each other about event time (``rpc``).

Before its first batch, a source learns the rules of its time with the facts about its query (``query_facts``). After each batch it requests from the user's
own process what the tasks have seen (:class:`ObservationsRequest`); ``register`` answers. The time source requests from the query's other source how far time
has come (:class:`TimeRequest`); ``running_query`` answers. Source: SEMANTICS W2, W3, W10.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime
from streamgroups.event_time.watermark import Watermark
from streamgroups.partitions import OffsetRange


@dataclass(frozen=True, slots=True)
class StreamTime:
    """How the time of a stream is made.

    Args:
        group_id: the group that reads it: its name.
        settings: the rules.
        reported_as: under which name tasks tell what they see.
        read_column: the column of the source that is the event time, so that its tasks tell it as they read; ``None``: it is computed behind them.
    """

    group_id: str
    settings: TimeSettings
    reported_as: str
    read_column: str | None


@dataclass(frozen=True, slots=True)
class ObservationsRequest:
    """What have tasks seen of these ranges? They are done with; it is asked once. The answer is a list of ``TaskObservation``.

    Args:
        reported_as: under which name tasks tell it.
        ranges: what they have read.
    """

    reported_as: str
    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """How far has the time of this group's stream come? The answer is a :class:`TimeReply`.

    Args:
        group_id: the group that the source reads for.
        asserted: what this query has asserted already.
        settings: how the query expects time to be made; ``None`` if it does not care.
    """

    group_id: str
    asserted: Watermark
    settings: TimeSettings | None = None


@dataclass(frozen=True, slots=True)
class TimeReply:
    """How far the time of a stream has come.

    Args:
        member: who reads it.
        state: the watermark, and the time of each partition.
        settings: how time is made.
        now_ms: when it was said, in milliseconds since the epoch.
    """

    member: str
    state: SourceTime
    settings: TimeSettings
    now_ms: int
