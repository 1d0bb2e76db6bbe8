"""Rejects values that Arrow passes on and that Delta tables cannot store. Pure functions.

Called by ``data_files`` in the tasks, so that single rows can become dead letters. Spark passes the bytes of
``CAST(value AS STRING)`` to Arrow unchanged, and Arrow writes them to Parquet unchanged. No reader could read such a file.
In a merge deltalake writes statistics and partition values itself, and compares keys. It supports fewer years there than
in the data, and its pyarrow reader fewer than its writer. Source: Parquet's logical type STRING, which is UTF-8;
``component_tests/test_delta_facts.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.errors import RecordRejected
from streamgroups_sinks.delta.stages import Stage

_DAY_US = 86_400_000_000
#: The days since 1970 of the years 1 to 9999, which deltalake's pyarrow reader parses.
_READABLE = (-719_162, 2_932_896)
#: The days since 1970 of the years -262143 to 262142, which deltalake's writer can represent.
_WRITABLE = (-96_465_292, 95_026_236)
#: The types with a limit, and its days. ``None``: no limit.
_Limit: TypeAlias = tuple[Callable[[pa.DataType], bool], tuple[int, int] | None]


def check_texts(column: pa.Array, name: str, first_row: int) -> None:
    """Checks that all strings of a column are UTF-8, also in lists, structs and maps.

    Args:
        column: the values, in Delta's types.
        name: the name of the column.
        first_row: the number of its first row in the task.

    Raises:
        RecordRejected: with the row.

    >>> check_texts(pa.array([b"a", b"\\xff"]).view(pa.string()), "name", 0)
    Traceback (most recent call last):
    streamgroups.errors.RecordRejected: Column 'name' has a string in row 2 of a task that is not UTF-8. Decode it as it is encoded, or filter out such rows.
    """
    if not _are_utf8(column):
        row = first_row + _first(column, lambda rows: not _are_utf8(rows))
        raise RecordRejected(
            f"Column '{name}' has a string in row {row + 1} of a task that is not UTF-8.",
            remedy="Decode it as it is encoded, or filter out such rows.",
        )


def _are_utf8(values: pa.Array) -> bool:
    try:
        for texts in _leaves(values, pa.types.is_string):
            texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def check_times(records: pa.RecordBatch, stage: Stage, first_row: int) -> None:
    """Checks the dates and timestamps of rows to merge. Of a row that only deletes, it checks the key.

    Args:
        records: the rows, in Delta's types.
        stage: the stage of the batch.
        first_row: the number of the first row in the task.

    Raises:
        RecordRejected: with the row.
    """
    if not stage.key:
        return
    for name, column in zip(records.schema.names, records.columns, strict=True):
        limit = _limit(name, column.type, stage)
        if _are_within(column, *limit):
            continue
        values = column
        if stage.delete_marker is not None and name not in stage.key:
            deletes = pc.fill_null(records.column(stage.delete_marker), False)
            values = pc.if_else(deletes, pa.scalar(None, column.type), column)
        if not _are_within(values, *limit):
            _reject_time(values, name, limit, first_row)


def _limit(name: str, of: pa.DataType, stage: Stage) -> _Limit:
    """Returns the limit of a column. In lists, structs and maps only dates have one, because of their statistics."""
    if pa.types.is_timestamp(of):
        if name in stage.merge_partition_by:
            return pa.types.is_timestamp, _READABLE
        return pa.types.is_timestamp, _WRITABLE if name in stage.key else None
    return pa.types.is_date, _READABLE if pa.types.is_date(of) else _WRITABLE


def _are_within(values: pa.Array, is_limited: Callable[[pa.DataType], bool], days: tuple[int, int] | None) -> bool:
    if days is None:
        return True
    first, last = days
    for times in _leaves(values, is_limited):
        per_day = _DAY_US if pa.types.is_timestamp(times.type) else 1
        bounds = pc.min_max(times)
        low, high = bounds["min"].value, bounds["max"].value
        if low is not None and not first * per_day <= low <= high < (last + 1) * per_day:
            return False
    return True


def _reject_time(values: pa.Array, name: str, limit: _Limit, first_row: int) -> NoReturn:
    row = first_row + _first(values, lambda rows: not _are_within(rows, *limit))
    years = "1 to 9999" if limit[1] == _READABLE else "-262143 to 262142"
    raise RecordRejected(
        f"Column '{name}' has a time in row {row + 1} of a task that a merge cannot write: its years are {years}.",
        remedy="Correct it, or filter out such rows.",
    )


def _leaves(values: pa.Array, is_kind: Callable[[pa.DataType], bool]) -> Iterator[pa.Array]:
    """Yields the values of a type, also in lists, structs and maps, without those under null or outside of a slice."""
    if is_kind(values.type):
        yield values
    elif pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _leaves(field, is_kind)
    elif pa.types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        yield from _leaves(values.cast(pa.list_(entry)), is_kind)
    elif pa.types.is_list(values.type):
        yield from _leaves(values.flatten(), is_kind)


def _first(values: pa.Array, matches: Callable[[pa.Array], bool]) -> int:
    """Returns the first row that matches. ``matches`` is true for rows that contain such a row."""
    first, n_rows = 0, len(values)
    while n_rows > 1:
        half = n_rows // 2
        if matches(values.slice(first, half)):
            n_rows = half
        else:
            first, n_rows = first + half, n_rows - half
    return first
