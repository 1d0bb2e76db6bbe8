"""The watermark of the results of windows: no later result starts before it.

Used by ``streamgroups_operators.windows``. An operator behind windows receives it with their results. Hopping windows move a
time to the start of the earliest open one, and sessions to the start of the earliest open session, or of one that a record
can still open. Source: SEMANTICS W13.
"""

from __future__ import annotations

from streamgroups.event_time.windows import Session, Shape


def released_ms(shape: Shape, closed_until_ms: int, earliest_start_ms: int | None = None) -> int:
    """Returns the start of the earliest window that can still have a result, in milliseconds since the epoch.

    Args:
        shape: the shape of the windows.
        closed_until_ms: windows that end at or before this time have no later result.
        earliest_start_ms: the earliest start of an open session; ``None`` without one. Windows have a grid instead.

    >>> from streamgroups.event_time.windows import Hopping, Session
    >>> released_ms(Hopping(10, 10), 19), released_ms(Hopping(10, 10), 20), released_ms(Hopping(10, 5), 12)
    (10, 20, 5)
    >>> released_ms(Session(5), 20), released_ms(Session(5), 20, 7)
    (16, 7)
    """
    if isinstance(shape, Session):
        # A record whose session ends later than this is not late.
        opens_ms = closed_until_ms - shape.gap_ms + 1
        return opens_ms if earliest_start_ms is None else min(opens_ms, earliest_start_ms)
    return (closed_until_ms - shape.size_ms) // shape.hop_ms * shape.hop_ms + shape.hop_ms
