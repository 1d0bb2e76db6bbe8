"""Defects of deltalake that the Delta sink avoids. If one of these tests fails, a rule of the sink can be removed."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
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


def _decimals(values: list[Decimal]) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.decimal128(10, 2)), "id": pa.array([1] * len(values), pa.int64())})
