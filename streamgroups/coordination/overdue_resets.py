"""Which reset requests wait for too long, and when that is a warning.

Called by ``streamgroups.coordination.reset_participant`` with every poll of a member's reset requests. Source: SEMANTICS G8, S6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

#: A member stops within a batch; what takes longer needs an operator.
OVERDUE_MS = 10_000
_WARN_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class Unapplied:
    """The reset requests that a member cannot apply yet.

    Args:
        since_ms: when each was first seen.
        next_warning_ms: when each is the subject of the next warning.
    """

    since_ms: Mapping[str, int] = field(default_factory=dict)
    next_warning_ms: Mapping[str, int] = field(default_factory=dict)

    def after(self, requests: Collection[str], now_ms: int) -> tuple[Unapplied, tuple[str, ...]]:
        """With one more poll.

        Args:
            requests: the ids of those that cannot be applied now; all others are forgotten.
            now_ms: the time of a steady clock.

        Returns:
            What is known then, and the ids that are to be warned of now: 10 s after they were first seen, then every minute.

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
        """Whether one of them waits for longer than 10 s.

        >>> Unapplied({"5f2c": 0}).is_overdue(10_000), Unapplied().is_overdue(10_000)
        (True, False)
        """
        return any(now_ms - first_ms >= OVERDUE_MS for first_ms in self.since_ms.values())
