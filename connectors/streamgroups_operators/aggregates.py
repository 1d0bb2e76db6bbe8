"""Windows and aggregates in Arrow columns: assigns records to windows, and computes and combines partial aggregates.

Called by ``streamgroups_operators.window_operator`` and by ``streamgroups_spark.windows``. A row of *partials* contains one
partial aggregate of each column: ``p0``, ``p1`` and so on, and ``n0`` the number of values of an average.

The results are those of Spark SQL. Arrow's sums wrap around, its ``min`` and ``max`` ignore NaN, and it has none for durations. A
column is changed only if its values need it: a check of their bounds is much cheaper than the aggregation. Source: Arrow's
``group_by``, ``hash_sum`` and ``hash_min_max``; Spark's ``Sum`` with ``spark.sql.ansi.enabled``; Spark's documentation, "NaN
Semantics"; :mod:`streamgroups.event_time.aggregates`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import AggregateOverflow
from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate
from streamgroups.event_time.windows import Hopping, Session, Shape
from streamgroups_operators import large_tables
from streamgroups_operators.keys import key_numbers
from streamgroups_operators.operator import Numbers
from streamgroups_operators.plain_values import numbers_of

Aggregates: TypeAlias = Sequence[SqlAggregate | PythonAggregate]
#: The maximum number of pairs of a record and a window in one step, if they are of several records.
MAX_PAIRS = 1 << 20
_MAX_INT64 = 2**63 - 1
#: Decimals of Arrow have 128 bits, and a sum of values below this one needs no more.
_MAX_DECIMAL = 9e37

# ---- records in windows ----------------------------------------------------------------------------------------------


def in_windows(shape: Shape, times_ms: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the index of the time and the start of each window that contains one of the times.

    The latest windows come first. The arrays have one element for each time and window: see :func:`steps`.

    Args:
        shape: the shape of the windows.
        times_ms: milliseconds since the epoch.
    """
    numbers = np.arange(len(times_ms))
    newest = newest_starts(shape, times_ms)
    if isinstance(shape, Session):
        return numbers, newest
    indices, starts = [], []
    for back in range(_windows_of_one(shape)):
        start = newest - back * shape.hop_ms
        inside = start > times_ms - shape.size_ms
        indices.append(numbers[inside])
        starts.append(start[inside])
    return np.concatenate(indices), np.concatenate(starts)


def newest_starts(shape: Shape, times_ms: Numbers) -> Numbers:
    """Returns the start of the latest window that contains each time.

    >>> newest_starts(Hopping(20, 10), np.array([9, 10, 25])).tolist()
    [0, 10, 20]
    """
    return times_ms if isinstance(shape, Session) else times_ms - times_ms % shape.hop_ms


