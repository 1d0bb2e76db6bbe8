"""The entries that commands write: requests to start, stop and drop a processor.

``streamgroups processors`` uses them. Source: :mod:`streamgroups.instances`.
"""

from __future__ import annotations

from dataclasses import replace

from streamgroups.errors import GroupRejected
from streamgroups.instances.entries import MAX_NUMBER, Desired, Entry, Observed, Removed, Replica
from streamgroups.instances.instance_state import InstanceState


def started(state: InstanceState, processor: str) -> Desired:
    """Returns the request to start a processor, or to start it again.

    Its number is greater than that of each entry of the processor, also of one that was dropped and defined again: a worker
    ignores a placement that has ended, and a manager keeps one of the current request.

    >>> started(InstanceState(), "late")
    Desired(processor='late', is_running=True, request=1)
    """
    before = state.desired.get(processor)
    requests = [it.placement.request for replica, it in state.observed.items() if replica.processor == processor]
    requests += [it.request for replica, it in state.placements.items() if replica.processor == processor]
    return Desired(processor, True, min(max([*requests, before.request if before else 0]) + 1, MAX_NUMBER))


def stopped(state: InstanceState, processor: str) -> Desired | None:
    """Returns the request to stop a processor; ``None`` if it should not run anyway."""
    before = state.desired.get(processor)
    return replace(before, is_running=False) if before is not None and before.is_running else None


def dropped(state: InstanceState, processor: str) -> list[Entry]:
    """Returns the entries that remove a stopped processor.

    Raises:
        GroupRejected: if it runs, or a worker still runs it.
    """
    if not is_stopped(state, processor):
        raise GroupRejected(
            f"The processor '{processor}' runs; nothing was changed.",
            remedy=f"Stop it first: streamgroups processors stop {processor}",
        )
    replicas = [it for it in state.observed if it.processor == processor]
    kinds: list[tuple[str, str | Replica]] = [("definition", processor), ("desired", processor)]
    return [Removed(kind, of) for kind, of in (*kinds, *(("observed", it) for it in sorted(replicas)))]


def is_stopped(state: InstanceState, processor: str) -> bool:
    """Whether a processor should not run, or has completed or failed, and no living worker runs a query of it.

    >>> is_stopped(InstanceState(), "late")
    True
    """
    if any(state.is_required(it) for it in state.replicas(processor)):
        return False
    return all(
        it.state.has_ended or it.placement.worker not in state.workers
        for replica, it in state.observed.items()
        if replica.processor == processor
    ) and not any(it.processor == processor and worker_runs(state, it) for it in state.placements)


def has_started(state: InstanceState, processor: str) -> bool:
    """Whether each replica of a processor runs for its current request, or has completed."""
    return _have(state, processor, Observed.RUNNING, Observed.COMPLETED)


def has_completed(state: InstanceState, processor: str) -> bool:
    """Whether each replica of a processor has completed for its current request."""
    return _have(state, processor, Observed.COMPLETED)


def _have(state: InstanceState, processor: str, *states: Observed) -> bool:
    seen = [state.current(it) for it in state.replicas(processor)]
    return bool(seen) and all(it is not None and it.state in states for it in seen)


def failures(state: InstanceState, processor: str) -> list[str]:
    """The errors of the replicas that have failed for the current request."""
    seen = [state.current(it) for it in state.replicas(processor)]
    return [it.error or "without a message" for it in seen if it is not None and it.state is Observed.FAILED]


def worker_runs(state: InstanceState, replica: Replica) -> bool:
    """Whether a worker may run a placed replica whose state it has not observed yet."""
    placement, seen = state.placements[replica], state.observed.get(replica)
    return placement.worker in state.workers and (seen is None or seen.placement != placement)
