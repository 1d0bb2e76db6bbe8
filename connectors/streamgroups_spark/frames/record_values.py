"""The value of a record: the columns of a row as a JSON object that Spark reads back without a loss.

Called by ``repartition.repartition``. Spark's JSON keeps most types exactly, with explicit formats of times. Two need more: a map
whose keys are not strings becomes an array of entries. Types that JSON cannot contain are rejected before the query starts,
and :mod:`streamgroups_spark.frames.value_rejections` rejects single rows. Source: Spark's ``JacksonGenerator`` and
``JacksonParser`` (4.2); SEMANTICS S12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import MappingProxyType

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from streamgroups.errors import InvalidOption
from streamgroups_spark.frames.columns import column
from streamgroups_spark.internals.spark_api import TIME_TYPES

#: Options of ``to_json``. Times are in UTC and complete: the session's time zone has no effect, and its clock changes
#: make no time ambiguous.
JSON = MappingProxyType(
    {
        "timeZone": "UTC",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
        "dateFormat": "yyyy-MM-dd",
        "ignoreNullFields": "false",
    }
)
_PLAIN: list[type[DataType]] = [
    *(BinaryType, BooleanType, NullType, NumericType, StringType, DateType, TimestampNTZType, TimestampType),
    *(DayTimeIntervalType, YearMonthIntervalType),
]
_EXACT = (*_PLAIN, *TIME_TYPES)
_TIMES = (DateType, TimestampType, TimestampNTZType)
#: The setting of Spark for the texts of times, and its default value.
TIME_POLICY, EXACT_TIMES = "spark.sql.legacy.timeParserPolicy", "CORRECTED"
#: Options of ``from_json``. A value of another writer fails the query, and is never a row of nulls.
_PARSING = {
    **{name: value for name, value in JSON.items() if name != "ignoreNullFields"},
    "mode": "FAILFAST",
    # Otherwise a column '_corrupt_record' of the writer would be null.
    "columnNameOfCorruptRecord": "streamgroups.corrupt_record",
    # Otherwise a string of more than 20,000,000 characters would fail the query.
    "maxStringLen": str((1 << 31) - 1),
}


def check_value_types(schema: StructType) -> None:
    """Checks that a value can contain the columns.

    Raises:
        InvalidOption: for the first column of a type that is not supported. The error contains the column.

    >>> from pyspark.sql.types import IntegerType, VariantType
    >>> check_value_types(StructType([StructField("a", MapType(IntegerType(), StringType()))]))
    >>> check_value_types(StructType([StructField("a", ArrayType(VariantType()))]))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Column 'a' contains the type variant, which a record value cannot contain exactly. \
