"""Windows whose state follows its partition: state files, addressed by offset, in the stage that reads.

Called by ``windows.windows`` on the driver, for ``time="partition"`` and ``time="group"``. Each source partition has windows of its own, so all
records of a key must be in one partition. Source: SEMANTICS W4-W7, W9, S9, S10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamgroups.event_time.aggregates import PythonAggregate
from streamgroups.event_time.event_shapes import EventShape
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import EventTime, Windowing
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows.window_definition import state_schema
from streamgroups_spark.frames.columns import column
from streamgroups_spark.frames.key_columns import check_key_values
from streamgroups_spark.internals.spark_api import arrow_schema, stored_schema
from streamgroups_spark.source.read_options import reject_idle_timeout
from streamgroups_spark.state.chains import TIMES, ResultTime, operator_before
from streamgroups_spark.state.operator_plan import PLACE, check_keys, check_place, in_reading_stage, over_bounded_data
from streamgroups_spark.windows.argument_checks import check_behind, watermark_delay_ms
from streamgroups_spark.windows.query_columns import (
    named_columns,
    output_columns,
    output_rows,
    parsed_aggregates,
    record_columns,
    result_type,
)

_CALLED = "sg.windows"
_IDLE = "Set 'idle_timeout' in sg.windows to close windows of idle partitions, or time='group' for the watermark of the group."
_EXCLUSIVE = "Or set membership=exclusive on the source, and time='query'."


def by_offset(
    df: DataFrame,
    windowing: Windowing,
    on: str | None,
    by: Sequence[str],
    aggregate: Mapping[str, str | PythonAggregate],
    policy: OnViolation,
    until: str | None,
    events: EventShape,
    scope: Scope,
    watermark_delay: str | None,
    *,
    dead_letters: bool,
    flush: bool,
    prepartitioned: bool,
    name: str,
    chained: bool,
) -> DataFrame:
    """Returns windows of each partition, of a stream or of bounded data. The arguments are those of ``sg.windows``."""
    check_key_values(df.schema, by)
    parsed = parsed_aggregates(df, aggregate)
    upstream = operator_before(df, name, _CALLED)
    check_place(df, name, _CALLED, otherwise=_EXCLUSIVE)
    check_keys(df, by, _CALLED, prepartitioned=prepartitioned, otherwise=_EXCLUSIVE)
    if upstream is None:
        delay_ms = watermark_delay_ms(df, windowing, on, watermark_delay, scope)
        if scope is Scope.PARTITION and df.isStreaming:
            reject_idle_timeout(df, "windows of partitions", remedy=_IDLE)
    else:
        check_behind(df, windowing, on, watermark_delay, upstream, events, scope, flush=flush)
        delay_ms = None
    place = [it for it in ("topic", *PLACE) if it in df.columns]
    until_ms = [] if until is None else [F.unix_millis(column(until)).alias("until")]
    records = df.select(*place, *until_ms, *record_columns(df, on, by, parsed, dead_letters=dead_letters))
    types = [result_type(records.schema, i, a) for i, a in enumerate(parsed.values())]
    positions = place if chained else []
    rows = output_rows(records.schema, len(by), types, dead_letters=dead_letters, place=positions)
    aggregates = tuple(parsed.values())
    schema = state_schema(windowing.shape, stored_schema(records.schema), aggregates, events)
    output_schema = arrow_schema(rows, df.sparkSession)
    is_bounded = not df.isStreaming
    operator = WindowOperator(
        name,
        windowing,
        delay_ms,
        len(by),
        aggregates,
        schema,
        output_schema,
        policy,
        scope,
        is_bounded,
        events,
        upstream,
        chained,
        named_columns(by, on, until),
    )
    if is_bounded:
        output = over_bounded_data(records, operator, rows)
    else:
        imports = scope is Scope.GROUP
        output = in_reading_stage(
            records, operator, rows, _CALLED, otherwise=_EXCLUSIVE, flushes=flush, imports=imports, upstream=upstream
        )
    if not chained:
        return output_columns(output, by, aggregate, dead_letters=dead_letters)
    boundary = windowing.boundary
    idle_timeout_ms = boundary.idle_timeout_ms if isinstance(boundary, EventTime) else None
    times = [ResultTime(name, time, idle_timeout_ms) for time in TIMES]
    return output_columns(
        output, by, aggregate, dead_letters=dead_letters, times=times, keys=df.schema, place=positions
    )
