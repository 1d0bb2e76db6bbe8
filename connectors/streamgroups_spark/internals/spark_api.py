"""The classes of PySpark that its older versions do not have, Arrow's types of columns, and the features of the installed version.

Used by every module that reads or writes streams in Python. Before 4.2 there is no admission control: nothing passes a
read limit, and the classes here are only names. 4.0 has no Arrow writer of streams, but its ``write_into_data_source``
passes Arrow batches to any ``DataSourceArrowWriter``. Source: ``pyspark/sql/datasource.py`` and
``pyspark/sql/streaming/datasource.py``; ``pyspark/sql/worker/write_into_data_source.py`` (4.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import __version__
from pyspark.sql import SparkSession, datasource, types
from pyspark.sql.pandas import types as pandas_types

from streamgroups.spark_features import spark_features

__all__ = [
    "BINARY_FORM_TYPES",
    "FEATURES",
    "TIME_TYPES",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "stored_schema",
    "to_arrow_schema",
]

#: The features of the installed PySpark.
FEATURES = spark_features(__version__)
#: The types of a time of day, which Spark 4.0 does not have.
TIME_TYPES: tuple[type[types.DataType], ...] = (types.TimeType,) if hasattr(types, "TimeType") else ()
#: The types whose values Arrow contains in a binary form of Spark, with a remedy. Older versions have fewer.
BINARY_FORM_TYPES: dict[type[types.DataType], str] = {
    getattr(types, name): remedy
    for name, remedy in {
        "VariantType": "Write it as a string with to_json.",
        "GeometryType": "Write it as binary with ST_AsBinary.",
        "GeographyType": "Write it as binary with ST_AsBinary.",
    }.items()
    if hasattr(types, name)
}

if TYPE_CHECKING or FEATURES.passes_start:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How much a batch reads."""

    class ReadAllAvailable(ReadLimit):
        """All records."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """At most a number of records."""

        max_rows: int

    @dataclass
    class ReadMinRows(ReadLimit):
        """At least a number of records."""

        min_rows: int

    class SupportsTriggerAvailableNow:
        """A reader with a method for the trigger ``availableNow``, which Spark does not call."""


if TYPE_CHECKING or FEATURES.has_arrow_api:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A writer of streams that receives Arrow batches."""


def to_arrow_schema(schema: types.StructType, timezone: str) -> pa.Schema:
    """Returns the Arrow schema of Spark columns.

    Args:
        schema: the columns.
        timezone: the zone of their timestamps. Before 4.2 Spark sets it to UTC.
    """
    if FEATURES.passes_start:
        return pandas_types.to_arrow_schema(schema, timezone=timezone)
    from streamgroups_operators.plain_values import with_zone

    in_utc: pa.Schema = pandas_types.to_arrow_schema(schema)
    return pa.schema([field.with_type(with_zone(field.type, timezone)) for field in in_utc])


def arrow_schema(columns: types.StructType, spark: SparkSession) -> pa.Schema:
    """Returns Arrow's types of columns. All columns are nullable."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    return pa.schema([(it.name, it.type) for it in to_arrow_schema(columns, timezone=zone)])


def stored_schema(columns: types.StructType) -> pa.Schema:
    """Returns Arrow's types of columns in a state, which do not depend on the time zone of a session.

    >>> stored_schema(types.StructType().add("seen", types.TimestampType()))
    seen: timestamp[us, tz=UTC]
    """
    return pa.schema([(it.name, it.type) for it in to_arrow_schema(columns, timezone="UTC")])
