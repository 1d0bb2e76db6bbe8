"""Keeps a null from changing what pandas has for other records: the type of their integers and booleans, and their digits.

Called by ``dlq.user_functions``. pandas has no integer null. A column with one is a column of floats, which are exact up to
2**53, and a column of booleans is one of objects. So records whose nulls are in the same columns are converted together. pandas' own
``Int64`` is not used: ``Series.map`` converts it to floats in pandas 2.2 and newer. Source: SEMANTICS P4; pyarrow's
``Table.to_pandas``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

#: Numbers of records.
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
#: For each record, whether a column is null.
_Nulls: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

#: Floats from here on are not all integers: this one is also the float of 2**53 + 1.
_FIRST_INEXACT = 2.0**53
_FLOATS = (np.float64, np.float32)


def groups_of_records(records: pa.Table) -> list[Numbers]:
    """The numbers of the records by the columns of integers and booleans that are null. One group if no column has both.

    >>> groups_of_records(pa.table({"delay": [3, None, 4]}))
    [array([0, 2]), array([1])]
    """
    columns = [it for it in records.columns if _is_number(it.type) and 0 < it.null_count < len(it)]
    return _groups(records.num_rows, [it.is_null().to_numpy() for it in columns])


def groups_of_result(result: Any, names: Mapping[str, Any], output: pa.Schema) -> list[Numbers]:
    """The numbers of the records by the columns of a DataFrame in which pandas has converted integers to floats, with a loss.

    pandas itself does that for a list with ``None``. One group without such a column.

    Args:
        result: the DataFrame.
        names: the names of its columns, by their texts.
        output: the columns of the output.

    >>> import pandas as pd
    >>> output, names = pa.schema([("id", pa.int64())]), {"id": "id"}
    >>> groups_of_result(pd.DataFrame({"id": [2**53 + 1, None]}), names, output)
    [array([0]), array([1])]
    >>> groups_of_result(pd.DataFrame({"id": [7, None]}), names, output)
    [array([0, 1])]
    """
    nulls = []
    for field in output:
        if pa.types.is_int64(field.type) and field.name in names:
            column = result[names[field.name]]
            if getattr(column, "dtype", None) in _FLOATS:
                values = column.to_numpy()
                is_null = np.isnan(values)
                if is_null.any() and (np.abs(values) >= _FIRST_INEXACT).any():
                    nulls.append(is_null)
    return _groups(len(result), nulls)


def _groups(count: int, nulls: Sequence[_Nulls]) -> list[Numbers]:
    codes = np.zeros(count, np.int64)
    for it in nulls:
        # Small numbers again, whatever the number of columns.
        codes = np.unique(2 * codes + it, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def frame_of(records: pa.Table) -> Any:
    """Converts records to a DataFrame. A column of integers is one of floats only if it is null in all of them.

    In a list each element is exact, too. A list of integers without null is an array of integers, and one with null is an
    array of objects.

    Args:
        records: records of one group of :func:`groups_of_records`.

    Raises:
        OverflowError, ValueError, pyarrow.ArrowException: if pandas has no object for a value.

    >>> frame_of(pa.table({"ids": [[2**53 + 1, None], [7]]}))["ids"].tolist()
    [array([9007199254740993, None], dtype=object), array([7])]
    """
    frame = records.to_pandas(date_as_object=True, integer_object_nulls=True)
    for name, column in zip(records.column_names, records.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count:
            # All are null. NaN propagates in arithmetic, and None raises.
            frame[name] = np.full(len(frame), np.nan)
        elif _has_list_of_numbers(column.type):
            frame[name] = _objects(frame[name], column.type)
    return frame


def _own_lists(value: Any, of: pa.DataType) -> Any:
    """A value whose arrays have the types that they have without the values beside it."""
    if value is None or not _has_list_of_numbers(of):
        return value
    if pa.types.is_struct(of):
        return {field.name: _own_lists(value[field.name], field.type) for field in of}
    if pa.types.is_map(of):
        return [(_own_lists(key, of.key_type), _own_lists(item, of.item_type)) for key, item in value]
    if not _is_number(of.value_type):
        return _objects(value, of.value_type)
    if value.dtype == object and not any(it is None for it in value):
        value = value.astype(of.value_type.to_pandas_dtype())
        # As in a column without null: arrays of integers are memory of Arrow, and those of booleans are copies.
        value.flags.writeable = pa.types.is_boolean(of.value_type)
    return value


def _objects(values: Any, of: pa.DataType) -> Any:
    own = np.empty(len(values), object)
    for at, value in enumerate(values):
        own[at] = _own_lists(value, of)
    return own


def _has_list_of_numbers(of: pa.DataType) -> bool:
    if pa.types.is_struct(of):
        return any(_has_list_of_numbers(field.type) for field in of)
    if pa.types.is_map(of):
        return _has_list_of_numbers(of.key_type) or _has_list_of_numbers(of.item_type)
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of):
        return _is_number(of.value_type) or _has_list_of_numbers(of.value_type)
    return False


def _is_number(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_boolean(of))
