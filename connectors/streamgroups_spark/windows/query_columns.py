"""The columns of windows before and after their state: arguments of aggregates, output rows, dead letters.

Used by ``windows.windows``, ``windows.by_store`` and ``windows.by_offset`` on the driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate, parse_aggregate
from streamgroups.event_time.windows import PaneKind
from streamgroups.monitoring.query_progress import WINDOW_COUNTS
from streamgroups_spark.dlq.late_letters import late_failure
from streamgroups_spark.frames.binary_forms import check_no_binary_form
from streamgroups_spark.frames.columns import column
from streamgroups_spark.frames.key_columns import COMPARABLE, MARK, has_collation, key_column
from streamgroups_spark.state.chains import ResultTime

#: The digits of a decimal whose sum has 38 digits at most, for 10 billion values.
_SUMMABLE = 28


def late_and_closed() -> list[Column]:
    """SEMANTICS X8: late records are counted, also if dead letters are disabled."""
    pane = F.col("pane")
    closes = pane.isin(PaneKind.ON_TIME.value, PaneKind.IDLE.value)
    late = F.count_if(pane == PaneKind.DEAD_LETTER.value)
    return [late.alias("late"), F.count_if(closes).alias("closed")]


def argument(df: DataFrame, name: str, aggregate: SqlAggregate | PythonAggregate) -> Column:
    """Returns the argument of an aggregate, of the type of its sum.

    Raises:
        InvalidOption: if the results would not be those of Spark SQL, or a Python aggregate would receive times or a binary form
            of Spark.
    """
    column = F.expr(str(aggregate.argument))
    given = df.select(column).schema[0].dataType
    if isinstance(aggregate, PythonAggregate):
        _check_python_values(name, given)
        check_no_binary_form(
            StructType([StructField(aggregate.argument, given)]), f"the function of aggregate '{name}'"
        )
        return column
    function = aggregate.function
    if function is Function.COUNT:
        # Arrow has no type for some types of Spark, and their values do not matter here.
        return column if isinstance(given, COMPARABLE) else F.when(column.isNotNull(), F.lit(1))
    _check_aggregate(name, aggregate, given)
    if function is Function.AVG:
        return column.cast(DoubleType())
    if function is Function.SUM and isinstance(given, DecimalType):
        return column.cast(DecimalType(min(38, given.precision + 10), given.scale))
    if function is Function.SUM:
        return column.cast(LongType() if isinstance(given, IntegralType) else DoubleType())
    return column


def _check_aggregate(name: str, aggregate: SqlAggregate, given: DataType) -> None:
    function = aggregate.function
    allowed: tuple[type[DataType], ...] = (IntegralType, FloatType, DoubleType)
    if function in (Function.MIN, Function.MAX):
        allowed = COMPARABLE
    elif function is Function.SUM:
        allowed = (*allowed, DecimalType)
    if not isinstance(given, allowed) or has_collation(given):
        raise InvalidOption(
            f"Aggregate '{name}' cannot compute {function.value} of type {given.simpleString()}.",
            remedy="Cast the column, for example to double, or to string COLLATE UTF8_BINARY.",
        )
    if function is Function.SUM and aggregate.wraps and isinstance(given, DecimalType) and given.precision > _SUMMABLE:
        raise InvalidOption(
            f"Aggregate '{name}' computes the sum of type {given.simpleString()}, and spark.sql.ansi.enabled is false. A sum "
            "that exceeds 38 digits would be null.",
            remedy=f"Cast the column to a decimal of at most {_SUMMABLE} digits, or set spark.sql.ansi.enabled=true.",
        )


def _check_python_values(name: str, given: DataType) -> None:
    if _has_times(given):
        raise InvalidOption(
            f"Aggregate '{name}' passes values of type {given.simpleString()} to a Python function. Python has no object for "
            "each time of a record.",
            remedy="Pass a number: unix_micros(column) of a timestamp, unix_date(column) of a date.",
        )


def _has_times(of: DataType) -> bool:
    if isinstance(of, ArrayType):
        return _has_times(of.elementType)
    if isinstance(of, MapType):
        return _has_times(of.keyType) or _has_times(of.valueType)
    if isinstance(of, StructType):
        return any(_has_times(field.dataType) for field in of.fields)
    return isinstance(of, DateType | TimestampType | TimestampNTZType | DayTimeIntervalType)


def parsed_aggregates(
    df: DataFrame, aggregate: Mapping[str, str | PythonAggregate]
) -> dict[str, SqlAggregate | PythonAggregate]:
    """Returns the aggregates of the user.

    Args:
        df: the records. Its session decides whether sums wrap around.
        aggregate: the output columns and their aggregates.

    Raises:
        InvalidOption: if a call cannot be computed from partial results.
    """
    wraps = str(df.sparkSession.conf.get("spark.sql.ansi.enabled")).lower() != "true"
    return {
        name: replace(parse_aggregate(name, it), wraps=wraps) if isinstance(it, str) else it
        for name, it in aggregate.items()
    }


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


def named_columns(by: Sequence[str], on: str | None, until: str | None) -> tuple[str, ...]:
    """Returns the names of the columns that determine the results, for the definition of the state. Spark ignores case.

    >>> named_columns(["Carrier"], "timestamp", None)
    ('carrier', 'at timestamp')
    """
    times = [f"{kind} {name.lower()}" for kind, name in (("at", on), ("until", until)) if name is not None]
    return (*map(str.lower, by), *times)


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
        *(key_column(df.schema, name).alias(f"k{i}") for i, name in enumerate(by)),
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
