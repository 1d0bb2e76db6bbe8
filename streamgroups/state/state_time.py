"""The event time of the state of one partition, as a commit names it.

The owner of a partition writes it beside the committed offset (``streamgroups.state.origins``). All queries of the group
read it to compute the watermark of the group (``streamgroups.query.group_time``). Only operators with ``time="group"``
have it. Source: SEMANTICS W2, S10.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateTime:
    """The event time of a state.

    Args:
        watermark_ms: the watermark of the partition by its own records, in milliseconds since the epoch. ``None`` before
            its first record.
        next_end_ms: the earliest end of a window that is not emitted yet. ``None`` without such a window. When the
            watermark of the group reaches it, the operator must run, also without new records.
    """

    watermark_ms: int | None = None
    next_end_ms: int | None = None
