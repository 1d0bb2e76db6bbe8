"""Rejects values that Arrow passes on and that Delta tables cannot store. Pure functions.

Called by ``data_files`` in the tasks, so that single rows can become dead letters. Spark passes the bytes of
``CAST(value AS STRING)`` to Arrow unchanged, and Arrow writes them to Parquet unchanged. No reader could read such a file.
Source: Parquet's logical type STRING, which is UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from streamgroups.errors import RecordRejected


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
        for texts in _texts(values):
            texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _texts(values: pa.Array) -> Iterator[pa.Array]:
    """Yields the strings of the rows. ``validate`` of a nested array would also check the rows outside of a slice."""
    if pa.types.is_string(values.type):
        yield values
    elif pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _texts(field)
    elif pa.types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        yield from _texts(values.cast(pa.list_(entry)))
    elif pa.types.is_list(values.type):
        yield from _texts(values.flatten())


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
