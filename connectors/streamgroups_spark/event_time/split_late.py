"""``sg.event_time.split_late(df, "ts", ...)``: the rows that Spark's operators keep, and those that they drop as late.

Called by users on the driver, between the watermark and the operator. ``event_time.late_rows`` has the rules. Source:
SEMANTICS W7, W9, W11, X8.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import check_until, parse_policy
from streamgroups.event_time.window_shapes import check_shape
from streamgroups.event_time.windows import Shape
from streamgroups_spark.bridge.plan import FORMAT, analyzed, leaves, read_streams, source_name
from streamgroups_spark.bridge.punctuation_options import PUNCTUATIONS
from streamgroups_spark.event_time.late_rows import LateRule, split
from streamgroups_spark.frames.time_columns import check_timestamp, delay_ms_of
from streamgroups_spark.source.columns import WATERMARK
from streamgroups_spark.source.read_options import read_options, source_policy

#: Without it Spark drops late rows by the watermark of the batch itself.
_MULTIPLE = "spark.sql.streaming.statefulOperator.allowMultiple"


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
    name = WATERMARK
    if name not in df.columns:
        raise InvalidOption(
            f"The DataFrame has no column '{name}', which {called} needs.",
            remedy=f"Keep it: use withColumn, or add '{name}' to select.",
        )
    check_timestamp(df, name)
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
