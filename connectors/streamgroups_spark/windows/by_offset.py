"""Windows whose state follows its partition: state files, addressed by offset, in the stage that reads.

Called by ``windows.api`` on the driver, for streams that queries share. Each source partition has windows of its own, so
all records of a key must be in one partition. Source: SEMANTICS W4, W5, W7, S9, S10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from streamgroups.errors import InvalidOption
from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate, parse_aggregate
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.windows import EventTime, Hopping, Windowing
from streamgroups_spark.event_time.punctuation_source import TimeDataSource
from streamgroups_spark.internals.plan import analyzed, read_streams, source_name
from streamgroups_spark.register import SESSION, state_channel_of
from streamgroups_spark.state.stage import StateStage
from streamgroups_spark.windows.checks import WATERMARK
from streamgroups_spark.windows.query_columns import output_columns, output_rows, record_columns, result_type
from streamgroups_state.window_operator import WindowOperator

_PLACE = ("partition", "offset")
_EXCLUSIVE = "Set membership=exclusive on the source, or leave it out."


def by_offset(
    df: DataFrame,
    windowing: Windowing,
    on: str,
    by: Sequence[str],
    aggregate: Mapping[str, str | PythonAggregate],
    *,
    dead_letters: bool,
    prepartitioned: bool,
    name: str,
) -> DataFrame:
    """Returns the windows of a stream that queries share. The arguments are those of ``sg.windows``."""
    parsed = {n: parse_aggregate(n, a) if isinstance(a, str) else a for n, a in aggregate.items()}
    _check_place(df)
    _check_keys(by, prepartitioned=prepartitioned)
    delay_ms = int((df.schema[on].metadata or {})[WATERMARK])
    place = [it for it in ("topic", *_PLACE) if it in df.columns]
    records = df.select(*place, *record_columns(df, on, by, parsed, dead_letters=dead_letters))
    types = [result_type(records.schema, i, a) for i, a in enumerate(parsed.values())]
    rows = output_rows(records.schema, len(by), types, dead_letters=dead_letters)
    zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    arrow = to_arrow_schema(records.schema, timezone=zone)
    assert isinstance(windowing.shape, Hopping), "check_offsets"
    assert isinstance(windowing.boundary, EventTime), "check_offsets"
    operator = WindowOperator(
        name,
        windowing.shape,
        delay_ms,
        windowing.boundary.allowed_lateness_ms,
        len(by),
        tuple(parsed.values()),
        _state_schema(arrow, len(by), tuple(parsed.values())),
        to_arrow_schema(rows, timezone=zone),
        dead_letters,
    )
    application = df.sparkSession.sparkContext.applicationId
    stage = StateStage(operator, SESSION, application, state_channel_of(df.sparkSession))
    output = records.mapInArrow(stage, rows)
    _check_moves(output)
    return output_columns(output, by, aggregate, dead_letters=dead_letters)


def check_offsets(windowing: Windowing, policy: OnViolation) -> None:
    """Rejects windows that are not supported over a stream that queries share.

    Raises:
        InvalidOption: for the first unsupported argument. The error contains its name.
    """
    unsupported = {
        "window=sg.session(...)": not isinstance(windowing.shape, Hopping),
        "boundary=processingTime": not isinstance(windowing.boundary, EventTime),
        "idle_timeout": isinstance(windowing.boundary, EventTime) and windowing.boundary.idle_timeout_ms is not None,
        "on_violation": policy is not OnViolation.KEEP,
    }
    for argument, is_used in unsupported.items():
        if is_used:
            raise InvalidOption(
                f"Option '{argument}' of sg.windows is not supported over a stream that queries share.",
                remedy=_EXCLUSIVE,
            )


def _check_place(df: DataFrame) -> None:
    missing = [name for name in _PLACE if name not in df.columns]
    if missing:
        raise InvalidOption(
            f"The DataFrame has no column '{missing[0]}', by which windows over a shared stream find their state.",
            remedy="Keep the columns 'topic', 'partition' and 'offset' of the source: use withColumn, or add them to "
            "select.",
        )
    for stream in read_streams(analyzed(df)):
        if source_name(stream.leaf) == TimeDataSource.name():
            raise InvalidOption(
                "The stream is shared and has the watermark of sg.with_event_time. Windows over a shared stream use the "
                "watermark of each partition.",
                remedy="Use df.withWatermark(...) instead. Or set membership=exclusive on the source.",
            )


def _check_keys(by: Sequence[str], *, prepartitioned: bool) -> None:
    if "key" in by or prepartitioned:
        return
    columns = ", ".join(by) or "no column"
    raise InvalidOption(
        f"The stream is shared, and the windows group by {columns}. Each partition has windows of its own, so the "
        "records of a group must all be in one partition.",
        remedy="Add the column 'key' to 'by'. If the record key determines the columns of 'by', set "
        "prepartitioned=True. Otherwise set membership=exclusive on the source.",
    )


def _check_moves(output: DataFrame) -> None:
    moved_by = {name for stream in read_streams(analyzed(output)) for name in stream.moved_by}
    if moved_by:
        raise InvalidOption(
            f"Before sg.windows, the query moves records between tasks ({', '.join(sorted(moved_by))}). Windows over a "
            "shared stream must be in the stage that reads.",
            remedy="Call sg.windows first. Or set membership=exclusive on the source.",
        )


def _state_schema(records: pa.Schema, keys: int, aggregates: Sequence[SqlAggregate | PythonAggregate]) -> pa.Schema:
    """The columns of the state: the keys, the number of late records, and partial aggregates."""
    fields = [records.field(f"k{i}") for i in range(keys)]
    fields.append(pa.field("late", pa.int64()))
    for i, aggregate in enumerate(aggregates):
        if isinstance(aggregate, PythonAggregate):
            fields.append(pa.field(f"p{i}", pa.list_(records.field(f"a{i}").type)))
            continue
        if aggregate.function is Function.AVG:
            fields.append(pa.field(f"n{i}", pa.int64()))
        counts = aggregate.function is Function.COUNT
        fields.append(pa.field(f"p{i}", pa.int64() if counts else records.field(f"a{i}").type))
    return pa.schema(fields)
