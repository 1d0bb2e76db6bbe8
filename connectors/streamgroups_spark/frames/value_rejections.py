"""Rows that the value of a record cannot contain exactly.

Called by ``repartition.repartition`` on the driver. The types of the columns permit each of these values, so only the rows
decide. The writer rejects such a row, because a reader would fail at its value, or would return another one. Source:
Spark's ``JacksonParser``, ``ArrayBasedMapBuilder`` and ``Iso8601TimestampFormatter`` (4.2); Jackson's
``StreamReadConstraints``; SEMANTICS S12, P4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, TimestampType

from streamgroups_spark.frames.columns import column
from streamgroups_spark.frames.record_values import contains, is_entries

#: Spark's parser of timestamps fails before this time, which is 0.8 s after the smallest timestamp.
_FIRST_US = -9_223_372_036_854_000_000
#: Jackson reads names of fields, and so keys of a map, up to this number of characters. A character outside the Basic
#: Multilingual Plane counts twice, as in UTF-16. Spark has no option for it.
_MAX_NAME = 50_000


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule for the values of a type.

    Args:
        is_of: whether the rule is for a type.
        is_broken: whether a value of the type breaks the rule. Null means no.
        text: what a column contains that breaks the rule.
    """

    is_of: Callable[[DataType], bool]
    is_broken: Callable[[Column], Column]
    text: str


def rejection(schema: StructType) -> Column | None:
    """Returns the reason for which the value of a record cannot contain a row, a string; null if it can.

    Args:
        schema: the columns of the DataFrame, for which
            :func:`~streamgroups_spark.frames.record_values.check_value_types` has succeeded.

    Returns:
        The reason. ``None`` if the types of the columns have no such values.
    """
    reasons = [
        F.when(_breaks(column(it.name), it.dataType, rule), F.lit(f"Column '{it.name}' contains {rule.text}"))
        for it in schema.fields
        for rule in _RULES
        if contains(it.dataType, rule.is_of)
    ]
    return F.coalesce(*reasons) if reasons else None


def _breaks(value: Column, of: DataType, rule: _Rule) -> Column:
    """Whether a value, or a value inside it, breaks a rule."""
    found = [rule.is_broken(value)] if rule.is_of(of) else []
    if isinstance(of, StructType):
        parts = [(value.getField(it.name), it.dataType) for it in of.fields]
        found += [_breaks(part, of_part, rule) for part, of_part in parts if contains(of_part, rule.is_of)]
    elif isinstance(of, ArrayType):
        found += _any_breaks(value, of.elementType, rule)
    elif isinstance(of, MapType):
        found += _any_breaks(F.map_keys(value), of.keyType, rule)
        found += _any_breaks(F.map_values(value), of.valueType, rule)
    return reduce(or_, found)


def _any_breaks(values: Column, of: DataType, rule: _Rule) -> list[Column]:
    return [F.exists(values, lambda it: _breaks(it, of, rule))] if contains(of, rule.is_of) else []


def _has_equal_keys(value: Column) -> Column:
    """Whether a map has equal keys. Equal keys are neighbors in the sorted ones."""
    keys = F.sort_array(F.map_keys(value))
    others = F.slice(keys, 2, F.greatest(F.size(keys), F.lit(0)))
    return F.exists(F.zip_with(keys, others, lambda one, other: one.eqNullSafe(other)), lambda it: it)


def _has_long_key(value: Column) -> Column:
    def is_long(key: Column) -> Column:
        # The number of bytes decides about almost all keys, without an encoding.
        return (F.octet_length(key) > _MAX_NAME) & (F.octet_length(F.encode(key, "UTF-16BE")) > 2 * _MAX_NAME)

    return F.exists(F.map_keys(value), is_long)


#: The rule of UTF-8 is the first one: the others need not expect other strings.
_RULES = (
    _Rule(
        lambda of: isinstance(of, StringType),
        lambda value: ~F.is_valid_utf8(value),
        "a string that is not UTF-8, which JSON cannot contain. Cast it to binary.",
    ),
    _Rule(
        is_entries,
        _has_equal_keys,
        "a map with equal keys, which Spark cannot read. Convert it with map_entries.",
    ),
    _Rule(
        lambda of: isinstance(of, MapType) and not is_entries(of),
        _has_long_key,
        f"a map with a key of more than {_MAX_NAME:,} characters, which Spark cannot read. Convert it with map_entries.",
    ),
    _Rule(
        lambda of: isinstance(of, TimestampType),
        lambda value: F.unix_micros(value) < _FIRST_US,
        "a timestamp before -290308-12-21T19:59:06Z, which Spark cannot read. Convert it with unix_micros.",
    ),
)
