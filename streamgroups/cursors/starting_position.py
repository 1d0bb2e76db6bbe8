"""Converts the starting position of a cursor from the user's arguments to a position.

``streamgroups_kafka.cursors.group_cursors`` calls this module. Source: SEMANTICS G1, G8, G16.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from streamgroups.errors import InvalidOption
from streamgroups.positions import AfterOffset, AtOffset, AtTime, Latest, Position, TrimHorizon, parse_time_ms


class CursorType(Enum):
    """The starting position of a cursor."""

    #: The earliest available message.
    TRIM_HORIZON = "TRIM_HORIZON"
    #: The first message whose timestamp is at or after a time.
    AT_TIME = "AT_TIME"
    #: Only messages published after the cursor was created.
    LATEST = "LATEST"
    #: Exactly this offset (of one partition only).
    AT_OFFSET = "AT_OFFSET"
    #: The offset after this one (of one partition only).
    AFTER_OFFSET = "AFTER_OFFSET"


#: A time as users write it: a datetime, ISO 8601, or milliseconds since the epoch. Without a time zone it is UTC.
Time = datetime | str | int

_NEEDS = {CursorType.AT_TIME: "time", CursorType.AT_OFFSET: "offset", CursorType.AFTER_OFFSET: "offset"}
#: The last number of Kafka's int64.
_MAX_NUMBER = 2**63 - 1
_OF_GROUPS = (CursorType.TRIM_HORIZON, CursorType.AT_TIME, CursorType.LATEST)


def position_of(
    type_: CursorType | Position | str, *, time: Time | None = None, offset: int | None = None, of_group: bool
) -> Position:
    """Returns the position of the user's arguments.

    Args:
        type_: a cursor type or its name; or a position, which takes no ``time`` or ``offset``.
        time: for ``AT_TIME`` only.
        offset: for ``AT_OFFSET`` and ``AFTER_OFFSET`` only.
        of_group: whether it applies to all partitions of a stream, where an offset has no meaning.

    Raises:
        InvalidOption: if the type is unknown, or an argument of it is missing, not allowed or malformed.

    >>> position_of("AT_TIME", time="2013-01-01T05:00:00Z", of_group=True)
    AtTime(timestamp_ms=1357016400000)
    >>> position_of(CursorType.AFTER_OFFSET, offset=41, of_group=False)
    AfterOffset(last_offset=41)
    """
    given = {name for name, value in (("time", time), ("offset", offset)) if value is not None}
    if isinstance(type_, TrimHorizon | Latest | AtTime | AtOffset | AfterOffset):
        _check_given(type(type_).__name__, given, None)
        if of_group and isinstance(type_, AtOffset | AfterOffset):
            raise _no_offset(type(type_).__name__)
        return _checked(type_)
    cursor_type = _type_of(type_)
    if of_group and cursor_type not in _OF_GROUPS:
        raise _no_offset(cursor_type.value)
    _check_given(cursor_type.value, given, _NEEDS.get(cursor_type))
    if time is not None:
        return _checked(AtTime(_time_ms(time)))
    if offset is not None:
        return _checked(AtOffset(offset) if cursor_type is CursorType.AT_OFFSET else AfterOffset(offset))
    return TrimHorizon() if cursor_type is CursorType.TRIM_HORIZON else Latest()


def _checked(position: Position) -> Position:
    """Rejects an offset or a time that Kafka's protocol does not have, and one of another type."""
    match position:
        case AtOffset(next_offset=number):
            what, least = "offset", 0
        case AfterOffset(last_offset=number):
            what, least = "offset", -1
        case AtTime(timestamp_ms=number):
            what, least = "time", 0
        case _:
            return position
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= _MAX_NUMBER:
        raise InvalidOption(
            f"The {what} of the cursor is {number!r}, which is not a number from {least} to {_MAX_NUMBER}.",
            remedy="Set an offset of the partition." if what == "offset" else "Set milliseconds since the epoch.",
        )
    return position


def _type_of(type_: CursorType | str) -> CursorType:
    try:
        return CursorType(type_.strip().upper() if isinstance(type_, str) else type_)
    except ValueError:
        raise InvalidOption(
            f"The cursor type {type_!r} is unknown.",
            remedy=f"Allowed values: {', '.join(t.value for t in CursorType)}.",
        ) from None


def _check_given(name: str, given: set[str], needed: str | None) -> None:
    if needed is not None and needed not in given:
        raise InvalidOption(f"The cursor type {name} requires '{needed}'.", remedy=f"Set {needed}=...")
    superfluous = sorted(given - {needed})
    if superfluous:
        raise InvalidOption(
            f"The cursor type {name} does not accept '{superfluous[0]}'.",
            remedy="Omit it, or use the cursor type that accepts it.",
        )


def _no_offset(name: str) -> InvalidOption:
    return InvalidOption(
        f"The cursor type {name} requires a partition, because a stream has offsets for each partition.",
        remedy="Use TRIM_HORIZON, AT_TIME or LATEST for groups, or create_cursor for one partition.",
    )


def _time_ms(time: Time) -> int:
    if isinstance(time, datetime):
        return parse_time_ms(time.isoformat(), option="time")
    if isinstance(time, int) and (isinstance(time, bool) or time < 0):
        raise InvalidOption(
            f"Option 'time' is {time!r}, which is not a time.", remedy="Use milliseconds since the epoch, 0 or greater."
        )
    return parse_time_ms(str(time), option="time")
