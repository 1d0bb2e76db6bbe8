"""Takes rows of Arrow tables that have more than 2 GiB in one column.

Called by all operators with state. A column of strings, bytes or lists has offsets of 32 bits, so an array of it has at most 2
GiB. A table has several chunks, and a filter keeps them. But ``take`` and ``sort_by`` combine the chunks of a column first, and
fail for one row too. ``group_by`` with keys of more than 2 GiB returns damaged arrays, or ends the process. So rows are
chosen here in slices with a limit of bytes. Source: Arrow's ``take``, ``dictionary_encode`` and ``group_by``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: A column as an array of NumPy.
Numbers: TypeAlias = np.ndarray[Any, Any]
#: The bytes of a slice, without its last row. Half of Arrow's limit.
MAX_BYTES = 1 << 30


def taken(rows: pa.Table, numbers: Numbers) -> pa.Table:
    """Returns rows by their numbers, as ``take``, in several chunks if they are large.

    >>> taken(pa.table({"key": ["a", "b", "c"]}), np.array([2, 0, 2])).to_pydict()
    {'key': ['c', 'a', 'c']}
    """
    found = [taken_slice(rows, numbers[it]) for it in slices((rows, numbers))]
    return pa.concat_tables(found) if found else rows.slice(0, 0)


def slices(*chosen: tuple[pa.Table, Numbers]) -> list[slice]:
    """Returns the slices of row numbers whose rows are within the limit.

    Args:
        chosen: tables, and numbers of their rows. All have the same count of numbers.

    >>> slices((pa.table({"key": ["a", "b"]}), np.array([0, 0, 1])))
    [slice(0, 3, None)]
    """
    count = len(chosen[0][1])
    if not any(_can_be_large(rows, numbers) for rows, numbers in chosen):
        return [slice(0, count)] if count else []
    return cut(np.sum([row_bytes(rows)[numbers] for rows, numbers in chosen], axis=0))


def combined(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields the rows in order, in as few batches as the limit permits.

    >>> [it.num_rows for it in combined(pa.table({"key": pa.chunked_array([["a"], ["b"]])}))]
    [2]
    """
    for it in slices((rows, np.arange(rows.num_rows))):
        yield from rows.slice(it.start, it.stop - it.start).combine_chunks().to_batches()


def cut(sizes: Numbers, most: int | None = None) -> list[slice]:
    """Returns slices within a limit. An element above it is a slice of its own.

    Args:
        sizes: the bytes of each element, or another size.
        most: the limit; ``None`` for :data:`MAX_BYTES`.

    >>> cut(np.array([MAX_BYTES, 1, 1]))
    [slice(0, 1, None), slice(1, 3, None)]
    >>> cut(np.array([1, MAX_BYTES + 1, 1]))
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    limit = MAX_BYTES if most is None else most
    is_first = np.diff((np.cumsum(sizes) - sizes) // limit, prepend=-1) > 0
    firsts = np.flatnonzero(is_first | (sizes > limit)).tolist()
    return [slice(*it) for it in pairwise([*firsts, len(sizes)])]


def taken_slice(rows: pa.Table, numbers: Numbers) -> pa.Table:
    """Returns the rows of one of the :func:`slices` of row numbers."""
    if rows.nbytes <= MAX_BYTES:
        return rows.take(pa.array(numbers))
    chosen, places = np.unique(numbers, return_inverse=True)
    mask = np.zeros(rows.num_rows, bool)
    mask[chosen] = True
    return rows.filter(pa.array(mask)).take(pa.array(places))


def _can_be_large(rows: pa.Table, numbers: Numbers) -> bool:
    """Whether the rows, or those that are chosen, can exceed the limit. Cheap, and true more often than necessary."""
    n_bytes = rows.nbytes
    if n_bytes > MAX_BYTES or n_bytes * len(numbers) <= MAX_BYTES:
        return bool(n_bytes > MAX_BYTES)
    return bool(n_bytes * int(np.bincount(numbers).max()) > MAX_BYTES)


# ---- sizes and types -------------------------------------------------------------------------------------------------


def row_bytes(rows: pa.Table) -> Numbers:
    """Returns the bytes of each row, without the offsets of its columns.

    >>> row_bytes(pa.table({"key": [b"", b"abc"], "all": [[1, 2], None]})).tolist()
    [16, 3]
    """
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        first = 0
        for chunk in column.chunks:
            sizes[first : first + len(chunk)] += _value_bytes(chunk)
            first += len(chunk)
    return sizes


def _value_bytes(values: pa.Array) -> Numbers:
    of = values.type
    if pa.types.is_struct(of):
        return np.asarray(np.sum([np.zeros(len(values), np.int64), *map(_value_bytes, values.flatten())], axis=0))
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_map(of):
        ends = values.offsets.to_numpy()
        items = values.values.slice(ends[0], ends[-1] - ends[0])
        totals = np.concatenate([[0], np.cumsum(_value_bytes(items))])
        return np.asarray(np.diff(totals[ends - ends[0]]))
    try:
        return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
    except pa.ArrowNotImplementedError:
        return np.full(len(values), -(-values.nbytes // max(len(values), 1)))


def with_large_offsets(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns strings and bytes in the type with offsets of 64 bits. Other columns stay as they are.

    >>> with_large_offsets(pa.chunked_array([["a"]])).type
    DataType(large_string)
    """
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(column.type)
    return column if large is None else column.cast(large)
