"""The lease of an instance: how long it can stay in its group without requests.

``streamgroups_kafka.cursors.instance_session`` holds one for each instance. Only a request of the user extends a lease. The
Kafka client sends heartbeats by itself, which prove that the process is alive, but not that it works. Source: SEMANTICS
G6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one instance. It cannot expire during a request.

    Args:
        timeout_ms: how long the instance can stay without requests.
        renewed_ms: the time of its last request, milliseconds since the epoch.
        requests: the number of requests in progress.

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
        """The last moment at which the instance is still in the group without another request."""
        return self.renewed_ms + self.timeout_ms

    def is_over(self, now_ms: int) -> bool:
        """Returns whether the lease has expired."""
        return not self.requests and now_ms > self.until_ms

    def begin(self, now_ms: int) -> Lease:
        """Starts a request. The caller checks :meth:`is_over` first, because an expired lease cannot be renewed."""
        return replace(self, renewed_ms=max(self.renewed_ms, now_ms), requests=self.requests + 1)

    def end(self, now_ms: int) -> Lease:
        """Ends a request."""
        return replace(self, renewed_ms=max(self.renewed_ms, now_ms), requests=self.requests - 1)
