"""Windows on Spark's ``transformWithState``: the state is in the checkpoint of one query.

Called by ``windows.windows`` on the driver, for streams with ``membership=exclusive``. Source: SEMANTICS W4-W9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamgroups.event_time.aggregates import PythonAggregate
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.window_shapes import Scope
from streamgroups.event_time.windows import Windowing
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows.window_definition import state_schema
from streamgroups_spark.frames.columns import column
from streamgroups_spark.frames.key_columns import check_key_values, key_column
from streamgroups_spark.internals.spark_api import FEATURES, arrow_schema, stored_schema
from streamgroups_spark.windows.argument_checks import check_state
from streamgroups_spark.windows.bucket_columns import PACKED, ROWS, Pack, Unpack, WindowPlan
from streamgroups_spark.windows.processor import WindowProcessor, time_mode
from streamgroups_spark.windows.query_columns import (
    named_columns,
    output_columns,
    output_rows,
    parsed_aggregates,
    record_columns,
    result_type,
)


def by_store(
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
    if not FEATURES.has_arrow_api:
        raise FEATURES.needs("sg.windows with the state of Spark", "4.1", otherwise="set time='partition'")
    check_key_values(df.schema, by)
    parsed = parsed_aggregates(df, aggregate)
    check_state(df)
    keys = [key_column(df.schema, name) for name in by]
    bucket = F.pmod(F.xxhash64(*keys) if keys else F.lit(0), F.lit(buckets)).cast("int").alias("bucket")
    until_ms = [] if until is None else [F.unix_millis(column(until)).alias("until")]
    records = df.select(bucket, *until_ms, *record_columns(df, on, by, parsed, dead_letters=dead_letters))
    aggregates = tuple(parsed.values())
    types = [result_type(records.schema, i, a) for i, a in enumerate(aggregates)]
    rows = output_rows(records.schema, len(by), types, dead_letters=dead_letters)
    schema = state_schema(windowing.shape, stored_schema(records.schema), aggregates)
    output = arrow_schema(rows, df.sparkSession)
    operator = WindowOperator(
        "windows",
        windowing,
        None,
        len(by),
        aggregates,
        schema,
        output,
        policy,
        scope=Scope.QUERY,
        columns=named_columns(by, on, until),
    )
    plan = WindowPlan(operator, buckets)
    emitted = (
        records.mapInArrow(Pack(plan), PACKED)
        .groupBy("bucket")
        .transformWithState(WindowProcessor(plan), ROWS, "Append", time_mode(plan))
        .mapInArrow(Unpack(plan), rows)
    )
    return output_columns(emitted, by, aggregate, dead_letters=dead_letters)
