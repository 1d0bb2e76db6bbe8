"""The states of processors and workers, as operators see them.

``streamgroups processors list`` and ``streamgroups instance status`` show them, and so does the picture of
``streamgroups_admin.reports``. Source: SEMANTICS P2.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from streamgroups.instances.entries import Manager, Observation, Observed, Progress, Replica, Worker
from streamgroups.instances.instance_state import InstanceState


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica of a processor.

    Args:
        replica: the replica.
        state: its state: ``defined``, ``starting``, ``running``, ``stopping``, ``stopped``, ``completed`` or ``failed``.
        why: the reason of the state, with a remedy; empty if it needs none.
        worker: the worker with its slot; ``None`` without one.
        since_ms: when the state began, in milliseconds since the epoch; ``None`` if unknown.
        is_outdated: whether it runs another definition than that of the instance.
        error_code: the code of its error; ``None`` without one.
        progress: its last batch; ``None`` if it does not run.
    """

    replica: Replica
    state: str
    why: str = ""
    worker: str | None = None
    since_ms: int | None = None
    is_outdated: bool = False
    error_code: str | None = None
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker.

    Args:
        worker: its lease.
        state: ``starting``, ``running``, ``ending``, or ``not responding`` after its lease.
        replicas: the replicas in its slots.
    """

    worker: Worker
    state: str
    replicas: tuple[ReplicaView, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """An instance.

    Args:
        instance: its name.
        manager: ``running``, or why it is not.
        replicas: the replicas of all processors, by their names.
        workers: the workers, the first one first.
    """

    instance: str
    manager: str
    replicas: tuple[ReplicaView, ...]
    workers: tuple[WorkerView, ...]


def overview(instance: str, state: InstanceState, now_ms: int) -> Overview:
    """Describes an instance.

    Args:
        instance: its name.
        state: its state.
        now_ms: the time, in milliseconds since the epoch. It is compared with the clocks of other hosts, so it decides only
            which processes are shown as not responding.

    >>> from streamgroups.instances.entries import Definition, Desired
    >>> state = InstanceState({"late": Definition("late", "{}")}, {"late": Desired("late", True, 1)})
    >>> found = overview("board", state, 0)
    >>> found.manager, found.replicas[0].state, found.replicas[0].why
    ('not running: start it with: streamgroups instance run board', 'starting', 'no manager places it: start one with: \
streamgroups instance run board')
    """
    manager = _manager(instance, state.manager, now_ms)
    views = tuple(
        _replica(instance, state, it, manager, now_ms)
        for name in sorted(state.definitions)
        for it in state.replicas(name)
    )
    workers = sorted(state.workers.values(), key=lambda it: (it.since_ms, len(it.id), it.id))
    in_slots: defaultdict[str | None, list[ReplicaView]] = defaultdict(list)
    for view in views:
        in_slots[view.worker].append(view)
    shown = (WorkerView(it, _worker(state, it, now_ms), tuple(in_slots[it.id])) for it in workers)
    return Overview(instance, manager, views, tuple(shown))


def _manager(instance: str, manager: Manager | None, now_ms: int) -> str:
    if manager is None:
        return f"not running: start it with: streamgroups instance run {instance}"
    silent_ms = now_ms - manager.at_ms
    if silent_ms < manager.lease_ms:
        return "running"
    where = f"process {manager.pid} on {manager.host}"
    return f"not responding for {silent_ms // 1_000} s ({where}). Processors run on. Start it with: streamgroups instance run {instance}"


def _worker(state: InstanceState, worker: Worker, now_ms: int) -> str:
    if worker.id in state.releases:
        return "ending"
    if not worker.heartbeat:
        return "starting"
    return "running" if now_ms - worker.at_ms < worker.lease_ms else "not responding"


def _replica(instance: str, state: InstanceState, replica: Replica, manager: str, now_ms: int) -> ReplicaView:
    desired, seen = state.desired.get(replica.processor), state.observed.get(replica)
    if desired is None:
        return ReplicaView(replica, "defined", f"start it with: streamgroups processors start {replica.processor}")
    placement = state.placements.get(replica)
    if placement is not None and state.is_valid(placement):
        return _placed(state, replica, seen if seen is not None and seen.placement == placement else None)
    current = state.current(replica)
    if desired.is_running and (current is None or not current.state.is_final):
        return ReplicaView(replica, "starting", _why_not_placed(instance, state, manager))
    if seen is None or (current is None and seen.state.has_ended):
        return ReplicaView(replica, "stopped")
    if seen.state.has_ended or _is_gone(state, seen, now_ms):
        shown = seen.state if seen.state.has_ended else Observed.STOPPED
        return ReplicaView(replica, shown.value, seen.error or "", None, seen.since_ms, error_code=seen.error_code)
    return ReplicaView(replica, Observed.STOPPING.value, "", seen.placement.worker, seen.since_ms)


def _placed(state: InstanceState, replica: Replica, seen: Observation | None) -> ReplicaView:
    worker = state.placements[replica].worker
    if seen is None:
        is_new = worker in state.workers and not state.workers[worker].heartbeat
        return ReplicaView(replica, "starting", f"worker {worker} starts" if is_new else "", worker)
    revision = state.definitions[replica.processor].revision
    is_outdated = bool(seen.revision) and seen.revision != revision
    return ReplicaView(
        replica, seen.state.value, seen.error or "", worker, seen.since_ms, is_outdated, seen.error_code, seen.progress
    )


def _why_not_placed(instance: str, state: InstanceState, manager: str) -> str:
    if manager != "running" or state.manager is None:
        return f"no manager places it: start one with: streamgroups instance run {instance}"
    if len(state.workers) < state.manager.max_workers:
        return "it has no slot yet"
    return f"no free slot: add a worker with: streamgroups worker run --instance {instance}"


def _is_gone(state: InstanceState, seen: Observation, now_ms: int) -> bool:
    worker = state.workers.get(seen.placement.worker)
    return worker is None or now_ms - worker.at_ms >= worker.lease_ms
