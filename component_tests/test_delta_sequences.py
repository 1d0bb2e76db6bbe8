"""X2, P4: a random sequence of records has one result in a Delta table, however batches and tasks cut it.

The oracle is a dictionary, which takes the records one by one.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamgroups as sg
from component_tests.delta_tables import commit, open_at, partition
from streamgroups.errors import RecordRejected
from streamgroups.partitions import OffsetRange
from streamgroups_spark.sinks.letters.bad_record_search import write_isolated
from unit_tests.examples import examples

SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("n", pa.int64()), ("text`s", pa.string()), ("i", pa.int64())),
        *(("gone", pa.bool_()),),
    ]
)
_VALUES = st.tuples(
    st.none() | st.integers(0, 3),
    st.none() | st.integers(-1, 3),
    st.sampled_from([None, "", "a'b", "%s"]),
    st.booleans(),
)


def create(uri: str) -> None:
    columns = [("id", "long", True), ("n", "long", False), ("text`s", "string", True), ("i", "long", True)]
    columns += [("twice", "long", False), ("note", "string", True)]
    fields = [{"name": name, "type": of, "nullable": is_nullable, "metadata": {}} for name, of, is_nullable in columns]
    fields[4]["metadata"] = {"delta.generationExpression": "`n` * 2"}
    tags = {"type": "array", "elementType": "string", "containsNull": True}
    fields.append({"name": "tags", "type": tags, "nullable": True, "metadata": {}})
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    DeltaTable.create(uri, schema).alter.add_constraint({"not_negative": "n >= 0"})


def one_by_one(records: list[tuple[Any, ...]]) -> tuple[dict[int, dict[str, Any]], list[int]]:
    """The rows by key, and the numbers of the rejected records."""
    rows, rejected = dict[int, dict[str, Any]](), []
    for i, (key, n, text, gone) in enumerate(records):
        if key is None or (not gone and (n is None or n < 0)):
            rejected.append(i)
        elif gone:
            rows.pop(key, None)
        else:
            rows[key] = rows.get(key, {"note": None, "tags": None}) | {
                "id": key,
                "n": n,
                "text`s": text,
                "i": i,
                "twice": n * 2,
            }
    return rows, rejected


@settings(max_examples=examples(5), suppress_health_check=list(HealthCheck), deadline=None)
@given(records=st.lists(_VALUES, min_size=1, max_size=12), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_X2_the_result_does_not_depend_on_the_batches(
    tmp_path: Path, records: list[tuple[Any, ...]], sizes: list[int]
) -> None:
    uri = str(tmp_path / uuid.uuid4().hex)
    create(uri)
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("id",), delete_marker="gone")
    open_at(sink)
    rows, expected = one_by_one(records)
    rejected: list[int] = []
    first, batch = 0, 0
    while first < len(records):
        end = min(first + sizes[batch % len(sizes)], len(records))
        given_ = [(*values[:3], i, values[3]) for i, values in enumerate(records[first:end], first)]
        rejected += _write(sink, batch, given_)
        first, batch = end, batch + 1
    table = DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert sorted(table, key=lambda row: row["id"]) == sorted(
        ({name: row[name] for name in table[0]} for row in rows.values()), key=lambda row: row["id"]
    )
    assert sorted(rejected) == expected


def _write(sink: sg.DeltaSink, batch: int, given_: list[tuple[Any, ...]]) -> list[int]:
    """Writes a batch; returns the numbers of the rejected records, which the column ``i`` contains."""
    columns = zip(*given_, strict=True)
    data = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return _write_table(sink, batch, pa.table(data, schema=SCHEMA))


def _write_table(sink: sg.DeltaSink, batch: int, data: pa.Table) -> list[int]:
    begun = sink.begin(data.schema, uuid.uuid4().hex)
    rejected: list[int] = []

    def reject(failure: pa.Array) -> None:
        (value,) = failure.to_pylist()
        rejected.append(json.loads(dict(value["details"])["record"])["i"])

    staged = write_isolated(lambda rows, n: sink.write(begun, rows, n), iter(data.to_batches()), 0, reject)
    commit(sink, [OffsetRange(partition(0), batch, batch + 1)], staged)
    sink.discard(begun)
    return rejected


@pytest.mark.parametrize(("row", "why"), [({"n": None}, "null in column 'n'"), ({"n": -1}, "not_negative .n >= 0")])
def test_P4_null_and_violated_constraints_are_rejected_in_the_task(
    tmp_path: Path, row: dict[str, Any], why: str
) -> None:
    uri = str(tmp_path / "flights")
    create(uri)
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("id",), delete_marker="gone")
    whole = {"id": 1, "n": 1, "text`s": "a", "i": 0, "gone": False} | row
    begun = sink.begin(SCHEMA, uuid.uuid4().hex)
    with pytest.raises(RecordRejected, match=why):
        sink.write(begun, iter(pa.Table.from_pylist([whole], schema=SCHEMA).to_batches()), 0)
    sink.write(begun, iter(pa.Table.from_pylist([whole | {"gone": True}], schema=SCHEMA).to_batches()), 1)


_NOT_UTF8 = pa.array([b"a", b"b\xff", b"c"], pa.binary()).view(pa.string())


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions", "upsert"])
@pytest.mark.parametrize(
    "column", [_NOT_UTF8, pa.ListArray.from_arrays([0, 1, 2, 3], _NOT_UTF8)], ids=lambda column: str(column.type)
)
def test_P4_a_string_that_is_not_utf_8_is_a_letter_and_the_table_stays_readable(
    tmp_path: Path, mode: Any, column: pa.Array
) -> None:
    key = ("i",) if mode == "upsert" else ()
    partition_by = ("p",) if mode == "overwrite_partitions" else ()
    sink = sg.DeltaSink(uri=str(tmp_path / "flights"), mode=mode, key=key, partition_by=partition_by)
    open_at(sink)
    assert _write_table(sink, 0, pa.table({"i": [0, 1, 2], "p": ["x"] * 3, "c": column})) == [1]
    table = DeltaTable(sink.uri).to_pyarrow_table().select(["i", "c"])
    assert sorted(table.to_pylist(), key=str) == [{"i": i, "c": column[i].as_py()} for i in (0, 2)]


_DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("of", "first", "last", "key", "partition_by"),
    [
        (pa.date32(), -719_162, 2_932_896, "c", ()),
        (pa.date32(), -719_162, 2_932_896, "i", ()),
        (pa.timestamp("us", "UTC"), -96_465_292 * _DAY_US, 95_026_237 * _DAY_US - 1, "c", ()),
        (pa.timestamp("us"), -96_465_292 * _DAY_US, 95_026_237 * _DAY_US - 1, "c", ()),
        (pa.timestamp("us"), -719_162 * _DAY_US, 2_932_897 * _DAY_US - 1, "i", ("c",)),
    ],
)
def test_P4_a_time_that_a_merge_cannot_write_is_a_letter(
    tmp_path: Path, of: pa.DataType, first: int, last: int, key: str, partition_by: tuple[str, ...]
) -> None:
    sink = sg.DeltaSink(uri=str(tmp_path / "flights"), mode="upsert", key=(key,), partition_by=partition_by)
    open_at(sink)
    is_date = pa.types.is_date(of)
    extremes = (-(2**31), 2**31 - 1) if is_date else (-(2**63), 2**63 - 1)
    numbers = [first, first - 1, 0, last + 1, last, *extremes]
    times = pa.array(numbers, pa.int32() if is_date else pa.int64()).view(of)
    for batch in (0, 1):
        table = pa.table({"i": range(len(numbers)), "c": times, "batch": [batch] * len(numbers)})
        assert sorted(_write_table(sink, batch, table)) == [1, 3, 5, 6]
    found = DeltaTable(sink.uri).to_pyarrow_table()
    assert sorted(zip(found["i"].to_pylist(), found["batch"].to_pylist(), strict=True)) == [(0, 1), (2, 1), (4, 1)]
