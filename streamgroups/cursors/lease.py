"""How long an instance may be silent.

Held by ``streamgroups_kafka.cursors.session`` for each instance. Only a request of the user's extends a lease: Kafka's own
heartbeats, which the client sends by itself, say that the process lives, and not that anybody works. Source: SEMANTICS G6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Lease:
    """One instance's lease. It cannot run out while a request is being answered.

    Args:
        timeout_ms: how long the instance may be silent.
        renewed_ms: when it was last heard of, milliseconds since the epoch.
        requests: how many requests are being answered now.

    >>> lease = Lease(30_000, renewed_ms=0)
    >>> lease.is_over(30_000), lease.is_over(30_001)
    (False, True)
    >>> lease.begin(20_000).end(60_000).until_ms
    90000
    """

    timeout_ms: int
    renewed_ms: int
    requests: int = 0

    @property
    def until_ms(self) -> int:
        """The last moment at which the instance is still in the group if it stays silent."""
        return self.renewed_ms + self.timeout_ms

    def is_over(self, now_ms: int) -> bool:
        """Whether the instance was silent for more than its timeout."""
        return not self.requests and now_ms > self.until_ms

    def begin(self, now_ms: int) -> Lease:
        """A request comes in. The caller asks :meth:`is_over` first: what is over stays over."""
        return replace(self, renewed_ms=max(self.renewed_ms, now_ms), requests=self.requests + 1)

    def end(self, now_ms: int) -> Lease:
        """A request has been answered."""
        return replace(self, renewed_ms=max(self.renewed_ms, now_ms), requests=self.requests - 1)
