"""Decisions about event time: the watermark, the partitions that hold it back, windows and late records.

Users import the names below as ``sg.event_time``. Source: SEMANTICS W1 to W19.

====================  ==================================================================================================
class                 event time of
====================  ==================================================================================================
``PartitionTime``     a partition that a member owns, with its idleness (``source_time``)
``SourceTime``        all partitions of a member, with their watermark (``source_time``)
``StateTime``         the state that a commit names (``streamgroups/state/state_time``)
``StoredTime``        a partition of any group, from its metadata entry or its state (``stored_time``)
``StoredGroupTime``   all partitions of any group, likewise (``stored_time``)
``GroupTime``         a group, by which a query plans an operator with state (``streamgroups/query/group_time``)
``ImportedTime``      another group, whose watermark a query imports (``streamgroups/query/imported_time``)
====================  ==================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.event_time.explanation import TimeExplanation as TimeExplanation
    from streamgroups.event_time.producer_watermarks import watermark_header as watermark_header
    from streamgroups_kafka.write.watermark_markers import emit_watermark as emit_watermark
    from streamgroups_operators.operator import BatchTime as BatchTime
    from streamgroups_spark.event_time.explain import explain_time as explain_time
    from streamgroups_spark.event_time.split_late import split_late as split_late
    from streamgroups_spark.windows.windows import dead_letters as dead_letters

_PLACES = places(
    {
        "streamgroups_operators.operator": "BatchTime",
        "streamgroups.event_time.explanation": "TimeExplanation",
        "streamgroups_kafka.write.watermark_markers": "emit_watermark",
        "streamgroups_spark.event_time.explain": "explain_time",
        "streamgroups_spark.event_time.split_late": "split_late",
        "streamgroups_spark.windows.windows": "dead_letters",
        "streamgroups.event_time.producer_watermarks": "watermark_header",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