Cast it, or write it as a string with to_json.
    """
    for field in schema.fields:
        _check(field.dataType, field.name)


def _check(of: DataType, column: str) -> None:
    if isinstance(of, ArrayType):
        _check(of.elementType, column)
    elif isinstance(of, MapType):
        _check(of.keyType, column)
        _check(of.valueType, column)
    elif isinstance(of, StructType):
        # Spark resolves names without their case.
        twice = [name for name, times in Counter(map(str.lower, of.names)).items() if times > 1]
        if twice:
            raise InvalidOption(
                f"Several fields of column '{column}' have the name '{twice[0]}'.", remedy="Rename them."
            )
        for field in of.fields:
            _check(field.dataType, column)
    elif not isinstance(of, _EXACT):
        raise InvalidOption(
            f"Column '{column}' contains the type {of.simpleString()}, which a record value cannot contain exactly.",
            remedy="Cast it, or write it as a string with to_json.",
        )


def check_time_texts(spark: SparkSession, schema: StructType, what: str) -> None:
    """Checks that the session writes the texts of dates and timestamps exactly.

    With the policy ``LEGACY`` the year -43 is written as 0044, and 12345 without its sign.

    Args:
        spark: the session.
        schema: the columns.
        what: the function of the API that writes or reads the texts.

    Raises:
        InvalidOption: if the policy is ``LEGACY`` and the schema has dates or timestamps.
    """
    policy = str(spark.conf.get(TIME_POLICY, EXACT_TIMES)).upper()
    times = [it.name for it in schema.fields if contains(it.dataType, lambda of: isinstance(of, _TIMES))]
    if policy == "LEGACY" and times:
        raise InvalidOption(
            f"{TIME_POLICY} is '{policy}', and column '{times[0]}' of {what} has dates or timestamps.",
            remedy=f"Set it to '{EXACT_TIMES}', or cast them to string.",
        )


def to_value(schema: StructType) -> Column:
    """Returns the value of the rows of a DataFrame, a string.

    It is exact for rows that :func:`~streamgroups_spark.frames.value_rejections.rejection` accepts.

    Args:
        schema: the columns of the DataFrame, for which :func:`check_value_types` has succeeded.
    """
    columns = (_written(column(it.name), it.dataType).alias(it.name) for it in schema.fields)
    return F.to_json(F.struct(*columns), dict(JSON))


def from_value(value: Column, schema: StructType) -> Column:
    """Returns the columns of a value as a struct, with the types of the schema.

    Args:
        value: the value, a string.
        schema: the columns that were written. A column that a value does not have is null.
    """
    return F.from_json(value, _json_struct(schema), dict(_PARSING))


def column_of(parsed: Column, field: StructField) -> Column:
    """Returns one column of :func:`from_value` with its type."""
    return _read(parsed.getField(field.name), field.dataType)


# ---- conversions -----------------------------------------------------------------------------------------------------


def _is_object(of: MapType) -> bool:
    return isinstance(of.keyType, StringType)


def _json_type(of: DataType) -> DataType:
    """The type that ``from_json`` reads. It reads maps only if their keys are strings."""
    if isinstance(of, ArrayType):
        return ArrayType(_json_type(of.elementType))
    if isinstance(of, MapType) and _is_object(of):
        return MapType(of.keyType, _json_type(of.valueType))
    if isinstance(of, MapType):
        entry = StructType([StructField("key", of.keyType), StructField("value", of.valueType)])
        return ArrayType(_json_struct(entry))
    return _json_struct(of) if isinstance(of, StructType) else of


def _json_struct(of: StructType) -> StructType:
    return StructType([StructField(it.name, _json_type(it.dataType)) for it in of.fields])


def is_entries(of: DataType) -> bool:
    """Returns whether a type is a map that a value contains as an array of entries."""
    return isinstance(of, MapType) and not _is_object(of)


def contains(of: DataType, is_such: Callable[[DataType], bool]) -> bool:
    """Returns whether a type, or a type inside it, meets a condition."""
    return is_such(of) or any(contains(it, is_such) for it in _inner(of))


def _inner(of: DataType) -> list[DataType]:
    if isinstance(of, ArrayType):
        return [of.elementType]
    if isinstance(of, MapType):
        return [of.keyType, of.valueType]
    return [it.dataType for it in of.fields] if isinstance(of, StructType) else []


def _written(value: Column, of: DataType) -> Column:
    """The value in a form that JSON contains exactly."""
    if not contains(of, is_entries):
        return value
    if isinstance(of, ArrayType):
        return F.transform(value, lambda it: _written(it, of.elementType))
    if isinstance(of, MapType) and _is_object(of):
        # The keys stay as they are: Spark would reject equal ones in a new map.
        return F.transform_values(value, lambda _, it: _written(it, of.valueType))
    if isinstance(of, MapType):

        def entry(it: Column) -> Column:
            key, its = it.getField("key"), it.getField("value")
            return F.struct(_written(key, of.keyType).alias("key"), _written(its, of.valueType).alias("value"))

        return F.transform(F.map_entries(value), entry)
    assert isinstance(of, StructType), "no other type contains a map"
    fields = (_written(value.getField(it.name), it.dataType).alias(it.name) for it in of.fields)
    return F.when(value.isNotNull(), F.struct(*fields))


def _read(value: Column, of: DataType) -> Column:
    """The inverse of :func:`_written`."""
    if not contains(of, is_entries):
        return value
    if isinstance(of, ArrayType):
        return F.transform(value, lambda it: _read(it, of.elementType))
    if isinstance(of, MapType) and _is_object(of):
        return F.transform_values(value, lambda _, it: _read(it, of.valueType))
    if isinstance(of, MapType):

        def entry(it: Column) -> Column:
            return F.struct(_read(it.getField("key"), of.keyType), _read(it.getField("value"), of.valueType))

        return F.map_from_entries(F.transform(value, entry))
    assert isinstance(of, StructType), "no other type contains a map"
    fields = (_read(value.getField(it.name), it.dataType).alias(it.name) for it in of.fields)
    return F.when(value.isNotNull(), F.struct(*fields))
