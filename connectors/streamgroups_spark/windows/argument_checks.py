"""Validates the arguments of ``sg.windows`` before the query starts.

Called by ``windows.windows`` on the driver. :mod:`streamgroups.event_time.window_shapes` validates the windows themselves. Source:
SEMANTICS W4-W7, W9, W17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import PythonAggregate
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import EventTime, Windowing
from streamgroups.extras import load
from streamgroups_spark.frames.columns import check_distinct, check_timestamp, delay_ms_of
from streamgroups_spark.frames.key_columns import check_key_columns
from streamgroups_spark.source.read_options import has_event_time, have_producers, read_options

_OUTPUT_NAMES = ("window_start", "window_end", "pane", "revision", "dead_letter")
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
    check_key_columns(df.schema, by, [] if on is None else [on])
    if isinstance(windowing.boundary, EventTime):
        _check_time(df, on)
    check_distinct([*_OUTPUT_NAMES, *by, *aggregate])
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


def watermark_delay_ms(
    df: DataFrame, windowing: Windowing, on: str | None, given: str | None, scope: Scope
) -> int | None:
    """Returns the delay of the watermark, in milliseconds: the argument, or that of ``withWatermark``.

    ``None`` if only producers emit the watermark.

    Args:
        df: the DataFrame.
        windowing: how records are assigned to windows.
        on: the column with the event time.
        given: the argument ``watermark_delay``.
        scope: which records have a common watermark.

    Raises:
        InvalidOption: if there is no watermark, the argument differs from that of ``withWatermark``, or the windows are by
            processing time.
    """
    if not isinstance(windowing.boundary, EventTime) or on is None:
        if given is not None:
            raise InvalidOption(
                "Option 'watermark_delay' cannot be combined with boundary=processingTime.", remedy="Omit one of them."
            )
        return 0
    of_column = delay_ms_of(df, on)
    if given is None:
        if of_column is None and (scope is Scope.QUERY or not have_producers(df)):
            raise _no_watermark(df, on)
        return of_column
    delay_ms = parse_duration_ms(given, option="watermark_delay")
    if of_column is not None and delay_ms != of_column:
        raise InvalidOption(
            f"Option 'watermark_delay' is '{given}', but the watermark of column '{on}' has a delay of {of_column}ms.",
            remedy="Omit one of them, or set both to the same delay.",
        )
    return delay_ms


def _no_watermark(df: DataFrame, on: str) -> InvalidOption:
    if df.isStreaming:
        return InvalidOption(
            f"The windows use event time, but column '{on}' has no watermark: the windows would never close.",
            remedy=f"Call df.withWatermark('{on}', ...) before, set 'watermark_delay', or use boundary='processingTime'. If "
            "producers emit watermarks, set 'watermarkHeader' on the source.",
        )
    return InvalidOption(
        f"Column '{on}' of bounded data has no watermark, which decides whether a record is late. Spark removes the "
        "watermark of df.withWatermark from bounded data.",
        remedy="Set 'watermark_delay' to the same delay, also in the streaming query.",
    )


def check_producers(df: DataFrame, on: str, scope: Scope) -> None:
    """Checks that windows by event time follow the watermarks that producers emit.

    Args:
        df: the DataFrame.
        on: the column with the event time.
        scope: which records have a common watermark.

    Raises:
        InvalidOption: if the source has the option ``watermarkHeader``, and the windows do not follow it.
    """
    if all(it.watermark_header is None for it in read_options(df)):
        return
    if not df.isStreaming:
        raise InvalidOption(
            "The source has the option 'watermarkHeader', but windows of bounded data do not follow it.",
            remedy="Read the records with spark.readStream, trigger(availableNow=True) and flush=True.",
        )
    if scope is Scope.QUERY and not has_event_time(df):
        raise InvalidOption(
            "The source has the option 'watermarkHeader', but windows with the time of the query do not follow it.",
            remedy=f"Call sg.with_event_time(df, '{on}') before, or use time='partition', or leave 'watermarkHeader' out.",
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
