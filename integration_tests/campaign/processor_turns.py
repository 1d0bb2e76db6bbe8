"""The faults of a campaign of processors, and their order. Used by ``integration_tests.campaign.processors``.

A fault is injected at a random time, or when a process of a worker reaches a named point (``dying/sitecustomize.py``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

#: The faults. ``worker``: kill all processes of a worker with ``kill -9``. ``driver``: only its Python process, which is the
#: process of its lease. ``jvm``: only its JVM. ``source``: the Python process in which Spark runs the source of a query.
#: ``manager``: kill the manager, which starts again when the processors have committed more. ``both``: a worker and the manager at
#: once. ``freeze``: SIGSTOP of all processes of a worker until its processors have committed elsewhere, then SIGCONT.
#: ``hang``: SIGSTOP of its Python process only, for longer than its lease. Spark and the sources continue without it.
FAULTS = ("worker", "driver", "jvm", "source", "manager", "both", "freeze", "hang")
#: The faults of one worker, which can be injected at a point.
_AT_POINTS = ("worker", "driver", "jvm", "both", "freeze", "hang")
#: The points, which both processors or one of them reach in each batch.
POINTS = (
    "before-offset-log",
    "mid-read",
    "transaction-begun",
    "inside-transaction",
    "before-offsets",
    "before-commit",
    "after-commit",
    "before-state-file",
    "after-state-file",
)
#: The safeguards that a campaign can disable to verify that it detects the fault. ``placement``: a worker ignores the end
#: of its lease and of its placements. ``fences``: the same, and the transactional id is that of the process, the commit of offsets
#: contains no member, and the ledger accepts batches of earlier owners.
SABOTAGES = ("placement", "fences")


@dataclass(frozen=True, slots=True)
class FaultTurn:
    """A fault of a campaign.

    Args:
        fault: one of ``FAULTS``.
        point: the point at which it is injected; empty for any time.
        pause_s: the time before it, in seconds.
        outage_s: how long no manager runs after its kill, in seconds.
    """

    fault: str
    point: str
    pause_s: float
    outage_s: float


def fault_turns(n_turns: int, seed: int) -> list[FaultTurn]:
    """Every fault once before one repeats, half of those of a worker at a point, in an order that depends on the seed.

    >>> turns = fault_turns(16, seed=3)
    >>> sorted(it.fault for it in turns[:8]) == sorted(it.fault for it in turns[8:]) == sorted(FAULTS)
    True
    >>> turns == fault_turns(16, seed=3), any(it.point for it in turns)
    (True, True)
    """
    by = random.Random(f"processors {seed}")
    points: list[str] = []
    turns: list[FaultTurn] = []
    while len(turns) < n_turns:
        for fault in by.sample(FAULTS, len(FAULTS)):
            is_at_point = fault in _AT_POINTS and by.random() < 0.5
            points = points or by.sample(POINTS, len(POINTS))
            turns.append(FaultTurn(fault, points.pop() if is_at_point else "", by.uniform(0, 3), by.uniform(0, 3)))
    return turns[:n_turns]


def revealing_turns(sabotaged: str, n_turns: int) -> list[FaultTurn]:
    """The turns that detect a disabled safeguard: a worker sleeps before a commit, and commits when others have done so.

    Not at ``before-commit``: the transaction of the sleeping worker contains offsets then, and Kafka returns the offsets of a
    partition only after its end. Without a fence that is its timeout.
    """
    point = "before-offsets" if sabotaged == "fences" else ""
    return [FaultTurn("freeze", point, 1, 0)] * n_turns
