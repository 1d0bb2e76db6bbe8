"""Settings with which Spark does not decode each JSON value exactly, or at all: they are rejected.

Called by ``json_values`` on the driver, before the query starts. Source: Spark's ``DateTimeFormatterHelper`` and
``ExprUtils.getDecimalParser``; Java's ``DecimalFormat``.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, DecimalType, StructType, TimestampNTZType, TimestampType

from streamgroups.decoding.formats import Json
from streamgroups.errors import InvalidOption
from streamgroups_spark.decoding.json_types import has

_POLICY, _EXACT = "spark.sql.legacy.timeParserPolicy", "CORRECTED"
_LOCALE = "en-US"


def check_settings(spark: SparkSession, json: Json, schema: StructType) -> None:
    """Checks the settings for the types of a schema.

    With the policy ``EXCEPTION`` one value fails the query, and with ``LEGACY`` 2026-13-45 is a day of 2027.
    With another locale an exponent has other notations, so a decimal of a few characters can take minutes.

    Raises:
        InvalidOption: if the schema has times and the policy of the session is not ``CORRECTED``, or if it has decimals and
            the option ``locale`` is another one.
    """
    policy = str(spark.conf.get(_POLICY, _EXACT)).upper()
    if policy != _EXACT and has(schema, (DateType, TimestampType, TimestampNTZType)):
        raise InvalidOption(
            f"{_POLICY} is '{policy}', and the schema of sg.schemas.Json has dates or timestamps.",
            remedy=f"Set it to '{_EXACT}', or decode these fields as strings.",
        )
    locale = next((it for name, it in json.options.items() if name.lower() == "locale"), _LOCALE)
    if locale.lower() != _LOCALE.lower() and has(schema, (DecimalType,)):
        raise InvalidOption(
            f"The option 'locale' of sg.schemas.Json is '{locale}', and the schema has decimals.",
            remedy="Remove it, or decode these fields as strings.",
        )
