"""Validates the arguments of ``sg.windows`` before the query starts.

Called by ``windows.api`` on the driver. :mod:`streamgroups.event_time.shapes` validates the windows themselves. Source:
SEMANTICS W4-W7, W9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import PythonAggregate
from streamgroups.event_time.windows import EventTime, Windowing
from streamgroups.extras import load
from streamgroups_spark.state.placement import check_columns

_OURS = ("window_start", "window_end", "pane", "revision", "dead_letter")
WATERMARK = "spark.watermarkDelayMs"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def check_windows(
    df: DataFrame,
    windowing: Windowing,
    on: str | None,
    by: Sequence[str],
    aggregate: Mapping[str, str | PythonAggregate],
    buckets: int,
) -> None:
    """Checks the arguments of ``sg.windows``.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.
    """
    check_columns(df, by, [] if on is None else [on])
    if isinstance(windowing.boundary, EventTime):
        _check_time(df, on)
    names = [*_OURS, *by, *aggregate]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(f"Two output columns have the name '{name}'.", remedy="Rename one of them.")
    if not aggregate:
        raise InvalidOption(
            "Option 'aggregate' is empty.", remedy='Pass the aggregates to compute, such as {"records": "count(*)"}.'
        )
    if buckets < 1:
        raise InvalidOption(f"Option 'buckets' is {buckets}.", remedy="It must be at least 1.")


def _check_time(df: DataFrame, on: str | None) -> None:
    if on is None:
        raise InvalidOption(
            "The event time column is not set.",
            remedy="Set it with 'on', or use boundary='processingTime'.",
        )
    check_timestamp(df, on)
    if WATERMARK not in (df.schema[on].metadata or {}):
        raise InvalidOption(
            f"The windows use event time, but column '{on}' has no watermark: the windows would never close.",
            remedy=f"Call df.withWatermark('{on}', ...) before, or use boundary='processingTime'.",
        )


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


def check_state(df: DataFrame) -> None:
    """Checks that the session supports custom state.

    Raises:
        InvalidOption: if the session has another state store.
        MissingExtra: if protobuf is missing, which Spark requires for custom state.
    """
    if "RocksDB" not in str(df.sparkSession.conf.get(_PROVIDER, "")):
        raise InvalidOption(
            "These windows use custom state, which requires Spark's RocksDB state store.",
            remedy=f"Set {_PROVIDER}={_ROCKSDB}.",
        )
    load("google.protobuf", needed_by="sg.windows")
