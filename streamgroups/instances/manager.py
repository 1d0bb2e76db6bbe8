"""The decisions of the manager of an instance: which workers start, which processors run where, and which workers end.

``streamgroups_kafka.instances.manager_process`` calls :func:`plan` after each read of the topic, and writes the entries of the
result in one transaction. Then it starts the new workers. A manager that is killed in between has written workers without a
process, which the next one replaces after ``start_timeout_ms``. Source: SEMANTICS P2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from streamgroups.errors import InvalidOption
from streamgroups.instances.entries import (
    MAX_SLOTS,
    Entry,
    Manager,
    Placement,
    Release,
    Removed,
    Replica,
    Worker,
)
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.leases import HEARTBEATS_PER_LEASE, LeaseWatch, expired, observe
from streamgroups.instances.placement import Placed, Slots, place
from streamgroups.supervision.policy import backoff_ms

_FIRST_WAIT_MS, _MAX_WAIT_MS = 1_000, 60_000


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The settings of a manager.

    Args:
        slots: the slots of a worker that it starts.
        max_workers: it starts no worker while the instance has this number of workers. With 0 it neither starts nor releases
            workers.
        lease_ms: the lease of a worker, and of the manager itself.
        idle_ms: how long a worker without a processor continues to run.
        start_timeout_ms: how long a new worker may take until its first heartbeat.

    Raises:
        InvalidOption: if a number is out of range.
    """

    slots: int = 4
    max_workers: int = 100
    lease_ms: int = 6_000
    idle_ms: int = 60_000
    start_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= MAX_SLOTS:
            raise InvalidOption(f"The number of slots is {self.slots}.", remedy=f"Use a number from 1 to {MAX_SLOTS}.")
        if not 0 <= self.max_workers <= 10_000:
            raise InvalidOption(
                f"The maximum number of workers is {self.max_workers}.", remedy="Use a number from 0 to 10000."
            )
        for name in ("lease_ms", "idle_ms", "start_timeout_ms"):
            if not 100 <= getattr(self, name) <= 86_400_000:
                raise InvalidOption(f"{name} is {getattr(self, name)}.", remedy="Use a duration from 100 ms to 1 day.")

    @property
    def heartbeat_ms(self) -> int:
        """The interval of heartbeats."""
        return self.lease_ms // HEARTBEATS_PER_LEASE


@dataclass(frozen=True, slots=True)
class Self:
    """The process of the manager.

    Args:
        host: its host name.
        pid: the number of its process.
        since_ms: when it has started, in milliseconds since the epoch.
    """

    host: str
    pid: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The observations of a manager, which no entry contains.

    Args:
        watch: the leases of workers.
        idle_since_ms: when a worker became idle, on the steady clock.
        heartbeat: the number of its last heartbeat.
        beat_ms: when it was decided, on the steady clock; ``None`` before the first one.
        failed_starts: the number of consecutive workers that ended before their first heartbeat.
        next_start_ms: when the next worker can start, on the steady clock.
    """

    watch: LeaseWatch = field(default_factory=LeaseWatch)
    idle_since_ms: Mapping[str, int] = field(default_factory=dict)
    heartbeat: int = 0
    beat_ms: int | None = None
    failed_starts: int = 0
    next_start_ms: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The next actions of the manager.

    Args:
        entries: the entries to write, in one transaction; empty without a change.
        start: the workers whose processes start after this transaction.
        waiting: the replicas without a free slot.
        dead: the workers that count as dead, with the reason.
        memory: the observations for the next plan.
    """

    entries: tuple[Entry, ...]
    start: tuple[Worker, ...]
    waiting: tuple[Replica, ...]
    dead: Mapping[str, str]
    memory: Memory


