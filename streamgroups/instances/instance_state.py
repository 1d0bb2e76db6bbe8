"""The state of an instance: the fold of the entries of its topic.

The manager, the workers and the commands build it from the start of the topic. A record that is not an entry changes nothing.
Source: :mod:`streamgroups.instances`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroups.instances.entries import (
    Definition,
    Desired,
    Entry,
    Manager,
    Observation,
    Placement,
    Release,
    Removed,
    Replica,
    Worker,
)


@dataclass(frozen=True, slots=True)
class InstanceState:
    """All entries of an instance.

    Args:
        definitions: the definition of each processor.
        desired: the desired state of each processor that was started once.
        placements: the worker of each placed replica.
        observed: the last observed state of each replica.
        workers: the lease of each worker.
        releases: the workers that have to end.
        manager: the last heartbeat of the manager; ``None`` before the first one.
        next_number: the number of the next placement. It never decreases.
    """

    definitions: Mapping[str, Definition] = field(default_factory=dict)
    desired: Mapping[str, Desired] = field(default_factory=dict)
    placements: Mapping[Replica, Placement] = field(default_factory=dict)
    observed: Mapping[Replica, Observation] = field(default_factory=dict)
    workers: Mapping[str, Worker] = field(default_factory=dict)
    releases: Mapping[str, Release] = field(default_factory=dict)
    manager: Manager | None = None
    next_number: int = 1

    def replicas(self, processor: str) -> tuple[Replica, ...]:
        """The replicas of a processor, by its definition; empty without one."""
        definition = self.definitions.get(processor)
        return tuple(Replica(processor, i) for i in range(definition.replicas)) if definition is not None else ()

    def current(self, replica: Replica) -> Observation | None:
        """The observed state of a replica, if it belongs to its last placement and to the current request of its processor;
        otherwise ``None``. A worker that was frozen can observe the end of a query that runs elsewhere by then.
        """
        seen, desired = self.observed.get(replica), self.desired.get(replica.processor)
        if seen is None or desired is None or seen.placement.request != desired.request:
            return None
        return None if self.is_outdated(seen.placement) else seen

    def is_outdated(self, placement: Placement) -> bool:
        """Whether a replica was placed again later.

        >>> state = InstanceState(placements={Replica("late", 0): Placement(Replica("late", 0), "w2", 8, 1)})
        >>> state.is_outdated(Placement(Replica("late", 0), "w1", 7, 1))
        True
        """
        last = self.placements.get(placement.replica)
        if last is not None:
            return last.number > placement.number
        # Its slot is free again: the later query has failed or completed.
        seen = self.observed.get(placement.replica)
        return seen is not None and seen.placement.number > placement.number

    def is_required(self, replica: Replica) -> bool:
        """Whether a replica should run: its processor is defined and started, and it has neither failed nor completed."""
        desired = self.desired.get(replica.processor)
        definition = self.definitions.get(replica.processor)
        if desired is None or not desired.is_running or definition is None:
            return False
        if not 0 <= replica.index < definition.replicas:
            return False
        seen = self.current(replica)
        return seen is None or not seen.state.is_final

    def is_valid(self, placement: Placement) -> bool:
        """Whether a placement is the current one of a replica that should run, for the current request."""
        replica = placement.replica
        return (
            self.placements.get(replica) == placement
            and self.is_required(replica)
            and self.desired[replica.processor].request == placement.request
        )


def apply(state: InstanceState, *entries: Entry) -> InstanceState:
    """Returns the state after some entries. Many at once are faster: each table is copied once.

    >>> state = apply(InstanceState(), Placement(Replica("late", 0), "w1", 7, 1))
    >>> state.next_number, apply(state, Removed("placement", Replica("late", 0))).placements
    (8, {})
    """
    tables: dict[str, dict[Any, Any]] = {}
    manager, next_number = state.manager, state.next_number

    def table(kind: str) -> dict[Any, Any]:
        name = _FIELDS[kind]
        if name not in tables:
            tables[name] = dict(getattr(state, name))
        return tables[name]

    for entry in entries:
        if isinstance(entry, Manager):
            manager, next_number = entry, max(next_number, entry.next_number)
        elif isinstance(entry, Removed):
            if entry.kind == "manager":
                manager = None
            else:
                table(entry.kind).pop(entry.of, None)
        else:
            kind, of = _place(entry)
            table(kind)[of] = entry
            if isinstance(entry, Placement):
                next_number = max(next_number, entry.number + 1)
    changed: dict[str, Any] = {**tables, "manager": manager, "next_number": next_number}
    return replace(state, **changed)


#: The field of each kind of entry.
_FIELDS = {
    "definition": "definitions",
    "desired": "desired",
    "placement": "placements",
    "observed": "observed",
    "worker": "workers",
    "release": "releases",
}


def _place(entry: Definition | Desired | Placement | Observation | Worker | Release) -> tuple[str, str | Replica]:
    match entry:
        case Definition():
            return "definition", entry.processor
        case Desired():
            return "desired", entry.processor
        case Placement():
            return "placement", entry.replica
        case Observation():
            return "observed", entry.placement.replica
        case Worker():
            return "worker", entry.id
    return "release", entry.worker
