"""P2: the work of an instance is linear in its processors, replicas and workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgroups.instances.entries import Definition, Desired, Entry, Placement, Replica, Worker
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.instances.overview import overview
from streamgroups.instances.placement import Slots, place
from unit_tests.work import work_of


def _entries(n: int) -> list[Entry]:
    """The entries of n processors, each with a worker of its own."""
    numbers = range(n)
    return [
        *(Definition(f"p{i}", "{}") for i in numbers),
        *(Desired(f"p{i}", True, 1) for i in numbers),
        *(Worker(f"w{i}", 4, 0, 1, 0, 6_000) for i in numbers),
        *(Placement(Replica(f"p{i}", 0), f"w{i}", i, 1) for i in numbers),
    ]


def _read(n: int) -> int:
    entries = _entries(n)
    return work_of(lambda: apply(InstanceState(), *entries))


def _shown(n: int) -> int:
    state = apply(InstanceState(), *_entries(n))
    return work_of(lambda: overview("board", state, 0))


def _placed(n: int) -> int:
    replicas = [Replica(f"p{i}", index) for i in range(n) for index in range(3)]
    workers = [Slots(f"w{i}", 2) for i in range(n)]
    return work_of(lambda: place(replicas, workers, {}, ()))


@pytest.mark.parametrize("work", [_read, _shown, _placed])
def test_P2_the_work_is_linear(work: Callable[[int], int]) -> None:
    assert work(200) < 2.5 * work(100)
