"""``sg.windows(df, ...)``: tumbling, hopping and session windows that report late records.

Called by users on the driver. It checks the arguments and chooses one of three implementations. Windows of each
partition run in the stage that reads (``windows.by_offset``). For windows of the whole query, Spark's own window
aggregation runs if it supports all arguments, and otherwise ``windows.processor`` on ``transformWithState``. Source:
SEMANTICS W4-W7, W17; the rules are in :mod:`streamgroups.event_time`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import PythonAggregate
from streamgroups.event_time.event_shapes import EventShape, check_events, event_shape_of
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.window_shapes import Scope, policy_of, scope_of, windowing_of
from streamgroups.event_time.windows import EventTime, PaneKind, Session, Shape, Windowing
from streamgroups_spark.dlq.failure_column import check_letters, passes_letters
from streamgroups_spark.frames.columns import WATERMARK, check_timestamp, column, delay_ms_of, is_event_time
from streamgroups_spark.source.query_checks import check_drift_of_query, is_shared
from streamgroups_spark.source.read_options import source_policy
from streamgroups_spark.state.chains import results_before
from streamgroups_spark.state.operator_plan import check_bounded
from streamgroups_spark.windows.argument_checks import (
    check_chained,
    check_chained_state,
    check_producers,
    check_windows,
    watermark_delay_ms,
)
from streamgroups_spark.windows.by_offset import by_offset
from streamgroups_spark.windows.by_store import by_store

_BUCKETS = 32


@passes_letters
def windows(
    df: DataFrame,
    *,
    window: Shape,
    aggregate: Mapping[str, str | PythonAggregate],
    on: str | None = None,
    by: Sequence[str] = (),
    boundary: str = "eventTime",
    watermark_delay: str | None = None,
    allowed_lateness: str | None = None,
    idle_timeout: str | None = None,
    on_violation: str | None = None,
    until: str | None = None,
    event_shape: str = "point",
    dead_letters: bool = False,
    flush: bool = False,
    time: str | None = None,
    buckets: int = _BUCKETS,
    prepartitioned: bool = False,
    name: str = "windows",
    chained: bool = False,
) -> DataFrame:
    """Assigns records to windows and emits their aggregates (SEMANTICS W4-W7, W17).

    The output, in append mode:

    * ``window_start``, ``window_end``: timestamps;
    * the columns of ``by``, then those of ``aggregate``;
    * ``pane``: ``on time``; ``idle``, if the idle timeout closed the window; ``flush``, if a bounded run has ended and the
      window is still open; ``update``, if late records changed it; ``retraction``, if an emitted session has become part
      of another one, or an emitted window has no event left; or ``dead letter``;
    * ``revision``: it is higher for each later pane of a window and key. The row with the highest revision is valid;
    * ``dead_letter``, if enabled: see :func:`dead_letters`.

    Spark's own window aggregation runs if the boundary is event time, without lateness, idle timeout, dead letters and
    Python aggregates. It supports every aggregate of Spark SQL. Otherwise ``count``, ``sum``, ``avg``, ``min`` and
    ``max`` of any expression are supported, and :func:`streamgroups.shapes.python_aggregate`.

    Args:
        df: a stream, or bounded data: a batch DataFrame of ``format("streamgroups")``, whose results are those of a stream
            of the same records (SEMANTICS W17). For event-time windows of a stream, ``on`` needs a watermark. Windows of
            partitions can instead have the option ``watermarkHeader`` of the source (SEMANTICS W15). Windows of
            partitions need the columns ``partition`` and ``offset`` of the source, and ``topic`` if it reads several topics.
        window: ``sg.shapes.tumbling("5 minutes")``, ``sg.shapes.hopping("10 minutes", hop="5 minutes")`` or ``sg.shapes.session("30s")``.
        aggregate: the output columns and their aggregates: ``{"flights": "count(*)", "worst": "max(delay)"}``.
        on: the column with the event time, a timestamp. Optional for processing time.
        by: the key columns. Each key has its own windows.
        boundary: ``eventTime``, or ``processingTime`` for windows by the clock, in which no record is late.
        watermark_delay: a duration: the delay of the watermark behind the newest event time. Omit it after
            ``withWatermark``, or set it to the same delay. Required for bounded data, because Spark removes ``withWatermark``
            from those.
        allowed_lateness: a duration: how long a window accepts late records after the watermark has passed its end.
        idle_timeout: a duration: a window closes if the source was idle for this time and the clock has passed the end
            of the window.
        on_violation: how a record before the watermark in an open window is handled: ``keep`` counts it, ``drop`` does
            not. ``adjust`` counts it with the watermark as its start, if it is valid until later. Default: the option
            ``onViolation`` of the source (SEMANTICS W11).
        until: with ``adjust``: the column with the end of a record's validity, a timestamp. With ``event_shape``: the end
            of an event.
        event_shape: ``point``: an event is valid for one moment. ``interval``: it is valid from ``on`` until ``until``, and
            each window that overlaps this time counts it. ``edge``: a record without ``until`` starts an event. A later
            record with the same values of ``by`` and ``on`` ends it at its ``until`` (SEMANTICS W19). With ``interval``
            and ``edge``, the windows are tumbling or hopping windows of partitions.
        dead_letters: whether records that no window counts are emitted. Otherwise they are dropped.
        flush: with windows of partitions: whether a run with ``trigger(availableNow=True)`` emits the windows that are still
            open at its end, as panes ``flush``. They stay open, and a later pane has a higher revision. It has no effect with
            other triggers. Bounded data always end with a flush.
        time: ``partition``: each partition has windows and a watermark of its own, and the state of a partition follows
            it to its next owner (SEMANTICS S10). The default over a stream that queries share, and for bounded data.
            ``group``: the same with one watermark, the minimum over the partitions of the group (SEMANTICS W2, W3). The
            option ``partitionIdleTimeout`` of the source excludes idle partitions, and ``importFrom`` names another group
            whose watermark applies if it is later (SEMANTICS W10). ``query``: all partitions have the windows
            and the watermark of the query. The default over streams that are not shared, and possible with those only.
        prepartitioned: with windows of partitions: states that all records with the same values of ``by`` are in one
            partition, because the record key determines them. Not necessary if ``by`` contains the column ``key``, or
            the columns by which :func:`repartition` has partitioned the topic.
        name: with windows of partitions: the name of the state. The state continues with the same definition only.
        chained: whether another operator processes the results (SEMANTICS W13). The output then has the column
            ``window_time``, the last moment of the window. With windows of partitions it also has ``partition`` and
            ``offset``, and ``topic`` if ``df`` has it. :func:`windows`, :func:`stateful` or :func:`join` can process it.
            With ``time="query"`` ``window_time`` has a watermark for :func:`windows` and for Spark's operators.
        buckets: with ``time="query"``: the number of parts of the state. It must stay the same for a checkpoint.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.
        MissingExtra: if the extra ``windows`` is not installed and the windows need it.

    Example::

        timed = flights.withWatermark("ts", "1 minute")
        counts = sg.windows(timed, on="ts", by=["carrier"], window=sg.shapes.tumbling("5 minutes"),
                            aggregate={"flights": "count(*)"}, allowed_lateness="10 minutes")
    """
    windowing = windowing_of(window, boundary, allowed_lateness, idle_timeout)
    events = event_shape_of(event_shape, windowing, until)
    before = results_before(df)
    given = OnViolation.KEEP.value if before and on_violation is None else _given(on_violation, df, windowing)
    policy = policy_of(given, windowing, until, is_point=events is EventShape.POINT)
    check_bounded(df, "sg.windows")
    check_windows(df, windowing, on, by, aggregate, buckets)
    if chained:
        check_chained(df, windowing, by, aggregate, dead_letters=dead_letters, flush=flush)
    if until is not None:
        check_timestamp(df, until)
    if before and time == Scope.QUERY.value:
        raise InvalidOption(
            f"Option 'time' of sg.windows is 'query', but the records are results of the operator '{before}', "
            "whose windows are those of partitions.",
            remedy="Leave 'time' out here, or set time='query' there.",
        )
    of_partitions = is_shared(df) or before is not None
    scope = scope_of(time, windowing.boundary, is_shared=of_partitions, is_bounded=not df.isStreaming, flush=flush)
    check_events(events, scope, is_bounded=not df.isStreaming, flush=flush)
    if on is not None and isinstance(windowing.boundary, EventTime):
        check_producers(df, on, scope)
    if scope is not Scope.QUERY:
        return by_offset(
            df,
            windowing,
            on,
            by,
            aggregate,
            policy,
            until,
            events,
            scope,
            watermark_delay,
            dead_letters=dead_letters,
            flush=flush,
            prepartitioned=prepartitioned,
            name=name,
            chained=chained,
        )
    check_drift_of_query(df)
    df = _with_watermark(df, windowing, on, watermark_delay)
    if policy is OnViolation.KEEP and _sparks_own_will_do(windowing, aggregate, dead_letters):
        return _by_spark(df, windowing.shape, str(on), by, aggregate, chained=chained)
    if chained:
        check_chained_state(windowing)
    windowed = by_store(df, windowing, on, by, aggregate, policy, until, dead_letters=dead_letters, buckets=buckets)
    return _with_window_time(windowed) if chained else windowed


def _given(on_violation: str | None, df: DataFrame, windowing: Windowing) -> str:
    """The argument, or the option of the source. By processing time no record is before the watermark."""
    if on_violation is not None:
        return on_violation
    return (source_policy(df) if isinstance(windowing.boundary, EventTime) else OnViolation.KEEP).value


def window_results(windowed: DataFrame) -> DataFrame:
    """Returns the rows of :func:`windows` without dead letters. For ``foreachBatch``, where one batch contains both.

    Args:
        windowed: the output of :func:`windows`: the stream, or a batch of it.
    """
    if COLUMN not in windowed.columns:
        return windowed
    return windowed.where(F.col(COLUMN).isNull()).drop(COLUMN)


def dead_letters(df: DataFrame) -> DataFrame:
    """Returns the dead letters of a step: of :func:`windows`, :func:`join`, :func:`split_late` and others.

    The columns are those of a letter that the step sets: ``step``, ``error_class``, ``error``, ``details``, and the source
    record as far as its columns were in the DataFrame (``docs/dead-letters.rst``). For ``foreachBatch``, where one batch
    contains both. :func:`exactly_once` writes them by itself.

    Args:
        df: rows with the column ``dead_letter``: a stream, or a batch of it.

    Raises:
        InvalidOption: if the rows have no dead letters.
    """
    check_letters(df)
    if COLUMN not in df.columns:
        raise InvalidOption(
            f"The rows have no column '{COLUMN}'.",
            remedy="Enable dead letters in the step, as in sg.windows(..., dead_letters=True), and keep the column.",
        )
    return df.where(F.col(COLUMN).isNotNull()).select(f"{COLUMN}.*")


# ---- Spark's aggregation ---------------------------------------------------------------------------------------------


def _with_watermark(df: DataFrame, windowing: Windowing, on: str | None, watermark_delay: str | None) -> DataFrame:
    """Sets Spark's watermark, which closes the windows of a query, unless the DataFrame has it already."""
    delay_ms = watermark_delay_ms(df, windowing, on, watermark_delay, Scope.QUERY)
    if on is None or watermark_delay is None or delay_ms_of(df, on) is not None:
        return df
    return df.withWatermark(on, f"{delay_ms} milliseconds")


