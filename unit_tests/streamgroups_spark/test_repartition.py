"""S12: decisions of ``sg.repartition`` and ``sg.read_repartitioned`` before a query starts."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups_spark.frames.key_columns import MARK, check_key_types, is_partitioned_by
from streamgroups_spark.frames.record_values import check_time_texts, check_value_types
from streamgroups_spark.repartition.repartition import _reading
from streamgroups_spark.repartition.target_topic import must_create


def schema(**columns: DataType | list[str]) -> StructType:
    """Columns by their types, or strings by their marks."""
    return StructType(
        [
            StructField(name, StringType(), metadata={MARK: it}) if isinstance(it, list) else StructField(name, it)
            for name, it in columns.items()
        ]
    )


def test_S12_a_topic_with_another_number_of_partitions_is_rejected() -> None:
    for existing in (1, 9):
        cause = rf"has {existing} partitions, but option 'partitions' is 8.*Set partitions={existing}"
        with pytest.raises(InvalidOption, match=cause):
            must_create("by-airport", existing, 8)
    with pytest.raises(
        UnknownTopic, match=r"'by-airport' does not exist\. Set 'partitions'.*If it exists: Grant Write on"
    ):
        must_create("by-airport", None, None)


@given(columns=st.integers(1, 4), chosen=st.sets(st.integers(0, 3)), others=st.booleans())
def test_S12_keys_contain_all_columns_of_a_topic(columns: int, chosen: set[int], others: bool) -> None:
    marks = {f"c{i}": ["topic", str(i), str(columns)] for i in range(columns)}
    by = [f"c{i}" for i in sorted(chosen) if i < columns] + ["plain"] * others
    is_complete = chosen >= set(range(columns))
    assert is_partitioned_by(schema(**marks, plain=StringType()), by) == is_complete


def test_S12_columns_of_two_topics_do_not_add_up() -> None:
    columns = schema(a=["one", "0", "2"], b=["other", "1", "2"], c=["one", "1", "2"], d=["one", "1", "3"])
    assert not is_partitioned_by(columns, ["a", "b"])
    assert not is_partitioned_by(columns, ["a", "d"])
    assert is_partitioned_by(columns, ["a", "b", "c"])
    assert not is_partitioned_by(columns, [])


@pytest.mark.parametrize(
    "column", [VariantType(), CalendarIntervalType(), CharType(3), StructType([StructField("v", VariantType())])]
)
def test_S12_types_that_a_value_cannot_contain(column: DataType) -> None:
    for nested in (column, ArrayType(column), MapType(StringType(), column), MapType(column, StringType())):
        with pytest.raises(InvalidOption, match="Column 'v' contains the type"):
            check_value_types(schema(v=nested))


def test_S12_fields_of_one_name() -> None:
    twice = StructType([StructField("a", IntegerType()), StructField("A", IntegerType())])
    with pytest.raises(InvalidOption, match="Several fields of column 's' have the name 'a'"):
        check_value_types(schema(s=ArrayType(twice)))


def test_S12_types_that_are_no_keys() -> None:
    columns = schema(f=DoubleType(), s=StringType("UTF8_LCASE"), i=IntegerType())
    check_key_types(columns, ["i"])
    with pytest.raises(InvalidOption, match=r"'f' of 'by' is of type double.*Cast it to decimal"):
        check_key_types(columns, ["i", "f"])
    with pytest.raises(InvalidOption, match="'s' of 'by' is of type string collate UTF8_LCASE"):
        check_key_types(columns, ["s"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}),
        ({"STARTINGOFFSETS": "latest"}, {"STARTINGOFFSETS": "latest", "kafka.isolation.level": "read_committed"}),
        (
            {"Kafka.Isolation.Level": "READ_COMMITTED"},
            {"startingOffsets": "earliest", "Kafka.Isolation.Level": "read_committed"},
        ),
    ],
)
def test_S12_a_reader_starts_at_the_earliest_committed_records(
    options: dict[str, str], expected: dict[str, Any]
) -> None:
    assert _reading("by-airport", options) == expected | {"subscribe": "by-airport"}


@pytest.mark.parametrize(
    "name",
    ["subscribe", "SubscribePattern", "assign", "columns", "includeHeaders", "eventTimeHeader", "watermarkHeader"],
)
def test_S12_options_of_the_source_that_a_reader_rejects(name: str) -> None:
    with pytest.raises(InvalidOption, match="The options contain"):
        _reading("by-airport", {name: "x"})
    with pytest.raises(InvalidOption, match="reads records of aborted transactions"):
        _reading("by-airport", {"kafka.isolation.level": "read_uncommitted"})


@pytest.mark.parametrize(
    ("of", "policy", "is_rejected"),
    [
        (DateType(), "legacy", True),
        (ArrayType(StructType().add("at", TimestampType())), "LEGACY", True),
        (StringType(), "LEGACY", False),
        (DateType(), "CORRECTED", False),
        # It only fails where the policies differ, and the texts of times do not.
        (DateType(), "EXCEPTION", False),
    ],
)
def test_S12_the_texts_of_times_are_not_those_of_an_old_version(of: DataType, policy: str, is_rejected: bool) -> None:
    conf = SimpleNamespace(get={"spark.sql.legacy.timeParserPolicy": policy}.get)
    spark: Any = SimpleNamespace(conf=conf)
    rejects = pytest.raises(
        InvalidOption, match=r"'LEGACY', and column 'at' of sg.repartition .* Set it to 'CORRECTED'"
    )
    with rejects if is_rejected else nullcontext():
        check_time_texts(spark, StructType().add("n", "integer").add("at", of), "sg.repartition")
