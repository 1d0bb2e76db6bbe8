"""Processes one batch of one bucket: counts or drops records, advances time, emits panes, and updates the state.

Called by ``windows.processor``. :mod:`streamgroups.event_time.panes` decides which records are late and which windows
are due or closed. This module applies its decisions to columns. The row of a pane in the state contains its keys,
``start`` and ``end``, and its partial aggregates. ``emitted`` indicates that a row of exactly this window was emitted, and
``next`` is the next revision. ``changed`` indicates that records of this batch are included. Source: SEMANTICS W4-W9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.panes import (
    Batch,
    KeptTime,
    PaneKind,
    Passage,
    is_closed,
    pass_time,
    session_numbers,
    time_of_records,
    to_poll,
    verdict,
)
from streamgroups.event_time.violations import OnViolation, Why
from streamgroups.event_time.watermark import At
from streamgroups.event_time.windows import Session, Window
from streamgroups_operators.aggregates import add_up, in_windows, length_ms, parts_of, results
from streamgroups_operators.event_times import with_event_times
from streamgroups_operators.keys import key_numbers
from streamgroups_operators.windows.panes import by_start
from streamgroups_spark.windows.bucket_columns import WindowPlan

#: All sessions of a bucket have one key, because they have no common start.
_SESSIONS = 0
_PANE = (("emitted", "max"), ("next", "max"), ("changed", "max"))


class Panes(Protocol):
    """The panes of a bucket, by the start of their window."""

    def get(self, start_ms: int) -> pa.Table | None: ...

    def put(self, start_ms: int, panes: pa.Table) -> None: ...

    def remove(self, start_ms: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Judged:
    """The records of a batch: counted ones with their windows, and dropped ones as rows of the output."""

    counted: pa.Table | None
    given_up: list[pa.Table]


def step(
    plan: WindowPlan, panes: Panes, kept: KeptTime, batch: Batch, records: Sequence[pa.Table]
) -> tuple[KeptTime, list[pa.Table]]:
    """Applies a batch to a bucket.

    Args:
        plan: the definition of the query.
        panes: the panes of the bucket, which are changed.
        kept: the stored time of the bucket.
        batch: the times of the batch.
        records: the records of the bucket.

    Returns:
        The new time of the bucket, and the output rows.
    """
    judged = _Judged(None, [])
    if records:
        judged = _judge(plan, kept, pa.concat_tables(records), time_of_records(plan.windowing, kept, batch.now_ms))
    if isinstance(plan.windowing.shape, Session):
        kept, emitted = _sessions(plan, panes, kept, batch, judged.counted)
    else:
        kept, emitted = _windows(plan, panes, kept, batch, judged.counted)
    return kept, [table for table in (*emitted, *judged.given_up) if table.num_rows]


# ---- records ---------------------------------------------------------------------------------------------------------


def _judge(plan: WindowPlan, kept: KeptTime, records: pa.Table, time_ms: int | None) -> _Judged:
    given_up = []
    if time_ms is not None:
        times = np.full(records.num_rows, time_ms, np.int64)
    else:
        records = with_event_times(records)
        unreadable = pc.is_null(records["time"])
        given_up.append(_dead_letters(kept, records.filter(unreadable), Why.UNREADABLE))
        records = records.filter(pc.invert(unreadable))
        times = records["time"].to_numpy()
        if plan.on_violation is not OnViolation.KEEP:
            records, times, violating = _without_violations(plan, kept, records, times)
            given_up.append(violating)
    shape, length = plan.windowing.shape, length_ms(plan.windowing.shape)
    which, starts = in_windows(shape, times)
    distinct, inverse = np.unique(starts, return_inverse=True)
    late = np.array([is_closed(kept.windows, Window(int(s), int(s) + length)) for s in distinct], bool)[inverse]
    # The latest windows come first, one for each record, and close last.
    newest = late[: records.num_rows]
    missed = records.filter(pa.array(newest)).append_column("start", pa.array(starts[: len(newest)][newest]))
    given_up.append(_dead_letters(kept, missed, Why.LATE, length))
    counts = ~late
    if not counts.any():
        return _Judged(None, given_up)
    chosen = records.take(pa.array(which[counts]))
    start = starts[counts]
    columns = {name: chosen[name] for name in plan.key_names}
    columns |= {"start": pa.array(start), "end": pa.array(start + length)}
    columns |= _new(len(start)) | parts_of(plan.aggregates, chosen)
    return _Judged(pa.table(columns), given_up)


def _without_violations(
    plan: WindowPlan, kept: KeptTime, records: pa.Table, times: np.ndarray[Any, Any]
) -> tuple[pa.Table, np.ndarray[Any, Any], pa.Table]:
    """Returns the remaining records with their times, and the dropped ones.

    See :class:`streamgroups.event_time.violations.OnViolation`.
    """
    watermark = kept.windows.watermark
    time_ms = watermark.time_ms if isinstance(watermark, At) and plan.on_violation is not OnViolation.KEEP else None
    early = np.zeros(len(times), bool) if time_ms is None else times < time_ms
    lifted = np.zeros(len(times), bool)
    if plan.on_violation is OnViolation.ADJUST and time_ms is not None:
        # A record without an end is valid for one moment only, so nothing of it remains.
        lifted = early & pc.fill_null(pc.greater(records["until"], time_ms), False).to_numpy()
    given_up = early & ~lifted
    missed = records.filter(pa.array(given_up))
    _, starts = in_windows(plan.windowing.shape, times[given_up])
    letters = _dead_letters(
        kept,
        missed.append_column("start", pa.array(starts[: missed.num_rows], pa.int64())),
        Why.VIOLATION,
        length_ms(plan.windowing.shape),
    )
    times = np.where(lifted, 0 if time_ms is None else time_ms, times)
    return records.filter(pa.array(~given_up)), times[~given_up], letters


def _new(count: int) -> dict[str, pa.Array]:
    return {
        "emitted": pa.array(np.zeros(count, np.int8)),
        "next": pa.array(np.zeros(count, np.int32)),
        "changed": pa.array(np.ones(count, np.int8)),
    }


def _dead_letters(kept: KeptTime, records: pa.Table, why: Why, length: int = 0) -> pa.Table:
    count = records.num_rows
    watermark = kept.windows.watermark
    watermark_ms = watermark.time_ms if isinstance(watermark, At) else None
    columns = {name: records[name] for name in records.column_names if name[0] == "k" or name == "record"}
    columns |= {
        "pane": pa.array([PaneKind.DEAD_LETTER.value] * count, pa.string()),
        "why": pa.array([why.value] * count, pa.string()),
        "event_time": records["time"],
        "watermark": pa.array([watermark_ms] * count, pa.int64()),
    }
    if "start" in records.column_names:
        columns |= {"start": records["start"], "end": pc.add(records["start"], length)}
    return pa.table(columns)


# ---- tumbling and hopping windows ------------------------------------------------------------------------------------


def _windows(
    plan: WindowPlan, panes: Panes, kept: KeptTime, batch: Batch, counted: pa.Table | None
) -> tuple[KeptTime, list[pa.Table]]:
    length = length_ms(plan.windowing.shape)
    new_rows = {} if counted is None else by_start(counted)
    own = {start: Window(start, start + length) for start in new_rows}
    kept, passage = pass_time(plan.windowing, kept, replace(batch, windows=tuple({*batch.windows, *own.values()})))
    own |= {window.start_ms: window for window in to_poll(passage)}
    emitted = []
    for start, window in sorted(own.items()):
        before, new = panes.get(start), new_rows.get(start)
        tables = [table for table in (before, new) if table is not None]
        if not tables:
            continue
        merged = add_up(plan.aggregates, pa.concat_tables(tables), [*plan.key_names, "start", "end"], _PANE)
        rows, merged = _emit(plan, merged, [(passage, window)] * merged.num_rows)
        emitted += rows
        if not is_closed(passage.after, window):
            panes.put(start, _at_rest(merged))
        elif before is not None:
            panes.remove(start)
    return kept, emitted


# ---- sessions --------------------------------------------------------------------------------------------------------


def _sessions(
    plan: WindowPlan, panes: Panes, kept: KeptTime, batch: Batch, counted: pa.Table | None
) -> tuple[KeptTime, list[pa.Table]]:
    before = panes.get(_SESSIONS)
    tables = [table for table in (before, counted) if table is not None]
    if not tables:
        return pass_time(plan.windowing, kept, batch)[0], []
    merged, emitted = _merge(plan, pa.concat_tables(tables))
    windows = [Window(s, e) for s, e in zip(_list(merged, "start"), _list(merged, "end"), strict=True)]
    kept, passage = pass_time(plan.windowing, kept, replace(batch, windows=tuple(set(windows))))
    rows, merged = _emit(plan, merged, [(passage, window) for window in windows])
    left = merged.filter(pa.array([not is_closed(passage.after, window) for window in windows], pa.bool_()))
    if left.num_rows:
        panes.put(_SESSIONS, _at_rest(left))
    elif before is not None:
        panes.remove(_SESSIONS)
    return kept, emitted + rows


def _merge(plan: WindowPlan, table: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """Merges adjacent sessions. Retracts emitted rows of windows that no longer exist."""
    [keys] = key_numbers(plan.key_names, table)
    order = np.lexsort((table["start"].to_numpy(), keys))
    table = table.take(pa.array(order))
    starts, ends = table["start"].to_numpy(), table["end"].to_numpy()
    numbers = np.array(session_numbers(keys[order].tolist(), starts.tolist(), ends.tolist()))
    firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
    # The rows are sorted by start. The ends of a session are not sorted.
    whole_start, whole_end = starts[firsts][numbers], np.maximum.reduceat(ends, firsts)[numbers]
    void = (table["emitted"].to_numpy() == 1) & ((starts != whole_start) | (ends != whole_end))
    retracted = _retracted(plan, table.filter(pa.array(void)))
    for name, column in (("start", whole_start), ("end", whole_end)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(column))
    table = table.set_column(
        table.schema.get_field_index("emitted"),
        "emitted",
        pa.array(np.where(void, 0, table["emitted"].to_numpy()).astype(np.int8)),
    )
    table = table.append_column("session", pa.array(numbers))
    merged = add_up(plan.aggregates, table, ["session", *plan.key_names, "start", "end"], _PANE)
    return merged.drop_columns(["session"]), [retracted]


def _retracted(plan: WindowPlan, rows: pa.Table) -> pa.Table:
    columns = {name: rows[name] for name in (*plan.key_names, "start", "end")}
    columns |= {"pane": pa.array([PaneKind.RETRACTION.value] * rows.num_rows, pa.string()), "revision": rows["next"]}
    return pa.table(columns)


# ---- output ----------------------------------------------------------------------------------------------------------


def _emit(
    plan: WindowPlan, panes: pa.Table, moved: Sequence[tuple[Passage, Window]]
) -> tuple[list[pa.Table], pa.Table]:
    """Returns the output rows of panes, and the panes after the output."""
    changed = panes["changed"].to_numpy() == 1
    known: dict[tuple[Window, bool], PaneKind | None] = {}
    kinds = []
    for (passage, window), is_changed in zip(moved, changed.tolist(), strict=True):
        if (window, is_changed) not in known:
            known[window, is_changed] = verdict(passage, window, changed=is_changed)
        kinds.append(known[window, is_changed])
    is_emitted = np.array([kind is not None for kind in kinds], bool)
    if not is_emitted.any():
        return [], panes
    emitted = panes.filter(pa.array(is_emitted))
    columns = {name: emitted[name] for name in (*plan.key_names, "start", "end")}
    columns |= results(plan.aggregates, plan.output, emitted)
    columns |= {
        "pane": pa.array([kind.value for kind in kinds if kind is not None], pa.string()),
        "revision": emitted["next"],
    }
    after = {
        "emitted": np.where(is_emitted, 1, panes["emitted"].to_numpy()).astype(np.int8),
        "next": (panes["next"].to_numpy() + is_emitted).astype(np.int32),
    }
    for name, column in after.items():
        panes = panes.set_column(panes.schema.get_field_index(name), name, pa.array(column))
    return [pa.table(columns)], panes


def _at_rest(panes: pa.Table) -> pa.Table:
    """Returns the panes for the state, without changes until the next batch."""
    nothing = pa.array(np.zeros(panes.num_rows, np.int8))
    return panes.set_column(panes.schema.get_field_index("changed"), "changed", nothing)


def _list(table: pa.Table, name: str) -> list[int]:
    return [int(value) for value in table[name].to_pylist()]
