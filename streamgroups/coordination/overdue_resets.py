"""Determines which reset requests are overdue, and when a warning is logged.

Called by ``streamgroups.coordination.reset_participant`` with every poll of a member's reset requests. Source:
SEMANTICS G8, S6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

#: A member pauses within one batch. If a request takes longer, an operator must act.
OVERDUE_MS = 10_000
_WARN_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class Unapplied:
    """The reset requests that a member cannot apply yet.

    Args:
        since_ms: when each request was first polled.
        next_warning_ms: when the next warning of each request is due.
    """

    since_ms: Mapping[str, int] = field(default_factory=dict)
    next_warning_ms: Mapping[str, int] = field(default_factory=dict)

    def after(self, requests: Collection[str], now_ms: int) -> tuple[Unapplied, tuple[str, ...]]:
        """The state after one more poll.

        Args:
            requests: the ids of the requests that cannot be applied now. All others are forgotten.
            now_ms: the time of a monotonic clock.

        Returns:
            The new state, and the ids for which a warning is due: 10 s after the first poll, then every minute.

        >>> first, due = Unapplied().after(["5f2c"], 0)
        >>> second, due_later = first.after(["5f2c"], 10_000)
        >>> due, due_later, second.after(["5f2c"], 20_000)[1], second.after(["5f2c"], 70_000)[1]
        ((), ('5f2c',), (), ('5f2c',))
        """
        since_ms = {number: self.since_ms.get(number, now_ms) for number in requests}
        next_ms = {n: self.next_warning_ms.get(n, first_ms + OVERDUE_MS) for n, first_ms in since_ms.items()}
        due = tuple(sorted(n for n, at_ms in next_ms.items() if now_ms >= at_ms))
        return Unapplied(since_ms, next_ms | dict.fromkeys(due, now_ms + _WARN_EVERY_MS)), due

    def is_overdue(self, now_ms: int) -> bool:
        """Whether a request has waited for 10 s or longer.

        >>> Unapplied({"5f2c": 0}).is_overdue(10_000), Unapplied().is_overdue(10_000)
        (True, False)
        """
        return any(now_ms - first_ms >= OVERDUE_MS for first_ms in self.since_ms.values())
