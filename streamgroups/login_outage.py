"""Decides when a rejected login of a running client is permanent: not while the service that verifies logins may be away.

Called by ``streamgroups_kafka`` for the requests of queries, for members, and for tasks. A client that starts fails at its first
rejection instead. Source: KIP-152, KIP-368 (a broker can require a new login of each connection); SEMANTICS G2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: How long all brokers can reject the login before a client fails.
PERMANENT_AFTER_MS = 15_000
#: Rejections with a longer interval belong to two outages. A request fails after 10 seconds, and librdkafka repeats an identical error
#: after 30.
SEPARATE_AFTER_MS = 60_000


@dataclass(frozen=True, slots=True)
class LoginOutage:
    """Consecutive rejections.

    Args:
        first_ms: the time of the first one.
        last_ms: the time of the last one.

    >>> outage = rejected(rejected(None, 0), 14_000)
    >>> outage.is_permanent, rejected(outage, 15_000).is_permanent, rejected(outage, 90_000).is_permanent
    (False, True, False)
    """

    first_ms: int
    last_ms: int

    @property
    def is_permanent(self) -> bool:
        """Whether they last too long for an outage."""
        return self.last_ms - self.first_ms >= PERMANENT_AFTER_MS


def rejected(outage: LoginOutage | None, now_ms: int) -> LoginOutage:
    """Handles a rejection of the login by all brokers.

    Args:
        outage: the rejections before it; ``None`` if a broker has accepted the login since.
        now_ms: the current time of a monotonic clock.
    """
    if outage is None or now_ms - outage.last_ms > SEPARATE_AFTER_MS:
        return LoginOutage(now_ms, now_ms)
    return replace(outage, last_ms=now_ms)
