"""Defects of deltalake that the Delta sink avoids. If one of these tests fails, a rule of the sink can be removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "flights")


def _added(uri: str) -> list[dict[str, Any]]:
    """The files in the log."""
    entries = sorted(Path(uri, "_delta_log").glob("*.json"))
    actions = (json.loads(line) for entry in entries for line in entry.read_text().splitlines())
    return [action["add"] for action in actions if "add" in action]


@pytest.mark.parametrize(("value", "written"), [("-0.50", "0.-50"), ("-12.34", "-12.-34")])
def test_a_negative_fraction_of_a_partition_makes_the_table_unreadable(uri: str, value: str, written: str) -> None:
    """``schema_conversion.check_partition_columns`` depends on this."""
    DeltaTable.create(uri, _decimals([]).schema, partition_by=["k"])
    with pytest.raises(DeltaError, match=f"Failed to parse value '{written}'"):
        write_deltalake(uri, _decimals([Decimal(value)]), mode="append")
    assert [file["partitionValues"] for file in _added(uri)] == [{"k": written}]
    with pytest.raises(DeltaError, match=f"Failed to parse value '{written}'"):
        DeltaTable(uri)


def test_a_restored_table_keeps_its_newest_transaction_identifiers(uri: str) -> None:
    """docs/delta.rst names what a user does after RESTORE."""
    for n in (100, 200, 300):
        properties = CommitProperties(app_transactions=[Transaction("board", n)])
        write_deltalake(uri, pa.table({"n": [n]}), mode="append", commit_properties=properties)
    DeltaTable(uri).restore(1)
    restored = DeltaTable(uri)
    assert sorted(restored.to_pyarrow_table()["n"].to_pylist()) == [100, 200]
    assert restored.transaction_version("board") == 300
    assert DeltaTable(uri, version=1).transaction_version("board") == 200


@pytest.mark.parametrize(("name", "read"), [("a%20b", "a b"), ("a\\b", "a/b")])
def test_a_log_is_read_at_the_path_decoded_once_more(tmp_path: Path, name: str, read: str) -> None:
    """``sink._check_path`` depends on this."""
    with pytest.raises(DeltaError, match=f"File not found: {tmp_path}/{read}/_delta_log"):
        write_deltalake(str(tmp_path / name), pa.table({"n": [1]}))
    assert _added(str(tmp_path / name))


@pytest.mark.parametrize("name", ["a b", "50%", "a%zz", "c#d?e", "ü"])
def test_other_paths_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    """``sink._check_path`` depends on this."""
    for _ in range(2):
        write_deltalake(str(tmp_path / name), pa.table({"n": [1]}), mode="append")
    assert DeltaTable(str(tmp_path / name)).to_pyarrow_table().num_rows == 2


def _decimals(values: list[Decimal]) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.decimal128(10, 2)), "id": pa.array([1] * len(values), pa.int64())})


def _merge(uri: str, rows: pa.Table) -> None:
    table, condition = DeltaTable(uri), "target.k = source.k"
    merger = table.merge(rows, condition, source_alias="source", target_alias="target", streamed_exec=False)
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _days(day: int, of: pa.DataType) -> pa.Table:
    times = pa.array([day], pa.int32()).view(pa.date32()).cast(of)
    return pa.table({"k": times, "id": [1]})


@pytest.mark.parametrize("day", [-719_163, 2_932_897])
def test_a_merged_date_without_four_digits_of_its_year_makes_the_table_unreadable(uri: str, day: int) -> None:
    """``value_checks.check_times`` depends on this and the next facts."""
    rows = _days(day, pa.date32())
    DeltaTable.create(uri, rows.schema)
    _merge(uri, rows)
    with pytest.raises(ValueError, match=r"isoformat|year 0"):
        DeltaTable(uri).to_pyarrow_table()


@pytest.mark.parametrize("day", [-719_529, 2_932_897])
def test_a_merged_partition_of_a_timestamp_without_four_digits_of_its_year_makes_the_table_unreadable(
    uri: str, day: int
) -> None:
    rows = _days(day, pa.timestamp("us", "UTC"))
    DeltaTable.create(uri, rows.schema, partition_by=["k"])
    _merge(uri, rows)
    with pytest.raises(pa.ArrowInvalid, match="Failed to parse string"):
        DeltaTable(uri).to_pyarrow_table()


@pytest.mark.parametrize("day", [-96_465_293, 95_026_237])
def test_a_merge_fails_with_a_timestamp_of_the_key_beyond_the_years_of_chrono(uri: str, day: int) -> None:
    rows = _days(day, pa.timestamp("us", "UTC"))
    DeltaTable.create(uri, rows.schema)
    with pytest.raises(DeltaError, match="Unable to convert expression to string"):
        _merge(uri, rows)


@pytest.mark.parametrize("day", [-96_465_293, 95_026_237])
def test_a_merge_fails_with_a_nested_date_beyond_the_years_of_chrono(uri: str, day: int) -> None:
    rows = pa.table({"k": [1], "days": pa.ListArray.from_arrays([0, 1], _days(day, pa.date32())["k"].chunk(0))})
    DeltaTable.create(uri, rows.schema)
    with pytest.raises(DeltaError, match="overflowed"):
        _merge(uri, rows)


@pytest.mark.parametrize("write", [_merge, lambda uri, _: DeltaTable(uri).optimize.compact()], ids=["merge", "compact"])
def test_deltalake_writes_the_time_of_a_partition_without_its_zone(
    uri: str, write: Callable[[str, pa.Table], Any]
) -> None:
    """docs/delta.rst describes the effect on Spark's readers, and ``partition_values.text`` writes the zone."""
    rows = pa.table({"k": pa.array([0, 0], pa.timestamp("us", "UTC")), "id": [1, 2]})
    for i in range(2):
        write_deltalake(uri, rows.slice(i, 1), mode="append", partition_by=["k"])
    write(uri, rows.slice(0, 1).set_column(0, "k", pa.array([1_000_000], pa.timestamp("us", "UTC"))))
    last = _added(uri)[-1]
    assert last["partitionValues"]["k"].startswith("1970-01-01 00:00:0")
    assert not last["partitionValues"]["k"].endswith("Z")
