"""A merge assigns each value to the column of its name, whatever the name is."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import streamgroups as sg
from component_tests.delta_tables import open_at, write_batch

#: Names that an unquoted identifier would change, and those of columns that a merge adds.
NAMES = ["a.b", "target.x", "source.x", "target.k", ".x", "a`b", 'a"b', "a'b", "Id", "select", "0"]
NAMES += ["__streamgroups_new", "__streamgroups_row", "__streamgroups_row_max", "__STREAMGROUPS_NEW"]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "flights")


def _merged(sink: sg.DeltaSink, *batches: dict[str, Any]) -> list[dict[str, Any]]:
    open_at(sink)
    for i, columns in enumerate(batches):
        write_batch(sink, i, i + 1, pa.table(columns))
    rows: list[dict[str, Any]] = DeltaTable(sink.uri).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: [str(row[name]) for name in sink.key])


@pytest.mark.parametrize("name", NAMES)
def test_a_key_of_any_name_is_inserted_and_updated(uri: str, name: str) -> None:
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=(name,))
    found = _merged(sink, {name: [1, 2], "v": ["a", "b"]}, {name: [2, 3], "v": ["c", "d"]})
    assert found == [{name: 1, "v": "a"}, {name: 2, "v": "c"}, {name: 3, "v": "d"}]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_any_name_is_inserted_and_updated(uri: str, name: str) -> None:
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("k",))
    found = _merged(
        sink,
        {"k": [1, 2], "x": [10, 20], name: ["a", "b"], "b": [1, 1]},
        {"k": [2, 3], "x": [21, 31], name: ["c", "d"], "b": [2, 2]},
    )
    assert found == [
        {"k": 1, "x": 10, name: "a", "b": 1},
        {"k": 2, "x": 21, name: "c", "b": 2},
        {"k": 3, "x": 31, name: "d", "b": 2},
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_any_name_that_the_records_lack_is_null_in_a_new_row(uri: str, name: str) -> None:
    write_deltalake(uri, pa.table({"k": [1, 2], "v": [1, 1], name: ["kept", "deleted"]}))
    marker = f"{name}_deleted"
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("k",), delete_marker=marker)
    found = _merged(sink, {"k": [1, 2, 2], "v": [2, 2, 3], marker: [False, True, False]})
    assert found == [{"k": 1, "v": 2, name: "kept"}, {"k": 2, "v": 3, name: None}]


@pytest.mark.parametrize("partition_by", [(), ("k",)], ids=["not partitioned", "partitioned"])
def test_a_negative_decimal_is_a_key(uri: str, partition_by: tuple[str, ...]) -> None:
    scale = 0 if partition_by else 2
    one, two, three = (Decimal(n).scaleb(-scale) for n in (-50, -5, -1234))
    of = pa.decimal128(10, scale)
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("k",), partition_by=partition_by)
    batches = ([one, two], ["a", "b"]), ([two, three], ["c", "d"])
    found = _merged(sink, *({"k": pa.array(keys, of), "v": values} for keys, values in batches))
    assert {row["k"]: row["v"] for row in found} == {one: "a", two: "c", three: "d"}
    assert len(found) == 3
