"""P2: the first worker with a free slot, before a new worker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.instances.entries import Replica
from streamgroups.instances.placement import Slots, place
from unit_tests.streamgroups.instances.model import counts, names

#: The steps of the example of the document about MongoDB Atlas, and the processors of each worker after each step.
_FIRST, _SECOND = {"w1": [1, 2, 3, 4]}, {"w2": [5, 6, 7, 8]}
_WITHOUT_3 = {"w1": [1, 2, 4]}
EXAMPLE: dict[str, list[tuple[str, list[int], dict[str, list[int]]]]] = {
    "proc10 takes the slot of proc03": [
        ("start", [1, 2, 3, 4], _FIRST),
        ("start", [5, 6, 7, 8], {**_FIRST, **_SECOND}),
        ("start", [9], {**_FIRST, **_SECOND, "w3": [9]}),
        ("stop", [3], {**_WITHOUT_3, **_SECOND, "w3": [9]}),
        ("start", [10], {"w1": [1, 2, 4, 10], **_SECOND, "w3": [9]}),
    ],
    "proc09 is stopped and started": [
        ("start", [1, 2, 3, 4, 5, 6, 7, 8], {**_FIRST, **_SECOND}),
        ("start", [9], {**_FIRST, **_SECOND, "w3": [9]}),
        ("stop", [3], {**_WITHOUT_3, **_SECOND, "w3": [9]}),
        ("stop", [9], {**_WITHOUT_3, **_SECOND, "w3": []}),
        ("start", [9], {"w1": [1, 2, 4, 9], **_SECOND, "w3": []}),
    ],
    "defined processors do not count": [
        ("start", [1, 2, 3, 4], _FIRST),
        ("stop", [1, 2, 3, 4], {"w1": []}),
        ("start", [5, 6, 7, 8], {"w1": [5, 6, 7, 8]}),
    ],
}


@pytest.mark.parametrize("steps", EXAMPLE.values(), ids=EXAMPLE.keys())
def test_P2_the_example_of_the_document(steps: list[tuple[str, list[int], dict[str, list[int]]]]) -> None:
    running: dict[Replica, str] = {}
    workers: list[Slots] = []
    for action, numbers, expected in steps:
        replicas = [Replica(name, 0) for name in names(*numbers)]
        if action == "start":
            new = [Slots(f"w{len(workers) + n}", 4) for n in range(1, 4)]
            placed = place(replicas, workers, running, new)
            assert not placed.waiting
            running |= placed.workers
            workers += [it for it in new if it.worker in placed.new_workers]
        else:
            for replica in replicas:
                del running[replica]
        found = {it.worker: sorted(r.processor for r, w in running.items() if w == it.worker) for it in workers}
        assert found == {worker: names(*its) for worker, its in expected.items()}


@pytest.mark.parametrize(
    ("replicas", "workers", "new", "expected"),
    [
        pytest.param(2, ["w1", "w2"], [], ["w1", "w2"], id="different workers"),
        pytest.param(2, ["w1"], ["w2"], ["w1", "w2"], id="a new worker, for a replica only"),
        pytest.param(2, ["w1"], [], ["w1", "w1"], id="one worker, if there is no other"),
        pytest.param(3, ["w1", "w2"], [], ["w1", "w2", "w1"], id="twice on the first one"),
    ],
)
def test_P2_replicas_are_on_different_workers_where_possible(
    replicas: int, workers: list[str], new: list[str], expected: list[str]
) -> None:
    placed = place(
        [Replica("late", i) for i in range(replicas)],
        [Slots(it, 4) for it in workers],
        {},
        [Slots(it, 4) for it in new],
    )
    assert [placed.workers[Replica("late", i)] for i in range(replicas)] == expected


_REPLICAS = st.builds(Replica, st.sampled_from(names(1, 2, 3, 4, 5, 6)), st.integers(0, 3))
_WORKERS = st.lists(st.integers(1, 4), max_size=4)


@given(st.sets(_REPLICAS), st.dictionaries(_REPLICAS, st.integers(0, 3)), _WORKERS, _WORKERS, st.randoms())
def test_P2_any_placement(
    starting: set[Replica], running: dict[Replica, int], sizes: list[int], new_sizes: list[int], random: object
) -> None:
    workers = [Slots(f"w{i}", size) for i, size in enumerate(sizes)]
    new = [Slots(f"n{i}", size) for i, size in enumerate(new_sizes)]
    placed_before = {r: f"w{w}" for r, w in running.items() if w < len(workers) and r not in starting}
    placed = place(starting, workers, placed_before, new)
    assert placed == place(_shuffled(sorted(starting), random), workers, placed_before, new)
    # Each replica is placed once or waits.
    assert placed.workers.keys() | set(placed.waiting) == starting
    assert not placed.workers.keys() & set(placed.waiting)
    # No worker has more than before, beyond its slots.
    slots = {it.worker: it.count for it in (*workers, *new)}
    before, after = counts(placed_before.values()), counts([*placed_before.values(), *placed.workers.values()])
    assert all(after[w] <= max(slots[w], before.get(w, 0)) for w in after)
    # A replica waits only without any free slot, and each new worker is used.
    assert not placed.waiting or all(after.get(w, 0) >= slots[w] for w in slots)
    assert set(placed.new_workers) == set(placed.workers.values()) & {it.worker for it in new}
    _check_that_new_workers_are_needed(placed.workers, placed_before, workers, set(placed.new_workers))


def _check_that_new_workers_are_needed(
    placed: dict[Replica, str] | object, before: dict[Replica, str], workers: Sequence[Slots], new: set[str]
) -> None:
    assert isinstance(placed, dict)
    used = counts([*before.values(), *placed.values()])
    for replica in (r for r, w in placed.items() if w in new):
        together = {w for r, w in {**before, **placed}.items() if r.processor == replica.processor}
        assert all(used.get(it.worker, 0) >= it.count or it.worker in together for it in workers)


def _shuffled(replicas: list[Replica], random: object) -> list[Replica]:
    random.shuffle(replicas)  # type: ignore[attr-defined]
    return replicas