def _sparks_own_will_do(
    windowing: Windowing, aggregate: Mapping[str, str | PythonAggregate], dead_letters: bool
) -> bool:
    in_sql = all(isinstance(required, str) for required in aggregate.values())
    return windowing.boundary == EventTime() and in_sql and not dead_letters


def _by_spark(
    df: DataFrame,
    shape: Shape,
    on: str,
    by: Sequence[str],
    aggregate: Mapping[str, str | PythonAggregate],
    *,
    chained: bool,
) -> DataFrame:
    if isinstance(shape, Session):
        window = F.session_window(column(on), f"{shape.gap_ms} milliseconds")
    else:
        window = F.window(column(on), f"{shape.size_ms} milliseconds", f"{shape.hop_ms} milliseconds")
    required = [F.expr(str(text)).alias(name) for name, text in aggregate.items()]
    # Spark drops rows with a null event time, and fails for a time whose window exceeds 64 bits.
    aggregated = df.where(is_event_time(on)).groupBy(window.alias("__window"), *map(column, by)).agg(*required)
    return aggregated.select(
        F.col("__window.start").alias("window_start"),
        F.col("__window.end").alias("window_end"),
        *([F.window_time("__window").alias("window_time")] if chained else []),
        *map(column, by),
        *map(column, aggregate),
        F.lit(PaneKind.ON_TIME.value).alias("pane"),
        F.lit(0).alias("revision"),
    )


def _with_window_time(windowed: DataFrame) -> DataFrame:
    """Returns the output of windows with ``window_time``.

    Spark's operators find their event time by the metadata of ``withWatermark``. Spark allows it once in a query, and passes
    the watermark through the state of the windows, also without a second call.
    """
    last = F.timestamp_micros(F.unix_micros("window_end") - 1)
    others = [it for it in windowed.columns if it not in ("window_start", "window_end")]
    time = last.alias("window_time", metadata={WATERMARK: 0})
    return windowed.select("window_start", "window_end", time, *map(column, others))
