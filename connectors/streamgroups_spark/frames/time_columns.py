"""Columns with an event time: their type, and Spark's watermark of a column.

Called by ``windows``, ``joins`` and ``event_time`` on the driver. Source: SEMANTICS W4, W5.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from streamgroups.errors import InvalidOption

#: The name of the metadata of a column with a watermark of Spark.
WATERMARK = "spark.watermarkDelayMs"


def delay_ms_of(df: DataFrame, on: str) -> int | None:
    """Returns the delay of the watermark of a column; ``None`` if it has no watermark."""
    metadata = df.schema[on].metadata or {}
    return int(metadata[WATERMARK]) if WATERMARK in metadata else None


def check_timestamp(df: DataFrame, name: str) -> None:
    """Checks that a column exists and is a timestamp.

    Raises:
        InvalidOption: if it does not exist, or is of another type.
    """
    if name not in df.columns:
        raise InvalidOption(f"Column '{name}' does not exist.", remedy=f"The columns are {', '.join(df.columns)}.")
    if not isinstance(df.schema[name].dataType, TimestampType):
        raise InvalidOption(
            f"Column '{name}' is of type {df.schema[name].dataType.simpleString()}.",
            remedy="Cast it: an event time must be a timestamp.",
        )
