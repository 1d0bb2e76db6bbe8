"""A campaign as one value: its queries, its faults and its limits.

Created by ``integration_tests.campaign`` and by tests with short campaigns, for ``campaign.running``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration_tests.campaign.settings import MAX_LAG_S
from integration_tests.campaign.storage import CampaignStorage
from integration_tests.campaign.targets import ReadBack
from integration_tests.campaign.turns import Turn
from integration_tests.secured_brokers import Listeners
from streamgroups_broker import EmbeddedKafka

#: The faults after which a program may end by itself: a rejected login or a missing permission before its first batch, a
#: ``PositionsDiffer`` that names commands, and a disk that stays full.
_GIVING_UP = ("credentials", "rotation", "expiry", "disk-full", "broker-disk-full")


@dataclass(frozen=True, slots=True)
class Plan:
    """One campaign.

    Args:
        bootstrap: the broker.
        directory: the directory of checkpoints and logs.
        sink: ``kafka``, ``postgres`` or ``delta``.
        to: the output topic, connection string or table path.
        read_back: the independent reader of the output.
        turns: the points and their faults, in order.
        timeout_s: the timeout of the whole campaign, in seconds.
        faults_s: the time after which no more faults are injected, in seconds.
        per_second: the rate of the producer, in records per second.
        protocol: the group protocol.
        sabotaged: one of ``SABOTAGES``, ``STATE_SABOTAGES`` or ``SAVEPOINT_SABOTAGES``, or empty.
        n_members: the number of queries, at most four. A single one reaches each point.
        kind: one of ``KINDS``. A stateful query is the only member of its group.
        kafka: the broker, if it is a target of faults.
        seed: the seed of the targets of resets, and of the points of commands.
        n_savepoints: the number of complete savepoints, with ``kind="savepoints"``.
        max_lag_s: the longest permitted time until the group has read all records, in seconds. The campaign waits twice as long,
            so that its history decides I8.
        storage: the storage of the queries, if it is a target of faults, or an object store.
        report: called with a description of each turn.
        secured: the listeners of the broker, if the queries log in.
    """

    bootstrap: str
    directory: Path
    sink: str
    to: str
    read_back: ReadBack
    turns: Sequence[Turn]
    timeout_s: float
    faults_s: float = math.inf
    per_second: int = 400
    protocol: str = "classic"
    sabotaged: str = ""
    n_members: int = 2
    kind: str = "stateless"
    kafka: EmbeddedKafka | None = None
    seed: int = 1
    n_savepoints: int = 0
    max_lag_s: float = MAX_LAG_S
    storage: CampaignStorage | None = None
    report: Callable[[str], None] = lambda _: None
    secured: Listeners | None = None

    @property
    def faults(self) -> frozenset[str]:
        """The names of the faults of all turns."""
        return frozenset(fault for _, fault in self.turns)

    @property
    def member_names(self) -> list[str]:
        """The names of the queries. Only the last one can have executors of its own."""
        return ["ann", "bob", "cem", "dan"][: 1 if self.kind == "stateful" else self.n_members]


def unexplained_ends(began: Sequence[tuple[str, int]], n_ended: int) -> int:
    """How many programs have ended by themselves in turns whose fault does not explain it. A fault explains those of its
    turn and of the next one, because a program ends after its last attempt.

    Args:
        began: the fault of each turn, and how many programs had ended when it began, in order.
        n_ended: how many have ended in the whole campaign.

    >>> unexplained_ends([("query", 1), ("rotation", 1), ("broker", 3), ("query", 4)], 6)
    3
    """
    counts = [*(n for _, n in began), n_ended]
    found, before = counts[0], ""
    for turn, (fault, n) in enumerate(began, 1):
        found += 0 if {fault, before} & {*_GIVING_UP} else counts[turn] - n
        before = fault
    return found
