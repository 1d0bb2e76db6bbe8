"""targetBatchTime: batches of any cost stay within the target, and none is smaller than necessary."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.query.batch_time import BatchCost, BatchSize, MeasuredBatch, after_batch, cost_of, first_size

TARGETS_MS = st.integers(200, 60_000)
#: From 1 µs to 5 ms for each offset, with equal weight for each order of magnitude.
OFFSET_MS = st.floats(-3, 0.69).map(lambda power: 10**power)
#: The part of the target that a batch without records takes.
FIXED = st.floats(0, 0.5)


@dataclass
class Sink:
    """Batches of a query with an unlimited backlog."""

    target_ms: int
    fixed_ms: float
    offset_ms: float
    noise: Callable[[], float] = lambda: 1.0
    size: BatchSize = field(init=False)

    def __post_init__(self) -> None:
        self.size = first_size(self.target_ms)

    @property
    def ideal(self) -> float:
        """The offsets of a batch that takes 80 % of the target."""
        return (0.8 * self.target_ms - self.fixed_ms) / self.offset_ms

    def run(self, batches: int) -> list[float]:
        """Runs batches. Returns their durations as multiples of the target."""
        found = []
        for _ in range(batches):
            offsets = self.size.max_offsets
            duration_ms = (self.fixed_ms + offsets * self.offset_ms) * self.noise()
            self.size = after_batch(self.size, MeasuredBatch(offsets, duration_ms), self.target_ms)
            found.append(duration_ms / self.target_ms)
        return found


@given(TARGETS_MS, FIXED, OFFSET_MS, st.integers(0, 1_000))
def test_every_batch_is_within_the_target_and_batches_grow_to_it(
    target_ms: int, fixed: float, offset_ms: float, seed: int
) -> None:
    noise = random.Random(seed)
    sink = Sink(target_ms, fixed * target_ms, offset_ms, lambda: noise.uniform(0.95, 1.05))
    assert max(sink.run(80)) <= 1.06, "the first batch of 5 ms for each offset has no margin"
    assert sink.size.max_offsets >= 0.8 * sink.ideal - 1
    assert max(sink.run(20)) <= 1


@given(TARGETS_MS, st.floats(0.1, 0.45), OFFSET_MS, st.integers(0, 1_000))
def test_batches_double_while_their_fixed_cost_prevails(
    target_ms: int, fixed: float, offset_ms: float, seed: int
) -> None:
    """Also while the fixed cost decreases, as in a new process."""
    sink, noise = Sink(target_ms, fixed * target_ms, offset_ms), random.Random(seed)
    sink.noise = lambda: noise.uniform(0.98, 1)
    sink.run(2)
    while sink.size.max_offsets * offset_ms <= 0.05 * target_ms:
        limit = sink.size.max_offsets
        sink.fixed_ms *= 0.99
        sink.run(1)
        assert sink.size.max_offsets >= 1.9 * limit - 1


@given(TARGETS_MS, FIXED, OFFSET_MS, OFFSET_MS)
def test_batches_shrink_at_once_if_records_become_slower_and_grow_if_they_become_faster(
    target_ms: int, fixed: float, before_ms: float, after_ms: float
) -> None:
    sink = Sink(target_ms, fixed * target_ms, before_ms)
    sink.run(60)
    sink.offset_ms = after_ms
    durations = sink.run(80)
    assert max(durations[2:]) <= 1, "one batch is too long, and the next one only if the fixed cost is unknown"
    assert durations[1] <= 1.3
    assert sink.size.max_offsets >= 0.8 * sink.ideal - 1


@given(TARGETS_MS, FIXED, OFFSET_MS, st.floats(2, 100))
def test_one_slow_batch_has_no_lasting_effect(target_ms: int, fixed: float, offset_ms: float, slower: float) -> None:
    sink = Sink(target_ms, fixed * target_ms, offset_ms)
    sink.run(60)
    before = min(sink.size.max_offsets, sink.ideal)
    sink.noise = lambda: slower
    sink.run(1)
    sink.noise = lambda: 1.0
    assert max(sink.run(40)) <= 1
    assert sink.size.max_offsets >= 0.9 * before - 1


@given(TARGETS_MS, st.floats(1.1, 10), OFFSET_MS)
def test_a_fixed_cost_above_the_target_does_not_reduce_batches_to_nothing(
    target_ms: int, fixed: float, offset_ms: float
) -> None:
    sink = Sink(target_ms, fixed * target_ms, offset_ms)
    sink.run(60)
    sizes = []
    for _ in range(16):
        sink.run(1)
        sizes.append(sink.size.max_offsets)
    least = 0.25 * target_ms / offset_ms
    assert max(sizes) >= 0.5 * least - 1
    assert sum(sizes) / len(sizes) >= 0.2 * least - 1


def test_a_batch_without_offsets_changes_nothing() -> None:
    size = first_size(1_000)
    assert after_batch(size, MeasuredBatch(0, 90_000), 1_000) is size


def test_a_small_batch_of_a_live_stream_does_not_reduce_the_limit() -> None:
    size = BatchSize(10_000)
    for _ in range(20):
        size = after_batch(size, MeasuredBatch(3, 300), 1_000)
    assert size.max_offsets == 10_000


@given(TARGETS_MS, st.floats(0.8, 0.95), st.floats(-3, -1).map(lambda power: 10**power))
def test_small_batches_do_not_reduce_the_limit_if_the_fixed_cost_prevails(
    target_ms: int, fixed: float, offset_ms: float
) -> None:
    sink = Sink(target_ms, 0.3 * target_ms, offset_ms)
    sink.run(60)
    measured = sink.size.max_offsets
    sink.fixed_ms = fixed * target_ms
    sink.run(40)
    before = sink.size
    assert before.max_offsets * offset_ms >= 0.01 * target_ms - offset_ms
    for _ in range(20):
        sink.size = after_batch(sink.size, MeasuredBatch(1, sink.fixed_ms), target_ms)
    assert sink.size.max_offsets == before.max_offsets <= measured


@pytest.mark.parametrize(
    ("offsets", "duration_ms", "limit"),
    [
        (100, 399, 200),
        (100, 500, 160),
        (100, 799, 101),
        (100, 800, 100),
        (100, 1_000, 100),
        (100, 1_001, 79),
        (100, 1_600, 50),
        (60, 800, 60),
        (1, 90_000, 1),
        (300, 800, 100),
    ],
    ids=["fast", "half", "below", "on target", "at the end", "over", "double", "part", "least", "more than the limit"],
)
def test_the_next_limit(offsets: int, duration_ms: int, limit: int) -> None:
    assert after_batch(BatchSize(100), MeasuredBatch(offsets, duration_ms), 1_000).max_offsets == limit


def test_the_cost_is_that_of_most_batches() -> None:
    batches = [MeasuredBatch(n, 200 + 2 * n) for n in (100, 200, 400, 800, 1_600)]
    assert cost_of([*batches, MeasuredBatch(3_200, 60_000)]) == BatchCost(200, 2)
    assert cost_of(batches[:1]) is None
    assert cost_of([MeasuredBatch(100, 900), MeasuredBatch(200, 500)]) == BatchCost(700, 0)
