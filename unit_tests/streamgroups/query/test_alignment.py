"""W16: partitions that are too far ahead of the watermark wait, and all records are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earliest, latest
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.alignment import FIRST_OFFSETS, Aligned, Density, EventTimes, align, measured_density

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
#: The event times of the records of a partition, out of order. ``None``: a record without an event time.
LOGS = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 2_000)), max_size=60), min_size=1, max_size=4)
DRIFTS = st.integers(1, 500)


@dataclass
class Stream:
    """Partitions, and a query that reads each of them as far as it may."""

    logs: Mapping[TopicPartition, list[int | None]]
    max_drift_ms: int
    is_bounded: bool = False
    idle: frozenset[TopicPartition] = frozenset()
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    densities: dict[TopicPartition, Density] = field(default_factory=dict)
    read: dict[TopicPartition, OffsetRange] = field(default_factory=dict)
    watermarks: dict[TopicPartition, list[Watermark]] = field(init=False)

    def __post_init__(self) -> None:
        self.watermarks = {
            tp: list(accumulate((NOT_YET if ms is None else At(ms) for ms in log), latest, initial=NOT_YET))
            for tp, log in self.logs.items()
        }

    def watermark(self, tp: TopicPartition) -> Watermark:
        return self.watermarks[tp][self.positions.get(tp, 0)]

    @property
    def available(self) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (self.positions.get(tp, 0), len(log)) for tp, log in self.logs.items()}

    def batch(self) -> Aligned:
        """Reads a batch, and checks the limit of each partition."""
        times = EventTimes({tp: self.watermark(tp) for tp in self.logs}, self.idle)
        self.densities = {
            tp: measured_density(self.densities.get(tp), next_offset, self.watermark(tp), self.read.get(tp))
            for tp, (next_offset, _) in self.available.items()
        }
        found = align(self.available, times, self.densities, self.max_drift_ms, is_bounded=self.is_bounded)
        before = {tp: self.watermark(tp) for tp in self.logs}
        counted = [
            tp
            for tp, (next_offset, end) in self.available.items()
            if next_offset < end or not (self.is_bounded or tp in self.idle)
        ]
        base = earliest(*(before[tp] for tp in counted))
        assert found.base == base
        self.read = {
            tp: OffsetRange(tp, next_offset, end)
            for tp, (next_offset, end) in found.available.items()
            if next_offset < end
        }
        assert self.read.keys().isdisjoint(found.waiting)
        for tp, r in self.read.items():
            self.positions[tp] = r.end_offset
            was, now = before[tp], self.watermark(tp)
            if isinstance(was, At) and isinstance(now, At):
                assert isinstance(base, At), "without a base no partition with a watermark is read"
                advanced_ms = now.time_ms - was.time_ms
                assert now.time_ms - base.time_ms <= self.max_drift_ms + advanced_ms, "the drift, and one batch more"
        return found

    @property
    def is_read(self) -> bool:
        return all(next_offset == end for next_offset, end in self.available.values())


def stream(logs: list[list[int | None]], max_drift_ms: int, *, is_bounded: bool = False) -> Stream:
    return Stream({TopicPartition("flights", p): log for p, log in enumerate(logs)}, max_drift_ms, is_bounded)


@given(LOGS, DRIFTS)
def test_W16_a_run_that_ends_reads_all_records(logs: list[list[int | None]], max_drift_ms: int) -> None:
    query = stream(logs, max_drift_ms, is_bounded=True)
    while not query.is_read:
        query.batch()
        assert query.read, "a batch without records would end the run"


@given(LOGS, DRIFTS, st.data())
def test_W16_a_stream_stops_only_at_a_partition_without_records(
    logs: list[list[int | None]], max_drift_ms: int, data: st.DataObject
) -> None:
    query = stream(logs, max_drift_ms)
    query.idle = frozenset(data.draw(st.sets(st.sampled_from(sorted(query.logs)))))
    while True:
        found = query.batch()
        if not query.read:
            break
    if query.is_read:
        return
    exhausted = {tp for tp, (next_offset, end) in query.available.items() if next_offset == end}
    assert found.holding
    assert found.holding <= exhausted - query.idle, "it has no records, and is not idle"
    # With a partition idle timeout it is idle at some time, and all records are read.
    query.idle = frozenset(query.logs)
    while not query.is_read:
        query.batch()
        assert query.read


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 100_000), st.integers(100, 5_000))
def test_W16_with_even_event_times_the_error_is_one_record(
    fast_ms: int, slow_ms: int, behind_ms: int, max_drift_ms: int
) -> None:
    """A partition is behind the others, and records of a partition have a constant distance."""
    fast: list[int | None] = [behind_ms + i * fast_ms for i in range(300)]
    slow: list[int | None] = [i * slow_ms for i in range(300)]
    query = stream([fast, slow], max_drift_ms, is_bounded=True)
    batches = 0
    while not query.is_read:
        before = {tp: query.watermark(tp) for tp in query.logs}
        found = query.batch()
        batches += 1
        for tp in query.read:
            now, was = query.watermark(tp), before[tp]
            density = query.densities[tp].offset_ms
            if density is not None and isinstance(found.base, At) and isinstance(now, At) and isinstance(was, At):
                assert now.time_ms <= found.base.time_ms + max_drift_ms + density
    assert batches <= 600 + 1


def test_W16_a_partition_that_is_ahead_waits_until_the_others_come_near() -> None:
    hour: list[int | None] = [ms * 60_000 for ms in range(60)]
    day_before: list[int | None] = [ms * 60_000 - 86_400_000 for ms in range(25 * 60)]
    query = stream([hour, day_before], 600_000, is_bounded=True)
    while query.positions.get(P1, 0) < 24 * 60 - 10:
        query.batch()
        assert query.positions[P0] == FIRST_OFFSETS
    while not query.is_read:
        query.batch()


@pytest.mark.parametrize(
    ("mine", "other", "idle", "waits"),
    [
        (At(600), At(500), (), False),
        (At(601), At(500), (), True),
        (At(601), At(500), (P1,), False),
        (NOT_YET, At(500), (), False),
        (At(601), NOT_YET, (), True),
        (At(601), NOT_YET, (P1,), False),
        (NOT_YET, NOT_YET, (), False),
    ],
)
def test_W16_what_a_partition_without_records_does_to_one_with_records(
    mine: Watermark, other: Watermark, idle: tuple[TopicPartition, ...], waits: bool
) -> None:
    times = EventTimes({P0: mine, P1: other}, idle)
    found = align({P0: (0, 90), P1: (5, 5)}, times, {}, 100, is_bounded=False)
    assert (P0 in found.waiting, found.available[P0]) == (waits, (0, 0) if waits else (0, FIRST_OFFSETS))
    ends = align({P0: (0, 90), P1: (5, 5)}, times, {}, 100, is_bounded=True)
    assert not ends.waiting, "no other partition has records, so the run would end"


def test_W16_an_idle_partition_with_new_records_holds_back_again() -> None:
    times = EventTimes({P0: At(700), P1: At(500)}, (P1,))
    found = align({P0: (0, 90), P1: (5, 6)}, times, {}, 100, is_bounded=False)
    assert (found.waiting, found.holding) == ({P0: 200}, {P1})


def test_W16_a_partition_of_another_query_holds_back_too() -> None:
    times = EventTimes({P0: At(700), P1: At(650), P2: At(500)})
    found = align({P0: (0, 90), P1: (0, 90)}, times, {}, 150, is_bounded=False)
    assert (found.waiting, found.holding) == ({P0: 200}, {P2})


def test_W16_the_watermark_of_the_query_can_be_later_than_the_minimum() -> None:
    """A new partition, or one that is no longer idle, has older records. They are late, and hold back no other one."""
    times = EventTimes({P0: At(700), P1: At(20)}, reached=At(650))
    found = align({P0: (0, 90), P1: (0, 90)}, times, {}, 100, is_bounded=False)
    assert (found.waiting, found.base) == ({}, At(650))


@pytest.mark.parametrize(
    ("density", "room_ms", "offsets"),
    [
        (None, 100, FIRST_OFFSETS),
        (Density(0, At(500), 50), 100, FIRST_OFFSETS),
        (Density(0, At(500), 1, 0.0), 100, FIRST_OFFSETS),
        (Density(0, NOT_YET, 5), 100, 20),
        (Density(0, At(500), 500, 2.0), 100, 50),
        (Density(0, At(500), 500, 200.0), 100, 1),
        (Density(0, At(500), 5, 0.001), 100, 20),
        (Density(0, At(500), 5, 0.0), 100, 20),
        (Density(0, NOT_YET, 5, 50.0), 100, 20),
    ],
    ids=[
        "new",
        "unknown",
        "least",
        "no event time",
        "by density",
        "at least one",
        "dense",
        "equal times",
        "no watermark",
    ],
)
def test_W16_a_batch_reads_up_to_the_limit(density: Density | None, room_ms: int, offsets: int) -> None:
    densities = {} if density is None else {P0: density}
    found = align({P0: (0, 10_000)}, EventTimes({P0: At(500)}), densities, room_ms, is_bounded=False)
    assert found.available == {P0: (0, offsets)}


def test_W16_offsets_that_were_not_read_change_no_density() -> None:
    dense = Density(100, At(500), 50, 2.0)
    assert measured_density(dense, 100, At(500), OffsetRange(P0, 50, 100)) == dense
    assert measured_density(dense, 40, NOT_YET, None) == Density(40), "a reset"
    assert measured_density(dense, 900, At(500), OffsetRange(P0, 50, 100)) == Density(900, At(500)), "a gap"
    assert measured_density(dense, 120, At(540), OffsetRange(P0, 100, 120)) == Density(120, At(540), 20, 2.0)
    assert measured_density(dense, 120, At(500), OffsetRange(P0, 100, 120)) == Density(120, At(500), 20, 1.0)
    assert measured_density(dense, 120, NOT_YET, OffsetRange(P0, 100, 120)) == Density(120, NOT_YET, 20, 2.0)
