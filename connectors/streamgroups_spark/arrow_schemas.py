"""Arrow's types of the columns of a DataFrame.

Called by the functions of the API on the driver. Source: Spark's ``to_arrow_schema``.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from streamgroups_spark.internals.spark_api import to_arrow_schema


def arrow_schema(columns: StructType, spark: SparkSession) -> pa.Schema:
    """Returns Arrow's types of columns. All columns are nullable."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    return pa.schema([(it.name, it.type) for it in to_arrow_schema(columns, timezone=zone)])


def stored_schema(columns: StructType) -> pa.Schema:
    """Returns Arrow's types of columns in a state, which do not depend on the time zone of a session.

    >>> from pyspark.sql.types import TimestampType
    >>> stored_schema(StructType().add("seen", TimestampType()))
    seen: timestamp[us, tz=UTC]
    """
    return pa.schema([(it.name, it.type) for it in to_arrow_schema(columns, timezone="UTC")])
