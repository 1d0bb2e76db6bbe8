"""Validates the arguments of ``sg.windows`` before the query starts, also before and after another operator.

Called by ``windows.windows`` and ``windows.by_offset`` on the driver. :mod:`streamgroups.event_time.window_shapes` validates
the windows themselves. Source: SEMANTICS W4-W7, W9, W13, W17.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame

from streamgroups.durations import exact, parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import PythonAggregate
from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import EventTime, Windowing
from streamgroups.extras import load
from streamgroups_spark.frames.columns import check_distinct, check_timestamp, delay_ms_of
from streamgroups_spark.frames.key_columns import check_key_columns
from streamgroups_spark.source.read_options import has_event_time, have_producers, read_options, source_delay_ms
from streamgroups_spark.state.chains import ResultTime, check_result_time
from streamgroups_spark.state.operator_plan import PLACE

_OUTPUT_NAMES = ("window_start", "window_end", "pane", "revision", "dead_letter")
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CALLED = "sg.windows"
_POSITIONS = frozenset(("window_time", "topic", *PLACE))


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
    """Returns the delay of the watermark, in milliseconds: the argument, that of ``withWatermark``, or that of the source.

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
        if of_column is None and scope is not Scope.QUERY:
            of_column = source_delay_ms(df)
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
            remedy=f"Call df.withWatermark('{on}', ...) before, set 'watermark_delay', or 'watermarkDelay' on the source, or use boundary='processingTime'. If "
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


def check_chained(
    df: DataFrame,
    windowing: Windowing,
    by: Collection[str],
    aggregate: Collection[str],
    *,
    dead_letters: bool,
    flush: bool,
) -> None:
    """Checks that another operator can process the results: each window has exactly one result.

    Args:
        df: the records.
        windowing: how they are assigned to windows.
        by: the key columns.
        aggregate: the names of the aggregates.
        dead_letters: whether dead letters are emitted.
        flush: whether a bounded run emits the windows that are open at its end.

    Raises:
        InvalidOption: for the first argument with which windows have other rows.
    """
    if not df.isStreaming:
        raise InvalidOption(
            "Option 'chained' of sg.windows is set, but the DataFrame is bounded data.",
            remedy="Leave 'chained' out. Use Spark's groupBy and window for the results: without a stream, no record is "
            "late for them.",
        )
    boundary = windowing.boundary
    if not isinstance(boundary, EventTime):
        raise InvalidOption(
            "Option 'chained' of sg.windows cannot be combined with boundary=processingTime: the results have no event "
            "time.",
            remedy="Omit one of them.",
        )
    late = "each record within it changes a result that the next operator has counted"
    open_ = "an open window has another result later, and the next operator would count both"
    dead = "the next operator would count the late records as results"
    for option, is_set, why, remedy in (
        ("allowed_lateness", boundary.allowed_lateness_ms > 0, late, "Give the watermark a longer delay instead."),
        ("flush", flush, open_, "Leave 'flush' out."),
        ("dead_letters", dead_letters, dead, "Leave 'dead_letters' out. Late records are counted in the progress."),
    ):
        if is_set:
            raise InvalidOption(
                f"Option 'chained' of sg.windows cannot be combined with '{option}': {why}.", remedy=remedy
            )
    for name in (*by, *aggregate):
        if name in _POSITIONS:
            raise InvalidOption(
                f"Two output columns have the name '{name}'.",
                remedy="Rename the one in 'by' or 'aggregate': with chained=True, the output has a column of this name.",
            )


def check_chained_state(windowing: Windowing) -> None:
    """Checks that Spark passes its watermark on, for windows of the query with a state of this library.

    Raises:
        InvalidOption: with an idle timeout, for which Spark's timers use the clock.
    """
    boundary = windowing.boundary
    if isinstance(boundary, EventTime) and boundary.idle_timeout_ms is not None:
        raise InvalidOption(
            "Option 'chained' of sg.windows cannot be combined with 'idle_timeout' for windows of the query: then Spark "
            "passes no watermark on.",
            remedy="Set time='partition', or use 'partition_idle_timeout' of sg.with_event_time.",
        )


def check_behind(
    df: DataFrame,
    windowing: Windowing,
    on: str | None,
    watermark_delay: str | None,
    before: str,
    events: EventShape,
    scope: Scope,
    *,
    flush: bool,
) -> None:
    """Checks windows over the results of other windows.

    Args:
        df: the results.
        windowing: how they are assigned to windows.
        on: the column with the event time.
        watermark_delay: the argument.
        before: the operator that emits the results.
        events: how long a result is valid.
        scope: which results have a common watermark.
        flush: whether a bounded run emits the windows that are open at its end.

    Raises:
        InvalidOption: for the first argument that has no meaning there.
    """
    boundary = windowing.boundary
    if on is None or not isinstance(boundary, EventTime):
        raise InvalidOption(
            f"Option 'boundary' of sg.windows is 'processingTime', but the records are results of the operator "
            f"'{before}'.",
            remedy="Use boundary='eventTime' with on='window_start' or on='window_time'.",
        )
    time = check_result_time(df, on, before, _CALLED)
    if delay_ms_of(df, on) is not None or watermark_delay is not None:
        raise InvalidOption(
            f"Column '{on}' is under the watermark of the operator '{before}', and cannot have another one.",
            remedy="Leave withWatermark and 'watermark_delay' out.",
        )
    if scope is Scope.GROUP:
        raise InvalidOption(
            f"Option 'time' of sg.windows is 'group', but the watermark is that of the operator '{before}'.",
            remedy=f"Set time='group' in '{before}', and leave it out here.",
        )
    if events is EventShape.EDGE:
        raise InvalidOption(
            "Option 'event_shape' of sg.windows is 'edge', but a result of windows has its start and its end.",
            remedy="Use event_shape='interval' with on='window_start' and until='window_end'.",
        )
    if flush:
        raise InvalidOption(
            f"Option 'flush' of sg.windows is set, but the open windows of the operator '{before}' are not emitted at "
            "the end of a run.",
            remedy="Leave 'flush' out.",
        )
    _check_idle_timeout(boundary.idle_timeout_ms, time, on)


def _check_idle_timeout(idle_timeout_ms: int | None, time: ResultTime, on: str) -> None:
    """A window must not close while an open window upstream of it can have a result for it."""
    if idle_timeout_ms is None:
        return
    before_ms = time.idle_timeout_ms
    if before_ms is None or before_ms > idle_timeout_ms:
        has = "has none" if before_ms is None else f"has {exact(before_ms)}"
        raise InvalidOption(
            f"Option 'idle_timeout' of sg.windows is {exact(idle_timeout_ms)}, but the operator '{time.operator}' {has}: "
            "its results would be late.",
            remedy=f"Set an 'idle_timeout' in '{time.operator}' that is not longer.",
        )
    if time.time == "window_start":
        raise InvalidOption(
            f"Option 'idle_timeout' of sg.windows cannot be combined with on='{on}': a window can end before the windows "
            f"of the operator '{time.operator}' that start in it.",
            remedy="Use on='window_time', or leave 'idle_timeout' out.",
        )
