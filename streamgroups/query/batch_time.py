"""Decides how many offsets a batch may read, so that it takes no longer than a target (``targetBatchTime``).

Called by ``streamgroups.query.batch_ranges`` after each batch. A rebalance waits for the batch in flight, so the
target also limits the duration of a handover. Source: the slow start of TCP, for the growth; the Theil-Sen estimator,
for the cost of a batch, because single slow batches do not change it.

==================================  ==================================================================================
the batch took                      the next batch reads at most
==================================  ==================================================================================
less than 80 % of the target        its offsets in proportion to 80 % of the target, both without the fixed cost; at most
                                    in proportion to the target or one more, and at most twice its offsets. A batch with
                                    few offsets does not reduce the limit
80 % to 100 % of the target         its offsets, if the limit would exceed the target by the estimated cost
more than the target                its offsets in proportion to 80 % of the target, without the fixed cost
==================================  ==================================================================================

The cost of a batch is a fixed time and a time for each offset. If the fixed time alone exceeds the target, smaller
batches would not be faster, only more of them. So the limit then leaves a quarter of the target for the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, takewhile
from statistics import median

#: The part of the target that a batch should take. The rest is a margin for records that cost more.
_AIM = 0.8
_GROWTH = 2
#: The number of batches that an estimate uses.
_MAX_BATCHES = 8
#: Two batches show the cost of an offset if one has at least this multiple of the offsets of the other.
_APART = 2
#: The first batch uses half of the target if an offset costs 5 ms.
_FIRST_MS_PER_OFFSET = 10
#: The part of the target for records if the fixed cost exceeds the target.
_LEAST_PART = 0.25


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """A finished batch.

    Args:
        offsets: the number of offsets that it has read.
        duration_ms: its duration, from its plan to its end.
    """

    offsets: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The cost of a batch.

    Args:
        fixed_ms: the time of a batch without offsets.
        offset_ms: the time for each offset.
    """

    fixed_ms: float
    offset_ms: float

    def of(self, offsets: int) -> float:
        """The duration of a batch with this number of offsets, in milliseconds.

        >>> BatchCost(200.0, 1.5).of(100)
        350.0
        """
        return self.fixed_ms + offsets * self.offset_ms


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The limit of the next batch, and the batches from which it was computed.

    Args:
        max_offsets: the maximum number of offsets, at least 1.
        cost: the estimated cost; ``None`` until two batches have different sizes.
        batches: the last batches with offsets.
    """

    max_offsets: int
    cost: BatchCost | None = None
    batches: tuple[MeasuredBatch, ...] = ()


def first_size(target_ms: int) -> BatchSize:
    """Returns the limit of the first batch of a run.

    Args:
        target_ms: the target, in milliseconds.

    >>> first_size(1_000).max_offsets
    100
    """
    return BatchSize(max(1, target_ms // _FIRST_MS_PER_OFFSET))


def after_batch(before: BatchSize, batch: MeasuredBatch, target_ms: int) -> BatchSize:
    """Returns the limit after a batch.

    Args:
        before: the limit of the batch.
        batch: the batch. One without offsets changes nothing.
        target_ms: the target, in milliseconds.

    >>> grown = after_batch(first_size(1_000), MeasuredBatch(100, 200), 1_000)
    >>> grown.max_offsets
    200
    >>> after_batch(grown, MeasuredBatch(200, 1_600), 1_000).max_offsets
    100
    """
    if not batch.offsets:
        return before
    batches = (*before.batches, batch)[-_MAX_BATCHES:]
    recent = cost_of(batches)
    aim_ms, duration_ms = target_ms * _AIM, max(batch.duration_ms, 1.0)
    if duration_ms > target_ms:
        # A fixed cost that was estimated too high must not reduce the limit to nothing.
        fixed_ms = 0.0 if before.cost is None else min(before.cost.fixed_ms, aim_ms / 2)
        reduced = batch.offsets * (aim_ms - fixed_ms) / (duration_ms - fixed_ms)
        return BatchSize(max(1, int(max(reduced, _least(batches, recent, target_ms)))), before.cost, batches)
    # A batch that was too long can be an exception, and would distort the cost of the others.
    cost = cost_of([it for it in batches if it.duration_ms <= target_ms]) or before.cost
    if cost is not None and duration_ms >= aim_ms and cost.of(before.max_offsets) <= target_ms:
        # A small batch of a live stream takes as long if the fixed cost prevails. It does not reduce the limit.
        return BatchSize(before.max_offsets, cost, batches)
    if duration_ms >= aim_ms:
        return BatchSize(min(before.max_offsets, batch.offsets), cost, batches)
    fixed_ms = _fixed_while_growing(batches, target_ms)
    possible = (aim_ms - fixed_ms) / (duration_ms - fixed_ms) if duration_ms > fixed_ms else _GROWTH
    # Within the target even if the time of the batch was that of its offsets only.
    grown = int(batch.offsets * min(possible, target_ms / duration_ms, _GROWTH))
    if grown == batch.offsets and (recent is None or recent.of(grown + 1) <= aim_ms):
        grown += 1
    return BatchSize(max(before.max_offsets, grown), cost, batches)


def cost_of(batches: Sequence[MeasuredBatch]) -> BatchCost | None:
    """Returns the cost of batches; ``None`` if all have about the same size.

    >>> cost_of([MeasuredBatch(100, 300), MeasuredBatch(200, 400), MeasuredBatch(400, 600)])
    BatchCost(fixed_ms=200.0, offset_ms=1.0)
    >>> cost_of([MeasuredBatch(100, 300), MeasuredBatch(110, 300)]) is None
    True
    """
    slopes = _slopes(permutations(batches, 2))
    if not slopes:
        return None
    offset_ms = max(median(slopes), 0.0)
    return BatchCost(max(median(it.duration_ms - offset_ms * it.offsets for it in batches), 0.0), offset_ms)


def _slopes(pairs: Iterable[tuple[MeasuredBatch, MeasuredBatch]]) -> list[float]:
    """The time for each offset, in milliseconds, by the pairs whose second batch is much larger than the first one."""
    return [
        (more.duration_ms - less.duration_ms) / (more.offsets - less.offsets)
        for less, more in pairs
        if more.offsets >= _APART * less.offsets
    ]


def _fixed_while_growing(batches: Sequence[MeasuredBatch], target_ms: int) -> float:
    """The least fixed time of a batch, in milliseconds, by batches that have grown since the last one was too long.

    A small batch takes most of its time for other things than its offsets. Without this part its size would grow slowly.
    0 if no batch is much larger than an earlier one: then records can have become slower.
    """
    within = list(takewhile(lambda it: it.duration_ms <= target_ms, reversed(batches)))[::-1]
    slopes = _slopes(combinations(within, 2))
    if not slopes:
        return 0.0
    offset_ms = max(median(slopes), 0.0)
    return max(min(it.duration_ms - offset_ms * it.offsets for it in within), 0.0)


def _least(batches: Sequence[MeasuredBatch], cost: BatchCost | None, target_ms: int) -> float:
    """The limit below which batches would be smaller, and not faster."""
    if cost is None or cost.fixed_ms <= target_ms:
        return 1.0
    most = float(max(it.offsets for it in batches)) * _GROWTH
    return min(most, target_ms * _LEAST_PART / cost.offset_ms) if cost.offset_ms else most
