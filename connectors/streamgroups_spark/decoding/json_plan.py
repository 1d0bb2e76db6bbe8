"""What ``from_json`` parses of a JSON value, and with which options. Settings with which it is not exact are rejected.

Used by ``json_values`` on the driver, before the query starts. Source: Spark's ``JSONOptions``, ``DateTimeFormatterHelper`` and
``ExprUtils.getDecimalParser``; Java's ``DecimalFormat``; RFC 8259.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from streamgroups.decoding.formats import Json
from streamgroups.errors import InvalidOption
from streamgroups_spark.decoding.json_exact import (
    all_texts,
    exceeds,
    joined,
    new_mark,
    pieces,
    with_quoted_numbers,
    with_short_exponents,
)
from streamgroups_spark.decoding.json_types import has, only
from streamgroups_spark.frames.record_values import EXACT_TIMES, TIME_POLICY

CORRUPT = "__streamgroups_corrupt"
#: Any other number is a finite ``double``.
_HUGE = r"[0-9]{200}|[0-9][eE]\+?[0-9]{3}"
#: Spark accepts more than RFC 8259.
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
#: Options that permit other text outside of strings than RFC 8259, so that numbers cannot be found there.
_RELAXED = ("allowComments", "allowSingleQuotes", "allowUnquotedFieldNames", "allowNumericLeadingZeros")
_LOCALE = "en-US"


@dataclass(frozen=True, slots=True)
class JsonPlan:
    """What to parse: the schema, the options, and a random name that no value has."""

    schema: StructType
    options: dict[str, str]
    mark: str

    @classmethod
    def of(cls, schema: StructType, options: Mapping[str, str]) -> JsonPlan:
        """The plan of a format. Options of the user take precedence."""
        given = {name.lower() for name in options}
        strict = {name: value for name, value in _STRICT.items() if name.lower() not in given}
        fixed = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return cls(schema, {**strict, **options, **fixed}, new_mark())

    def parse(self, text: Column, schema: StructType) -> Column:
        """The first object of a text, and :data:`CORRUPT` if it does not fit the schema."""
        return F.from_json(text, with_field(schema, CORRUPT, StringType()), self.options)

    def texts(self, text: Column) -> Column:
        """The first object of a text, with strings instead of all scalars."""
        return self.parse(with_quoted_numbers(text, self.mark), all_texts(self.schema))

    def short(self, text: Column) -> Column:
        """A text with short decimals."""
        return joined(with_short_exponents(pieces(text, self.mark)), self.mark)

    def exceeds(self, value: Column, type_: DataType) -> Column:
        """Whether a number of a value is too large for its type."""
        return exceeds(value, type_, is_finite=not self._permits("allowNonNumericNumbers"))

    def has_infinite(self, text: Column, schema: StructType) -> Column:
        """Whether a number in a variant is infinite. A string ``Infinity`` does not count."""
        if not has(schema, (VariantType,)) or not self.finds_numbers or self._permits("allowNonNumericNumbers"):
            return F.lit(False)
        variants = only(schema, (VariantType,))

        def infinite(text: Column) -> Column:
            return F.regexp_count(F.to_json(self.parse(text, variants)), F.lit('"-?Infinity"'))

        quoted = with_quoted_numbers(text, self.mark)
        return F.coalesce(F.when(text.rlike(_HUGE), infinite(text) > infinite(quoted)), F.lit(False))

    @property
    def finds_numbers(self) -> bool:
        """Whether numbers can be found in a text."""
        return not any(self._permits(it) for it in _RELAXED)

    def _permits(self, option: str) -> bool:
        return any(name.lower() == option.lower() and it.lower() == "true" for name, it in self.options.items())


def with_field(schema: StructType, name: str, type_: DataType) -> StructType:
    """Returns a schema with one more field."""
    return StructType([*schema.fields, StructField(name, type_)])


def check_settings(spark: SparkSession, json: Json, schema: StructType) -> None:
    """Checks the settings for the types of a schema.

    With the policy ``EXCEPTION`` one value fails the query, and with ``LEGACY`` 2026-13-45 is a day of 2027.
    With another locale an exponent has other notations, so a decimal of a few characters can take minutes.

    Raises:
        InvalidOption: if the schema has times and the policy of the session is not ``CORRECTED``, or if it has decimals and
            the option ``locale`` is another one.
    """
    policy = str(spark.conf.get(TIME_POLICY, EXACT_TIMES)).upper()
    if policy != EXACT_TIMES and has(schema, (DateType, TimestampType, TimestampNTZType)):
        raise InvalidOption(
            f"{TIME_POLICY} is '{policy}', and the schema of sg.schemas.Json has dates or timestamps.",
            remedy=f"Set it to '{EXACT_TIMES}', or decode these fields as strings.",
        )
    locale = next((it for name, it in json.options.items() if name.lower() == "locale"), _LOCALE)
    if locale.lower() != _LOCALE.lower() and has(schema, (DecimalType,)):
        raise InvalidOption(
            f"The option 'locale' of sg.schemas.Json is '{locale}', and the schema has decimals.",
            remedy="Remove it, or decode these fields as strings.",
        )
