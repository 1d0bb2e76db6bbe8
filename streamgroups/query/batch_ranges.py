"""Decides which ranges the next batch of a query reads, by measurements of finished batches.

Used by ``streamgroups.query.micro_batches`` on the thread of the query. The decisions are functions of
:mod:`streamgroups.query.trigger_limits` (limits of the user), :mod:`streamgroups.query.alignment` (``maxDrift``) and
:mod:`streamgroups.query.batch_time` (``targetBatchTime``). This module keeps their state during a run. Source:
SEMANTICS S4, W16.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamgroups.durations import exact
from streamgroups.event_time.watermark import NOT_YET, Watermark
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Clock
from streamgroups.printable import listed
from streamgroups.query.alignment import Aligned, Density, EventTimes, align, measured_density
from streamgroups.query.batch_time import MeasuredBatch, after_batch, cost_of, first_size
from streamgroups.query.trigger_limits import UNLIMITED, Limits, admit

logger = logging.getLogger(__name__)

#: How long the partitions of a query may wait for a watermark that does not advance, until a warning.
_WARN_AFTER_MS = 60_000

#: Returns the duration of a finished batch in milliseconds, by its end offset; ``None`` if it is unknown.
BatchDuration = Callable[[Mapping[str, Any]], int | None]


@dataclass(frozen=True, slots=True)
class _Planned:
    """The last batch that was planned."""

    number: int
    ranges: tuple[OffsetRange, ...]
    planned_ms: int


@dataclass(frozen=True, slots=True)
class _Stalled:
    """The watermark for which all partitions of the query wait."""

    base: Watermark
    since_ms: int
    is_reported: bool = False


class BatchAdmission:
    """See :mod:`streamgroups.query.batch_ranges`.

    Args:
        limits: the limits of the user.
        group_id: the group, for logs.
        clock: a monotonic clock in milliseconds.
        duration_ms: returns the duration of a finished batch. Without a result, the time from the plan of the batch to
            the plan of the next one counts, which includes the wait for a trigger.
    """

    def __init__(
        self, limits: Limits, group_id: str, clock: Clock, duration_ms: BatchDuration = lambda _: None
    ) -> None:
        self._limits, self._group_id, self._clock, self._duration_ms = limits, group_id, clock, duration_ms
        target_ms = limits.target_batch_ms
        self._size = None if target_ms is None else first_size(target_ms)
        self._is_warned = False
        self._planned: _Planned | None = None
        self._finished: _Planned | None = None
        self._densities: dict[TopicPartition, Density] = {}
        self._stalled: _Stalled | None = None
        self._waiting: Mapping[TopicPartition, int | None] = {}

    @property
    def waiting(self) -> Mapping[TopicPartition, int | None]:
        """The partitions that wait by ``maxDrift``, and their distance to the watermark in ms; ``None`` without one."""
        return self._waiting

    @property
    def max_offsets(self) -> int | None:
        """The maximum number of offsets of the next batch; ``None`` without a limit."""
        measured_offsets = None if self._size is None else self._size.max_offsets
        return min((it for it in (measured_offsets, self._limits.max_offsets) if it is not None), default=None)

    def planned(self, number: int, ranges: Collection[OffsetRange]) -> None:
        """Records that a batch is planned.

        Args:
            number: its number.
            ranges: the ranges that it reads.
        """
        self._planned = _Planned(number, tuple(ranges), self._clock())

    def finished(self, end: Mapping[str, Any], number: int) -> None:
        """Measures the last batch, which is finished.

        Args:
            end: its end offset, as Spark has logged it.
            number: its number.
        """
        batch = self._planned
        if batch is None or batch.number != number or batch is self._finished:
            return
        self._finished = batch
        target_ms, offsets = self._limits.target_batch_ms, sum(map(len, batch.ranges))
        if self._size is None or target_ms is None or not offsets:
            return
        known_ms = self._duration_ms(end)
        duration_ms = self._clock() - batch.planned_ms if known_ms is None else known_ms
        size = self._size = after_batch(self._size, MeasuredBatch(offsets, duration_ms), target_ms)
        logger.debug(
            "Group '%s': batch %d has read %d offsets in %d ms, with targetBatchTime %d ms. The next batch reads at most "
            "%d offsets (%s)",
            self._group_id,
            number,
            offsets,
            duration_ms,
            target_ms,
            size.max_offsets,
            size.cost,
        )
        recent = cost_of(size.batches)
        if duration_ms > target_ms and recent is not None and recent.fixed_ms > target_ms:
            self._warn(recent.fixed_ms, target_ms)

    def _warn(self, fixed_ms: float, target_ms: int) -> None:
        """Logs once that no batch can reach the target."""
        if self._is_warned:
            return
        self._is_warned = True
        logger.warning(
            "Group '%s': a batch takes %.1f s regardless of its size, which is more than targetBatchTime (%s). Smaller "
            "batches are not faster. Set targetBatchTime to at least %s, or reduce the fixed cost of a batch, such as the "
            "connections of a sink.",
            self._group_id,
            fixed_ms / 1_000,
            exact(target_ms),
            # Room for records beside the fixed cost, in whole seconds.
            exact((int(fixed_ms * 1.5) // 1_000 + 1) * 1_000),
        )

    def ranges(
        self,
        available: Mapping[TopicPartition, tuple[int, int]],
        times: EventTimes | None,
        *,
        is_limited: bool,
        is_bounded: bool,
    ) -> tuple[OffsetRange, ...]:
        """Returns the ranges of the next batch; none if it should wait.

        Args:
            available: next offset and end offset of each partition that may be read.
            times: the event times of the stream; ``None`` if the query has none.
            is_limited: whether the limits of the user apply.
            is_bounded: whether the run ends when all available records are read. A minimum would never be reached.
        """
        limits = replace(self._limits, max_offsets=self.max_offsets)
        if is_bounded:
            limits = replace(limits, min_offsets=None)
        if is_limited and limits.max_drift_ms is not None and times is not None:
            available = self._aligned(available, times, limits.max_drift_ms, is_bounded=is_bounded)
        else:
            self._waiting = {}
        last_ms = None if self._planned is None else self._planned.planned_ms
        return admit(available, limits if is_limited else UNLIMITED, last_batch_ms=last_ms, now_ms=self._clock())

    def _aligned(
        self,
        available: Mapping[TopicPartition, tuple[int, int]],
        times: EventTimes,
        max_drift_ms: int,
        *,
        is_bounded: bool,
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        read = {} if self._finished is None else {r.topic_partition: r for r in self._finished.ranges}
        self._densities = {
            tp: measured_density(self._densities.get(tp), next_offset, times.watermarks.get(tp, NOT_YET), read.get(tp))
            for tp, (next_offset, _) in available.items()
        }
        found = align(available, times, self._densities, max_drift_ms, is_bounded=is_bounded)
        if found.waiting.keys() != self._waiting.keys():
            logger.debug(
                "Group '%s': %s wait for the watermark (%s)",
                self._group_id,
                listed(sorted(found.waiting)) or "no partitions",
                found.base,
            )
        self._waiting = found.waiting
        self._check_progress(found, max_drift_ms)
        return found.available

    def _check_progress(self, found: Aligned, max_drift_ms: int) -> None:
        """Logs a warning if all partitions with records wait, and the watermark does not advance."""
        if not found.waiting or any(next_offset < end for next_offset, end in found.available.values()):
            self._stalled = None
            return
        now_ms, stalled = self._clock(), self._stalled
        if stalled is None or stalled.base != found.base:
            stalled = _Stalled(found.base, now_ms)
        if now_ms - stalled.since_ms >= _WARN_AFTER_MS and not stalled.is_reported:
            stalled = replace(stalled, is_reported=True)
            logger.warning(
                "Group '%s': the query has read no records for %d s, because of maxDrift (%s). Ahead of the watermark (%s): "
                "%s. Partitions that hold back the watermark: %s. If they have no available records, set "
                "partitionIdleTimeout on the source, or write records to them. If another query owns them, check that query.",
                self._group_id,
                (now_ms - stalled.since_ms) // 1_000,
                exact(max_drift_ms),
                found.base,
                listed(sorted(found.waiting)),
                listed(sorted(found.holding)) or "no partitions",
            )
        self._stalled = stalled
