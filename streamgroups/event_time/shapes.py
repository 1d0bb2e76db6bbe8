"""Windows as users write them: ``sg.tumbling("5 minutes")`` and its like, and the settings of ``sg.windows``.

Called by users on the driver and by ``streamgroups_spark.windows.api``. Source: SEMANTICS W4-W6; the rules are those of
:mod:`streamgroups.event_time.settings`, where the same settings are options.
"""

from __future__ import annotations

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.windows import Boundary, EventTime, Hopping, ProcessingTime, Session, Shape, Windowing
from streamgroups.option_values import choice

_EVENT_TIME, _PROCESSING_TIME = "eventTime", "processingTime"


def tumbling(size: str) -> Hopping:
    """Windows of one size, one after the other.

    Args:
        size: a duration, like ``"5 minutes"``, ``"30s"`` or ``"1h"``.

    Raises:
        InvalidOption: if it is no duration, or 0.

    >>> tumbling("5 minutes")
    tumbling('5m')
    """
    size_ms = parse_duration_ms(size, option="size")
    return Hopping(size_ms, size_ms)


def hopping(size: str, *, hop: str) -> Hopping:
    """Windows of one size that begin every ``hop``; a record is in each one that its time is in.

    Args:
        size: a duration.
        hop: a duration, no longer than ``size``.

    Raises:
        InvalidOption: if one is no duration, or 0, or the hop is longer than the size.

    >>> hopping("10 minutes", hop="5 minutes")
    hopping('10m', hop='5m')
    """
    return Hopping(parse_duration_ms(size, option="size"), parse_duration_ms(hop, option="hop"))


def session(gap: str) -> Session:
    """A window lasts as long as records of its key come, and ends ``gap`` after the last one.

    Args:
        gap: a duration.

    Raises:
        InvalidOption: if it is no duration, or 0.

    >>> session("30s")
    session('30s')
    """
    return Session(parse_duration_ms(gap, option="gap"))


def windowing_of(shape: Shape, boundary: str, allowed_lateness: str | None, idle_timeout: str | None) -> Windowing:
    """How records are put into windows, by the arguments of ``sg.windows``.

    Args:
        shape: what the windows are like.
        boundary: ``eventTime`` or ``processingTime``.
        allowed_lateness: a duration; ``None``: none is allowed.
        idle_timeout: a duration; ``None``: an idle source closes no windows.

    Raises:
        InvalidOption: for the first thing that is wrong, naming it; for lateness or a timeout with processing time, and for sessions
            by processing time (SEMANTICS W6).

    >>> windowing_of(tumbling("5m"), "processingTime", None, "1m")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'idle_timeout' cannot be combined with boundary=processingTime. Omit one of them.
    """
    if not isinstance(shape, Hopping | Session):
        raise InvalidOption(
            f"Option 'window' is {shape!r}.", remedy="Use sg.tumbling(...), sg.hopping(...) or sg.session(...)."
        )
    return Windowing(shape, _boundary(boundary, allowed_lateness, idle_timeout))


def policy_of(on_violation: str, windowing: Windowing, until: str | None) -> OnViolation:
    """What is done with records before the watermark, by the arguments of ``sg.windows`` (SEMANTICS W9).

    Args:
        on_violation: ``keep``, ``drop`` or ``adjust``.
        windowing: how records are put into windows.
        until: the column that says until when a record is valid; ``None``: each is for one moment.

    Raises:
        InvalidOption: if it is none of these, has no meaning with the windows, or lacks ``until``; or ``until`` has no meaning.

    >>> policy_of("adjust", Windowing(tumbling("5m")), None)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'on_violation' is 'adjust', but option 'until' is missing. \
Set 'until' to the column with the end of a record's validity, or use 'drop'.
    """
    policy = choice({"on_violation": on_violation}, "on_violation", OnViolation, OnViolation.KEEP)
    boundary = windowing.boundary
    if policy is not OnViolation.KEEP and not isinstance(boundary, EventTime):
        raise InvalidOption(
            "Option 'on_violation' cannot be combined with boundary=processingTime.", remedy="Omit one of them."
        )
    if policy is not OnViolation.KEEP and isinstance(boundary, EventTime) and boundary.idle_timeout_ms is not None:
        raise InvalidOption(
            f"Option 'on_violation' is '{policy.value}', which cannot be combined with an idle timeout: the records of a window can arrive after it is emitted as idle.",
            remedy="Omit one of them.",
        )
    if policy is OnViolation.ADJUST and until is None:
        raise InvalidOption(
            "Option 'on_violation' is 'adjust', but option 'until' is missing.",
            remedy="Set 'until' to the column with the end of a record's validity, or use 'drop'.",
        )
    if policy is not OnViolation.ADJUST and until is not None:
        raise InvalidOption("Option 'until' requires on_violation='adjust'.", remedy="Omit it.")
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
