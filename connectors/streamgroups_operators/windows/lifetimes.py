"""Intervals and edges in tumbling and hopping windows: every window that overlaps the lifetime of an event counts it.

Created by ``streamgroups_operators.window_operator``. Lateness is decided record by record, as for points. For a record with
the lifetime ``[start, end)`` and the closed time ``c`` before it, the open windows that overlap the lifetime are one range:
from the first window that ends after ``max(start, c)`` to the last one that starts before ``end``. An event in one window
becomes a row of this window, and any other one a carried row (``windows.shared_partials``). An emitted window that counts the event
contains a *mark*: a row without values that makes it an update. Source: SEMANTICS W9, W19, S10; StreamInsight's rules for
the events before a CTI.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.violations import OnViolation, Why
from streamgroups.event_time.windows import PaneKind
from streamgroups_operators import aggregates
from streamgroups_operators.aggregates import no_parts, parts_of
from streamgroups_operators.large_tables import cut, slices, taken_slice
from streamgroups_operators.operator import Numbers, State
from streamgroups_operators.windows.grid import counts_of, first_after, last_before, last_ended, spread
from streamgroups_operators.windows.panes import PaneRun
from streamgroups_operators.windows.window_definition import padded
from streamgroups_operators.windows.window_time import Timed


@dataclass(frozen=True, slots=True)
class _Lifetimes:
    """Records with their lifetimes.

    Args:
        timed: the records. Their time is the start of the lifetime.
        ends_ms: its end, after the start.
    """

    timed: Timed
    ends_ms: Numbers

    def where(self, mask: Numbers) -> _Lifetimes:
        return _Lifetimes(self.timed.where(mask), self.ends_ms[mask])

    @property
    def last_moments(self) -> Timed:
        """The records at the last moment of their lifetimes, whose newest window is the last one that counts them."""
        timed = self.timed
        return Timed(timed.records, self.ends_ms - 1, timed.watermarks_ms, timed.closed_ms)


class LifetimeRun(PaneRun):
    """See :class:`streamgroups_operators.operator.Run`. The arguments are those of :class:`PaneRun`."""

    _also = (*PaneRun._also, ("first", "max"))
    #: Ends of edges, until all records of the batch are there.
    _ends: tuple[_Lifetimes, ...] = ()

    # ---- records -----------------------------------------------------------------------------------------------------

    def add(self, records: pa.Table) -> None:
        """See :meth:`Run.add`."""
        timed = self._time.advance(records)
        until = timed.records["until"]
        # An end that is missing, or not after the start: the event is valid for one moment.
        known = pc.fill_null(until, np.iinfo(np.int64).min).to_numpy()
        events = _Lifetimes(timed, np.maximum(known, timed.times_ms + 1))
        if self._definition.event_shape is EventShape.INTERVAL:
            self._add_intervals(self._without_violations(events, events.ends_ms))
            return
        is_end = pc.is_valid(until).to_numpy()
        self._ends = (*self._ends, self._ends_without_violations(events.where(is_end)))
        starts = events.where(~is_end)
        # An edge without an end reaches beyond each watermark.
        self._add_starts(self._without_violations(starts, np.full(len(starts.ends_ms), np.iinfo(np.int64).max)))

    def _without_violations(self, events: _Lifetimes, reach_ms: Numbers) -> _Lifetimes:
        """See :class:`streamgroups.event_time.violations.OnViolation`."""
        timed, policy = events.timed, self._definition.on_violation
        early = timed.times_ms < timed.watermarks_ms
        if policy is OnViolation.KEEP or not early.any():
            return events
        adjusted = early & (reach_ms > timed.watermarks_ms) & (policy is OnViolation.ADJUST)
        self._time.drop(timed.where(early & ~adjusted), Why.VIOLATION)
        moved = np.where(adjusted, timed.watermarks_ms, timed.times_ms)
        lifted = Timed(timed.records, moved, timed.watermarks_ms, timed.closed_ms)
        return _Lifetimes(lifted, events.ends_ms).where(~early | adjusted)

    def _ends_without_violations(self, ends: _Lifetimes) -> _Lifetimes:
        """The end of an edge violates the watermark if the end is before it, wherever the start is."""
        early = ends.ends_ms < ends.timed.watermarks_ms
        policy = self._definition.on_violation
        if policy is OnViolation.KEEP or not early.any():
            return ends
        if policy is OnViolation.ADJUST:
            return _Lifetimes(ends.timed, np.maximum(ends.ends_ms, ends.timed.watermarks_ms))
        self._drop_ends(ends.where(early), Why.VIOLATION)
        return ends.where(~early)

    def _drop_ends(self, ends: _Lifetimes, why: Why) -> None:
        """Adds dead letters, whose event time is the end."""
        moments = ends.last_moments
        records = moments.records
        at = records.schema.get_field_index("time")
        records = records.set_column(at, "time", pa.array(ends.ends_ms))
        self._time.drop(Timed(records, moments.times_ms, moments.watermarks_ms, moments.closed_ms), why)

    # ---- intervals and starts ----------------------------------------------------------------------------------------

    def _add_intervals(self, events: _Lifetimes) -> None:
        first = self._first(events.timed)
        last = last_before(self._shape, events.ends_ms)
        missed = first > last
        if missed.any():
            self._time.drop(events.last_moments.where(missed), Why.LATE)
            events, first, last = events.where(~missed), first[~missed], last[~missed]
        alone = first == last
        self._add_alone(events.timed.where(alone), first[alone])
        timed, first, last = events.timed.where(~alone), first[~alone], last[~alone]
        if timed.records.num_rows:
            self._carried.add(self._rows_of(timed, first=first, last=last))
            self._mark(timed.records, first, np.minimum(last, last_ended(self._shape, timed.watermarks_ms)))

    def _add_alone(self, timed: Timed, start: Numbers) -> None:
        """Adds events that one window counts."""
        if timed.records.num_rows:
            late = (start + self._shape.size_ms <= timed.watermarks_ms).astype(np.int64)
            self._append(self._rows_of(timed, start=start, first=start, late=late))

    def _add_starts(self, starts: _Lifetimes) -> None:
        timed = starts.timed
        if not timed.records.num_rows:
            return
        first = self._first(timed)
        rows = self._rows_of(timed, first=first, begin=timed.records["time"], offset=timed.records["offset"])
        self._carried.edges.start(rows)
        self._carried.expect(rows["first"])
        self._mark(timed.records, first, last_ended(self._shape, timed.watermarks_ms))

    def _first(self, timed: Timed) -> Numbers:
        return first_after(self._shape, np.maximum(timed.times_ms, timed.closed_ms))

    def _rows_of(self, timed: Timed, **columns: Numbers | pa.ChunkedArray) -> pa.Table:
        records = timed.records
        found = {name: records[name] for name in self._definition.key_names}
        found |= {"late": pa.array(np.zeros(records.num_rows, np.int64))}
        found |= {name: pa.array(it) if isinstance(it, np.ndarray) else it for name, it in columns.items()}
        return pa.table(found | parts_of(self._definition.aggregates, records))

    def _mark(self, rows: pa.Table, first: Numbers, last: Numbers) -> None:
        """Marks windows as updated: of each row, those from the first to the last one."""
        for it in cut(counts_of(first, last, self._shape.hop_ms), aggregates.MAX_PAIRS):
            self._mark_step(rows.slice(it.start, it.stop - it.start), first[it], last[it])

    def _mark_step(self, rows: pa.Table, first: Numbers, last: Numbers) -> None:
        which, starts = spread(first, last, self._shape.hop_ms)
        keys = rows.select(["time", *self._definition.key_names])
        for it in slices((keys, which)):
            marked = taken_slice(keys, which[it])
            count = marked.num_rows
            columns = {name: marked[name] for name in self._definition.key_names}
            columns |= {"start": pa.array(starts[it]), "first": pa.nulls(count, pa.int64())}
            columns |= {"late": pa.array(np.ones(count, np.int64))}
            self._append(pa.table(columns | no_parts(self._definition.aggregates, self._definition.schema, count)))

    # ---- ends --------------------------------------------------------------------------------------------------------

    def finish(self) -> tuple[State, list[pa.Table]]:
        """See :meth:`Run.finish`."""
        found = [ends for ends in self._ends if ends.timed.records.num_rows]
        self._ends = ()
        if found:
            self._end(_concatenated(found))
        return super().finish()

    def _end(self, ends: _Lifetimes) -> None:
        """Ends edges: from now on they are intervals. Closed windows keep the events that they have counted."""
        records = ends.timed.records
        ended = self._carried.edges.end(records.append_column("begin", records["time"]))
        if not ended.has_start.all():
            self._drop_ends(ends.where(~ended.has_start), Why.NO_START)
            ends = ends.where(ended.has_start)
        first, timed = ended.starts["first"].to_numpy(), ends.timed
        last = np.maximum(last_before(self._shape, ends.ends_ms), last_ended(self._shape, timed.closed_ms))
        counted = first <= last
        self._drop_ends(ends.where(~counted), Why.LATE)
        at = ended.starts.schema.get_field_index("last")
        rows = ended.starts.set_column(at, "last", pa.array(last))
        self._carried.add(rows.filter(pa.array(counted)))
        # Emitted windows after the end counted the event.
        after = np.maximum(first, last + self._shape.hop_ms)
        self._mark(timed.records, after, last_ended(self._shape, timed.watermarks_ms))

    # ---- panes -------------------------------------------------------------------------------------------------------

    def _append(self, rows: pa.Table) -> None:
        super()._append(padded(rows, self._definition.schema))

    def _merged(self, rows: pa.Table, *also: tuple[str, str]) -> pa.Table:
        return padded(super()._merged(rows, *also), self._definition.schema)

    def _panes(self, merged: pa.Table, kind: PaneKind) -> list[pa.Table]:
        is_counted = pc.is_valid(merged["first"])
        found = super()._panes(merged.filter(is_counted), kind)
        if kind is PaneKind.UPDATE:
            gone = merged.filter(pc.and_(merged["changed"], pc.invert(is_counted)))
            found.append(self._rows(gone, PaneKind.RETRACTION))
        return found


def _concatenated(found: list[_Lifetimes]) -> _Lifetimes:
    timed = [it.timed for it in found]
    return _Lifetimes(
        Timed(
            pa.concat_tables([it.records for it in timed]),
            np.concatenate([it.times_ms for it in timed]),
            np.concatenate([it.watermarks_ms for it in timed]),
            np.concatenate([it.closed_ms for it in timed]),
        ),
        np.concatenate([it.ends_ms for it in found]),
    )
