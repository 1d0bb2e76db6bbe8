"""The window definitions of the public API: ``sg.shapes.tumbling("5 minutes")`` and others, and settings of ``sg.windows``.

Users call these functions on the driver, and so does ``streamgroups_spark.windows.windows``. Source: SEMANTICS W4-W6, W9.
"""

from __future__ import annotations

from enum import Enum

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation, check_until, parse_policy
from streamgroups.event_time.windows import Boundary, EventTime, Hopping, ProcessingTime, Session, Shape, Windowing
from streamgroups.option_values import choice

_EVENT_TIME, _PROCESSING_TIME = "eventTime", "processingTime"


def tumbling(size: str) -> Hopping:
    """Windows of one size that do not overlap and leave no gaps.

    Args:
        size: a duration, like ``"5 minutes"``, ``"30s"`` or ``"1h"``.

    Raises:
        InvalidOption: if the size is not a duration, or is 0.

    >>> tumbling("5 minutes")
    tumbling('5m')
    """
    size_ms = parse_duration_ms(size, option="size")
    return Hopping(size_ms, size_ms)


def hopping(size: str, *, hop: str) -> Hopping:
    """Windows of one size that start every ``hop``. A record belongs to each window that contains its time.

    Args:
        size: a duration.
        hop: a duration, no longer than ``size``.

    Raises:
        InvalidOption: if a value is not a duration, or is 0, or the hop is longer than the size.

    >>> hopping("10 minutes", hop="5 minutes")
    hopping('10m', hop='5m')
    """
    return Hopping(parse_duration_ms(size, option="size"), parse_duration_ms(hop, option="hop"))


def session(gap: str) -> Session:
    """A window that lasts while records of its key arrive, and ends ``gap`` after the last one.

    Args:
        gap: a duration.

    Raises:
        InvalidOption: if the gap is not a duration, or is 0.

    >>> session("30s")
    session('30s')
    """
    return Session(parse_duration_ms(gap, option="gap"))


def windowing_of(shape: Shape, boundary: str, allowed_lateness: str | None, idle_timeout: str | None) -> Windowing:
    """Returns how records are assigned to windows, from the arguments of ``sg.windows``.

    Args:
        shape: the shape of the windows.
        boundary: ``eventTime`` or ``processingTime``.
        allowed_lateness: a duration; ``None``: no lateness is allowed.
        idle_timeout: a duration; ``None``: an idle source closes no windows.

    Raises:
        InvalidOption: for the first invalid argument, with its name; for lateness or a timeout with processing time;
            and for sessions by processing time (SEMANTICS W6).

    >>> windowing_of(tumbling("5m"), "processingTime", None, "1m")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'idle_timeout' cannot be combined with boundary=processingTime. Omit one of them.
    """
    check_shape(shape)
    return Windowing(shape, _boundary(boundary, allowed_lateness, idle_timeout))


def check_shape(shape: Shape) -> None:
    """Checks that an argument is a shape of windows.

    Raises:
        InvalidOption: if it is something else.

    >>> check_shape("5 minutes")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'window' is '5 minutes'. Use sg.shapes.tumbling(...), sg.shapes.hopping(...) or sg.shapes.session(...).
    """
    if not isinstance(shape, Hopping | Session):
        raise InvalidOption(
            f"Option 'window' is {shape!r}.",
            remedy="Use sg.shapes.tumbling(...), sg.shapes.hopping(...) or sg.shapes.session(...).",
        )


def policy_of(on_violation: str, windowing: Windowing, until: str | None, *, is_point: bool = True) -> OnViolation:
    """Returns how records before the watermark are handled, from the arguments of ``sg.windows`` (SEMANTICS W9).

    Args:
        on_violation: ``keep``, ``drop`` or ``adjust``.
        windowing: how records are assigned to windows.
        until: the column with the end of a record's validity; ``None``: each record is valid for one moment.
        is_point: whether the events are points.

    Raises:
        InvalidOption: if the value is not allowed, does not apply to the windows, or requires ``until``; or if
            ``until`` does not apply.

    >>> policy_of("adjust", Windowing(tumbling("5m")), None)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'on_violation' is 'adjust', but option 'until' is missing. \
Set 'until' to the column with the end of a record's validity, or use 'drop'.
    """
    policy = parse_policy(on_violation)
    boundary = windowing.boundary
    if policy is not OnViolation.KEEP and not isinstance(boundary, EventTime):
        raise InvalidOption(
            "Option 'on_violation' cannot be combined with boundary=processingTime.", remedy="Omit one of them."
        )
    if policy is not OnViolation.KEEP and isinstance(boundary, EventTime) and boundary.idle_timeout_ms is not None:
        raise InvalidOption(
            f"Option 'on_violation' is '{policy.value}', which cannot be combined with an idle timeout: the records of a window can arrive after it is emitted as idle.",
            remedy="Omit one of them, or pass on_violation='keep' if the source has the option 'onViolation'.",
        )
    # An interval or an edge needs its end with every policy.
    end = until if is_point or policy is OnViolation.ADJUST else None
    check_until(policy, end, otherwise="event_shape='interval' or 'edge'")
    return policy


