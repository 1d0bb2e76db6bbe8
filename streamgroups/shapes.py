"""Windows and aggregates for ``sg.windows``.

Users import the names as ``sg.shapes``. Source: SEMANTICS W4 to W7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups.event_time.aggregates import PythonAggregate as PythonAggregate
    from streamgroups.event_time.aggregates import python_aggregate as python_aggregate
    from streamgroups.event_time.window_shapes import hopping as hopping
    from streamgroups.event_time.window_shapes import session as session
    from streamgroups.event_time.window_shapes import tumbling as tumbling
    from streamgroups_spark.windows.windows import window_results as window_results

_PLACES = places(
    {
        "streamgroups.event_time.aggregates": "PythonAggregate python_aggregate",
        "streamgroups.event_time.window_shapes": "hopping session tumbling",
        "streamgroups_spark.windows.windows": "window_results",
    }
)

__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
