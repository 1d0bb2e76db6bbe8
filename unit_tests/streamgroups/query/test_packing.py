"""S4: tasks read exactly the ranges of a batch, within the user's bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.packing import SMALL_TASK_OFFSETS, Packing, pack, split
from unit_tests.streamgroups.strategies import range_lists, ranges_of
from unit_tests.work import work_of

P0 = TopicPartition("flights", 0)
PACKINGS = st.builds(
    Packing,
    cores=st.integers(1, 16),
    min_tasks=st.none() | st.integers(1, 60),
    max_task_offsets=st.none() | st.integers(500, 100_000),
)
#: Ranges as long as a task may be, or longer by one, are among these.
_SMALL = st.lists(st.integers(0, 12), max_size=6)


@given(range_lists(), PACKINGS, st.lists(st.floats(1, 1e6), max_size=4))
def test_S4_tasks_tile_the_ranges_within_the_bounds(
    ranges: tuple[OffsetRange, ...], packing: Packing, sizes: list[float]
) -> None:
    tasks = pack(ranges, packing, {r.topic_partition: size for r, size in zip(ranges, sizes, strict=False)})

    pieces: defaultdict[TopicPartition, list[OffsetRange]] = defaultdict(list)
    for r in (r for task in tasks for r in task):
        assert len(r)
        pieces[r.topic_partition].append(r)
    for r in ranges:
        at = r.next_offset
        for piece in sorted(pieces.pop(r.topic_partition, [])):
            assert piece.next_offset == at
            at = piece.end_offset
        assert at == r.end_offset
    assert not pieces
    assert all(tasks)
    total = sum(map(len, ranges))
    if packing.max_task_offsets is not None:
        assert all(sum(map(len, task)) <= packing.max_task_offsets for task in tasks)
    if packing.min_tasks is not None:
        assert len(tasks) >= min(packing.min_tasks, total)
    if packing.min_tasks is None and packing.max_task_offsets is None:
        assert len(tasks) <= packing.cores
        assert all(r in ranges for task in tasks for r in task)


@given(_SMALL, st.integers(1, 12), st.none() | st.integers(1, 12), st.integers(1, 4))
@example([10, 11], 20, None, 2)
@example([20, 21], 20, None, 2)
def test_S4_no_task_has_one_offset_too_many(lengths: list[int], most: int, least: int | None, cores: int) -> None:
    ranges = [OffsetRange(TopicPartition("flights", p), 0, n) for p, n in enumerate(lengths)]
    tasks = pack(ranges, Packing(cores=cores, min_tasks=least, max_task_offsets=most))
    assert max((sum(map(len, task)) for task in tasks), default=0) <= most
    assert sum(len(r) for task in tasks for r in task) == sum(lengths)
    assert len(tasks) >= min(least or 0, sum(lengths))


@given(range_lists(), PACKINGS)
def test_S4_the_same_batch_has_the_same_tasks(ranges: tuple[OffsetRange, ...], packing: Packing) -> None:
    assert pack(reversed(ranges), packing) == pack(ranges, packing)


@given(ranges_of(P0, longest=1_000), st.integers(1, 50))
def test_split_cuts_evenly(r: OffsetRange, parts: int) -> None:
    cut = split(r, parts)
    assert len(cut) == max(1, min(parts, len(r)))
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


@pytest.mark.parametrize(
    ("lengths", "packing", "tasks"),
    [
        ([100] * 8, Packing(cores=2), [8]),
        ([SMALL_TASK_OFFSETS] * 8, Packing(cores=2), [4, 4]),
        ([SMALL_TASK_OFFSETS + 1], Packing(cores=8), [1]),
        ([0, 0], Packing(cores=2), []),
        ([10] * 4, Packing(cores=2, min_tasks=4), [1, 1, 1, 1]),
        ([3], Packing(cores=2, min_tasks=10), [1, 1, 1]),
        ([10, 10], Packing(cores=2, max_task_offsets=15), [1, 1]),
        ([10, 10], Packing(cores=2, max_task_offsets=20), [2]),
        ([10, 11], Packing(cores=2, max_task_offsets=20), [1, 1]),
        ([20, 21], Packing(cores=2, max_task_offsets=20), [1, 1, 1]),
        ([], Packing(cores=2, min_tasks=3), []),
    ],
)
def test_S4_how_many_ranges_each_task_has(lengths: list[int], packing: Packing, tasks: list[int]) -> None:
    ranges = [OffsetRange(TopicPartition("flights", p), 0, n) for p, n in enumerate(lengths)]
    assert [len(task) for task in pack(ranges, packing)] == tasks


def test_large_records_fill_a_task_sooner() -> None:
    ranges = [OffsetRange(TopicPartition("flights", p), 0, 100) for p in range(4)]
    photos, lines = ranges[0].topic_partition, ranges[1].topic_partition
    assert len(pack(ranges, Packing(cores=2))) == 1
    tasks = pack(ranges, Packing(cores=2), {photos: 1e6, **{r.topic_partition: 100.0 for r in ranges[1:]}})
    assert tasks == ((ranges[0],), tuple(ranges[1:]))
    # A partition of unknown size counts like the others; only what is known decides.
    assert len(pack(ranges, Packing(cores=2), {lines: 100.0})) == 1


def test_the_heaviest_partition_is_cut() -> None:
    ranges = [OffsetRange(TopicPartition("flights", p), 0, 100) for p in range(2)]
    sizes = {ranges[0].topic_partition: 1e6, ranges[1].topic_partition: 1e3}
    tasks = pack(ranges, Packing(cores=2, min_tasks=4), sizes)
    assert sorted(r.topic_partition.partition for task in tasks for r in task) == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "packing_of",
    [
        lambda n: Packing(cores=n),
        lambda n: Packing(cores=2, min_tasks=2 * n),
        lambda n: Packing(cores=2, max_task_offsets=20_000),
        lambda n: Packing(cores=2, max_task_offsets=40_000),
    ],
    ids=["cores", "minPartitions", "maxRecordsPerPartition", "two in a task"],
)
def test_S4_the_work_is_linear_in_the_ranges_and_tasks(packing_of: Callable[[int], Packing]) -> None:
    def work(n: int) -> int:
        ranges = [OffsetRange(TopicPartition("flights", p), 0, 12_000 + p % 7) for p in range(n)]
        return work_of(lambda: pack(ranges, packing_of(n)))

    assert work(400) < 2.5 * work(200)
