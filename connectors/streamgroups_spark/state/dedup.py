"""``sg.dedup(df, id=..., horizon=...)``: returns the first record of each id; the ids follow their partition.

Called by users on the driver. It checks the arguments, Spark hashes the ids, and ``streamgroups_operators.dedup`` compares
them with those that the partition has seen. Source: SEMANTICS X5, S9, S10; Dataflow's "Exactly-once in Dataflow".
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, FloatType, LongType, StructField, StructType

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.monitoring.query_progress import DEDUP_COUNTS
from streamgroups_operators.dedup.dedup_operator import COUNTS, TIME, DedupOperator
from streamgroups_operators.dedup.ids import HIGH, LOW
from streamgroups_spark.dlq.failure_column import passes_letters
from streamgroups_spark.frames.columns import check_distinct, check_timestamp, column
from streamgroups_spark.frames.key_columns import NESTED, has_collation, is_partitioned_by
from streamgroups_spark.frames.record_values import check_value_types
from streamgroups_spark.internals.spark_api import arrow_schema
from streamgroups_spark.state.operator_plan import check_bounded, check_place, in_reading_stage, over_bounded_data

_CALLED = "sg.dedup"
_GLOBAL = (
    "Write the records to a topic that is partitioned by their ids, and call sg.dedup on sg.read_repartitioned: "
    "sg.repartition(df, by=[...], topic=...). Or set membership=exclusive on the source, and use Spark's "
    "dropDuplicatesWithinWatermark."
)


@passes_letters
def dedup(
    df: DataFrame,
    *,
    id: str | Sequence[str],
    horizon: str,
    on: str = "timestamp",
    scope: str = "partition",
    on_reset: str = "forget",
    false_positive_rate: float = 1e-5,
    name: str = "dedup",
) -> DataFrame:
    """Returns the first record of each id of a partition, and drops its duplicates (SEMANTICS X5).

    A producer that retries a request writes its records to the same partition again, with the same timestamps. The ids
    that a partition has seen are its state, which follows it to its next owner and is that of an offset (SEMANTICS S10).

    The time of a partition is the latest timestamp of its records. An id is seen for ``horizon`` of this time after its
    record, and up to an eighth longer. So neither a stopped query nor a backlog changes the result. A record whose
    timestamp is more than ``horizon`` before the time of its partition is too old: its id can be forgotten already, so
    it is dropped as a duplicate, and counted.

    A record with a null in ``id`` has no id, and is returned.

    Args:
        df: a stream of the source, or bounded data: a batch DataFrame of it. It needs the columns ``partition`` and
            ``offset`` of the source, and ``topic`` if it reads several topics.
        id: the column that identifies a record, or several columns. They are not nested.
        horizon: a duration: how long an id is seen. It must exceed the time in which producers retry, and the difference of
            their clocks.
        on: the column with the time of a record, a timestamp. Without the column ``timestamp`` of the source it must be set.
        scope: ``partition``: equal ids in different partitions are different records. ``global``: equal ids are equal
            records, which must be in one partition.
        on_reset: ``forget``: after a reset of the group to an earlier offset, the records after it are returned again.
            ``keep``: their ids stay seen.
        false_positive_rate: the share of unseen ids for which the stored ids are read. A read never drops a record.
        name: the name of the state. The state continues with the same ``id`` and ``on`` only.

    Returns:
        The records, with all columns of ``df``.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.

    Example::

        orders = spark.readStream.format("streamgroups").option("subscribe", "orders").load()
        order_id = F.get_json_object(F.col("value").cast("string"), "$.order_id")
        once = sg.dedup(orders.withColumn("order_id", order_id), id="order_id", horizon="1 hour")
    """
    ids = [id] if isinstance(id, str) else list(id)
    check_bounded(df, _CALLED)
    _check_names(df, ids, on)
    _check_ids(df.schema, ids)
    check_timestamp(df, on)
    _check_scope(df, ids, scope)
    if on_reset not in ("forget", "keep"):
        raise InvalidOption(f"Option 'on_reset' is '{on_reset}'.", remedy="It is 'forget' or 'keep'.")
    if not 0 < false_positive_rate < 1:
        raise InvalidOption(
            f"Option 'false_positive_rate' is {false_positive_rate}.",
            remedy="Pass a number between 0 and 1, such as 0.00001.",
        )
    horizon_ms = parse_duration_ms(horizon, option="horizon")
    if not horizon_ms:
        raise InvalidOption("Option 'horizon' is 0.", remedy="Pass a duration such as '1 hour'.")
    check_place(df, name, _CALLED)
    # Of a partial null Spark's hash is that of the other columns, so such a record would have the id of another one.
    has_id = F.lit(True)
    for it in ids:
        has_id &= column(it).isNotNull()
    halves = (
        F.when(has_id, F.xxhash64(F.lit(seed), *map(column, ids))).alias(half) for seed, half in enumerate((HIGH, LOW))
    )
    records = df.select("*", *halves, F.unix_millis(column(on)).alias(TIME))
    counts = [StructField(it, LongType()) for it in COUNTS]
    rows = StructType([*(StructField(it.name, it.dataType) for it in df.schema), *counts])
    types = ", ".join(f"{it} {df.schema[it].dataType.simpleString()}" for it in ids)
    form = f"the ids ({types}) by the time {on}"
    output_schema = arrow_schema(rows, df.sparkSession)
    operator = DedupOperator(name, form, horizon_ms, output_schema, false_positive_rate, on_reset == "keep")
    if df.isStreaming:
        output = in_reading_stage(records, operator, rows, _CALLED)
    else:
        output = over_bounded_data(records, operator, rows)
    if df.isStreaming:
        # Spark counts what it observes in all its batches. Two observations of a query need two names.
        sums = (F.sum(it).alias(it.removeprefix("dedup_")) for it in COUNTS)
        output = output.observe(f"{DEDUP_COUNTS}-{uuid.uuid4().hex[:8]}", *sums)
    return output.where(F.col(COUNTS[0]).isNull()).drop(*COUNTS)


def _check_names(df: DataFrame, ids: Sequence[str], on: str) -> None:
    if not ids:
        raise InvalidOption("Option 'id' is empty.", remedy="Pass the column that identifies a record.")
    for name in ids:
        if name not in df.columns:
            raise InvalidOption(
                f"Column '{name}' of 'id' does not exist.", remedy=f"The columns are {', '.join(df.columns)}."
            )
    if on not in df.columns:
        raise InvalidOption(
            f"Column '{on}' does not exist. {_CALLED} needs the time of each record to forget old ids.",
            remedy="Keep the column 'timestamp' of the source, or set 'on' to another column of type timestamp.",
        )
    id_columns = {HIGH, LOW, TIME, *COUNTS}
    check_distinct(df.columns)
    for name in df.columns:
        if name in id_columns:
            raise InvalidOption(f"{_CALLED} uses the column name '{name}' itself.", remedy="Rename the column.")


def _check_ids(schema: StructType, ids: Sequence[str]) -> None:
    for name in ids:
        of = schema[name].dataType
        if isinstance(of, (*NESTED, FloatType, DoubleType)):
            raise InvalidOption(
                f"Column '{name}' of 'id' is of type {of.simpleString()}.",
                remedy="Use columns that are neither nested nor floating-point numbers; cast it, or pass its fields.",
            )
        if has_collation(of):
            raise InvalidOption(
                f"Column '{name}' of 'id' is of type {of.simpleString()}, whose equal values can have different bytes.",
                remedy="Cast it to string COLLATE UTF8_BINARY.",
            )
    check_value_types(StructType([schema[name] for name in ids]))


def _check_scope(df: DataFrame, ids: Sequence[str], scope: str) -> None:
    if scope not in ("partition", "global"):
        raise InvalidOption(f"Option 'scope' is '{scope}'.", remedy="It is 'partition' or 'global'.")
    if scope == "global" and not ("key" in ids or is_partitioned_by(df.schema, ids)):
        raise InvalidOption(
            f"Option 'scope' is 'global', but equal values of {', '.join(ids)} can be in different partitions, and the "
            "ids of a partition are its state.",
            remedy=_GLOBAL,
        )