def plan(
    state: InstanceState,
    memory: Memory,
    settings: ManagerSettings,
    manager: Self,
    *,
    steady_ms: int,
    now_ms: int,
    exited: Mapping[str, str],
) -> Plan:
    """Decides the next actions, after the topic was read to its end.

    Args:
        state: the state of the instance.
        memory: the result of the plan before.
        settings: the settings.
        manager: this process.
        steady_ms: the time on the steady clock.
        now_ms: the time since the epoch.
        exited: the workers whose processes have ended, with the reason, as their parent process has observed it.
    """
    # Half of a lease without a read: heartbeats in this time can be lost.
    watch = observe(memory.watch, state.workers, steady_ms, settings.lease_ms // 2)
    memory = _after_starts(replace(memory, watch=watch), state, exited, steady_ms)
    dead = dict.fromkeys(expired(watch, state.workers, steady_ms, settings.start_timeout_ms), "its lease has expired")
    dead |= {worker: reason for worker, reason in exited.items() if worker in state.workers}
    alive = [it for it in _ordered(state.workers.values()) if it.id not in dead]
    usable = [it for it in alive if it.id not in state.releases]
    usable_ids = {worker.id for worker in usable}
    kept = {replica: it for replica, it in state.placements.items() if state.is_valid(it) and it.worker in usable_ids}
    placed = _place(state, kept, usable, settings, may_start=steady_ms >= memory.next_start_ms)
    started = _new_workers(placed, state, settings, now_ms)
    placements = _new_placements(placed, state, len(started))
    busy = {it.worker for it in (*kept.values(), *placements)}
    idle = {it.id for it in usable if it.is_managed and it.id not in busy} if settings.max_workers else set()
    idle_since_ms = {it: memory.idle_since_ms.get(it, steady_ms) for it in sorted(idle)}
    changes: tuple[Entry, ...] = (
        *(Removed("worker", it) for it in sorted(dead)),
        *_removed_placements(state, kept, placements),
        *_forgotten(state, dead),
        *started,
        *placements,
        *_releases(idle_since_ms, settings, steady_ms),
    )
    memory = replace(memory, idle_since_ms=idle_since_ms)
    return _with_heartbeat(
        Plan(changes, started, placed.waiting, dead, memory), state, settings, manager, steady_ms, now_ms
    )


def _ordered(workers: Iterable[Worker]) -> list[Worker]:
    """The workers, the first one first. Their entries do not have this order, because compaction keeps the last entry."""
    return sorted(workers, key=lambda it: (it.since_ms, len(it.id), it.id))


def _after_starts(memory: Memory, state: InstanceState, exited: Mapping[str, str], steady_ms: int) -> Memory:
    """Delays the next start if workers end before their first heartbeat, such as with a wrong command."""
    failed = sum(1 for it in exited if it in state.workers and not state.workers[it].heartbeat)
    if failed:
        n = memory.failed_starts + failed
        return replace(
            memory, failed_starts=n, next_start_ms=steady_ms + backoff_ms(_FIRST_WAIT_MS, _MAX_WAIT_MS, n - 1)
        )
    if any(it.heartbeat and it.is_managed for it in state.workers.values()):
        return replace(memory, failed_starts=0)
    return memory


def _place(
    state: InstanceState,
    kept: Mapping[Replica, Placement],
    usable: list[Worker],
    settings: ManagerSettings,
    *,
    may_start: bool,
) -> Placed:
    required = {it for name in state.desired for it in state.replicas(name) if state.is_required(it)}
    starting = required - kept.keys()
    n_new = min(settings.max_workers - len(usable), len(starting)) if may_start else 0
    numbers = range(state.next_number, state.next_number + max(n_new, 0))
    new = [Slots(f"w{number}", settings.slots) for number in numbers if f"w{number}" not in state.workers]
    running = {replica: it.worker for replica, it in kept.items()}
    return place(starting, [Slots(it.id, it.slots) for it in usable], running, new)


def _new_workers(placed: Placed, state: InstanceState, settings: ManagerSettings, now_ms: int) -> tuple[Worker, ...]:
    since_ms = max((now_ms, *(it.since_ms for it in state.workers.values())))
    return tuple(
        Worker(it, settings.slots, since_ms, heartbeat=0, at_ms=now_ms, lease_ms=settings.lease_ms, is_managed=True)
        for it in placed.new_workers
    )


def _new_placements(placed: Placed, state: InstanceState, n_workers: int) -> tuple[Placement, ...]:
    # The ids of new workers are numbers too.
    first = state.next_number + (
        max(int(it[1:]) for it in placed.new_workers) - state.next_number + 1 if n_workers else 0
    )
    return tuple(
        Placement(replica, worker, number, state.desired[replica.processor].request)
        for number, (replica, worker) in enumerate(placed.workers.items(), first)
    )


def _removed_placements(
    state: InstanceState, kept: Mapping[Replica, Placement], placements: Iterable[Placement]
) -> list[Removed]:
    replaced = {it.replica for it in placements}
    return [Removed("placement", it) for it in sorted(state.placements.keys() - kept.keys() - replaced)]


def _forgotten(state: InstanceState, dead: Mapping[str, str]) -> list[Removed]:
    """Removes entries that describe nothing any more: of processors that were dropped, and of workers that have ended."""
    replicas = {it for name in state.definitions for it in state.replicas(name)}
    gone = [it for it in sorted(state.observed.keys() - replicas) if it not in state.placements]
    undefined = sorted(state.desired.keys() - state.definitions.keys())
    released = sorted(it for it in state.releases if it not in state.workers or it in dead)
    return [
        *(Removed("observed", it) for it in gone),
        *(Removed("desired", it) for it in undefined),
        *(Removed("release", it) for it in released),
    ]


def _releases(idle_since_ms: Mapping[str, int], settings: ManagerSettings, steady_ms: int) -> list[Release]:
    reason = f"it has had no processor for {settings.idle_ms / 1_000:g} s"
    return [Release(it, reason) for it, since_ms in idle_since_ms.items() if steady_ms - since_ms >= settings.idle_ms]


def _with_heartbeat(
    decided: Plan, state: InstanceState, settings: ManagerSettings, manager: Self, steady_ms: int, now_ms: int
) -> Plan:
    """Adds the heartbeat of the manager, which contains the next number, if it is due or something changes."""
    memory = decided.memory
    is_due = memory.beat_ms is None or steady_ms - memory.beat_ms >= settings.heartbeat_ms
    if not decided.entries and not is_due:
        return decided
    state = apply(state, *decided.entries)
    numbers = [int(it.id[1:]) + 1 for it in decided.start]
    heartbeat = Manager(
        next_number=max([state.next_number, *numbers]),
        heartbeat=memory.heartbeat + 1,
        at_ms=now_ms,
        since_ms=manager.since_ms,
        lease_ms=settings.lease_ms,
        max_workers=settings.max_workers,
        host=manager.host,
        pid=manager.pid,
    )
    memory = replace(memory, heartbeat=heartbeat.heartbeat, beat_ms=steady_ms)
    return replace(decided, entries=(*decided.entries, heartbeat), memory=memory)
