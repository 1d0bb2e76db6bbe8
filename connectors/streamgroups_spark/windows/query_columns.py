"""The columns of windows before and after their state: arguments of aggregates, output rows, dead letters.

Used by ``windows.api``, ``windows.by_store`` and ``windows.by_offset`` on the driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
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

from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate
from streamgroups.event_time.panes import PaneKind
from streamgroups.monitoring.query_progress import WINDOW_COUNTS
from streamgroups_spark.dlq.late_letters import late_failure
from streamgroups_spark.internals.columns import column
from streamgroups_spark.repartition.key_columns import MARK
from streamgroups_spark.state.chains import ResultTime
from streamgroups_spark.state.placement import NESTED


def late_and_closed() -> list[Column]:
    """SEMANTICS X8: late records are counted, also if dead letters are disabled."""
    pane = F.col("pane")
    closes = pane.isin(PaneKind.ON_TIME.value, PaneKind.IDLE.value)
    late = F.count_if(pane == PaneKind.DEAD_LETTER.value)
    return [late.alias("late"), F.count_if(closes).alias("closed")]


def argument(df: DataFrame, name: str, aggregate: SqlAggregate | PythonAggregate) -> Column:
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


def result_type(records: StructType, number: int, aggregate: SqlAggregate | PythonAggregate) -> DataType:
    if isinstance(aggregate, PythonAggregate):
        return DataType.fromDDL(aggregate.returns)
    return LongType() if aggregate.function is Function.COUNT else records[f"a{number}"].dataType


def output_rows(
    records: StructType, keys: int, types: Sequence[DataType], *, dead_letters: bool, place: Sequence[str] = ()
) -> StructType:
    """Returns the schema of the output of the state. ``place``: the columns with the position of a result."""
    long = LongType()
    fields = [StructField("start", long), StructField("end", long)]
    fields += [StructField(f"k{i}", records[f"k{i}"].dataType) for i in range(keys)]
    fields += [StructField(f"r{i}", of) for i, of in enumerate(types)]
    fields += [StructField("pane", StringType()), StructField("revision", IntegerType())]
    if dead_letters:
        fields += [StructField("why", StringType()), StructField("event_time", long), StructField("watermark", long)]
        fields += [StructField("record", records["record"].dataType)]
    fields += [StructField(name, records[name].dataType) for name in place]
    return StructType(fields)


def dead_letter(rows: DataFrame) -> Column:
    record = rows.schema["record"].dataType
    assert isinstance(record, StructType), "record_columns has made it"
    letter = late_failure(
        record,
        lambda name: F.col("record").getField(name),
        step="windows",
        why=F.col("why"),
        event_time=F.timestamp_millis("event_time"),
        watermark=F.timestamp_millis("watermark"),
        window_start=F.timestamp_millis("start"),
        window_end=F.timestamp_millis("end"),
    )
    return F.when(F.col("pane") == PaneKind.DEAD_LETTER.value, letter).alias(COLUMN)


def record_columns(
    df: DataFrame,
    on: str | None,
    by: Sequence[str],
    aggregates: Mapping[str, SqlAggregate | PythonAggregate],
    *,
    dead_letters: bool,
) -> list[Column]:
    """Returns the columns of the records: ``time``, the keys ``k0``, the arguments ``a0``, and ``record``."""
    # A column of the same name without the watermark metadata: otherwise Spark would drop late records first.
    time = F.lit(None).cast("long") if on is None else F.unix_millis(column(on))
    return [
        time.alias("time"),
        *(column(name).alias(f"k{i}") for i, name in enumerate(by)),
        *(argument(df, n, a).alias(f"a{i}") for i, (n, a) in enumerate(aggregates.items()) if a.argument is not None),
        *([F.struct(*map(column, df.columns)).alias("record")] if dead_letters else []),
    ]


def output_columns(
    rows: DataFrame,
    by: Sequence[str],
    aggregate: Collection[str],
    *,
    dead_letters: bool,
    times: Sequence[ResultTime] = (),
    keys: StructType | None = None,
    place: Sequence[str] = (),
) -> DataFrame:
    """Returns the output of ``sg.windows`` from the rows of its state.

    Args:
        rows: the rows.
        by: the key columns.
        aggregate: the names of the aggregates.
        dead_letters: whether dead letters are emitted.
        times: the times of :data:`TIMES`, if another operator can process the results.
        keys: the columns of the records, if the results keep the marks of the key columns.
        place: the columns with the position of a result.
    """
    if rows.isStreaming:
        rows = rows.observe(f"{WINDOW_COUNTS}-{uuid.uuid4().hex[:8]}", *late_and_closed())
    if not dead_letters:
        rows = rows.where(F.col("pane") != PaneKind.DEAD_LETTER.value)
    return rows.select(
        *_times(times),
        *(_key(F.col(f"k{i}"), name, keys) for i, name in enumerate(by)),
        *(F.col(f"r{i}").alias(name) for i, name in enumerate(aggregate)),
        "pane",
        "revision",
        *([dead_letter(rows)] if dead_letters else []),
        *place,
    )


def _times(times: Sequence[ResultTime]) -> list[Column]:
    start, end = F.timestamp_millis("start"), F.timestamp_millis("end")
    if not times:
        return [start.alias("window_start"), end.alias("window_end")]
    last = F.timestamp_micros(F.col("end") * 1_000 - 1)
    return [time.column(values) for time, values in zip(times, (start, end, last), strict=True)]


def _key(key: Column, name: str, columns: StructType | None) -> Column:
    mark = {} if columns is None else (columns[name].metadata or {})
    return key.alias(name, metadata={MARK: mark[MARK]}) if MARK in mark else key.alias(name)
