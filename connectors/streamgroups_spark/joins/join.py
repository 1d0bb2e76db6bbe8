"""``sg.join(df, ...)``: joins the records of two topics by key and event time, in the stage that reads.

Called by users on the driver. It checks the arguments, and ``streamgroups_operators.joins`` joins the records. Source:
SEMANTICS W18, S9, S10; Flink's interval join.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

from streamgroups.dlq.letter import COLUMN
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import Why
from streamgroups.monitoring.query_progress import WINDOW_COUNTS
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups_operators.joins.join_definition import JoinOperator, parse_how
from streamgroups_spark.dlq.failure_column import passes_letters
from streamgroups_spark.dlq.late_letters import late_failure
from streamgroups_spark.frames.columns import check_distinct, check_timestamp, column, delay_ms_of
from streamgroups_spark.frames.key_columns import check_key_columns, check_key_values, key_column
from streamgroups_spark.internals.spark_api import stored_schema
from streamgroups_spark.source.read_options import have_producers, reject_idle_timeout, source_delay_ms
from streamgroups_spark.state.chains import check_result_time, operator_before, operators_before
from streamgroups_spark.state.operator_plan import PLACE, check_is_stream, check_keys, check_place, in_reading_stage

_CALLED = "sg.join"
_OUTPUT_NAMES = ("left", "right", "dead_letter")


@passes_letters
def join(
    df: DataFrame,
    *,
    left: str,
    right: str,
    by: Sequence[str],
    on: str,
    within: str,
    how: str = "inner",
    dead_letters: bool = False,
    prepartitioned: bool = False,
    name: str = "join",
) -> DataFrame:
    """Joins the records of two topics whose keys are equal and whose event times are close (SEMANTICS W18).

    One stream reads both topics. A left record matches a right one if the columns of ``by`` are equal, and the event
    times differ by ``within`` at most. Both topics have the same number of partitions, and records with equal keys are in
    partitions with the same number. The state of each partition follows it to its next owner (SEMANTICS S10).

    The output, in append mode:

    * the columns of ``by``;
    * ``left``, ``right``: structs with the other columns of the left and the right record, or null;
    * ``dead_letter``, if enabled: the dead letter of a late record (``docs/dead-letters.rst``), and null for all other
      rows. The late record is in ``left`` or ``right`` too.

    A record is late if its event time is before the watermark of its own partition: the newest event time before it
    minus the delay of the watermark, or the watermark of its producer. Late records are counted, and not joined. Records
    without event time, or with a null in ``by``, match no record. So the output depends neither on batches nor on the
    order between both topics.

    Args:
        df: a stream of both topics, or the results of :func:`windows` over it with ``chained=True``, with the columns ``topic``, ``partition`` and ``offset`` of the source. If queries
            share the stream, it needs ``kafka.group.protocol=consumer`` and ``kafka.group.remote.assignor=range``.
        left: the topic of the left records.
        right: the topic of the right records.
        by: the key columns.
        on: the column with the event time, a timestamp with a watermark. The watermark can be omitted if the source has
            the option ``watermarkHeader`` (SEMANTICS W15).
        within: a duration: the greatest difference of the event times of two matching records.
        how: ``inner``; or ``left``, ``right`` or ``full``, which also emit records of this side, or of both, that have no
            match. Such a record is emitted when the watermark of the other partition has passed the end of its time.
        dead_letters: whether late records are emitted. Otherwise they are dropped.
        prepartitioned: states that all records with the same values of ``by`` are in partitions with the same number,
            because the record key determines them. Not necessary if ``by`` contains the column ``key``.
        name: the name of the state. The state continues with the same definition only.

    Raises:
        InvalidOption: for the first invalid argument. The error contains its name.

    Example::

        both = spark.readStream.format("streamgroups").option("subscribe", "orders,payments").load()
        timed = both.withWatermark("timestamp", "1 minute")
        paid = sg.join(timed, left="orders", right="payments", by=["key"], on="timestamp", within="10 minutes", name="paid")
        rows = paid.select("key", "left.value", F.col("right.value").alias("payment"))
    """
    check_is_stream(df)
    check_key_columns(df.schema, by, [on])
    _check_names(df, by)
    check_keys(df, by, _CALLED, prepartitioned=prepartitioned)
    check_key_values(df.schema, by)
    upstream = operator_before(df, name, _CALLED)
    check_place(df, name, _CALLED)
    if upstream is None:
        _check_time(df, on)
        reject_idle_timeout(df, _CALLED, remedy="Leave it out.")
    else:
        check_timestamp(df, on)
        _check_behind(df, on, upstream)
    topics, kind = _topics(left, right), parse_how(how)
    within_us = parse_duration_ms(within, option="within") * 1_000
    delay_ms = _delay_ms(df, on) if upstream is None else None
    others = [it for it in df.columns if it not in by]
    records = df.select(
        "topic",
        *PLACE,
        # A column of another name without the watermark metadata: otherwise Spark would drop late records first.
        F.unix_micros(column(on)).alias("time"),
        *(key_column(df.schema, it).alias(f"k{i}") for i, it in enumerate(by)),
        F.struct(*map(column, others)).alias("record"),
    )
    record = records.schema["record"].dataType
    fields = [StructField(f"k{i}", records.schema[f"k{i}"].dataType) for i in range(len(by))]
    fields += [StructField("left", record), StructField("right", record)]
    rows = StructType([*fields, StructField("time", LongType()), StructField("watermark", LongType())])
    types = stored_schema(records.schema)
    keys = tuple(types.field(f"k{i}").type for i in range(len(by)))
    delay_us = None if delay_ms is None else delay_ms * 1_000
    operator = JoinOperator(name, topics, kind, within_us, delay_us, keys, types.field("record").type, upstream)
    output = in_reading_stage(records, operator, rows, _CALLED, upstream=upstream)
    return _output(output, by, dead_letters=dead_letters)


def _output(rows: DataFrame, by: Sequence[str], *, dead_letters: bool) -> DataFrame:
    is_late = F.col("watermark").isNotNull()
    rows = rows.observe(f"{WINDOW_COUNTS}-{uuid.uuid4().hex[:8]}", F.count_if(is_late).alias("late"))
    if not dead_letters:
        rows = rows.where(~is_late)
    columns: list[Column] = [*(F.col(f"k{i}").alias(name) for i, name in enumerate(by)), F.col("left"), F.col("right")]
    if dead_letters:
        columns.append(F.when(is_late, _letter(rows, by)).alias(COLUMN))
    return rows.select(*columns)


def _letter(rows: DataFrame, by: Sequence[str]) -> Column:
    record = rows.schema["left"].dataType
    assert isinstance(record, StructType), "join has made it"
    keys = {name: f"k{i}" for i, name in enumerate(by)}

    def cell(name: str) -> Column:
        # A late record is in the column of its own side.
        of_record = F.col("left").getField(name), F.col("right").getField(name)
        return F.col(keys[name]) if name in keys else F.coalesce(*of_record)

    return late_failure(
        StructType([*record.fields, *(StructField(name, rows.schema[of].dataType) for name, of in keys.items())]),
        cell,
        step="join",
        why=F.lit(Why.LATE.value),
        event_time=F.timestamp_micros("time"),
        watermark=F.timestamp_micros("watermark"),
    )


def _check_names(df: DataFrame, by: Sequence[str]) -> None:
    if not by:
        raise InvalidOption("Option 'by' is empty.", remedy="Pass the key columns, such as ['key'].")
    check_distinct([*_OUTPUT_NAMES, *by])
    check_distinct(df.columns)
    if "topic" not in df.columns:
        raise InvalidOption(
            f"The DataFrame has no column 'topic', by which {_CALLED} finds the side of a record.",
            remedy="Keep the columns 'topic', 'partition' and 'offset' of the source: use withColumn, or add them to "
            "select.",
        )


def _check_time(df: DataFrame, on: str) -> None:
    check_timestamp(df, on)
    if _delay_ms(df, on) is None and not have_producers(df):
        raise InvalidOption(
            f"Column '{on}' has no watermark: the join would never drop a record from its state.",
            remedy=f"Call df.withWatermark('{on}', ...) before, or set 'watermarkDelay' on the source. If producers emit watermarks, "
            "set 'watermarkHeader' there.",
        )


def _delay_ms(df: DataFrame, on: str) -> int | None:
    """The delay of ``withWatermark``, or that of the source."""
    of_column = delay_ms_of(df, on)
    return source_delay_ms(df) if of_column is None else of_column


def _check_behind(df: DataFrame, on: str, upstream: str) -> None:
    time = check_result_time(df, on, upstream, _CALLED)
    has_group_time = any(it.has_group_time for it in operators_before(df))
    if time.idle_timeout_ms is not None or has_group_time:
        raise InvalidOption(
            f"{_CALLED} joins the results of the operator '{upstream}', which can have results without new records: by its "
            "idle timeout, or by the watermark of the group. A join runs with new records only.",
            remedy=f"Leave 'idle_timeout' and time='group' out of '{upstream}'. Producers can emit watermarks instead "
            "(option 'watermarkHeader' of the source).",
        )


def _topics(left: str, right: str) -> JoinedTopics:
    if left == right:
        raise InvalidOption(
            f"Options 'left' and 'right' are both '{left}'.",
            remedy="Pass two topics. A topic cannot be joined with itself.",
        )
    for option, topic in (("left", left), ("right", right)):
        if not topic or ":" in topic:
            raise InvalidOption(f"Option '{option}' is '{topic}'.", remedy="Pass the name of a topic.")
    return JoinedTopics(left, right)
