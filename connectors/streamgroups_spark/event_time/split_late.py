"""``sg.event_time.split_late(df, "ts", ...)``: the rows that Spark's operators keep, and those that they drop as late.

Called by users on the driver, between the watermark and the operator, and by ``event_time.with_event_time``. The column
``watermark`` contains the watermark by which Spark drops late rows of a batch (``source.columns``). The rest is an expression of
Spark, so no row passes through Python.

For Spark a row is late at the watermark. A window aggregation drops it if the end of its window is at or before the
watermark. All other operators compare its event time itself. ``drop`` and ``adjust`` always do. Source: SEMANTICS W7,
W9, W11, X8; Spark's ``WatermarkSupport.watermarkExpression``. The policies are those of
:mod:`streamgroups.event_time.violations`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from streamgroups.checkpoints.spark_kafka import PUNCTUATIONS
from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation, Why, check_until, parse_policy
from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.event_time.window_shapes import check_shape
from streamgroups.event_time.windows import Session, Shape
from streamgroups.monitoring.query_progress import LATE_COUNTS
from streamgroups_spark.bridge.plan import FORMAT, analyzed, leaves, read_streams, source_name
from streamgroups_spark.bridge.punctuation_options import SPARK_LATE_MS
from streamgroups_spark.dlq.late_letters import late_failure
from streamgroups_spark.frames.columns import US_PER_MS, check_timestamp, column, delay_ms_of, is_event_time
from streamgroups_spark.source.columns import WATERMARK
from streamgroups_spark.source.read_options import read_options, source_policy

#: Without it Spark drops late rows by the watermark of the batch itself.
_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"
_WHY, _TIME = "__why", "__time"


def split_late(
    df: DataFrame,
    column: str,
    *,
    window: Shape | None = None,
    on_violation: str | None = None,
    until: str | None = None,
) -> tuple[DataFrame, DataFrame]:
    """Splits a stream into the rows that Spark's operators keep, and the late rows that they would drop.

    Spark's operators drop late rows without output. This function splits the stream before such an operator: pass the
    first DataFrame to the operator, and write the second one, for example to a topic for dead letters. A union of both
    results has one sink. Late rows are counted in ``streamgroups_query_late_records_total``.

    Args:
        df: a stream of ``format("streamgroups")`` with the option ``includeWatermark=true``, after
            :func:`with_event_time` or ``withWatermark``, before the operator. It still has the column ``watermark``.
            In bounded data no row is late, and ``watermark`` is null.
        column: the event time, which has the watermark.
        window: the windows of the operator: :func:`tumbling`, :func:`hopping` or :func:`session`. A row is late if its
            windows have ended. ``None`` for joins, ``dropDuplicatesWithinWatermark`` and ``transformWithState``: a row
            is late if its event time is at or before the watermark.
        on_violation: ``keep``, ``drop`` or ``adjust``. ``drop`` also drops rows at or before the watermark whose
            windows are open. ``adjust`` sets the event time of such a row to the first millisecond after the watermark
            if the row is valid until later, and drops it otherwise. Default: the option ``onViolation`` of the source,
            or ``keep`` after :func:`with_event_time`, which has applied it.
        until: with ``adjust``: the column with the end of a row's validity, a timestamp.

    Returns:
        The rows that are on time, with the columns of ``df``; and the late rows as dead letters, with the only column
        ``dead_letter`` (``docs/dead-letters.rst``). Its ``details`` contain ``why`` (``late``, ``violation`` or
        ``no event time``), ``event_time``, ``watermark``, ``late_by_ms``, and with ``window`` also ``window_start`` and
        ``window_end``. If ``df`` has dead letters of an earlier step, the second DataFrame contains them too, and the first
        one has no such column.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name and the remedy.

    Example::

        timed = sg.with_event_time(flights, "timestamp", watermark_delay="10s")
        on_time, late = sg.event_time.split_late(timed, "timestamp", window=sg.shapes.tumbling("5 minutes"))
        counts = on_time.groupBy(F.window("timestamp", "5 minutes")).count()
    """
    _check_plan(df)
    check_timestamp(df, column)
    if df.isStreaming and delay_ms_of(df, column) is None:
        raise InvalidOption(
            f"Column '{column}' has no watermark, so no row is late.",
            remedy=f"Call sg.with_event_time(df, '{column}', ...) or df.withWatermark('{column}', ...) before.",
        )
    check_watermark_column(df, "sg.event_time.split_late")
    if window is not None:
        check_shape(window)
    policy = source_policy(df) if on_violation is None else parse_policy(on_violation)
    check_until(policy, until)
    if until is not None:
        check_timestamp(df, until)
    on_time, late = split(df, LateRule(column, window, policy, until))
    if COLUMN not in df.columns:
        return on_time, late
    earlier = on_time.where(F.col(COLUMN).isNotNull()).select(COLUMN)
    return on_time.where(F.col(COLUMN).isNull()).drop(COLUMN), late.union(earlier)


def check_watermark_column(df: DataFrame, called: str) -> None:
    """Checks that the rows have the watermark of their batch.

    Args:
        df: the rows, of ``format("streamgroups")``.
        called: the function of the API, for errors.

    Raises:
        InvalidOption: if a source or the DataFrame does not have the column, or Spark drops rows by another watermark.
    """
    if not all(it.include_watermark for it in read_options(df)):
        raise InvalidOption(
            f"{called} needs the watermark of each batch, which the source does not return.",
            remedy="Set the option includeWatermark=true on the source. It adds the column 'watermark'.",
        )
    if WATERMARK not in df.columns:
        raise InvalidOption(
            f"The DataFrame has no column '{WATERMARK}', which {called} needs.",
            remedy=f"Keep it: use withColumn, or add '{WATERMARK}' to select.",
        )
    check_timestamp(df, WATERMARK)
    if str(df.sparkSession.conf.get(_MULTIPLE, "true")).lower() != "true":
        raise InvalidOption(f"{_MULTIPLE} is 'false'.", remedy="Set it to true, its default value.")


def _check_plan(df: DataFrame) -> None:
    plan = analyzed(df)
    foreign = {source_name(leaf) for leaf in leaves(plan)} - {FORMAT, PUNCTUATIONS}
    if foreign:
        raise InvalidOption(
            f"The DataFrame reads the source '{min(foreign)}', whose rows have no column 'watermark'.",
            remedy='Call sg.event_time.split_late on a read of format("streamgroups"), before a union or join.',
        )
    operators = {name for stream in read_streams(plan) for name in stream.operators | stream.unknown}
    if operators:
        raise InvalidOption(
            f"The operator {', '.join(sorted(operators))} precedes sg.event_time.split_late. It can have dropped late rows.",
            remedy="Call sg.event_time.split_late before it.",
        )


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LateRule:
    """Which rows of a stream are late.

    Args:
        on: the column with the event time.
        window: the windows that aggregate the rows; ``None`` for other operators.
        policy: how rows before the watermark are handled.
        until: with ``adjust``: the column with the end of a row's validity.
    """

    on: str
    window: Shape | None = None
    policy: OnViolation = OnViolation.KEEP
    until: str | None = None


def split(df: DataFrame, rule: LateRule) -> tuple[DataFrame, DataFrame]:
    """Returns the rows that are on time, and the late ones as dead letters.

    Args:
        df: the rows, with the column ``watermark``. Rows with a dead letter are not judged, and count as on time.
        rule: which rows are late.
    """
    why = _why(rule)
    if COLUMN in df.columns:
        # An earlier step has failed for the row, which may have no event time.
        why = F.when(column(COLUMN).isNull(), why)
    judged = df.select("*", why.alias(_WHY), _time(rule).alias(_TIME))
    is_adjusted = F.col(_WHY).isNull() & (F.col(_TIME) != column(rule.on))
    counted = judged.observe(
        f"{LATE_COUNTS}-{uuid.uuid4().hex[:8]}",
        F.count_if(F.col(_WHY).isNotNull()).alias("late"),
        F.count_if(is_adjusted).alias("adjusted"),
    )
    time = column(rule.on)
    if rule.policy is OnViolation.ADJUST:
        # The metadata contain the delay of the watermark, by which Spark finds the event time.
        time = F.col(_TIME).alias(rule.on, metadata=df.schema[rule.on].metadata)
    own = [time if name == rule.on else column(name) for name in df.columns]
    on_time = counted.where(F.col(_WHY).isNull()).select(*own)
    return on_time, _dead_letters(counted, df, rule)


# ---- the rules -------------------------------------------------------------------------------------------------------


def _time_us(rule: LateRule) -> Column:
    return F.when(is_event_time(rule.on), F.unix_micros(column(rule.on)))


def _watermark_us() -> Column:
    return F.unix_micros(column(WATERMARK))


def _violates(rule: LateRule) -> Column:
    return _time_us(rule) <= _watermark_us()


def _adjusted_us() -> Column:
    """The first time after the watermark: the watermark of this library, if it is one millisecond later than Spark's.

    It is null if it is not an event time. ``withWatermark`` generates a watermark from any timestamp.
    """
    later_us = SPARK_LATE_MS * US_PER_MS
    return F.when(_watermark_us() <= MAX_EVENT_TIME_MS * US_PER_MS - later_us, _watermark_us() + later_us)


def _is_adjusted(rule: LateRule) -> Column:
    if rule.policy is not OnViolation.ADJUST or rule.until is None:
        return F.lit(False)
    # A row without an end is valid for one moment only, so nothing of it remains.
    reaches = F.coalesce(F.unix_micros(column(rule.until)) > _adjusted_us(), F.lit(False))
    return _violates(rule) & reaches


def _why(rule: LateRule) -> Column:
    no_time = F.when(_time_us(rule).isNull(), Why.UNREADABLE.value)
    if rule.policy is OnViolation.KEEP:
        return no_time.when(_end_us(rule) <= _watermark_us(), Why.LATE.value)
    return no_time.when(_violates(rule) & ~_is_adjusted(rule), Why.VIOLATION.value)


def _time(rule: LateRule) -> Column:
    return F.when(_is_adjusted(rule), F.timestamp_micros(_adjusted_us())).otherwise(column(rule.on))


# ---- windows ---------------------------------------------------------------------------------------------------------


def _start_us(rule: LateRule) -> Column:
    """The start of the latest window of a row. It closes last."""
    if rule.window is None or isinstance(rule.window, Session):
        return _time_us(rule)
    return _time_us(rule) - F.pmod(_time_us(rule), F.lit(rule.window.hop_ms * US_PER_MS))


def _end_us(rule: LateRule) -> Column:
    """The time that the watermark must reach to make a row late."""
    if rule.window is None:
        return _time_us(rule)
    length_ms = rule.window.gap_ms if isinstance(rule.window, Session) else rule.window.size_ms
    return _start_us(rule) + length_ms * US_PER_MS


def _dead_letters(counted: DataFrame, df: DataFrame, rule: LateRule) -> DataFrame:
    """Returns late rows as dead letters. They have no other column, and no watermark.

    Otherwise Spark would drop them in an operator.
    """
    record = StructType([field for field in df.schema if field.name != WATERMARK])
    letter = late_failure(
        record,
        lambda name: F.timestamp_micros(F.unix_micros(column(name))) if name == rule.on else column(name),
        step="event time",
        why=F.col(_WHY),
        event_time=F.timestamp_micros(_time_us(rule)),
        watermark=column(WATERMARK),
        window_start=None if rule.window is None else F.timestamp_micros(_start_us(rule)),
        window_end=None if rule.window is None else F.timestamp_micros(_end_us(rule)),
    )
    return counted.where(F.col(_WHY).isNotNull()).select(letter.alias(COLUMN))
