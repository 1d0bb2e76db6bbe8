"""When the lease of a worker ends: for the worker itself, and for the manager.

Both measure durations on their own clock only, so clocks need not agree. The worker counts from the moment before it sent its
last acknowledged heartbeat, and the manager from the moment after it has read it. So a worker stops its queries before the
manager starts them elsewhere. This order is no fence, since a frozen worker does not measure anything: the group, the transaction and
the ledger of a processor are. Source: Gray and Cheriton, "Leases" (1989); SEMANTICS P2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamgroups.instances.entries import Worker

#: A process that a worker shares its processors with can delay a heartbeat. Several fit into a lease.
HEARTBEATS_PER_LEASE = 4
#: The part of a lease that the manager waits after its end, for the way of a heartbeat through the broker.
_GRACE = 1 / 3


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a worker, as the worker measures it.

    Args:
        lease_ms: its duration.
        renewed_ms: when the last acknowledged heartbeat was sent, on the steady clock of the worker.
    """

    lease_ms: int
    renewed_ms: int

    def is_valid(self, now_ms: int) -> bool:
        """Whether the worker may run queries.

        >>> Lease(6_000, renewed_ms=1_000).is_valid(6_999), Lease(6_000, renewed_ms=1_000).is_valid(7_000)
        (True, False)
        """
        return now_ms - self.renewed_ms < self.lease_ms


@dataclass(frozen=True, slots=True)
class Seen:
    """The last heartbeat of a worker that the manager has read.

    Args:
        heartbeat: its number.
        at_ms: when the manager has read it, on its steady clock.
    """

    heartbeat: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class LeaseWatch:
    """The leases of all workers, as the manager measures them.

    Args:
        seen: the last heartbeat of each worker.
        read_ms: when the manager has read the topic to its end; ``None`` before the first time.
    """

    seen: Mapping[str, Seen] = field(default_factory=dict)
    read_ms: int | None = None


def observe(watch: LeaseWatch, workers: Mapping[str, Worker], now_ms: int, longest_gap_ms: int) -> LeaseWatch:
    """Returns the leases after the topic was read to its end.

    If the manager could not read for a while, because it was frozen or no broker responded, then no worker could renew its
    lease, or the manager did not see it. Of such a time only the first part counts, so an overloaded manager still detects
    the end of a lease.

    Args:
        watch: the leases before.
        workers: the workers of the instance.
        now_ms: the time on the steady clock of the manager.
        longest_gap_ms: the part of the time between two reads that counts.

    >>> w1 = {"w1": Worker("w1", 4, 0, heartbeat=7, at_ms=0, lease_ms=6_000)}
    >>> watch = observe(LeaseWatch(), w1, 1_000, 2_000)
    >>> observe(watch, w1, 2_000, 2_000).seen["w1"].at_ms, observe(watch, w1, 60_000, 2_000).seen["w1"].at_ms
    (1000, 58000)
    """
    lost_ms = 0 if watch.read_ms is None else max(now_ms - watch.read_ms - longest_gap_ms, 0)
    seen = {}
    for worker in workers.values():
        last = watch.seen.get(worker.id)
        is_same = last is not None and last.heartbeat == worker.heartbeat
        seen[worker.id] = (
            Seen(last.heartbeat, last.at_ms + lost_ms) if last and is_same else Seen(worker.heartbeat, now_ms)
        )
    return LeaseWatch(seen, now_ms)


def expired(watch: LeaseWatch, workers: Mapping[str, Worker], now_ms: int, start_timeout_ms: int) -> frozenset[str]:
    """Returns the workers that count as dead.

    Args:
        watch: their leases.
        workers: the workers of the instance.
        now_ms: the time on the steady clock of the manager.
        start_timeout_ms: how long the process of a new worker may take until its first heartbeat.

    >>> w1 = {"w1": Worker("w1", 4, 0, heartbeat=7, at_ms=0, lease_ms=6_000)}
    >>> watch = observe(LeaseWatch(), w1, 0, 2_000)
    >>> expired(watch, w1, 7_999, 60_000), expired(watch, w1, 8_000, 60_000)
    (frozenset(), frozenset({'w1'}))
    """
    dead = set()
    for worker in workers.values():
        seen = watch.seen.get(worker.id)
        limit_ms = worker.lease_ms + worker.lease_ms * _GRACE if worker.heartbeat else start_timeout_ms
        if seen is not None and now_ms - seen.at_ms >= limit_ms:
            dead.add(worker.id)
    return frozenset(dead)
