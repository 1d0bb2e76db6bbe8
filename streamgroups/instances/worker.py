"""The decisions of a worker: which replicas it starts and stops.

``streamgroups_spark.workers`` calls :func:`decide` whenever the topic, a query or the lease changes. Source: SEMANTICS P2.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from streamgroups.instances.entries import Placement, Replica
from streamgroups.instances.instance_state import InstanceState


@dataclass(frozen=True, slots=True)
class Run:
    """A replica that a worker runs.

    Args:
        placement: the placement for which it was started.
        is_stopping: whether it was requested to stop.
    """

    placement: Placement
    is_stopping: bool = False


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The next actions of a worker.

    Args:
        start: the placements to start.
        stop: the replicas to stop, with the reason.
    """

    start: tuple[Placement, ...] = ()
    stop: Mapping[Replica, str] = field(default_factory=dict)


def decide(
    state: InstanceState,
    worker: str,
    slots: int,
    runs: Mapping[Replica, Run],
    *,
    ended: Set[int],
    must_stop: str | None,
) -> WorkerPlan:
    """Decides the next actions of a worker.

    A replica whose earlier run in this worker has not ended yet waits for it. So does a replica without a free slot: a query that
    is being stopped occupies its slot.

    Args:
        state: the state of the instance.
        worker: the id of the worker.
        slots: the number of its slots.
        runs: the replicas that it runs.
        ended: the numbers of the placements whose queries have failed or completed here.
        must_stop: why the worker may run no query, such as an expired lease; ``None`` if it may.

    >>> state = InstanceState(placements={Replica("late", 0): Placement(Replica("late", 0), "w2", 8, 1)})
    >>> run = Run(Placement(Replica("late", 0), "w1", 7, 1))
    >>> decide(state, "w1", 4, {Replica("late", 0): run}, ended=set(), must_stop=None)
    WorkerPlan(start=(), stop={Replica(processor='late', index=0): 'its placement 7 is outdated'})
    """
    stop = {
        replica: reason
        for replica, run in sorted(runs.items())
        if not run.is_stopping and (reason := must_stop or _reason(state, run.placement)) is not None
    }
    if must_stop is not None:
        return WorkerPlan(stop=stop)
    # Most placements are those of other workers.
    own = sorted((it for it in state.placements.values() if it.worker == worker), key=lambda it: it.replica)
    startable = [it for it in own if it.replica not in runs and it.number not in ended and state.is_valid(it)]
    return WorkerPlan(tuple(startable[: max(slots - len(runs), 0)]), stop)


def _reason(state: InstanceState, placement: Placement) -> str | None:
    """Why a run ends; ``None`` if it continues."""
    if state.placements.get(placement.replica) != placement:
        return f"its placement {placement.number} is outdated"
    if state.is_valid(placement):
        return None
    desired = state.desired.get(placement.replica.processor)
    if desired is None or placement.replica not in state.replicas(placement.replica.processor):
        return "it is not defined any more"
    return "its processor was stopped" if not desired.is_running else "its processor was started again"
