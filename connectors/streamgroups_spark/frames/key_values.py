"""Key columns whose equal values have equal bytes, so that an operator has one state for each key of Spark.

Called by ``windows``, ``state.stateful`` and ``joins.join`` on the driver. An operator compares the bytes of keys. Source:
Spark's ``groupBy`` and equi-joins: 0.0 and -0.0 are one key, all NaN are one key, and a collation decides about strings;
Spark's ``NormalizeFloatingNumbers``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyspark.sql.types as T  # noqa: N812
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType, StructType

from streamgroups.errors import InvalidOption
from streamgroups_spark.frames.columns import column

_UTF8_BINARY = StringType().collation
#: The types that Arrow can group and compare as Spark does. PySpark 4.0 has no TimeType.
COMPARABLE: tuple[type[DataType], ...] = (
    T.IntegralType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.BooleanType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    *([T.TimeType] if hasattr(T, "TimeType") else []),
)


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
