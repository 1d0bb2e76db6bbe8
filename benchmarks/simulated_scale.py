"""How the work of a query grows with partitions and members, to sizes that no machine here can run.

A program: ``python -m benchmarks.simulated_scale``. It runs the decisions of this library on an in-memory cluster, with the calls
that Spark makes. So it measures the processor time of one Python process, without Kafka, Spark and tasks. A line whose growth is
worse than linear is marked. Source: SEMANTICS S1, G8, W1, G11.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from benchmarks.growth import Growth, rst, table
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import Generation
from unit_tests.streamgroups.query.spark_model import Run, World

#: Measures an action.
Cost: TypeAlias = Callable[[Callable[[], object]], float]

_BATCHES = 3
_PARTITIONS = (1_000, 10_000, 100_000)
_MEMBERS = (10, 100, 1_000)
_PARTITIONS_OF_MEMBERS = 1_000


def seconds(action: Callable[[], object]) -> float:
    """The processor time of an action."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


def of_partitions(sizes: Sequence[int], cost: Cost = seconds) -> list[Growth]:
    """One query that owns all partitions of a topic.

    Args:
        sizes: the numbers of partitions.
        cost: measures an action.
    """
    actions: dict[str, Callable[[int, Cost], float]] = {
        "a query starts": _start_s,
        "a batch with records in all partitions": _batch_s,
        "the same with event time": lambda it, cost: _batch_s(it, cost, TimeSettings(Generation())),
        "a batch without records": _idle_s,
        "a reset of all partitions is applied": _reset_s,
    }
    return [Growth(what, "s", "partitions", sizes, [run(it, cost) for it in sizes]) for what, run in actions.items()]


def of_members(sizes: Sequence[int], partitions: int, cost: Cost = seconds) -> list[Growth]:
    """A group whose members share a topic, and one member more.

    Args:
        sizes: the numbers of members.
        partitions: the number of partitions.
        cost: measures an action.
    """
    found = [_member_s(it, partitions, cost) for it in sizes]
    names = (
        "a member joins, until all members are stable",
        "a batch of one member",
        "a reset, work of each member",
    )
    return [Growth(name, "s", "members", sizes, [it[i] for it in found]) for i, name in enumerate(names)]


def _world(partitions: int, records: int = 2) -> World:
    world = World(partitions)
    world.produce(*[records] * partitions)
    return world


def _start_s(partitions: int, cost: Cost) -> float:
    world = _world(partitions)
    return cost(lambda: Run(world, "alice").start())


def _batch_s(partitions: int, cost: Cost, settings: TimeSettings | None = None) -> float:
    world = _world(partitions)
    run = Run(world, "alice", time=settings).start()
    run.batch()
    took_s = []
    for _ in range(_BATCHES):
        world.produce(*[1] * partitions)
        took_s.append(cost(run.batch))
    return statistics.median(took_s)


def _idle_s(partitions: int, cost: Cost) -> float:
    run = Run(_world(partitions), "alice").start()
    run.batch()
    return statistics.median(cost(run.batch) for _ in range(_BATCHES))


def _reset_s(partitions: int, cost: Cost) -> float:
    world = _world(partitions)
    run = Run(world, "alice").start()
    run.batch()

    def reset() -> None:
        world.order(*[1] * partitions)
        while world.committed()[0] != 1:
            run.batch()

    return cost(reset)


def _member_s(members: int, partitions: int, cost: Cost) -> tuple[float, float, float]:
    world = _world(partitions)
    runs = [Run(world, f"m{number:04}").start() for number in range(members)]
    world.group.settle()
    last = Run(world, "last")

    def join() -> None:
        last.start()
        world.group.settle()

    join_s = cost(join)
    _rounds([*runs, last])
    world.produce(*[1] * partitions)
    batch_s = cost(runs[0].batch)
    _rounds([*runs, last])

    def reset() -> None:
        world.order(*[1] * partitions)
        while set(world.applied().values()) == {""}:
            _rounds([*runs, last], 1)

    return join_s, batch_s, cost(reset) / (members + 1)


def _rounds(runs: Sequence[Run], count: int = 2) -> None:
    for _ in range(count):
        for run in runs:
            run.batch()
        runs[0].world.group.settle()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns 1 if a growth is worse than linear."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulated_scale", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the sizes, to see that it works")
    parser.add_argument("--out", type=Path, metavar="FILE.rst", help="write the table as reStructuredText, too")
    requested = parser.parse_args(arguments)
    by = 100 if requested.quick else 1
    found = of_partitions([it // by for it in _PARTITIONS])
    found += of_members([max(2, it * 2 // by) for it in _MEMBERS] if by > 1 else _MEMBERS, _PARTITIONS_OF_MEMBERS // by)
    Console(width=130).print(table(found))
    if requested.out:
        title = "Growth of the work of a driver, on an in-memory cluster"
        requested.out.write_text(rst(found, title, "python -m benchmarks.simulated_scale --out"), encoding="utf-8")
    return 1 if any(it.is_worse_than_linear for it in found) else 0


if __name__ == "__main__":
    sys.exit(main())
