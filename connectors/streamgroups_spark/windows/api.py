"""``sg.windows(df, ...)``: tumbling, hopping and session windows that report late records.

Called by users on the driver. It checks the arguments and chooses one of two implementations. Spark's own window
aggregation runs if it supports all arguments. Otherwise ``windows.processor`` runs on ``transformWithState``. Source:
SEMANTICS W4-W7; the rules are in :mod:`streamgroups.event_time`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate, parse_aggregate
from streamgroups.event_time.panes import PaneKind
from streamgroups.event_time.shapes import policy_of, windowing_of
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.windows import EventTime, Session, Shape, Windowing
from streamgroups.monitoring.query_progress import WINDOW_COUNTS
from streamgroups_spark.source.shared_state import check_state_of
from streamgroups_spark.windows.checks import NESTED, check_state, check_timestamp, check_windows
from streamgroups_spark.windows.columns import PACKED, ROWS, Pack, Unpack, WindowPlan
from streamgroups_spark.windows.processor import WindowProcessor, time_mode

_BUCKETS = 32


def windows(
    df: DataFrame,
    *,
    window: Shape,
    aggregate: Mapping[str, str | PythonAggregate],
    on: str | None = None,
    by: Sequence[str] = (),
    boundary: str = "eventTime",
    allowed_lateness: str | None = None,
    idle_timeout: str | None = None,
    on_violation: str = "keep",
    until: str | None = None,
    dead_letters: bool = False,
    buckets: int = _BUCKETS,
) -> DataFrame:
    """Assigns records to windows and emits their aggregates (SEMANTICS W4-W7).

    The output, in append mode:

    * ``window_start``, ``window_end``: timestamps;
    * the columns of ``by``, then those of ``aggregate``;
    * ``pane``: ``on time``; ``idle``, if the idle timeout closed the window; ``update``, if late records changed it;
      ``retraction``, if an emitted session has become part of another one; or ``dead letter``;
    * ``revision``: 0 for the first pane of a window, and one more for each later pane. The row with the highest
      revision of a window and key is valid;
    * ``dead_letter``, if enabled: see :func:`dead_letters`.

    Spark's own window aggregation runs if the boundary is event time, without lateness, idle timeout, dead letters and
    Python aggregates. It supports every aggregate of Spark SQL. Otherwise ``count``, ``sum``, ``avg``, ``min`` and
    ``max`` of any expression are supported, and :func:`streamgroups.python_aggregate`.

    Args:
        df: a streaming DataFrame, whose sources have ``membership=exclusive``. For event-time windows, ``on`` needs a
            watermark.
        window: ``sg.tumbling("5 minutes")``, ``sg.hopping("10 minutes", hop="5 minutes")`` or ``sg.session("30s")``.
        aggregate: the output columns and their aggregates: ``{"flights": "count(*)", "worst": "max(delay)"}``.
        on: the column with the event time, a timestamp. Optional for processing time.
        by: the key columns. Each key has its own windows.
        boundary: ``eventTime``, or ``processingTime`` for windows by the clock, in which no record is late.
        allowed_lateness: a duration: how long a window accepts late records after the watermark has passed its end.
        idle_timeout: a duration: a window closes if the source was idle for this time and the clock has passed the end
            of the window.
        on_violation: how a record before the watermark in an open window is handled: ``keep`` counts it, ``drop`` does
            not. ``adjust`` counts it with the watermark as its start, if it is valid until later.
        until: with ``adjust``: the column with the end of a record's validity, a timestamp.
        dead_letters: whether records that no window counts are emitted. Otherwise they are dropped.
        buckets: the number of parts of the state of ``windows.processor``. It must stay the same for a checkpoint.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.

    Example::

        timed = flights.withWatermark("ts", "1 minute")
        counts = sg.windows(timed, on="ts", by=["carrier"], window=sg.tumbling("5 minutes"),
                            aggregate={"flights": "count(*)"}, allowed_lateness="10 minutes")
    """
    windowing = windowing_of(window, boundary, allowed_lateness, idle_timeout)
    policy = policy_of(on_violation, windowing, until)
    check_windows(df, windowing, on, by, aggregate, buckets)
    check_state_of(df, "sg.windows")
    if until is not None:
        check_timestamp(df, until)
    if policy is OnViolation.KEEP and _sparks_own_will_do(windowing, aggregate, dead_letters):
        return _by_spark(df, windowing.shape, str(on), by, aggregate)
    return _by_state(df, windowing, on, by, aggregate, policy, until, dead_letters=dead_letters, buckets=buckets)


def window_results(windowed: DataFrame) -> DataFrame:
    """Returns the rows of :func:`windows` without dead letters. For ``foreachBatch``, where one batch contains both.

    Args:
        windowed: the output of :func:`windows`: the stream, or a batch of it.
    """
    if "dead_letter" not in windowed.columns:
        return windowed
    return windowed.where(F.col("pane") != PaneKind.DEAD_LETTER.value).drop("dead_letter")


def dead_letters(windowed: DataFrame) -> DataFrame:
    """Returns the records that no window of :func:`windows` counts, with the reason (SEMANTICS W7).

    ``record`` contains their own columns, and ``why`` is ``late`` or ``no event time``. ``late_by_ms`` is the distance
    of ``event_time`` to ``watermark``. ``window_start`` and ``window_end`` belong to the missed window. Of several
    hopping windows it is the latest one.

    Args:
        windowed: the output of :func:`windows` with ``dead_letters=True``: the stream, or a batch of it.

    Raises:
        InvalidOption: if dead letters are not enabled.
    """
    if "dead_letter" not in windowed.columns:
        raise InvalidOption(
            "The windows were created without dead letters.", remedy="Call sg.windows with dead_letters=True."
        )
    letters = windowed.where(F.col("pane") == PaneKind.DEAD_LETTER.value)
    return letters.select("window_start", "window_end", "dead_letter.*")


# ---- Spark's aggregation ---------------------------------------------------------------------------------------------


def _sparks_own_will_do(
    windowing: Windowing, aggregate: Mapping[str, str | PythonAggregate], dead_letters: bool
) -> bool:
    in_sql = all(isinstance(wanted, str) for wanted in aggregate.values())
    return windowing.boundary == EventTime() and in_sql and not dead_letters


def _by_spark(
    df: DataFrame, shape: Shape, on: str, by: Sequence[str], aggregate: Mapping[str, str | PythonAggregate]
) -> DataFrame:
    if isinstance(shape, Session):
        window = F.session_window(_column(on), f"{shape.gap_ms} milliseconds")
    else:
        window = F.window(_column(on), f"{shape.size_ms} milliseconds", f"{shape.hop_ms} milliseconds")
    wanted = [F.expr(str(text)).alias(name) for name, text in aggregate.items()]
    told = df.groupBy(window.alias("__window"), *map(_column, by)).agg(*wanted)
    return told.select(
        F.col("__window.start").alias("window_start"),
        F.col("__window.end").alias("window_end"),
        *map(_column, by),
        *map(_column, aggregate),
        F.lit(PaneKind.ON_TIME.value).alias("pane"),
        F.lit(0).alias("revision"),
    )


# ---- transformWithState ----------------------------------------------------------------------------------------------


def _by_state(
    df: DataFrame,
    windowing: Windowing,
    on: str | None,
    by: Sequence[str],
    aggregate: Mapping[str, str | PythonAggregate],
    policy: OnViolation,
    until: str | None,
    *,
    dead_letters: bool,
    buckets: int,
) -> DataFrame:
    parsed = {name: parse_aggregate(name, a) if isinstance(a, str) else a for name, a in aggregate.items()}
    check_state(df)
    arguments = {i: _argument(df, name, a) for i, (name, a) in enumerate(parsed.items()) if a.argument is not None}
    keys = [_column(name) for name in by]
    # A column of the same name without the watermark metadata: otherwise Spark would drop late records first.
    time = F.lit(None).cast("long") if on is None else F.unix_millis(_column(on))
    records = df.select(
        F.pmod(F.xxhash64(*keys) if keys else F.lit(0), F.lit(buckets)).cast("int").alias("bucket"),
        time.alias("time"),
        *([] if until is None else [F.unix_millis(_column(until)).alias("until")]),
        *(key.alias(f"k{i}") for i, key in enumerate(keys)),
        *(argument.alias(f"a{i}") for i, argument in arguments.items()),
        *([F.struct(*map(_column, df.columns)).alias("record")] if dead_letters else []),
    )
    types = [_result(records.schema, i, a) for i, a in enumerate(parsed.values())]
    schema = _rows(records.schema, len(by), types, dead_letters=dead_letters)
    zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    plan = WindowPlan(
        windowing,
        len(by),
        tuple(parsed.values()),
        to_arrow_schema(schema, timezone=zone),
        dead_letters,
        buckets,
        policy,
    )
    told = (
        records.mapInArrow(Pack(plan), PACKED)
        .groupBy("bucket")
        .transformWithState(WindowProcessor(plan), ROWS, "Append", time_mode(plan))
        .mapInArrow(Unpack(plan), schema)
    )
    told = told.observe(f"{WINDOW_COUNTS}-{uuid.uuid4().hex[:8]}", *_counts())
    if not dead_letters:
        told = told.where(F.col("pane") != PaneKind.DEAD_LETTER.value)
    return told.select(
        F.timestamp_millis("start").alias("window_start"),
        F.timestamp_millis("end").alias("window_end"),
        *(F.col(f"k{i}").alias(name) for i, name in enumerate(by)),
        *(F.col(f"r{i}").alias(name) for i, name in enumerate(aggregate)),
        "pane",
        "revision",
        *([_dead_letter()] if dead_letters else []),
    )


def _counts() -> list[Column]:
    """SEMANTICS X8: late records are counted, also if dead letters are disabled."""
    pane = F.col("pane")
    closes = pane.isin(PaneKind.ON_TIME.value, PaneKind.IDLE.value)
    late = F.count_if(pane == PaneKind.DEAD_LETTER.value)
    return [late.alias("late"), F.count_if(closes).alias("closed")]


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _argument(df: DataFrame, name: str, aggregate: SqlAggregate | PythonAggregate) -> Column:
    """Returns the argument of an aggregate, of the type of its sum."""
    column = F.expr(str(aggregate.argument))
    if isinstance(aggregate, PythonAggregate) or aggregate.function is Function.COUNT:
        return column
    given = df.select(column).schema[0].dataType
    function = aggregate.function
    allowed: tuple[type[DataType], ...] = (IntegralType, FloatType, DoubleType)
    if function is Function.SUM:
        allowed = (*allowed, DecimalType)
    wrong = isinstance(given, NESTED) if function in (Function.MIN, Function.MAX) else not isinstance(given, allowed)
    if wrong:
        raise InvalidOption(
            f"Aggregate '{name}' cannot compute {function.value} of type {given.simpleString()}.",
            remedy="Cast the column, for example to double.",
        )
    if function is Function.AVG:
        return column.cast(DoubleType())
    if function is Function.SUM and isinstance(given, DecimalType):
        return column.cast(DecimalType(min(38, given.precision + 10), given.scale))
    if function is Function.SUM:
        return column.cast(LongType() if isinstance(given, IntegralType) else DoubleType())
    return column


def _result(records: StructType, number: int, aggregate: SqlAggregate | PythonAggregate) -> DataType:
    if isinstance(aggregate, PythonAggregate):
        return DataType.fromDDL(aggregate.returns)
    return LongType() if aggregate.function is Function.COUNT else records[f"a{number}"].dataType


def _rows(records: StructType, keys: int, types: Sequence[DataType], *, dead_letters: bool) -> StructType:
    """Returns the schema of the output of the state."""
    long = LongType()
    fields = [StructField("start", long), StructField("end", long)]
    fields += [StructField(f"k{i}", records[f"k{i}"].dataType) for i in range(keys)]
    fields += [StructField(f"r{i}", of) for i, of in enumerate(types)]
    fields += [StructField("pane", StringType()), StructField("revision", IntegerType())]
    if dead_letters:
        fields += [StructField("why", StringType()), StructField("event_time", long), StructField("watermark", long)]
        fields += [StructField("record", records["record"].dataType)]
    return StructType(fields)


def _dead_letter() -> Column:
    letter = F.struct(
        "why",
        F.timestamp_millis("event_time").alias("event_time"),
        F.timestamp_millis("watermark").alias("watermark"),
        (F.col("watermark") - F.col("event_time")).alias("late_by_ms"),
        "record",
    )
    return F.when(F.col("pane") == PaneKind.DEAD_LETTER.value, letter).alias("dead_letter")
