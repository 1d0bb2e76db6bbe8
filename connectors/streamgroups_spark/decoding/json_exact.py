"""What Spark's JSON parser changes in values: expressions that detect it, or keep the text.

Called by ``json_values`` on the driver. ``from_json`` writes numbers in a column of strings as Java does (``1.10`` as
``1.1``), replaces half of a surrogate pair, and wraps or rounds numbers of some types. Most rows need only cheap tests of
the parsed value; only for the others Spark searches the JSON, and only a few are parsed a second time.

Java computes all digits of a decimal with a long exponent, such as ``1e999999999``, also in a string. But a decimal has at
most 38 digits, so a number of up to 1,000 digits with an exponent of five digits or more is too large, or zero. Its exponent
is replaced by one of four digits: Spark parses it at once, with the same result. Source: Spark's ``JacksonParser`` and
``ExprUtils.getDecimalParser``, which ignores commas; Java's ``BigDecimal``, which accepts the digits of all scripts; RFC 8259.
"""

from __future__ import annotations

import secrets
import unicodedata

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
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
#: Digits of other scripts. Java accepts none beyond the basic plane.
DIGITS = "".join(chr(it) for it in range(0x80, 0x10000) if unicodedata.category(chr(it)) == "Nd")
_VALUES = "".join(str(unicodedata.decimal(it)) for it in DIGITS)
_HIGH_BYTES = "|".join(sorted({f"{ord(it) >> 8:02x}" for it in DIGITS}))
#: Escape sequences of the characters of decimals: for other scripts also of other characters with the same first byte.
ESCAPED = rf"\\u(?i:003[0-9]|002[b-e]|00[46]5|{_HIGH_BYTES})"
_LONG_EXPONENT = r"[\p{Nd}.,][eE],*[+-]?[\p{Nd},]{5,}"
_LONG_DIGITS = r"(?<![\p{Nd}.,])[\p{Nd}.,]{1001}"
_DECIMAL = r"\A[+-]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?\z"
#: Java parses more digits slowly. In a number, Spark's parser rejects them.
_MAX_DIGITS = 1000
_NO_DECIMAL = "-"


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


def can_be_long(text: Column) -> Column:
    """Returns whether JSON perhaps has a decimal that takes too much time to parse, also in a string."""
    return text.rlike(rf'{_LONG_EXPONENT}|{_LONG_DIGITS}|["\p{{Nd}}.,eE+-]{ESCAPED}')


def without_decimals(schema: StructType) -> StructType:
    """Returns a schema with strings instead of decimals."""
    return replaced_fields(schema, lambda it: StringType() if isinstance(it, DecimalType) else it)


def only_decimals(schema: StructType) -> StructType:
    """Returns a schema with strings instead of all other scalars."""
    return replaced_fields(schema, lambda it: it if isinstance(it, DecimalType) else StringType())


def with_short_exponents(pieces: Column) -> Column:
    """Returns pieces of JSON whose decimals have the same values, and are parsed at once. Other strings are not kept.

    Args:
        pieces: the texts between quotes, outside and inside of strings in turns.
    """
    # A function that contains the pieces would split the text for each of them.
    following = F.slice(pieces, F.lit(2), F.size(pieces))
    pairs = F.zip_with(pieces, following, lambda it, after: F.struct(it.alias("text"), after.alias("after")))

    def short(pair: Column, at: Column) -> Column:
        is_name = F.coalesce(pair["after"].rlike(r"^\s*:"), F.lit(False))
        string = F.when(is_name, pair["text"]).otherwise(_short_string(pair["text"]))
        return F.when(at % 2 == 0, _short_exponent(pair["text"])).otherwise(string)

    return F.transform(pairs, short)


def _short_string(piece: Column) -> Column:
    unescaped = F.from_json(F.concat(F.lit('["'), piece, F.lit('"]')), "array<string>")[0]
    plain = F.when(piece.contains("\\"), unescaped).otherwise(piece)
    number = F.replace(F.translate(plain, DIGITS, _VALUES), F.lit(","))
    digits = F.length(F.regexp_replace(number, "[eE].*|[^0-9]", ""))
    # An option of Spark permits an empty string.
    is_kept = (number.rlike(_DECIMAL) & (digits <= _MAX_DIGITS)) | (piece == "")
    return F.when(is_kept, _short_exponent(number)).otherwise(_NO_DECIMAL)


def _short_exponent(text: Column) -> Column:
    without_zeros = F.regexp_replace(text, "([eE][+-]?)0+(?=[0-9])", "$1")
    return F.regexp_replace(without_zeros, "([eE][+-]?)[0-9]{5,}", "$19999")
