"""What Spark's JSON parser changes in values: expressions that detect it, or keep the text.

Called by ``json_values`` on the driver. ``from_json`` writes numbers in a column of strings as Java does (``1.10`` as
``1.1``), replaces half of a surrogate pair, and wraps or rounds numbers of some types. Most rows need only cheap tests of
the parsed value; only for the others Spark searches the JSON, and only a few are parsed a second time. Source: Spark's
``JacksonParser``; RFC 8259.
"""

from __future__ import annotations

import secrets

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from streamgroups_spark.decoding.json_types import any_part, merged, pattern_at, replaced_fields

#: Spark compiles a query again if a regular expression is another one, so none contains a mark.
_MARK = "sg[0-9a-f]{16}"
_SURROGATE = r"\\u[dD][89a-fA-F]"
_PAIR = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
#: The beginning of a number that Java perhaps writes with another text, or of an object or array that has one.
_CHANGED = r"-0|-?[0-9]+[.eE]|[\[{]"
#: Numbers as Java writes them, and in objects and arrays. An infinite number has quotes.
_WRITTEN = r'^(?:0$|-?[0-9]+[.E]|"-?Inf)'
_WRITTEN_INSIDE = r"[0-9][.E]|[:,\[]0[,\]}]|Infinity"
_NUMBER = r"-?[0-9][0-9.eE+-]*"
#: The largest number of seconds that a timestamp has.
_MAX_SECONDS = 2**63 // 1_000_000


def new_mark() -> str:
    """Returns a random name, which no value has."""
    return f"sg{secrets.token_hex(8)}"


def has_half_pair(text: Column) -> Column:
    """Returns whether a text of the value has half of a surrogate pair, which UTF-8 does not have."""
    is_half = F.regexp_replace(text, _PAIR, "").rlike(_SURROGATE)
    return text.contains("\\u") & text.rlike(_SURROGATE) & is_half


def widened(schema: StructType) -> StructType:
    """Returns a schema with ``smallint`` instead of ``tinyint``, whose large numbers Spark wraps."""
    return replaced_fields(schema, lambda it: ShortType() if isinstance(it, ByteType) else it)


def exceeds(value: Column, type_: DataType, *, is_finite: bool) -> Column:
    """Returns whether a value of a widened type has a number that is too large for the type, or a map has a name twice.

    Args:
        value: the parsed value.
        type_: the type.
        is_finite: whether an infinite number is too large. Otherwise the options permit it.
    """
    small = any_part(value, type_, (ByteType,), lambda it: (it < -128) | (it > 127))
    found = small | any_part(value, type_, (MapType,), _repeats)
    if not is_finite:
        return found
    return found | any_part(value, type_, (FloatType, DoubleType), lambda it: F.abs(it) == float("inf"))


def can_wrap(text: Column, schema: StructType) -> Column:
    """Returns whether the value perhaps has a number of seconds that Spark wraps: see :func:`wraps`."""
    return text.rlike(pattern_at(schema, (TimestampType,), f"-?(?:{_above(_MAX_SECONDS)})"))


def wraps(texts: Column, schema: StructType) -> Column:
    """Returns whether a timestamp has a number of seconds that Spark wraps.

    Args:
        texts: the value, parsed from :func:`with_quoted_numbers` with :func:`all_texts`.
        schema: the schema.
    """
    too_large = rf"^{_MARK}n-?(?:{_above(_MAX_SECONDS)})[0-9]*$"
    return any_part(texts, schema, (TimestampType,), lambda it: it.rlike(too_large))


def needs_texts(text: Column, value: Column, schema: StructType) -> Column:
    """Returns whether a string of the value perhaps is a number, or has one, with another text in Java."""
    written = any_part(value, schema, (StringType,), _is_written)
    return written & text.rlike(pattern_at(schema, (StringType,), _CHANGED))


def all_texts(schema: StructType) -> StructType:
    """Returns a schema with strings instead of all scalars."""
    return replaced_fields(schema, lambda _: StringType())


def with_quoted_numbers(text: Column, mark: str) -> Column:
    """Returns JSON with strings, which begin with the mark, instead of numbers."""
    quoted = F.transform(
        pieces(text, mark),
        lambda it, at: F.when(at % 2 == 0, F.regexp_replace(it, _NUMBER, f'"{mark}n$0"')).otherwise(it),
    )
    return joined(quoted, mark)


def pieces(text: Column, mark: str) -> Column:
    """Returns the pieces of JSON between quotes, outside and inside of strings in turns. Escaped quotes are replaced."""
    return F.split(F.replace(F.replace(text, F.lit("\\\\"), F.lit(f"{mark}b")), F.lit('\\"'), F.lit(f"{mark}q")), '"')


def joined(pieces: Column, mark: str) -> Column:
    """Returns the JSON of :func:`pieces`."""
    masked = F.array_join(pieces, '"')
    return F.replace(F.replace(masked, F.lit(f"{mark}q"), F.lit('\\"')), F.lit(f"{mark}b"), F.lit("\\\\"))


def with_texts(value: Column, texts: Column, schema: StructType, mark: str) -> Column:
    """Returns a value with the strings of another one, which was parsed from :func:`with_quoted_numbers`."""
    return merged(
        value, texts, schema, (StringType,), lambda it: F.regexp_replace(it, f'"?{mark}n([0-9.eE+-]*)"?', "$1")
    )


def _repeats(map_: Column) -> Column:
    return (F.size(map_) > 1) & (F.size(F.array_distinct(F.map_keys(map_))) < F.size(map_))


def _is_written(string: Column) -> Column:
    it = string.cast("string")
    # Digits, the sign and quotes are below the colon.
    has_part = it.contains(".") | it.contains("E") | (it == "0") | it.startswith('"')
    is_number = (it < ":") & has_part & it.rlike(_WRITTEN)
    return is_number | ((it.startswith("{") | it.startswith("[")) & it.rlike(_WRITTEN_INSIDE))


def _above(limit: int) -> str:
    """Returns a regular expression for the beginning of integers above a limit.

    >>> _above(927)
    '[0-9]{4}|9[3-9][0-9]{1}|92[8-9][0-9]{0}'
    """
    digits = str(limit)
    greater = [
        f"{digits[:at]}[{int(it) + 1}-9][0-9]{{{len(digits) - at - 1}}}" for at, it in enumerate(digits) if it != "9"
    ]
    return "|".join([f"[0-9]{{{len(digits) + 1}}}", *greater])
