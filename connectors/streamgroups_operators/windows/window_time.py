"""The time of a partition while a batch runs: its watermark, its closed windows, and the records that no window counts.

Used by ``windows.panes`` and ``windows.sessions``. Lateness is decided record by record, against the newest event time and
the watermark of the producer before the record in its partition. So the result does not depend on how batches cut the
records. By processing time all records of a batch have the time of the clock, and the clock is the watermark. With the time
of the group all records of a batch have the watermark of the group when the batch was planned. Source: SEMANTICS W2,
W4-W7, W9, W15, S10.

For a record, a window ``[start, end)`` that contains it, and the watermark ``w`` before the record:

==================================  ============================================================================
``end`` is                          the record
==================================  ============================================================================
after ``w``                         is counted, and the window is emitted when the watermark reaches its end
not after ``w``, within lateness    is counted, and the batch emits an update of its pane
before ``w`` minus the lateness     is not counted in this window. If its newest window is such, it is a dead
                                    letter
==================================  ============================================================================

A window that the idle timeout has closed counts no record, whatever the lateness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.violations import OnViolation, Why
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import EventTime, PaneKind, last_end_ms, released_ms
from streamgroups.json_values import MAX_TIME_MS
from streamgroups.state.state_time import GroupWindows, StateTime
from streamgroups_operators.aggregates import length_ms, newest_starts
from streamgroups_operators.event_times import with_event_times
from streamgroups_operators.operator import BEFORE_ALL, BatchTime, Numbers, time_in
from streamgroups_operators.producer_time import ProducerTime
from streamgroups_operators.windows.window_definition import WindowDefinition

_NEWEST, _CLOSED, _DATA, _GROUP, _PRODUCER = "newest_ms", "closed_ms", "data_ms", "group_ms", "producer_ms"


@dataclass(frozen=True, slots=True)
class Timed:
    """Records with their times.

    Args:
        records: the records.
        times_ms: the time that assigns each record to windows.
        watermarks_ms: the watermark before each record.
        closed_ms: windows that end at or before this time are closed for the record.
    """

    records: pa.Table
    times_ms: Numbers
    watermarks_ms: Numbers
    closed_ms: Numbers

    def where(self, mask: Numbers) -> Timed:
        """Returns some of the records."""
        chosen = self.records.filter(pa.array(mask))
        return Timed(chosen, self.times_ms[mask], self.watermarks_ms[mask], self.closed_ms[mask])

    def part(self, of: slice) -> Timed:
        """Returns consecutive records, without a copy."""
        chosen = self.records.slice(of.start, of.stop - of.start)
        return Timed(chosen, self.times_ms[of], self.watermarks_ms[of], self.closed_ms[of])


class WindowTime:
    """The time of one partition, in one batch.

    Args:
        definition: the definition of the windows.
        values: the values of the state.
        time: the time of the batch.
    """

    def __init__(self, definition: WindowDefinition, values: Mapping[str, int | str | None], time: BatchTime) -> None:
        self._definition, self._idle_until_ms = definition, time.idle_until_ms
        #: Whether a bounded run ends with the batch.
        self.is_flush = time.flush
        self._newest_ms, self._closed_ms, self._data_ms = (time_in(values, it) for it in (_NEWEST, _CLOSED, _DATA))
        self._group_ms = time_in(values, _GROUP)
        self._producer = ProducerTime(time_in(values, _PRODUCER))
        self._delay_ms: int | None = 0
        self._lateness_ms = 0
        self._idle_timeout_ms: int | None = None
        boundary = definition.windowing.boundary
        self._is_event_time = isinstance(boundary, EventTime)
        #: Whether the batch has the watermark: that of the group, or of the query.
        self._is_group = self._is_event_time and definition.scope is not Scope.PARTITION
        self._open_ends_ms, self._closes_empty = time.open_ends_ms, time.closes_empty
        if isinstance(boundary, EventTime):
            self._delay_ms, self._lateness_ms = definition.delay_ms, boundary.allowed_lateness_ms
            self._idle_timeout_ms = boundary.idle_timeout_ms
        #: The watermark before the batch.
        self.before_ms = self.watermark_ms
        before_ms = self._group_ms
        if self._is_group and time.group_watermark_ms is not None:
            # The group can be behind a state after a reset, or when an idle partition has new records.
            self._group_ms = max(self._group_ms, time.group_watermark_ms)
        #: The watermark of the group by which records are late.
        self._late_by_ms = before_ms if time.advances_after else self._group_ms
        if not self._is_event_time:
            # A clock that was set back makes no record late.
            self._newest_ms = max(self._newest_ms, time.now_ms)
        elif self._idle_timeout_ms is not None and time.idle_until_ms is None and not time.flush:
            self._data_ms = time.now_ms
        #: The dead letters of the batch.
        self.dead: list[pa.Table] = []

    # ---- records -----------------------------------------------------------------------------------------------------

    def take(self, records: pa.Table) -> Timed:
        """Advances time by records, and returns them without those that have no time or violate the watermark."""
        timed = self.advance(records)
        keeps_violations = self._definition.on_violation is OnViolation.KEEP or not self._is_event_time
        return timed if keeps_violations else self._without_violations(timed)

    def advance(self, records: pa.Table) -> Timed:
        """Advances time by records, and returns them without those that have no time."""
        if not self._is_event_time:
            times = np.full(records.num_rows, self._newest_ms, np.int64)
            return Timed(records, times, times, times)
        records = with_event_times(records)
        unreadable = pc.is_null(records["time"])
        if pc.any(unreadable).as_py():
            self._drop(records.filter(unreadable), Why.UNREADABLE)
            records = records.filter(pc.invert(unreadable))
        times = records["time"].to_numpy()
        newest = np.maximum.accumulate(np.concatenate([[self._newest_ms], self._advancing(records, times)]))
        self._newest_ms = int(newest[-1])
        own = self._own_before(records, newest[:-1])
        reached = np.full(len(times), self._late_by_ms) if self._is_group else own
        watermarks = np.maximum(reached, self._closed_ms)
        closed = np.maximum(reached - self._lateness_ms, self._closed_ms) if self._lateness_ms else watermarks
        return Timed(records, times, watermarks, closed)

    def _advancing(self, records: pa.Table, times: Numbers) -> Numbers:
        """The times that advance the watermark: the end of an edge advances nothing."""
        if self._definition.event_shape is not EventShape.EDGE:
            return times
        return np.where(pc.is_valid(records["until"]).to_numpy(), BEFORE_ALL, times)

    def add_watermarks(self, watermarks: ProducerWatermarks) -> None:
        """Adds watermarks of the producer of the partition. The clock has no producer."""
        if self._is_event_time:
            self._producer.add(watermarks)

    def _own_before(self, records: pa.Table, newest: Numbers) -> Numbers:
        """The watermark of the partition before each record.

        Args:
            records: the records.
            newest: the newest event time before each of them.
        """
        generated = np.full(len(newest), BEFORE_ALL) if self._delay_ms is None else newest - self._delay_ms
        if not self._producer.is_used:
            return generated
        own: Numbers = np.maximum(generated, self._producer.before(records["offset"].to_numpy()))
        return own

    def _without_violations(self, timed: Timed) -> Timed:
        """See :class:`streamgroups.event_time.violations.OnViolation`."""
        early = timed.times_ms < timed.watermarks_ms
        if not early.any():
            return timed
        adjusted = np.zeros(len(early), bool)
        if self._definition.on_violation is OnViolation.ADJUST:
            # A record without an end is valid for one moment only, so nothing of it remains.
            reaches = pc.greater(timed.records["until"], pa.array(timed.watermarks_ms))
            adjusted = early & pc.fill_null(reaches, False).to_numpy()
        self.drop(timed.where(early & ~adjusted), Why.VIOLATION)
        moved = np.where(adjusted, timed.watermarks_ms, timed.times_ms)
        return Timed(timed.records, moved, timed.watermarks_ms, timed.closed_ms).where(~early | adjusted)

    def drop(self, timed: Timed, why: Why) -> None:
        """Adds dead letters. Each contains the newest window that it missed."""
        if not timed.records.num_rows:
            return
        shape = self._definition.windowing.shape
        starts = newest_starts(shape, timed.times_ms)
        self._drop(
            timed.records,
            why,
            watermark=_watermarks(timed.watermarks_ms),
            start=pa.array(starts),
            end=pa.array(starts + length_ms(shape)),
        )

    def _drop(self, records: pa.Table, why: Why, **columns: pa.Array) -> None:
        count = records.num_rows
        own = [name for name in (*self._definition.key_names, "record") if name in records.column_names]
        pane = {"pane": pa.array([PaneKind.DEAD_LETTER.value] * count, pa.string())}
        reason = {"why": pa.array([why.value] * count, pa.string()), "event_time": records["time"]}
        self.dead.append(pa.table({name: records[name] for name in own} | pane | reason | columns))

    # ---- windows -----------------------------------------------------------------------------------------------------

    @property
    def _own_ms(self) -> int:
        """The watermark of the partition: the later one of its records and its producer."""
        if self._delay_ms is None or self._newest_ms == BEFORE_ALL:
            return self._producer.reached
        return max(self._newest_ms - self._delay_ms, self._producer.reached)

    @property
    def _passed_ms(self) -> int:
        return self._group_ms if self._is_group else self._own_ms

    @property
    def reached_ms(self) -> int:
        """The watermark by the records and the producer so far, by the group, or by the clock.

        On bounded data it is behind by the allowed lateness, so that a window is emitted once: when it closes.
        """
        return self._passed_ms - self._lateness_ms if self._definition.is_bounded else self._passed_ms

    @property
    def watermark_ms(self) -> int:
        """The watermark, also by the idle timeout."""
        return max(self.reached_ms, self._closed_ms)

    @property
    def closed_until_ms(self) -> int:
        """Windows that end at or before this time are closed."""
        return max(self._passed_ms - self._lateness_ms, self._closed_ms)

    @property
    def expired_ms(self) -> int:
        """Windows that end at or before this time have reached the idle timeout."""
        if self._idle_timeout_ms is None or self._idle_until_ms is None:
            return BEFORE_ALL
        expired_ms = self._idle_until_ms - self._idle_timeout_ms
        return expired_ms if BEFORE_ALL < self._data_ms <= expired_ms else BEFORE_ALL

    def expire(self, ends_ms: Iterable[int]) -> None:
        """Closes windows that have reached the idle timeout.

        If a later operator has an idle timeout, windows without records too.

        Args:
            ends_ms: the ends of all open windows of the state.
        """
        expired_ms = self.expired_ms
        expired = [end_ms for end_ms in (*ends_ms, *self._open_ends_ms) if end_ms <= expired_ms]
        if self._closes_empty and expired_ms != BEFORE_ALL:
            # The later operator closes its windows by the clock, and no later result may be in one of them.
            expired.append(last_end_ms(self._definition.windowing.shape, expired_ms))
        self._closed_ms = max([self._closed_ms, *expired])

    def released_ms(self, emitted_ms: int, earliest_start_ms: int | None = None) -> int | None:
        """Returns a time before which no later result starts; ``None`` before the first watermark.

        Args:
            emitted_ms: windows that end at or before this time have been emitted.
            earliest_start_ms: the earliest start of an open session; ``None`` without one.
        """
        until_ms = min(self.closed_until_ms, emitted_ms)
        if until_ms <= BEFORE_ALL or earliest_start_ms == BEFORE_ALL:
            return None
        return released_ms(self._definition.windowing.shape, until_ms, earliest_start_ms)

    def due_ms(self, earliest_end_ms: int | None) -> int | None:
        """Returns when a run without records can close a window. ``None``: only records close windows.

        Args:
            earliest_end_ms: the earliest end of an open window; ``None`` without open windows.
        """
        if earliest_end_ms is None:
            return None
        if not self._is_event_time:
            return earliest_end_ms
        return None if self._idle_timeout_ms is None else max(earliest_end_ms, self._data_ms) + self._idle_timeout_ms

    def state_time(self, next_end_ms: int | None) -> StateTime | None:
        """Returns the event time of the state; ``None`` by processing time.

        Args:
            next_end_ms: the earliest end of a window that is not emitted yet; ``None`` without such a window.
        """
        if not self._is_event_time:
            return None
        watermark_ms = max(self._own_ms, self._closed_ms)
        group = GroupWindows(_known(self._group_ms), next_end_ms) if self._is_group else None
        return StateTime(_known(watermark_ms), _known(self._newest_ms), watermark_ms > self._own_ms, group)

    @property
    def values(self) -> dict[str, int | str | None]:
        """The values of the state."""
        found = {_NEWEST: self._newest_ms, _CLOSED: self._closed_ms, _DATA: self._data_ms, _GROUP: self._group_ms}
        found[_PRODUCER] = self._producer.reached
        return {name: value for name, value in found.items() if value != BEFORE_ALL}


def _watermarks(times_ms: Numbers) -> pa.Array:
    """Returns watermarks as a column. It is null before the first watermark."""
    # A delay moves the time before all others, and a time that far from 1970 has no microseconds in 64 bits.
    return pa.array(times_ms, mask=times_ms < -MAX_TIME_MS)


def _known(time_ms: int) -> int | None:
    return None if time_ms == BEFORE_ALL else time_ms
