"""Decimals whose exponent is long: JSON from which Spark parses them at once, with the same result.

Called by ``json_values`` on the driver. Java computes all digits of ``1e999999999``, also in a string. But a decimal has at
most 38 digits, so a number of up to 1,000 digits with an exponent of five digits or more is too large, or zero. Its exponent
is replaced by one of four digits. Source: Spark's ``JacksonParser`` and ``ExprUtils.getDecimalParser``, which ignores commas;
Java's ``BigDecimal``, which accepts the digits of all scripts.
"""

from __future__ import annotations

import unicodedata

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DecimalType, StringType, StructType

from streamgroups_spark.decoding.json_types import replaced_fields

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