def _boundary(boundary: str, allowed_lateness: str | None, idle_timeout: str | None) -> Boundary:
    if boundary.lower() == _PROCESSING_TIME.lower():
        for name, value in (("allowed_lateness", allowed_lateness), ("idle_timeout", idle_timeout)):
            if value is not None:
                raise InvalidOption(
                    f"Option '{name}' cannot be combined with boundary=processingTime.", remedy="Omit one of them."
                )
        return ProcessingTime()
    if boundary.lower() != _EVENT_TIME.lower():
        raise InvalidOption(
            f"Option 'boundary' is '{boundary}'.", remedy=f"Allowed values: {_EVENT_TIME}, {_PROCESSING_TIME}."
        )
    lateness_ms = 0 if allowed_lateness is None else parse_duration_ms(allowed_lateness, option="allowed_lateness")
    timeout_ms = None if idle_timeout is None else parse_duration_ms(idle_timeout, option="idle_timeout")
    return EventTime(lateness_ms, timeout_ms)


class Scope(Enum):
    """Which records have common windows and a common watermark: the argument ``time`` of ``sg.windows``."""

    #: Each partition has windows and a watermark of its own.
    PARTITION = "partition"
    #: Each partition has windows of its own. The watermark is the minimum over the partitions of the group.
    GROUP = "group"
    #: All partitions have the windows and the watermark of the query.
    QUERY = "query"


def scope_of(
    time: str | None, boundary: Boundary, *, is_shared: bool, is_bounded: bool = False, flush: bool = False
) -> Scope:
    """Returns the scope of windows.

    Args:
        time: the argument; ``None`` for the default.
        boundary: how records are assigned to windows.
        is_shared: whether several queries share the stream.
        is_bounded: whether the DataFrame is bounded data, and no stream.
        flush: the argument: whether a bounded run emits open windows at its end.

    Raises:
        InvalidOption: if the argument is not valid, or the data or the boundary do not support it.

    >>> scope_of(None, EventTime(), is_shared=True), scope_of(None, EventTime(), is_shared=False)
    (<Scope.PARTITION: 'partition'>, <Scope.QUERY: 'query'>)
    >>> scope_of("group", ProcessingTime(), is_shared=True)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'time' of sg.windows is 'group', but windows by processing time have no \
watermark. Set time='partition', or use boundary='eventTime'.
    """
    default = Scope.PARTITION if is_shared or is_bounded else Scope.QUERY
    scope = default if time is None else choice({"time": time}, "time", Scope, default)
    if is_bounded:
        _check_bounded(scope, boundary)
    if is_shared and scope is Scope.QUERY:
        raise InvalidOption(
            "Option 'time' of sg.windows is 'query', but queries share the stream.",
            remedy="Set time='partition' or time='group'. Or set membership=exclusive on the source.",
        )
    if flush and scope is Scope.QUERY:
        raise InvalidOption(
            "Option 'flush' of sg.windows is set, but the windows are those of the query (time='query'), which Spark "
            "closes by its watermark only.",
            remedy="Set time='partition' or time='group', or leave 'flush' out.",
        )
    if scope is Scope.GROUP and not isinstance(boundary, EventTime):
        raise InvalidOption(
            "Option 'time' of sg.windows is 'group', but windows by processing time have no watermark.",
            remedy="Set time='partition', or use boundary='eventTime'.",
        )
    return scope


def _check_bounded(scope: Scope, boundary: Boundary) -> None:
    if scope is Scope.QUERY:
        raise InvalidOption(
            "Option 'time' of sg.windows is 'query', but the DataFrame is bounded data.",
            remedy="Set time='partition' or time='group'. Or use Spark's groupBy and window: without a stream, no record "
            "is late for them.",
        )
    if not isinstance(boundary, EventTime):
        raise InvalidOption(
            "Option 'boundary' of sg.windows is 'processingTime', but the DataFrame is bounded data: all records would "
            "have the time of the read.",
            remedy="Use boundary='eventTime'. The column 'timestamp' can be the time when the broker received a record.",
        )
