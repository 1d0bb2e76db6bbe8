"""What Delta Lake can hold, and whether records fit a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamgroups.errors import SinkRejected
from streamgroups_sinks.delta.schema_conversion import (
    as_delta,
    check_partition_columns,
    check_simple,
    fit,
    holds,
    nullable,
)

_INT = pa.int64()


@pytest.mark.parametrize(
    ("of", "as_held"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.binary(4), pa.binary()),
        (pa.large_binary(), pa.binary()),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.date64(), pa.date32()),
        (pa.decimal128(38, 10), pa.decimal128(38, 10)),
        (pa.large_list(pa.large_string()), pa.list_(pa.field("element", pa.string()))),
        (pa.struct([("at", pa.timestamp("ms"))]), pa.struct([("at", pa.timestamp("us"))])),
        (pa.map_(pa.large_string(), pa.date64()), pa.map_(pa.string(), pa.date32())),
    ],
    ids=str,
)
def test_types_become_those_of_delta(of: pa.DataType, as_held: pa.DataType) -> None:
    assert as_delta(pa.schema([("a", of)])).field("a").type == as_held


@pytest.mark.parametrize(
    "of",
    [
        pa.uint32(),
        pa.float16(),
        pa.null(),
        pa.duration("us"),
        pa.time64("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
        pa.decimal128(10, -2),
        pa.list_(pa.duration("us")),
        pa.map_(pa.string(), pa.uint8()),
        pa.struct([("a", pa.null())]),
    ],
    ids=str,
)
def test_the_error_names_the_column_of_an_unsupported_type(of: pa.DataType) -> None:
    with pytest.raises(SinkRejected, match=r"Column 'delay' is .*, which Delta Lake does not support\. Cast it"):
        as_delta(pa.schema([("n", _INT), ("delay", of)]))


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "a(b)", "a\tb"])
def test_names_that_delta_does_not_allow_are_rejected(name: str) -> None:
    with pytest.raises(SinkRejected, match="a name that Delta Lake does not allow"):
        as_delta(pa.schema([(name, _INT)]))


@pytest.mark.parametrize("second", ["id", "ID"])
def test_two_names_that_are_one_to_delta_are_rejected(second: str) -> None:
    with pytest.raises(SinkRejected, match="Several columns are called 'id'"):
        as_delta(pa.schema([("id", _INT), (second, _INT)]))


@pytest.mark.parametrize("second", ["id", "ID"])
def test_two_nested_names_that_are_one_to_delta_are_rejected(second: str) -> None:
    flight = pa.struct([("id", _INT), (second, _INT)])
    for of in (flight, pa.list_(flight), pa.map_(pa.string(), pa.struct([("flight", flight)]))):
        with pytest.raises(SinkRejected, match=r"Several fields of column 'last' are called 'id'.*Rename them"):
            as_delta(pa.schema([("id", _INT), ("last", of)]))


def _field(nullable_: bool) -> pa.Field:
    return pa.field("element", _INT, nullable=nullable_)


@pytest.mark.parametrize(
    ("table", "records", "good"),
    [
        (_INT, _INT, True),
        (_INT, pa.int32(), False),
        (pa.decimal128(10, 2), pa.decimal128(10, 3), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.list_(_field(True)), pa.list_(_field(False)), True),
        (pa.list_(_field(False)), pa.list_(_field(True)), False),
        (pa.list_(_field(True)), pa.list_(pa.string()), False),
        (pa.map_(pa.string(), _INT), pa.map_(pa.string(), _INT), True),
        (pa.map_(pa.string(), _INT), pa.map_(_INT, _INT), False),
        (pa.struct([("a", _INT), ("b", _INT)]), pa.struct([("a", _INT), ("b", _INT)]), True),
        (pa.struct([("a", _INT), ("b", _INT)]), pa.struct([("b", _INT), ("a", _INT)]), False),
        (pa.struct([("a", _INT)]), pa.struct([("a", pa.string())]), False),
        (pa.struct([("a", _INT)]), _INT, False),
    ],
)
def test_a_column_holds_what_can_be_read_back_as_it_was(table: pa.DataType, records: pa.DataType, good: bool) -> None:
    assert holds(table, records) is good


def test_missing_columns_are_distinguished_from_nullable_ones() -> None:
    table = pa.schema([("a", _INT), pa.field("b", _INT, nullable=False), ("c", _INT)])
    found = fit(table, pa.schema([("b", _INT), ("d", _INT)]), uri="/flights")
    assert ([new.name for new in found.new], found.required) == (["d"], {"b"})


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([("a", pa.string()), ("b", _INT)], "Column 'a' is of type string, but in table /flights it is int64. Cast it"),
        ([("A", _INT), ("b", _INT)], "Column 'A' is called 'a' in table /flights. Rename it"),
        ([("a", _INT)], "Table /flights does not allow null in column 'b'"),
    ],
)
def test_differences_are_reported_with_the_remedy(records: list[tuple[str, pa.DataType]], why: str) -> None:
    with pytest.raises(SinkRejected, match=why):
        fit(pa.schema([("a", _INT), pa.field("b", _INT, nullable=False)]), pa.schema(records), uri="/flights")


def test_a_new_table_lets_everything_be_null() -> None:
    strict = pa.schema(
        [
            pa.field("a", pa.list_(_field(False)), nullable=False),
            pa.field("b", pa.struct([pa.field("c", _INT, nullable=False)]), nullable=False),
            pa.field("d", pa.map_(pa.string(), pa.field("value", _INT, nullable=False)), nullable=False),
        ]
    )
    loose = nullable(strict)
    assert all(field.nullable for field in loose)
    assert loose.field("a").type.value_field.nullable
    assert loose.field("b").type.field("c").nullable
    assert loose.field("d").type.item_field.nullable
    assert fit(loose, strict, uri="/flights").new == ()


@pytest.mark.parametrize("of", [pa.float64(), pa.binary(), pa.list_(_INT), pa.struct([("a", _INT)])], ids=str)
def test_keys_and_partitions_are_of_simple_types(of: pa.DataType) -> None:
    for check in (check_simple, check_partition_columns):
        with pytest.raises(SinkRejected, match="Column 'k' of key is"):
            check(pa.schema([("k", of)]), ["k"], "key")


@pytest.mark.parametrize("of", [pa.string(), _INT, pa.date32(), pa.timestamp("us"), pa.decimal128(10, 0)], ids=str)
def test_columns_whose_values_deltalake_reads_back_are_partitions(of: pa.DataType) -> None:
    check_partition_columns(pa.schema([("k", of)]), ["k"], "partition_by")


def test_a_decimal_with_a_fraction_is_a_key_and_no_partition() -> None:
    schema = pa.schema([("k", pa.decimal128(10, 1))])
    check_simple(schema, ["k"], "key")
    with pytest.raises(SinkRejected, match="Column 'k' of partition_by is of type decimal") as e:
        check_partition_columns(schema, ["k"], "partition_by")
    assert "cast it to a string" in e.value.remedy
