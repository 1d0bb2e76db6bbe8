"""Merges records into sessions: in columns where the order of records does not matter, otherwise record by record.

Called by ``windows.sessions``. A record joins the sessions of its key that touch its own window ``[time, time + gap)`` and
are not closed. The order of records matters only for the number of late records, and for sessions that closed before the
record. Both need a session whose end is between the time of a record and the watermark before it. Source: SEMANTICS W4,
W7; Flink's merging windows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamgroups_operators.aggregates import add_up
from streamgroups_operators.keys import key_numbers
from streamgroups_operators.large_tables import taken
from streamgroups_operators.operator import Numbers
from streamgroups_operators.windows.window_definition import WindowDefinition

#: The column that is 0 for a session without records since its last flush, and otherwise 1.
FRESH = "fresh"
_COMBINED = (("start", "min"), ("end", "max"), ("late", "sum"), (FRESH, "max"))


def merge(definition: WindowDefinition, rows: pa.Table, watermarks_ms: Numbers, closed_ms: Numbers) -> pa.Table:
    """Merges partial sessions and records into sessions.

    Args:
        definition: the definition of the windows.
        rows: the keys, ``start``, ``end``, ``late``, ``fresh`` and the partial aggregates. Partial sessions come first, and then
            records in the order of their offsets.
        watermarks_ms: the watermark before each record. A time before all others for a partial session.
        closed_ms: the time up to which windows are closed for each record; as above for a partial session.

    Returns:
        One row for each session. ``fresh`` is the maximum over its rows.
    """
    starts, ends = rows["start"].to_numpy(), rows["end"].to_numpy()
    [keys] = key_numbers(definition.key_names, rows)
    numbers = _touching(keys, starts, ends)
    one_by_one = np.flatnonzero(_needs_order(numbers, starts, ends, watermarks_ms))
    if len(one_by_one):
        chosen = (it[one_by_one] for it in (numbers, starts, ends, watermarks_ms, closed_ms))
        groups, late = _in_order(*chosen)
        numbers[one_by_one] = numbers.max() + 1 + groups
        total = rows["late"].to_numpy().copy()
        total[one_by_one] += late
        rows = rows.set_column(rows.schema.get_field_index("late"), "late", pa.array(total))
    columns = rows.drop_columns(definition.key_names).append_column("session", pa.array(numbers))
    merged = add_up(definition.aggregates, columns, ["session"], _COMBINED)
    firsts = np.zeros(numbers.max(initial=0) + 1, np.int64)
    # The last assignment counts, which is that of the first row.
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
    if definition.key_names:
        first = taken(rows.select(definition.key_names), firsts[merged["session"].to_numpy()])
        for i, key in enumerate(definition.key_names):
            merged = merged.add_column(i, key, first[key])
    return merged.drop_columns(["session"]).select([*definition.schema.names, FRESH])


def _touching(codes: Numbers, starts: Numbers, ends: Numbers) -> Numbers:
    """Numbers windows from 0. Windows of one key that touch have one number."""
    if not len(codes):
        return codes
    order = np.lexsort((starts, codes))
    codes, starts, ends = codes[order], starts[order], ends[order]
    # Ranks instead of times, so that one number compares keys first and then times.
    times, ranks = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    first, last = (codes * len(times) + part for part in np.split(ranks, 2))
    begins = np.concatenate([[True], first[1:] > np.maximum.accumulate(last)[:-1]])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def _needs_order(numbers: Numbers, starts: Numbers, ends: Numbers, watermarks_ms: Numbers) -> Numbers:
    """Returns which rows touch, directly or not, a record that can join a session that is due."""
    behind = np.flatnonzero(starts <= watermarks_ms)
    if not len(behind):
        return np.zeros(len(numbers), bool)
    is_candidate = np.zeros(numbers.max() + 1, bool)
    is_candidate[numbers[behind]] = True
    near = is_candidate[numbers]
    # Ranks instead of times, so that one number compares sessions first and then times.
    times = np.unique(ends[near])
    sorted_ends = np.sort(numbers[near] * (len(times) + 1) + np.searchsorted(times, ends[near]))
    base = numbers[behind] * (len(times) + 1)
    first = np.searchsorted(sorted_ends, base + np.searchsorted(times, starts[behind], "left"))
    last = np.searchsorted(sorted_ends, base + np.searchsorted(times, watermarks_ms[behind], "right"))
    is_ordered = np.zeros(len(is_candidate), bool)
    is_ordered[numbers[behind[last > first]]] = True
    return is_ordered[numbers]


@dataclass(slots=True)
class _Sessions:
    """Sessions of one key, in ascending order of both start and end."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


def _in_order(
    numbers: Numbers, starts: Numbers, ends: Numbers, watermarks_ms: Numbers, closed_ms: Numbers
) -> tuple[Numbers, Numbers]:
    """Returns the number of the session of each row, and whether it joined a session that was due."""
    found: dict[int, _Sessions] = {}
    parents, late = list(range(len(numbers))), [False] * len(numbers)
    columns = (it.tolist() for it in (numbers, starts, ends, watermarks_ms, closed_ms))
    for row, (number, start, end, watermark, closed) in enumerate(zip(*columns, strict=True)):
        own = found.setdefault(number, _Sessions())
        first = bisect_left(own.ends, max(start, closed + 1))
        last = bisect_right(own.starts, end)
        late[row] = end <= watermark
        if first < last:
            late[row] |= own.ends[first] <= watermark
            for joined in own.rows[first:last]:
                parents[joined] = row
            start, end = min(start, own.starts[first]), max(end, own.ends[last - 1])
        own.starts[first:last], own.ends[first:last], own.rows[first:last] = [start], [end], [row]
    # The parent of a row is a later row.
    for row in reversed(range(len(parents))):
        parents[row] = parents[parents[row]]
    return np.array(parents), np.array(late, np.int64)
