"""The shapes of events: how long the record of an event is valid. The argument ``event_shape`` of ``sg.windows``.

``streamgroups_spark.windows.windows`` calls this module on the driver, and ``streamgroups_operators.windows.lifetimes`` counts the
events. Source: SEMANTICS W19; StreamInsight's ``EventShape`` (point, interval, edge).
"""

from __future__ import annotations

from enum import Enum

from streamgroups.errors import InvalidOption
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import ProcessingTime, Session, Windowing
from streamgroups.option_values import choice


class EventShape(Enum):
    """How long an event is valid."""

    #: For one moment. Each record is an event.
    POINT = "point"
    #: From its start until its end. Each record is an event, and contains both times.
    INTERVAL = "interval"
    #: From its start until its end. One record starts the event, and another one ends it.
    EDGE = "edge"


def event_shape_of(event_shape: str, windowing: Windowing, until: str | None) -> EventShape:
    """Returns the shape of the events, from the arguments of ``sg.windows``.

    Args:
        event_shape: ``point``, ``interval`` or ``edge``.
        windowing: how records are assigned to windows.
        until: the column with the end of an event.

    Raises:
        InvalidOption: if the value is not allowed, does not apply to the windows, or requires ``until``.

    >>> from streamgroups.event_time.window_shapes import tumbling
    >>> event_shape_of("edge", Windowing(tumbling("5m")), "landed")
    <EventShape.EDGE: 'edge'>
    >>> event_shape_of("interval", Windowing(tumbling("5m")), None)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'event_shape' is 'interval', but option 'until' is missing. \
Set 'until' to the column with the end of an event.
    """
    shape = choice({"event_shape": event_shape}, "event_shape", EventShape, EventShape.POINT)
    if shape is EventShape.POINT:
        return shape
    if isinstance(windowing.shape, Session):
        raise InvalidOption(
            f"Option 'event_shape' is '{shape.value}', which cannot be combined with session windows.",
            remedy="Use sg.shapes.tumbling(...) or sg.shapes.hopping(...).",
        )
    if isinstance(windowing.boundary, ProcessingTime):
        raise InvalidOption(
            f"Option 'event_shape' is '{shape.value}', which cannot be combined with boundary=processingTime.",
            remedy="Omit one of them.",
        )
    if until is None:
        raise InvalidOption(
            f"Option 'event_shape' is '{shape.value}', but option 'until' is missing.",
            remedy="Set 'until' to the column with the end of an event.",
        )
    return shape


def check_events(event_shape: EventShape, scope: Scope, *, is_bounded: bool = False, flush: bool = False) -> None:
    """Checks that the windows support the shape of the events.

    Args:
        event_shape: the shape.
        scope: which records have common windows.
        is_bounded: whether the DataFrame is bounded data, and no stream.
        flush: whether a bounded run emits open windows at its end.

    Raises:
        InvalidOption: for intervals and edges in windows of the query, and where a flush emits open windows: an edge
            without an end is in an unlimited number of them.

    >>> check_events(EventShape.EDGE, Scope.QUERY)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'event_shape' is 'edge', which windows of the query do not support. \
Set time='partition' or time='group'.
    """
    if event_shape is EventShape.POINT:
        return
    if is_bounded:
        raise InvalidOption(
            f"Option 'event_shape' is '{event_shape.value}', which cannot be combined with bounded data.",
            remedy="Read a stream, with trigger(availableNow=True).",
        )
    if flush:
        raise InvalidOption(
            f"Option 'event_shape' is '{event_shape.value}', which cannot be combined with 'flush'.",
            remedy="Omit 'flush'. A record with a later event time closes the windows.",
        )
    if scope is Scope.QUERY:
        raise InvalidOption(
            f"Option 'event_shape' is '{event_shape.value}', which windows of the query do not support.",
            remedy="Set time='partition' or time='group'.",
        )
