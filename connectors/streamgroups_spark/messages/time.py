"""The messages about event time between the processes of a session (``bridge.rpc``).

Before its first batch a source receives its event-time settings with the facts about its query
(``messages.query``). After each batch it requests the observed event times of the tasks from the user's process
(:class:`ObservationsRequest`), and ``register`` answers. The punctuation source requests the watermark from the other
source of the query (:class:`TimeRequest`), and ``source.running_query`` answers. Source: SEMANTICS W2, W3, W10.
``event_time.explain`` requests the event time of windows of partitions (:class:`ExplanationRequest`).

Groups of the same name exist in several clusters, and one application can read them all. So a request about a group also
contains the id of its cluster. A punctuation source has no connection to its cluster, and requests the id from the other
source of its stream (:class:`ClusterRequest`).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.event_time.imported_watermark import ImportStatus
from streamgroups.event_time.observations import TaskObservation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime
from streamgroups.event_time.watermark import Watermark
from streamgroups.partitions import OffsetRange


@dataclass(frozen=True, slots=True)
class StreamTime:
    """The event-time settings of a stream.

    Args:
        group_id: the group that reads it, which is also its name.
        settings: the watermark strategy and timeouts.
        reported_as: the name under which tasks report event times.
        read_column: the column of the source that contains the event time, so that its tasks report it. ``None``: it is
            computed after the read.
    """

    group_id: str
    settings: TimeSettings
    reported_as: str
    read_column: str | None


@dataclass(frozen=True, slots=True)
class ObservationsRequest:
    """Requests the observed event times of these ranges, after their batch. It is repeated until a reply arrives.

    The reply is :class:`Observations`. A repeated request has the same reply. A run requests its batches in their order.

    Args:
        reported_as: the name under which tasks report event times.
        ranges: the ranges that the tasks have read.
        run_id: the id of the run of the source.
        batch: the number of the batch.
    """

    reported_as: str
    ranges: tuple[OffsetRange, ...]
    run_id: str
    batch: int


@dataclass(frozen=True, slots=True)
class Observations:
    """The observed event times of the ranges of a request.

    Args:
        seen: the observations of the tasks.
    """

    seen: tuple[TaskObservation, ...]


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """Requests the id of the cluster of a stream. The reply is a string, empty if the brokers have no id.

    Args:
        reported_as: the name under which the tasks of the stream report event times.
    """

    reported_as: str


@dataclass(frozen=True, slots=True)
class TimeRequest:
    """Requests the watermark of a group's stream. The reply is a :class:`TimeReply`.

    Args:
        group_id: the group of the source.
        asserted: the watermark that this query has already emitted.
        settings: the settings that the query expects. ``None``: any.
        cluster_id: the id of the cluster of the group. ``None``: any.
    """

    group_id: str
    asserted: Watermark
    settings: TimeSettings | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class TimeReply:
    """The watermark of a stream.

    Args:
        member: the member that reads it.
        state: the watermark, and the time of each partition.
        settings: the event-time settings.
        now_ms: the time of the reply, in milliseconds since the epoch.
        imported: the watermark that it imports by its group; ``None`` if it imports no watermark.
    """

    member: str
    state: SourceTime
    settings: TimeSettings
    now_ms: int
    imported: ImportStatus | None = None


@dataclass(frozen=True, slots=True)
class ExplanationRequest:
    """Requests the event time of windows of partitions. The reply is a
    :class:`~streamgroups.event_time.explanation.StreamExplanation`.

    Args:
        group_id: the group of the source.
        cluster_id: the id of the cluster of the group. ``None``: any.
    """

    group_id: str
    cluster_id: str | None = None
