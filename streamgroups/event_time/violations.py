"""Records before the watermark: how each is handled, and why a record is dropped.

``streamgroups_operators.windows.window_time`` applies the rules to the records of ``sg.windows``. ``streamgroups_spark.event_time.split_late`` applies them to the rows of Spark's own operators. Source:
SEMANTICS W7, W9; StreamInsight's ``AdvanceTimePolicy`` (drop, adjust). The default is that of Atlas: open windows count
records before the watermark.
"""

from __future__ import annotations

from enum import Enum

from streamgroups.errors import InvalidOption
from streamgroups.option_values import choice


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
    #: It ends an event that has not started, or that has ended already (SEMANTICS W19).
    NO_START = "no start"


def parse_policy(on_violation: str) -> OnViolation:
    """Returns the policy that the argument ``on_violation`` names.

    Raises:
        InvalidOption: if it names none.

    >>> parse_policy("drop")
    <OnViolation.DROP: 'drop'>
    """
    return choice({"on_violation": on_violation}, "on_violation", OnViolation, OnViolation.KEEP)


def check_until(policy: OnViolation, until: str | None, *, otherwise: str = "") -> None:
    """Checks that ``until`` is given exactly with the policy ``adjust``.

    Args:
        policy: how records before the watermark are handled.
        until: the column with the end of a record's validity; ``None``: each record is valid for one moment.
        otherwise: another argument that gives ``until`` an effect.

    Raises:
        InvalidOption: if ``until`` is missing or has no effect.

    >>> check_until(OnViolation.ADJUST, None)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'on_violation' is 'adjust', but option 'until' is missing. \
Set 'until' to the column with the end of a record's validity, or use 'drop'.
    """
    if policy is OnViolation.ADJUST and until is None:
        raise InvalidOption(
            "Option 'on_violation' is 'adjust', but option 'until' is missing.",
            remedy="Set 'until' to the column with the end of a record's validity, or use 'drop'.",
        )
    if policy is not OnViolation.ADJUST and until is not None:
        raise InvalidOption(
            f"Option 'until' requires on_violation='adjust'{otherwise and ', or ' + otherwise}.",
            remedy="Omit it, or set one of them." if otherwise else "Omit it.",
        )