def steps(shape: Shape, count: int) -> Iterator[slice]:
    """Divides records, so that those of each slice are in about a million windows at most. Else memory grows with size / hop.

    Args:
        shape: the shape of the windows.
        count: the number of records.

    >>> list(steps(Hopping(2_000_000, 1), 2)), list(steps(Hopping(10, 10), 2))
    ([slice(0, 1, None), slice(1, 2, None)], [slice(0, 2, None)])
    """
    step = max(MAX_PAIRS // _windows_of_one(shape), 1)
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


def _windows_of_one(shape: Shape) -> int:
    """The maximum number of windows that contain one time."""
    return 1 if isinstance(shape, Session) else -(-shape.size_ms // shape.hop_ms)


def length_ms(shape: Shape) -> int:
    """Returns the length of a window with one record."""
    return shape.size_ms if isinstance(shape, Hopping) else shape.gap_ms


# ---- aggregates ------------------------------------------------------------------------------------------------------


def form_of(aggregates: Aggregates) -> str:
    """Returns the aggregates as a part of the form of an operator."""
    return ", ".join(
        f"{'python' if isinstance(it, PythonAggregate) else it.function.value}({it.argument or '*'})"
        for it in aggregates
    )


def arguments_of(aggregates: Aggregates) -> list[str]:
    """Returns the columns of the arguments of aggregates, ``a0`` and so on. Only ``count(*)`` has none."""
    return [f"a{i}" for i, it in enumerate(aggregates) if isinstance(it, PythonAggregate) or it.argument is not None]


def parts_of(aggregates: Aggregates, records: pa.Table) -> dict[str, pa.Array]:
    """Returns the columns of partial aggregates, for single records.

    Args:
        aggregates: the aggregates, whose arguments are the columns ``a0``, ``a1`` and so on.
        records: the records with their argument columns.
    """
    parts: dict[str, pa.Array] = {}
    for i, aggregate in enumerate(aggregates):
        if isinstance(aggregate, PythonAggregate):
            values = records[f"a{i}"].combine_chunks()
            parts[f"p{i}"] = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
            continue
        if aggregate.argument is None:
            parts[f"p{i}"] = pa.array(np.ones(records.num_rows, np.int64))
            continue
        values = records[f"a{i}"]
        if aggregate.function in (Function.COUNT, Function.AVG):
            parts[f"n{i}"] = pc.is_valid(values).cast(pa.int64())
        if aggregate.function is Function.COUNT:
            parts[f"p{i}"] = parts.pop(f"n{i}")
        else:
            parts[f"p{i}"] = values
    return parts


def _how(aggregates: Aggregates, part: str) -> str | None:
    """Returns Arrow's function to combine a partial aggregate. ``None`` for a list, for which Arrow has no function."""
    aggregate = aggregates[int(part[1:])]
    if part[0] == "n":
        return "sum"
    if isinstance(aggregate, PythonAggregate):
        return None
    return aggregate.function.value if aggregate.function in (Function.MIN, Function.MAX) else "sum"


def add_up(aggregates: Aggregates, table: pa.Table, by: Sequence[str], also: Sequence[tuple[str, str]]) -> pa.Table:
    """Combines the partial aggregates of all rows of each pane into one row.

    Args:
        aggregates: the aggregates.
        table: the rows with partial aggregates.
        by: the columns that identify a pane.
        also: other columns, and Arrow's function to combine them.

    Raises:
        AggregateOverflow: if a sum has no value of its type, as Spark's ARITHMETIC_OVERFLOW, or if the values of a Python
            aggregate have more than 2 GiB.
    """
    found = [_added_up(aggregates, it, by, also) for it in divided(table, by)]
    return found[0] if len(found) == 1 else pa.concat_tables(found)


def divided(table: pa.Table, by: Sequence[str]) -> Iterator[pa.Table]:
    """Divides the rows of a table by their keys, so that Arrow can group each part.

    With keys of more than 2 GiB, ``group_by`` returns damaged arrays or ends the process. So do results such as ``max`` of
    long texts.

    Args:
        table: the rows.
        by: the key columns. All rows of a key are in one part.
    """
    if table.nbytes <= large_tables.MAX_BYTES:
        yield table
        return
    [numbers] = key_numbers(by, table)
    n_bytes = np.bincount(numbers, large_tables.row_bytes(table)).astype(np.int64)
    parts = large_tables.cut(n_bytes)
    for it in parts:
        yield table if len(parts) == 1 else table.filter(pa.array((numbers >= it.start) & (numbers < it.stop)))


def _added_up(aggregates: Aggregates, table: pa.Table, by: Sequence[str], also: Sequence[tuple[str, str]]) -> pa.Table:
    parts = [name for name in table.column_names if name[0] in "pn" and name[1:].isdigit()]
    combined = {part: how for part in parts if (how := _how(aggregates, part)) is not None}
    lists = [part for part in parts if part not in combined]
    values, nans = _arguments(aggregates, table, combined)
    required = [*also, *combined.items(), *((name, "max") for name in nans)]
    if lists:
        # Arrow builds no lists of lists, so it only collects the rows of each group.
        values = values.append_column("row", pa.array(np.arange(table.num_rows)))
        required.append(("row", "list"))
    grouped = values.group_by(list(by), use_threads=False).aggregate(required)
    columns = {name: grouped[name] for name in by}
    columns |= {name: grouped[f"{name}_{how}"].cast(table.schema.field(name).type) for name, how in also}
    results_of = {name: grouped[f"{name}_{how}"] for name, how in required}
    for part, how in combined.items():
        found = with_nan(results_of, part, how) if f"{part}_nan" in nans else results_of[part]
        columns[part] = narrowed(found, table.schema.field(part).type, _call(aggregates, part))
    columns |= {part: _chained(table[part], grouped["row_list"]) for part in lists}
    return pa.table(columns)


def _arguments(aggregates: Aggregates, table: pa.Table, combined: Mapping[str, str]) -> tuple[pa.Table, list[str]]:
    """The partial aggregates for Arrow's functions, and the names of columns with which of them are NaN."""
    nans: list[str] = []
    for part, how in combined.items():
        given = values = table[part]
        if how == "sum":
            values = values if part[0] == "n" or _wraps(aggregates, part) else exact(values)
        elif has_nan(values):
            values, is_nan = without_nan(values)
            nans.append(f"{part}_nan")
            table = table.append_column(nans[-1], is_nan)
        else:
            values = comparable(values)
        if values is not given:
            table = table.set_column(table.schema.get_field_index(part), part, values)
    return table, nans


def _wraps(aggregates: Aggregates, part: str) -> bool:
    aggregate = aggregates[int(part[1:])]
    return isinstance(aggregate, SqlAggregate) and aggregate.wraps


def _call(aggregates: Aggregates, part: str) -> str:
    aggregate = aggregates[int(part[1:])]
    return str(aggregate) if isinstance(aggregate, SqlAggregate) else part


def _chained(lists: pa.ChunkedArray, rows: pa.ChunkedArray) -> pa.Array:
    """Concatenates the lists of all rows of each group."""
    groups = rows.combine_chunks()
    try:
        chosen = lists.combine_chunks().take(groups.flatten())
    except pa.ArrowInvalid:
        raise AggregateOverflow(
            f"The values of a Python aggregate in a window have {lists.nbytes:,} bytes, and Arrow stores at most 2 GiB of them.",
            remedy="Use a shorter window, a column with smaller values, or an aggregate of Spark SQL.",
        ) from None
    offsets = _ends(chosen)[_ends(groups)]
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), chosen.flatten())


