"""Values that would make a table unreadable are rejected in the task, each with its column and its row."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import RecordRejected
from streamgroups_sinks.delta.data_files import fitted
from streamgroups_sinks.delta.stages import Stage
from streamgroups_sinks.delta.value_checks import check_times

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


_DAY_US = 86_400_000_000
#: 0001-01-01, 9999-12-31, -262143-01-01 and 262142-12-31, in days since 1970.
_YEAR_1, _YEAR_9999, _FIRST, _LAST = -719_162, 2_932_896, -96_465_292, 95_026_236
_DATE, _TIMESTAMP = pa.date32(), pa.timestamp("us")


def _times(of: pa.DataType, numbers: list[int | None]) -> pa.Array:
    return pa.array(numbers, pa.int32() if of == _DATE else pa.int64()).view(of)


def _stage(key: str, delete_marker: str | None = None, partition_by: tuple[str, ...] = ()) -> Stage:
    schema = pa.schema([])
    return Stage("t", "id", 0, schema, (), frozenset(), delete_marker, (key,), merge_partition_by=partition_by)


@pytest.mark.parametrize(
    ("of", "column", "partition_by", "first", "last"),
    [
        (_DATE, "k", (), _YEAR_1, _YEAR_9999),
        (_DATE, "v", (), _YEAR_1, _YEAR_9999),
        (pa.struct([("at", _DATE)]), "v", (), _FIRST, _LAST),
        (_TIMESTAMP, "k", (), _FIRST * _DAY_US, (_LAST + 1) * _DAY_US - 1),
        (pa.timestamp("us", "UTC"), "k", (), _FIRST * _DAY_US, (_LAST + 1) * _DAY_US - 1),
        (_TIMESTAMP, "k", ("k",), _YEAR_1 * _DAY_US, (_YEAR_9999 + 1) * _DAY_US - 1),
        (_TIMESTAMP, "v", ("v",), _YEAR_1 * _DAY_US, (_YEAR_9999 + 1) * _DAY_US - 1),
    ],
)
def test_P4_a_time_that_a_merge_cannot_write_is_rejected_with_its_column_and_row(
    of: pa.DataType, column: str, partition_by: tuple[str, ...], first: int, last: int
) -> None:
    def check(*numbers: int | None) -> None:
        is_nested = pa.types.is_struct(of)
        times = _times(of.field(0).type if is_nested else of, list(numbers))
        values = pa.StructArray.from_arrays([times], ["at"]) if is_nested else times
        columns = {"k": list(range(len(numbers))), "v": [None] * len(numbers)} | {column: values}
        check_times(pa.record_batch(columns), _stage("k", partition_by=partition_by), 10)

    check(first, None, 0, last)
    for bad in (first - 1, last + 1):
        with pytest.raises(RecordRejected, match=f"Column '{column}' has a time in row 13 of a task"):
            check(first, last, bad, None, bad)


def test_other_timestamps_of_a_merge_and_all_times_of_other_modes_are_not_limited() -> None:
    extreme = _times(_TIMESTAMP, [-(2**63), 2**63 - 1])
    records = pa.record_batch({"k": [1, 2], "v": extreme, "list": [[1], [2]]})
    check_times(records, _stage("k"), 0)
    no_merge = Stage("t", "id", 0, records.schema, (), frozenset())
    check_times(pa.record_batch({"k": extreme, "v": _times(_DATE, [-(2**31), 2**31 - 1])}), no_merge, 0)


def test_a_row_that_deletes_needs_only_a_key_in_the_range() -> None:
    dates = _times(_DATE, [2**31 - 1, 0, 0])
    nested = pa.MapArray.from_arrays([0, 1, 2, 3], dates, dates)
    columns = {"k": [1, 2, 3], "v": dates, "map": nested, "gone": [True, None, False]}
    check_times(pa.record_batch(columns), _stage("k", "gone"), 0)
    for name in ("v", "map"):
        with pytest.raises(RecordRejected, match=f"Column '{name}' has a time in row 1 of a task"):
            check_times(
                pa.record_batch({"k": [1, 2, 3], name: columns[name], "gone": [False] * 3}), _stage("k", "gone"), 0
            )
    with pytest.raises(RecordRejected, match="Column 'k'"):
        check_times(pa.record_batch({"k": dates, "gone": [True] * 3}), _stage("k", "gone"), 0)


@given(st.lists(st.none() | st.sampled_from([_YEAR_1 - 1, _YEAR_1, 0, _YEAR_9999, _YEAR_9999 + 1]), max_size=9))
def test_the_first_row_is_found(days: list[int | None]) -> None:
    bad = [i for i, day in enumerate(days, 1) if day in (_YEAR_1 - 1, _YEAR_9999 + 1)]
    records = pa.record_batch({"k": _times(_DATE, days)})
    if not bad:
        check_times(records, _stage("k"), 0)
        return
    with pytest.raises(RecordRejected, match=f"in row {bad[0]} of a task"):
        check_times(records, _stage("k"), 0)
