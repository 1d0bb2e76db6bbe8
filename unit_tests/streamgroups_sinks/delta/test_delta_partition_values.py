"""Rows are split by partition and lose nothing."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import RecordRejected
from streamgroups.partitions import TopicPartition
from streamgroups_sinks.delta.partition_values import split, text
from streamgroups_sinks.delta.sink import DeltaSink

_ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b c", "x/y", "", None]), st.sampled_from([1, 2, None]), st.integers(0, 9))
)


@given(_ROWS)
def test_every_row_is_in_its_partition_once_and_in_order(rows: list[tuple[str | None, int | None, int]]) -> None:
    names, numbers, values = ([row[i] for row in rows] for i in range(3))
    batch = pa.record_batch(
        {
            "name": pa.array(names, pa.string()),
            "value": pa.array(values, pa.int64()),
            "number": pa.array(numbers, pa.int32()),
        }
    )
    found: dict[Any, list[int]] = {}
    for of, part in split(batch, ["name", "number"]):
        assert part.schema.names == ["value"]
        # Null and the empty string are two groups of rows and one partition.
        found.setdefault(of, []).extend(part.column("value").to_pylist())
    required: dict[Any, list[int]] = {}
    for name, number, value in rows:
        required.setdefault((name or None, None if number is None else str(number)), []).append(value)
    assert {of: Counter(part) for of, part in found.items()} == {of: Counter(part) for of, part in required.items()}
    for (name, number), part in found.items():
        if name is not None:
            assert part == required[name, number]


@pytest.mark.parametrize(
    ("value", "of", "written"),
    [
        (None, pa.int64(), None),
        ("", pa.string(), None),
        ("é/%=", pa.string(), "é/%="),
        (-5, pa.int64(), "-5"),
        (False, pa.bool_(), "false"),
        (date(2026, 1, 2), pa.date32(), "2026-01-02"),
        (Decimal("0E-10"), pa.decimal128(20, 10), "0.0000000000"),
        (Decimal("-1.50"), pa.decimal128(5, 2), "-1.50"),
        (datetime(2026, 1, 2, 3, 4, 5, 6), pa.timestamp("us"), "2026-01-02 03:04:05.000006"),
        (
            datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc),
            pa.timestamp("us", "Europe/Berlin"),
            "2026-01-02T03:04:05.000006Z",
        ),
    ],
)
def test_values_are_written_as_the_protocol_has_them(value: Any, of: pa.DataType, written: str | None) -> None:
    assert text(pa.scalar(value, of)) == written


def test_a_time_that_the_log_cannot_hold_is_rejected() -> None:
    with pytest.raises(RecordRejected, match="cannot be written in the table's log"):
        text(pa.scalar(2**31 - 1, pa.date32()))


def test_a_partition_whose_time_has_no_zone_in_the_log_is_overwritten(tmp_path: Path) -> None:
    uri, eight, nine = str(tmp_path / "flights"), datetime(2026, 11, 21, 8), datetime(2026, 11, 21, 9)

    def rows(numbers: dict[datetime, int]) -> pa.Table:
        times = pa.array(list(numbers), pa.timestamp("us", "UTC"))
        return pa.table({"at": times, "n": list(numbers.values())})

    # Older versions of the sink have written such a form, and deltalake writes it when it compacts or merges.
    write_deltalake(uri, rows({eight: 1, nine: 2}), partition_by=["at"])
    assert {"at": "2026-11-21 08:00:00.000000"} in DeltaTable(uri).partitions()
    sink = DeltaSink(uri=uri, mode="overwrite_partitions", partition_by=("at",))
    staged = sink.write(sink.begin(rows({eight: 3}).schema, "one"), iter(rows({eight: 3}).to_batches()), 0)
    with sink.open("billing") as ledger, ledger.transaction() as transaction:
        transaction.write([staged])
        transaction.advance({TopicPartition("flights", 0): 1})
    table = DeltaTable(uri)
    assert {"at": "2026-11-21T08:00:00.000000Z"} in table.partitions()
    assert table.to_pyarrow_table().sort_by("n") == rows({nine: 2, eight: 3})
    found = table.to_pyarrow_table(filters=[("at", "=", eight.replace(tzinfo=timezone.utc))])
    assert found["n"].to_pylist() == [3]
