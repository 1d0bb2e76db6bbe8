"""Values that would make a table unreadable are rejected in the task, each with its column and its row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamgroups.errors import RecordRejected
from streamgroups_sinks.delta.data_files import fitted

_TEXTS = pa.array([b"a", b"b\xff", b"c"], pa.binary()).view(pa.string())
_LISTS = pa.ListArray.from_arrays([0, 1, 2, 3], _TEXTS)
_NUMBERS = pa.array([1, 2, 3])


@pytest.mark.parametrize(
    "column",
    [
        _TEXTS,
        _TEXTS.cast(pa.large_string()),
        _TEXTS.cast(pa.string_view()),
        pa.DictionaryArray.from_arrays([0, 1, 2], _TEXTS),
        _LISTS,
        pa.StructArray.from_arrays([_NUMBERS, _TEXTS], ["n", "text"]),
        pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2, 3], _LISTS)], ["lists"]),
        pa.MapArray.from_arrays([0, 1, 2, 3], _TEXTS, _NUMBERS),
        pa.MapArray.from_arrays([0, 1, 2, 3], _NUMBERS, _LISTS),
    ],
    ids=lambda column: str(column.type),
)
def test_P4_a_string_that_is_not_utf_8_is_rejected_with_its_column_and_row(column: pa.Array) -> None:
    records = pa.record_batch({"n": _NUMBERS, "c": column})
    schema = pa.schema([("n", pa.int64()), ("c", _stored(column.type))])
    with pytest.raises(RecordRejected, match=r"Column 'c' has a string in row 12 of a task that is not UTF-8"):
        fitted(records, schema, first_row=10)
    # Slices share the bytes of all rows.
    for row in (0, 2):
        assert fitted(records.slice(row, 1), schema).num_rows == 1
    with pytest.raises(RecordRejected, match="in row 1 of a task"):
        fitted(records.slice(1, 1), schema)


def _stored(of: pa.DataType) -> pa.DataType:
    return of if pa.types.is_nested(of) else pa.string()


def test_bytes_under_null_are_not_checked() -> None:
    is_null = pa.array([False, True, False])
    columns = {
        "text": pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), *_TEXTS.buffers()[1:]]),
        "struct": pa.StructArray.from_arrays([_TEXTS], ["text"], mask=is_null),
        "list": pa.ListArray.from_arrays([0, 1, 2, 3], _TEXTS, mask=is_null),
        "map": pa.MapArray.from_arrays([0, 1, 2, 3], _TEXTS, _NUMBERS, mask=is_null),
    }
    records = pa.record_batch(columns)
    assert fitted(records, records.schema).num_rows == 3
