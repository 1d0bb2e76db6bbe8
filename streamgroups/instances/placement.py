"""The placement of replicas on workers.

:mod:`streamgroups.instances.manager` calls it. A placed replica never moves: a move is a stop and a start, which costs seconds.
A replica that starts takes the first worker with a free slot, in the order of the workers, so that later workers become empty
and can end. A new worker is the last choice, with one exception: replicas of one processor share its partitions, and two of
them in one process gain little. So a replica prefers a worker without another replica of its processor, and a new worker to a
second one. Source: SEMANTICS P2; the rules of workers in MongoDB Atlas Stream Processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from streamgroups.instances.entries import Replica


@dataclass(frozen=True, slots=True)
class Slots:
    """A worker that accepts replicas.

    Args:
        worker: the id of the worker.
        count: the number of its slots.
    """

    worker: str
    count: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The result of a placement.

    Args:
        workers: the worker of each replica that got a slot.
        new_workers: the ids of the new workers among them, in the order of their use.
        waiting: the replicas without a slot.
    """

    workers: Mapping[Replica, str]
    new_workers: tuple[str, ...]
    waiting: tuple[Replica, ...]


def place(
    starting: Iterable[Replica], workers: Sequence[Slots], running: Mapping[Replica, str], new: Sequence[Slots]
) -> Placed:
    """Selects a worker for each replica that starts.

    Args:
        starting: the replicas to place, in any order. They are placed by their names.
        workers: the running workers, the first one first.
        running: the worker of each running replica. Only these occupy slots.
        new: the workers that can be started, in the order of their use.

    >>> proc = [Replica(f"proc{n:02}", 0) for n in range(1, 6)]
    >>> placed = place(proc, [Slots("w1", 4)], {}, [Slots("w2", 4)])
    >>> placed.workers[proc[3]], placed.workers[proc[4]], placed.new_workers
    ('w1', 'w2', ('w2',))
    """
    every = {it.worker: it for it in (*workers, *new)}
    free = {it.worker: it.count for it in every.values()}
    hosts: dict[str, set[str]] = {}
    for replica, host in running.items():
        free[host] = free.get(host, 0) - 1
        hosts.setdefault(replica.processor, set()).add(host)
    found: dict[Replica, str] = {}
    waiting: list[Replica] = []
    have_room = {worker: None for worker in every if free[worker] > 0}
    for processor, replicas in groupby(sorted(set(starting)), key=lambda it: it.processor):
        others = hosts.get(processor, frozenset[str]())
        # Both are lazy: the second one sees the slots that the first one leaves.
        alone = (it for it in have_room if it not in others)
        candidates = chain(alone, (it for it in have_room for _ in range(free[it])))
        placed: list[str] = []
        for replica in replicas:
            worker = next(candidates, None)
            if worker is None:
                waiting.append(replica)
                continue
            found[replica] = worker
            free[worker] -= 1
            placed.append(worker)
        for host in placed:
            if not free[host]:
                have_room.pop(host, None)
    used = set(found.values())
    return Placed(found, tuple(it.worker for it in new if it.worker in used), tuple(waiting))
