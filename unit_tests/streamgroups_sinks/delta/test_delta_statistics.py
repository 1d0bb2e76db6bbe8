"""Readers leave files out because of these numbers, so they must hold."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from streamgroups.partitions import TopicPartition
from streamgroups_sinks.delta.sink import DeltaSink
from streamgroups_sinks.delta.statistics import statistics


def _of(values: list[Any], of: pa.DataType) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(statistics(pa.table({"a": pa.array(values, of)})))
    return found


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_bounds_of_integers_are_theirs(values: list[int | None]) -> None:
    found, there = _of(values, pa.int64()), [v for v in values if v is not None]
    assert (found["numRecords"], found["nullCount"]) == (len(values), {"a": len(values) - len(there)})
    assert (found["minValues"], found["maxValues"]) == (({"a": min(there)}, {"a": max(there)}) if there else ({}, {}))


@given(st.lists(st.floats(), min_size=1))
def test_bounds_of_floats_are_left_out_if_a_reader_could_see_them_otherwise(values: list[float]) -> None:
    found = _of(values, pa.float64())
    if any(math.isnan(v) for v in values) or not (math.isfinite(min(values)) and math.isfinite(max(values))):
        assert not {"minValues", "maxValues"} & set(found)
    else:
        assert (found["minValues"]["a"], found["maxValues"]["a"]) == (min(values), max(values))


@pytest.mark.parametrize("of", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("values", [[-0.0, 0.0], [0.0, -0.0], [0.0], [-0.0, None]])
def test_bounds_of_zero_contain_both_zeros(values: list[float], of: pa.DataType) -> None:
    assert '"minValues":{"a":-0.0},"maxValues":{"a":0.0}' in statistics(pa.table({"a": pa.array(values, of)}))


@pytest.mark.parametrize(
    ("values", "condition", "rows"),
    [
        ([-0.0, 0.0], "f = 0.0", [0, 1]),
        ([-0.0, 0.0], "f >= -0.0", [0, 1]),
        ([0.0, -0.0], "f <= 0.0", [0, 1]),
        ([-5.0, -0.0, 0.0], "f >= 0.0", [1, 2]),
        ([0.0, -0.0, 5.0], "f <= -0.0", [0, 1]),
        ([0.0, 0.0], "f = 0.0", [0, 1]),
    ],
)
def test_a_reader_with_an_order_of_zeros_finds_both(
    values: list[float], condition: str, rows: list[int], tmp_path: Path
) -> None:
    sink = DeltaSink(uri=str(tmp_path / "flights"))
    records = pa.table({"f": values, "n": list(range(len(values)))})
    with sink.open("billing") as ledger, ledger.transaction() as transaction:
        transaction.advance({TopicPartition("flights", 0): 0})
    staged = sink.write(sink.begin(records.schema, "one"), iter(records.to_batches()), 0)
    with sink.open("billing") as ledger, ledger.transaction() as transaction:
        transaction.write([staged])
        transaction.advance({TopicPartition("flights", 0): 1})
    query = QueryBuilder().register("t", DeltaTable(sink.uri)).execute(f"SELECT * FROM t WHERE {condition} ORDER BY n")
    found = pa.table(query)
    assert found["n"].to_pylist() == rows
    assert list(map(str, found["f"].to_pylist())) == [str(values[n]) for n in rows]


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=80), min_size=1))
@example(["x" * 64 + "\U0010ffff" * 2, "y" * 65])
@example(["\U0010ffff" * 70])
def test_bounds_of_strings_hold_and_are_short(values: list[str]) -> None:
    found = _of(values, pa.string())
    low, high = found["minValues"]["a"], found["maxValues"]["a"]
    for value in values:
        assert low.encode() <= value.encode() <= high.encode()
    assert len(low) <= 64
    assert len(high) <= 65 or high.startswith("\U0010ffff")


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**27), max_value=10**27), min_size=1
    )
)
def test_bounds_of_decimals_keep_all_their_digits(values: list[Decimal]) -> None:
    text = statistics(pa.table({"a": pa.array(values, pa.decimal128(38, 10))}))
    found = json.loads(text, parse_float=Decimal)
    assert (found["minValues"]["a"], found["maxValues"]["a"]) == (min(values), max(values))


@given(st.lists(st.datetimes(), min_size=1))
def test_times_keep_their_microseconds(values: list[datetime]) -> None:
    found = _of(values, pa.timestamp("us", "UTC"))
    assert found["minValues"]["a"] == min(values).isoformat(timespec="microseconds") + "Z"
    assert found["maxValues"]["a"] == max(values).isoformat(timespec="microseconds") + "Z"


@pytest.mark.parametrize(
    ("values", "of", "bounds"),
    [
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), ("0001-01-01", "9999-12-31")),
        ([datetime(2026, 1, 1)], pa.timestamp("us"), ("2026-01-01T00:00:00.000000",) * 2),
        ([True, None, False], pa.bool_(), (False, True)),
    ],
)
def test_bounds_are_written_as_the_protocol_has_them(values: list[Any], of: pa.DataType, bounds: Any) -> None:
    found = _of(values, of)
    assert (found["minValues"]["a"], found["maxValues"]["a"]) == bounds


@pytest.mark.parametrize(
    ("value", "of"),
    [
        (2**62, pa.timestamp("us")),
        (2**31 - 1, pa.date32()),
        (float("nan"), pa.float32()),
        (float("-inf"), pa.float64()),
    ],
)
def test_a_file_with_a_bound_that_cannot_be_written_has_none(value: Any, of: pa.DataType) -> None:
    found = json.loads(statistics(pa.table({"a": pa.array([value], of), "n": [1]})))
    assert found == {"numRecords": 1, "nullCount": {"a": 0, "n": 0}}


@pytest.mark.parametrize("of", [pa.binary(), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())], ids=str)
def test_what_readers_do_not_compare_has_no_bounds_and_keeps_others_theirs(of: pa.DataType) -> None:
    rows = pa.table({"a": pa.array([None, None], of), "b": pa.array([None, None], pa.int64()), "n": [1, 2]})
    assert json.loads(statistics(rows)) == {
        "numRecords": 2,
        "minValues": {"n": 1},
        "maxValues": {"n": 2},
        "nullCount": {"a": 2, "b": 2, "n": 0},
    }


def test_structs_have_no_null_count_and_late_columns_no_statistics() -> None:
    columns = {"s": pa.array([{"x": 1}]), **{f"c{i}": [i] for i in range(40)}}
    found = json.loads(statistics(pa.table(columns)))
    assert found["numRecords"] == 1
    assert set(found["nullCount"]) == set(found["minValues"]) == {f"c{i}" for i in range(31)}
