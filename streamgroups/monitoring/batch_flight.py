"""How long a batch is in flight, and the limits for it.

The source of a running query reports it, and ``sg.reports.MetricsListener`` exports it
(:mod:`streamgroups.monitoring.metrics`). It is separate from the metrics, because sources run without the extra
``metrics``. Source: SEMANTICS S3.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchFlight:
    """The batch in flight of one member.

    Args:
        group_id: its group.
        member: its ``client.id``.
        batch_ms: how long the batch has been in flight; ``None`` between two batches.
        handover_ms: how long a rebalance waits for it.
        lease_timeout_ms: the option ``leaseTimeout``; ``None`` if it is off.
    """

    group_id: str
    member: str
    batch_ms: int | None
    handover_ms: int
    lease_timeout_ms: int | None
