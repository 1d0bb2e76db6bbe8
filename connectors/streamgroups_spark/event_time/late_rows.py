"""Splits the rows of a stream into those that Spark's operators keep and those that they drop as late.

Called by ``event_time.split_late`` and ``event_time.with_event_time`` on the driver. The column ``watermark`` contains
the watermark by which Spark drops late rows of a batch (``source.columns``). The rest is an expression of
Spark, so no row passes through Python.

For Spark a row is late at the watermark. A window aggregation drops it if the end of its window is at or before the
watermark. All other operators compare its event time itself. ``drop`` and ``adjust`` always do. Source: SEMANTICS W7,
W9, X8; Spark's ``WatermarkSupport.watermarkExpression``. The policies are those of
:mod:`streamgroups.event_time.violations`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from streamgroups.dlq.letter import COLUMN as LETTER_COLUMN
from streamgroups.event_time.violations import OnViolation, Why
from streamgroups.event_time.windows import Session, Shape
from streamgroups.json_values import MAX_TIME_MS
from streamgroups.monitoring.query_progress import LATE_COUNTS
from streamgroups_spark.bridge.punctuation_options import SPARK_LATE_MS
from streamgroups_spark.dlq.late_letters import late_failure
from streamgroups_spark.frames.columns import column
from streamgroups_spark.source.columns import WATERMARK

_WHY, _TIME = "__why", "__time"
_US_PER_MS = 1_000


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
    if LETTER_COLUMN in df.columns:
        # An earlier step has failed for the row, which may have no event time.
        why = F.when(column(LETTER_COLUMN).isNull(), why)
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
    # Sums with a window must not overflow: see streamgroups_operators.event_times.
    time_us, most_us = F.unix_micros(column(rule.on)), MAX_TIME_MS * _US_PER_MS
    return F.when(time_us.between(-most_us, most_us), time_us)


def _watermark_us() -> Column:
    return F.unix_micros(column(WATERMARK))


def _violates(rule: LateRule) -> Column:
    return _time_us(rule) <= _watermark_us()


def _adjusted_us() -> Column:
    """The first time after the watermark: the watermark of this library, if it is one millisecond later than Spark's."""
    return _watermark_us() + SPARK_LATE_MS * _US_PER_MS


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
    return _time_us(rule) - F.pmod(_time_us(rule), F.lit(rule.window.hop_ms * _US_PER_MS))


def _end_us(rule: LateRule) -> Column:
    """The time that the watermark must reach to make a row late."""
    if rule.window is None:
        return _time_us(rule)
    length_ms = rule.window.gap_ms if isinstance(rule.window, Session) else rule.window.size_ms
    return _start_us(rule) + length_ms * _US_PER_MS


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
    return counted.where(F.col(_WHY).isNotNull()).select(letter.alias(LETTER_COLUMN))