def _ends(lists: pa.Array) -> Numbers:
    """Returns the start of each list in the flattened array, and the end of the last one."""
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def no_parts(aggregates: Aggregates, types: pa.Schema, rows: int) -> dict[str, pa.Array]:
    """Returns the columns of partial aggregates of no record: they change nothing.

    Args:
        aggregates: the aggregates.
        types: the type of each column, by its name.
        rows: the number of rows.
    """
    parts: dict[str, pa.Array] = {}
    for i, aggregate in enumerate(aggregates):
        of = types.field(f"p{i}").type
        if isinstance(aggregate, PythonAggregate):
            parts[f"p{i}"] = pa.array([[]] * rows, of)
            continue
        if aggregate.function is Function.AVG:
            parts[f"n{i}"] = pa.array(np.zeros(rows, np.int64))
        is_count = aggregate.function is Function.COUNT
        parts[f"p{i}"] = pa.array(np.zeros(rows, np.int64)) if is_count else pa.nulls(rows, of)
    return parts


def results(aggregates: Aggregates, types: pa.Schema, panes: pa.Table) -> dict[str, pa.Array]:
    """Returns the columns of results, ``r0`` and so on.

    Args:
        aggregates: the aggregates.
        types: the type of each result, by its name.
        panes: the panes with partial aggregates.
    """
    found: dict[str, pa.Array] = {}
    for i, aggregate in enumerate(aggregates):
        parts = panes[f"p{i}"]
        if isinstance(aggregate, PythonAggregate):
            values = [aggregate.function(values) for values in numbers_of(parts)]
            found[f"r{i}"] = pa.array(values, type=types.field(f"r{i}").type)
        elif aggregate.function is Function.AVG:
            found[f"r{i}"] = pc.divide(parts, panes[f"n{i}"].cast(pa.float64()))
        else:
            found[f"r{i}"] = parts
    return found


# ---- values of Spark -------------------------------------------------------------------------------------------------


def exact(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the arguments of a sum in a type that can store it. :func:`narrowed` converts the sum.

    >>> exact(pa.chunked_array([[2**63 - 1, 1]])).type == pa.decimal128(38, 0), exact(pa.chunked_array([[5, 1]])).type
    (True, DataType(int64))
    """
    of = values.type
    if pa.types.is_floating(of) or not len(values):
        return values
    bounds = pc.min_max(values)
    if not bounds["min"].is_valid:
        return values
    largest = max(abs(bounds["min"].as_py()), abs(bounds["max"].as_py()))
    if pa.types.is_integer(of):
        return values if largest * len(values) <= _MAX_INT64 else values.cast(pa.decimal128(38, 0))
    unscaled = float(largest) * 10.0**of.scale
    return values if unscaled * len(values) < _MAX_DECIMAL else values.cast(pa.decimal256(76, of.scale))


def narrowed(sums: pa.ChunkedArray, of: pa.DataType, call: str) -> pa.ChunkedArray:
    """Returns sums in their type.

    Args:
        sums: the sums of values of :func:`exact`.
        of: their type.
        call: the call of the user, for the error.

    Raises:
        AggregateOverflow: if a sum has no value of the type.

    >>> narrowed(pa.chunked_array([[2**63]], pa.decimal128(38, 0)), pa.int64(), "sum(n)")
    Traceback (most recent call last):
    streamgroups.errors.AggregateOverflow: [ARITHMETIC_OVERFLOW] The result of sum(n) in a window exceeds int64. Cast the argument \
to a type with more digits, such as decimal(28, 0) or double, or filter out records with such values.
    """
    try:
        return sums.cast(of)
    except pa.ArrowInvalid:
        raise AggregateOverflow(
            f"[ARITHMETIC_OVERFLOW] The result of {call} in a window exceeds {of}.",
            remedy="Cast the argument to a type with more digits, such as decimal(28, 0) or double, or filter out records with "
            "such values.",
        ) from None


def comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the arguments of ``min`` and ``max`` in a type for which Arrow has them."""
    return values.cast(pa.int64()) if pa.types.is_duration(values.type) else values


def has_nan(values: pa.ChunkedArray) -> bool:
    """Returns whether Arrow's ``min`` and ``max`` differ from Spark's, which order NaN after all other numbers."""
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def without_nan(values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Returns numbers with null instead of NaN, and which of them were NaN."""
    is_nan = pc.fill_null(pc.is_nan(values), False)
    return pc.if_else(is_nan, pa.scalar(None, values.type), values), is_nan


def with_nan(found: Mapping[str, pa.ChunkedArray], name: str, how: str) -> pa.ChunkedArray:
    """Returns the result of ``min`` or ``max`` of values of :func:`without_nan`.

    Args:
        found: the results, and whether a value was NaN (the name with ``_nan``).
        name: the name of the result.
        how: ``min`` or ``max``.
    """
    others, any_nan = found[name], found[f"{name}_nan"]
    is_nan = any_nan if how == "max" else pc.and_(any_nan, pc.is_null(others))
    return pc.if_else(is_nan, pa.scalar(float("nan"), others.type), others)
