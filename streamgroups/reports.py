"""Reports and metrics of running queries.

Users import the names as ``sg.reports``. Source: SEMANTICS W2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups_admin.reports.ownership_timeline import OwnershipTimeline as OwnershipTimeline
    from streamgroups_admin.reports.ownership_timeline import ownership_timeline as ownership_timeline
    from streamgroups_spark.event_time.recorder import TimeRecorder as TimeRecorder
    from streamgroups_spark.event_time.recorder import record_time as record_time
    from streamgroups_spark.ops.metrics_listener import MetricsListener as MetricsListener

_PLACES = places(
    {
        "streamgroups_spark.ops.metrics_listener": "MetricsListener",
        "streamgroups_admin.reports.ownership_timeline": "OwnershipTimeline ownership_timeline",
        "streamgroups_spark.event_time.recorder": "TimeRecorder record_time",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
