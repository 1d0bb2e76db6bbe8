"""An instance in memory: the decisions of a manager and of its workers, with a clock that the test moves.

Tests of the manager use it. A worker starts and stops its queries at once, unless it is frozen or killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from streamgroups.instances.entries import (
    Definition,
    Desired,
    Entry,
    Observation,
    Observed,
    Placement,
    Removed,
    Replica,
    Worker,
    canonical,
)
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.manager import ManagerSettings, Memory, Plan, Self, plan
from streamgroups.instances.requests import started
from streamgroups.instances.worker import Run, decide

ME = Self("host", 1, 0)


@dataclass
class Instance:
    """An instance with one manager.

    Args:
        settings: the settings of the manager.
        starts_workers: whether the process of a new worker starts at once.
    """

    settings: ManagerSettings = field(default_factory=ManagerSettings)
    starts_workers: bool = True
    state: InstanceState = field(default_factory=InstanceState)
    memory: Memory = field(default_factory=Memory)
    now_ms: int = 1_000
    runs: dict[str, dict[Replica, Run]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    frozen: set[str] = field(default_factory=set)
    exited: dict[str, str] = field(default_factory=dict)
    written: list[Entry] = field(default_factory=list)

    def write(self, *entries: Entry) -> None:
        for entry in entries:
            self.written.append(entry)
            self.state = apply(self.state, entry)

    def define(self, name: str, replicas: int = 1) -> None:
        self.write(Definition(name, canonical({"name": name, "replicas": replicas}), replicas))

    def start(self, *names: str) -> None:
        for name in names:
            if name not in self.state.definitions:
                self.define(name)
            self.write(started(self.state, name))

    def stop(self, *names: str) -> None:
        for name in names:
            self.write(Desired(name, False, self.state.desired[name].request))

    def drop(self, name: str) -> None:
        observed = [Removed("observed", it) for it in self.state.observed if it.processor == name]
        self.write(Removed("definition", name), Removed("desired", name), *observed)

    def kill(self, worker: str) -> None:
        """Kills a process: it sends no heartbeat."""
        self.runs.pop(worker, None)

    def fail(self, replica: Replica) -> None:
        """Gives the query of a replica up."""
        placement = self.state.placements[replica]
        self.runs[placement.worker].pop(replica)
        self.ended.add(placement.number)
        self.write(
            Observation(placement, Observed.FAILED, self.now_ms, error_code="data_loss", error="Records are gone.")
        )

    def tick(self, ms: int = 1_000) -> Plan:
        """Lets time pass: the workers, and then the manager, decide once."""
        self.now_ms += ms
        for worker in list(self.runs):
            if worker not in self.frozen:
                self.act(worker)
        return self.manage()

    def manage(self) -> Plan:
        decided = plan(
            self.state, self.memory, self.settings, ME, steady_ms=self.now_ms, now_ms=self.now_ms, exited=self.exited
        )
        self.exited.clear()
        self.memory = decided.memory
        self.write(*decided.entries)
        if self.starts_workers:
            for worker in decided.start:
                self.join(worker)
        return decided

    def join(self, worker: Worker) -> None:
        """Starts the process of a worker."""
        self.runs[worker.id] = {}
        self.write(replace(worker, heartbeat=1, pid=7))
        self.act(worker.id)

    def act(self, worker: str) -> None:
        """Lets a worker decide once."""
        lease = self.state.workers.get(worker)
        if lease is None or worker in self.state.releases:
            self.runs.pop(worker)
            self.write(Removed("worker", worker))
            return
        self.write(replace(lease, heartbeat=lease.heartbeat + 1, at_ms=self.now_ms))
        runs = self.runs[worker]
        for replica in decide(self.state, worker, lease.slots, runs, ended=self.ended, must_stop=None).stop:
            placement = runs.pop(replica).placement
            seen = self.state.observed.get(replica)
            if seen is None or seen.placement == placement:
                self.write(Observation(placement, Observed.STOPPED, self.now_ms))
        for placement in decide(self.state, worker, lease.slots, runs, ended=self.ended, must_stop=None).start:
            runs[placement.replica] = Run(placement)
            self.write(Observation(placement, Observed.RUNNING, self.now_ms))

    def where(self, *names: str) -> list[str | None]:
        """The worker of the first replica of each processor."""
        found = (self.state.placements.get(Replica(name, 0)) for name in names)
        return [it and it.worker for it in found]

    def on(self, worker: str) -> list[str]:
        """The processors on a worker."""
        return sorted(str(it.replica) for it in self.state.placements.values() if it.worker == worker)

    def settle(self, ms: int = 1_000, ticks: int = 3) -> None:
        for _ in range(ticks):
            self.tick(ms)


def names(*numbers: int) -> list[str]:
    """The names of processors.

    >>> names(1, 10)
    ['proc01', 'proc10']
    """
    return [f"proc{n:02}" for n in numbers]


def placements(state: InstanceState) -> dict[Replica, Placement]:
    return dict(state.placements)


def counts(workers: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for worker in workers:
        found[worker] = found.get(worker, 0) + 1
    return found
