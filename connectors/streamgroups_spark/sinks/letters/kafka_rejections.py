"""Rows that Kafka would reject, as dead letters of the step ``sink``.

Called by ``sinks.exactly_once`` on the driver, for queries with dead letters. The rules are expressions of Spark, before
the rows are shuffled: no row passes through Python for them, and rejected rows need no partition of the output. Without
dead letters :mod:`streamgroups_kafka.write.record_columns` and ``record_batches`` reject the same rows with an error.
Source: SEMANTICS P4; message format 2 (KIP-98), Kafka's ``max.message.bytes``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from streamgroups.dlq.letter import COLUMN
from streamgroups.message import MAX_HEADERS
from streamgroups_kafka.write.encoder import HEADER_BYTES
from streamgroups_spark.dlq.failure_column import failure_of, with_letter
from streamgroups_spark.frames.columns import column
from streamgroups_spark.sinks.output_partitions import number_of_topic
from streamgroups_spark.sinks.sink_options import SinkOptions

#: The columns of the output that a letter contains as columns. The others, the place of the output, are in its details.
_CONTENT = ("key", "value", "headers")
#: The attributes of a record, and the differences of its time and its offset to those of its batch.
_FIXED_BYTES = 3


def with_rejections(
    df: DataFrame, options: SinkOptions, partition_counts: Mapping[str, int], *, letters_topic: str | None = None
) -> DataFrame:
    """Returns the rows with the column ``dead_letter``, which is set for rows that Kafka would reject.

    A topic that is created later has no number of partitions here, so its rows are rejected too, with and without a key.

    Args:
        df: rows with the columns of the Kafka sink.
        options: the options of the sink.
        partition_counts: the number of partitions of each topic.
        letters_topic: the topic of the dead letters, which contains no other records; ``None`` if the letters have another sink.
    """
    reasons = _reasons(df, options, partition_counts, letters_topic)
    size = _size_bytes(df, options)
    why = F.coalesce(F.lit(None), *(F.when(condition, F.lit(text)) for text, condition in reasons))
    is_large = F.lit(False)
    if options.batches.compression.number == 0:
        # The size after compression is known only to the task, which then returns the record as a dead letter.
        most = options.batches.max_message_bytes
        is_large = size > most
        too_large = F.concat(F.lit("The record batch has "), size, F.lit(f" bytes, and the maximum is {most}."))
        why = F.coalesce(why, F.when(is_large, too_large))
    content = StructType([field for field in df.schema if field.name in _CONTENT])

    def cell(name: str) -> Column:
        # A letter has the limit of its topic, which is usually the same.
        return F.when(~is_large, column(name)) if name == "value" else column(name)

    letter = failure_of(
        content,
        cell,
        step="sink",
        error_class=F.lit("RecordRejected"),
        error=why,
        details=_details(df, options),
        is_output=True,
    )
    names = [column(name) for name in df.columns if name != COLUMN]
    return df.select(*names, with_letter(df, F.when(why.isNotNull(), letter)))


def _details(df: DataFrame, options: SinkOptions) -> Column:
    """Returns the size of the value, and the place of the output, which is not that of the source."""
    topic = F.make_valid_utf8(column("topic")) if options.topic is None else F.lit(options.topic)
    facts = {"value_bytes": F.coalesce(_length(df, "value"), F.lit(0)), "output_topic": topic}
    if "partition" in df.columns:
        facts["output_partition"] = column("partition")
    if "timestamp" in df.columns:
        facts["output_timestamp_ms"] = F.unix_millis(column("timestamp"))
    pairs = (it for name, value in facts.items() for it in (F.lit(name), value.cast("string")))
    return F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())


def _reasons(
    df: DataFrame, options: SinkOptions, counts: Mapping[str, int], letters_topic: str | None
) -> list[tuple[str, Column]]:
    found, count = [], number_of_topic(counts, options.topic)
    if options.topic is None:
        found.append(("The row has no topic.", column("topic").isNull()))
        found.append(("The topic did not exist when the query started.", count.isNull()))
        if letters_topic is not None:
            found.append(("The topic is that of the dead letters.", column("topic") == letters_topic))
    if "partition" in df.columns:
        is_wrong = (column("partition") < 0) | (column("partition") >= count)
        found.append(("The topic has no such partition.", is_wrong))
    if "timestamp" in df.columns:
        found.append(("The timestamp is before 1970.", F.unix_micros("timestamp") < 0))
    if "headers" in df.columns and options.with_headers:
        found.append((f"The row has more than {MAX_HEADERS} headers.", F.size("headers") > MAX_HEADERS))
        found.append(("A header has no name.", F.exists("headers", lambda it: it["key"].isNull())))
        is_bytes = F.exists("headers", lambda it: ~F.is_valid_utf8(it["key"]))
        found.append(("The name of a header is not UTF-8.", is_bytes))
    return found


def _size_bytes(df: DataFrame, options: SinkOptions) -> Column:
    """Returns the size of a record batch that contains only this record, without compression."""
    parts = [F.lit(_FIXED_BYTES)]
    for name in ("key", "value"):
        n_bytes = _length(df, name)
        # The length of null is -1.
        parts.append(F.coalesce(n_bytes + _varint_bytes(n_bytes), F.lit(1)))
    if "headers" in df.columns and options.with_headers:

        def of_header(total: Column, it: Column) -> Column:
            key, value = F.octet_length(it["key"]), F.octet_length(it["value"])
            own = F.coalesce(key + _varint_bytes(key), F.lit(0))
            return total + own + F.coalesce(value + _varint_bytes(value), F.lit(1))

        headers = column("headers")
        # Null is written as no headers. The size of null is -1 or null, which depends on settings.
        n_headers = F.when(headers.isNull(), 0).otherwise(F.size(headers))
        parts.append(_varint_bytes(n_headers) + F.coalesce(F.aggregate(headers, F.lit(0), of_header), F.lit(0)))
    else:
        parts.append(F.lit(1))
    body = sum(parts[1:], parts[0])
    return body + _varint_bytes(body) + F.lit(HEADER_BYTES)


def _length(df: DataFrame, name: str) -> Column:
    return F.octet_length(column(name)) if name in df.columns else F.lit(None).cast("int")


def _varint_bytes(number: Column) -> Column:
    """Returns the size of a number of at least 0 as a zigzag varint."""
    return (
        F.when(number < 1 << 6, 1)
        .when(number < 1 << 13, 2)
        .when(number < 1 << 20, 3)
        .when(number < 1 << 27, 4)
        .otherwise(5)
    )
