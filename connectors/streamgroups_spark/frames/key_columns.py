"""The columns by which a topic is partitioned, and the record key that they have.

Called by ``repartition.repartition``, which writes and reads such a topic, and by ``state.operator_plan``, which checks the keys of an
operator. Metadata of Spark's columns mark them: a column keeps its metadata when it is selected or renamed, and an
expression has none. Source: Spark's ``Column.alias``; SEMANTICS S12.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from streamgroups.errors import InvalidOption
from streamgroups_spark.frames.record_values import JSON

#: The name of the metadata of a column by which its topic is partitioned: ``[topic, number of the column, columns]``.
MARK = "streamgroups.partitioned_by"
_UTF8_BINARY = StringType().collation
NESTED = (ArrayType, MapType, StructType, VariantType)


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
        if isinstance(of_column, StringType) and of_column.collation != _UTF8_BINARY:
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
