"""Compares the keys of rows in Arrow tables.

Called by ``function_operator``, ``windows`` and ``joins``. A null is a value like any other: the keys ``(null)`` and ``(null)`` are equal. Arrow's
``join`` does not match them, and does not support nested columns beside the keys. Source: Arrow's
``dictionary_encode``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups_operators import large_tables

#: The number of the key of each row.
KeyNumbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def key_numbers(by: Sequence[str], *tables: pa.Table) -> list[KeyNumbers]:
    """Returns the number of the key of each row, for each table.

    Rows have the same number if their keys are equal. Numbers begin with 0, without gaps over all tables.

    Args:
        by: the key columns. Without any, all rows have the key 0.
        tables: the tables. A key column has the same type in all of them.

    >>> key_numbers(["key"], pa.table({"key": ["a", None, "a"]}), pa.table({"key": [None, "b"]}))
    [array([0, 1, 0]), array([1, 2])]
    """
    ends = np.cumsum([table.num_rows for table in tables])
    numbers = np.zeros(ends[-1], np.int64)
    for i, name in enumerate(by):
        codes = _codes([table[name] for table in tables])
        numbers = np.unique(numbers * (len(numbers) + 1) + codes, return_inverse=True)[1] if i else codes
    return np.split(numbers, ends[:-1])


def _codes(columns: Sequence[pa.ChunkedArray]) -> KeyNumbers:
    chunks = [chunk for column in columns for chunk in column.chunks]
    whole = pa.chunked_array(chunks, type=columns[0].type)
    if whole.nbytes > large_tables.MAX_BYTES:
        # The distinct keys can exceed the limit too.
        encoded = large_tables.with_large_offsets(whole).dictionary_encode("encode")
        return np.concatenate([it.indices.to_numpy() for it in encoded.chunks]).astype(np.int64)
    return np.asarray(whole.combine_chunks().dictionary_encode("encode").indices).astype(np.int64)


def newest_rows(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Returns the last row of each key, in the order of the rows.

    Args:
        rows: the rows, oldest first.
        by: the key columns.

    >>> newest_rows(pa.table({"key": ["a", "b", "a"], "n": [1, 2, 3]}), ["key"]).to_pydict()
    {'key': ['b', 'a'], 'n': [2, 3]}
    """
    [numbers] = key_numbers(by, rows)
    mask = is_newest(numbers)
    # A filter keeps the chunks: ``take`` fails if they have more than 2 GiB.
    return rows if mask.all() else rows.filter(pa.array(mask))


def is_newest(numbers: KeyNumbers) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns which rows are the last one of their key.

    Args:
        numbers: the number of the key of each row, see :func:`key_numbers`.

    >>> is_newest(np.array([0, 1, 0])).tolist()
    [False, True, True]
    """
    last = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    # For a repeated index, NumPy assigns the last value.
    last[numbers] = np.arange(len(numbers))
    mask = np.zeros(len(numbers), bool)
    mask[last] = True
    return mask


def rows_of_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Returns the rows that have one of the keys.

    Args:
        rows: the rows.
        keys: the keys, in columns that the rows have too. A key can occur several times.

    >>> rows = pa.table({"key": ["a", "b", None], "n": [1, 2, 3]})
    >>> rows_of_keys(rows, pa.table({"key": [None, "a", "z"]})).to_pydict()
    {'key': ['a', None], 'n': [1, 3]}
    """
    by = keys.column_names
    # A hash table of the few keys is much cheaper than one of all rows.
    for name in by:
        values, required = rows[name], keys[name]
        if required.nbytes > large_tables.MAX_BYTES:
            values, required = (large_tables.with_large_offsets(it) for it in (values, required))
        rows = rows.filter(pc.is_in(values, value_set=pc.unique(required)))
    if len(by) == 1:
        return rows
    row_keys, chosen = key_numbers(by, rows, keys)
    return rows.filter(pa.array(np.isin(row_keys, chosen)))
