"""Key columns: their checks, their values for an operator, and the record key of a topic that is partitioned by them.

Called by ``repartition.repartition``, ``windows``, ``state`` and ``joins.join`` on the driver. Metadata of Spark's columns mark
the columns by which a topic is partitioned: a column keeps its metadata when it is selected or renamed, and an expression has
none. An operator compares the bytes of keys, and has one state for each key of Spark. Source: SEMANTICS S12; Spark's
``Column.alias``; Spark's ``groupBy`` and equi-joins: 0.0 and -0.0 are one key, all NaN are one key, and a collation decides about
strings; Spark's ``NormalizeFloatingNumbers``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from streamgroups.errors import InvalidOption
from streamgroups_spark.frames.columns import column
from streamgroups_spark.frames.record_values import JSON
from streamgroups_spark.internals.spark_api import TIME_TYPES

#: The name of the metadata of a column by which its topic is partitioned: ``[topic, number of the column, columns]``.
MARK = "streamgroups.partitioned_by"
_UTF8_BINARY = StringType().collation
NESTED = (ArrayType, MapType, StructType, VariantType)
#: The types that Arrow can group and compare as Spark does. PySpark 4.0 has no TimeType.
COMPARABLE: tuple[type[DataType], ...] = (
    IntegralType,
    FloatType,
    DoubleType,
    DecimalType,
    BooleanType,
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    *TIME_TYPES,
)


def check_key_columns(columns: StructType, by: Sequence[str], others: Sequence[str] = ()) -> None:
    """Checks that the key columns exist and are not nested.

    Args:
        columns: all columns.
        by: the key columns.
        others: other columns that must exist.

    Raises:
        InvalidOption: for the first column that is missing or nested.
    """
    if isinstance(by, str):
        raise InvalidOption(f"Option 'by' is '{by}'.", remedy=f"Pass a list: ['{by}'].")
    for name in (*others, *by):
        if name not in columns.names:
            raise InvalidOption(
                f"Column '{name}' does not exist.", remedy=f"The columns are {', '.join(columns.names)}."
            )
    for name in by:
        if isinstance(columns[name].dataType, NESTED):
            raise InvalidOption(
                f"Column '{name}' of 'by' is of type {columns[name].dataType.simpleString()}.",
                remedy="Use columns that are not nested.",
            )


def check_key_types(schema: StructType, by: Sequence[str]) -> None:
    """Checks that equal values of the key columns have equal bytes.

    Args:
        schema: the columns of the records.
        by: the key columns. None of them is nested.

    Raises:
        InvalidOption: if a column has a type whose equal values can have different texts.
    """
    for name in by:
        of_column = schema[name].dataType
        if isinstance(of_column, FloatType | DoubleType):
            raise _not_a_key(name, of_column, "its text depends on the version of Java", "decimal, bigint or string")
        if has_collation(of_column):
            raise _not_a_key(name, of_column, "equal values can have different bytes", "string COLLATE UTF8_BINARY")


def _not_a_key(name: str, of_column: DataType, why: str, instead: str) -> InvalidOption:
    return InvalidOption(
        f"Column '{name}' of 'by' is of type {of_column.simpleString()}, and {why}.", remedy=f"Cast it to {instead}."
    )


def record_key(schema: StructType, by: Sequence[str], columns: Mapping[str, Column]) -> Column:
    """Returns the record key, binary.

    One column of type string or binary is the key itself, as for other producers. The key is null if the column is null.
    Any other key is a JSON object of the columns.

    Args:
        schema: the columns of the records.
        by: the key columns.
        columns: the expressions of the key columns.
    """
    if len(by) == 1 and isinstance(schema[by[0]].dataType, StringType | BinaryType):
        return columns[by[0]].cast("binary")
    return F.to_json(F.struct(*(columns[name].alias(name) for name in by)), dict(JSON)).cast("binary")


def marked(column: Column, topic: str, by: Sequence[str], name: str) -> Column:
    """Returns a key column with its mark."""
    return column.alias(name, metadata={MARK: [topic, str(list(by).index(name)), str(len(by))]})


def is_partitioned_by(schema: StructType, by: Collection[str]) -> bool:
    """Whether equal values in these columns are in one partition: they contain all columns by which a topic is partitioned.

    Args:
        schema: the columns of a DataFrame that reads one stream.
        by: the key columns of an operator.

    >>> from pyspark.sql.types import StructField
    >>> airport = StructField("airport", StringType(), metadata={MARK: ["by-airport-and-day", "0", "2"]})
    >>> day = StructField("day", StringType(), metadata={MARK: ["by-airport-and-day", "1", "2"]})
    >>> flights = StructType([airport, day, StructField("carrier", StringType())])
    >>> is_partitioned_by(flights, ["airport", "day", "carrier"]), is_partitioned_by(flights, ["airport", "carrier"])
    (True, False)
    """
    marks = [(schema[name].metadata or {}).get(MARK) for name in by]
    found = {(topic, columns): set[str]() for topic, _, columns in filter(None, marks)}
    for topic, number, columns in filter(None, marks):
        found[topic, columns].add(number)
    return any(len(numbers) == int(columns) for (_, columns), numbers in found.items())


def check_key_values(schema: StructType, by: Sequence[str]) -> None:
    """Checks that an operator can compare the values of its key columns as Spark does.

    Args:
        schema: the columns of the records.
        by: the key columns.

    Raises:
        InvalidOption: if a column has a type whose equal values can have different bytes, or no type of Arrow.
    """
    for name in by:
        of = schema[name].dataType
        if has_collation(of):
            raise InvalidOption(
                f"Column '{name}' of 'by' is of type {of.simpleString()}, whose equal values can have different bytes.",
                remedy="Cast it to string COLLATE UTF8_BINARY, for example after lower().",
            )
        if not isinstance(of, COMPARABLE):
            raise InvalidOption(
                f"Column '{name}' of 'by' is of type {of.simpleString()}.",
                remedy="Cast it, for example to string or bigint.",
            )


def has_collation(of: DataType) -> bool:
    """Returns whether strings of a type with different bytes can be equal."""
    return isinstance(of, StringType) and of.collation != _UTF8_BINARY


def key_column(schema: StructType, name: str) -> Column:
    """Returns a key column whose equal values have equal bytes: 0.0 for -0.0, and one NaN."""
    of, values = schema[name].dataType, column(name)
    if not isinstance(of, FloatType | DoubleType):
        return values
    normalized = F.when(values == 0, F.lit(0.0)).when(F.isnan(values), F.lit(float("nan"))).otherwise(values)
    return normalized.cast(of)


def with_key_values(df: DataFrame, by: Sequence[str]) -> DataFrame:
    """Returns the records with the key columns of :func:`key_column`."""
    floats = [it for it in by if isinstance(df.schema[it].dataType, FloatType | DoubleType)]
    if not floats:
        return df
    return df.select(*(key_column(df.schema, it).alias(it) if it in floats else column(it) for it in df.columns))
