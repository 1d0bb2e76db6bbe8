"""Records before the watermark: how each is handled, and why a record is dropped.

``streamgroups_spark.windows.step`` applies the rules to the records of a batch. Source: SEMANTICS W7, W9; StreamInsight's
``AdvanceTimePolicy`` (drop, adjust). The default is that of Atlas: open windows count records before the watermark.
"""

from __future__ import annotations

from enum import Enum


class OnViolation(Enum):
    """How a record before the watermark is handled: the option ``onViolation``."""

    #: It keeps its time, and is late only for closed windows.
    KEEP = "keep"
    #: It is dropped.
    DROP = "drop"
    #: Its start is set to the watermark if its end is later; otherwise it is dropped.
    ADJUST = "adjust"


class Why(Enum):
    """Why a record is dropped."""

    #: Every window it belongs to is closed (SEMANTICS W7).
    LATE = "late"
    #: It is before the watermark, and no part of it is after (SEMANTICS W9).
    VIOLATION = "violation"
    #: It has no event time.
    UNREADABLE = "no event time"
