"""Columns of a DataFrame that a user names: by their exact names, and those with an event time.

Called by the functions of the API on the driver. Source: Spark's "Identifiers"; SEMANTICS W4, W5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType, TimestampType

from streamgroups.errors import InvalidOption
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS

#: The name of the metadata of a column with a watermark of Spark.
WATERMARK = "spark.watermarkDelayMs"
#: Spark's timestamps are microseconds.
US_PER_MS = 1_000


def column(name: str) -> Column:
    """Returns a column, also if its name contains dots or backquotes."""
    return F.col("`" + name.replace("`", "``") + "`")


def is_event_time(name: str) -> Column:
    """Returns whether a timestamp is an event time, by the limit of the operators; null for null.

    A sum of a later or earlier timestamp and a duration can exceed 64 bits of microseconds, and Spark then fails the query.
    See :func:`streamgroups_operators.event_times.event_times`.

    Args:
        name: the column with the timestamp.
    """
    most_us = MAX_EVENT_TIME_MS * US_PER_MS
    return F.unix_micros(column(name)).between(-most_us, most_us)


def with_event_times(df: DataFrame, name: str) -> DataFrame:
    """Returns rows with null instead of timestamps that are no event times.

    Args:
        df: the rows.
        name: the column with the timestamp.
    """
    return df.withColumn(name, F.when(is_event_time(name), column(name)))


def columns_of(ddl: str, option: str, example: str) -> StructType:
    """Parses columns with their types, as Spark's SQL declares them.

    Args:
        ddl: the columns.
        option: the name of the option of the user, for errors.
        example: the columns of an example, for errors.

    Raises:
        InvalidOption: if Spark cannot parse them, or they name no columns.
    """
    remedy = f"Write columns with their types, as in '{example}'."
    try:
        columns = StructType.fromDDL(ddl)
    except PySparkException as e:
        raise InvalidOption(
            f"Option '{option}' is '{ddl}', which Spark cannot parse ({e.getCondition()}).", remedy=remedy
        ) from None
    if not isinstance(columns, StructType) or not columns.fields:
        raise InvalidOption(f"Option '{option}' is '{ddl}', which names no columns.", remedy=remedy)
    return columns


def name_folding(spark: SparkSession) -> Callable[[str], str]:
    """Returns the function whose results are equal for names that are one column for a session."""
    is_exact = str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    return str if is_exact else str.lower


def check_distinct(names: Iterable[str]) -> None:
    """Checks that no two columns have the same name.

    Raises:
        InvalidOption: for the first such name.
    """
    for name, times in Counter(names).items():
        if times > 1:
            raise InvalidOption(f"{times} columns have the name '{name}'.", remedy="Rename one of them.")


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
            remedy="Cast it to timestamp_ltz: an event time must be a timestamp.",
        )
