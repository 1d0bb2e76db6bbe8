"""Reads the ranges of one task, with the columns of event time and watermarks.

Called by ``data_source`` in a worker, for streams and batch reads. Source: SEMANTICS S1, W15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_kafka.read.fetcher import ReadSettings
from streamgroups_kafka.read.range_reader import read_ranges
from streamgroups_spark.internals.spark_api import to_arrow_schema
from streamgroups_spark.source.columns import read_schema, with_columns
from streamgroups_spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    from streamgroups_spark.source.watermark_header import Report


def settings_of(
    options: SourceOptions,
    group_id: str,
    topic_ids: Mapping[str, str],
    leader_epochs: Mapping[TopicPartition, int],
    *,
    records_gaps: bool,
) -> ReadSettings:
    """Returns the settings of the reader of a task.

    Args:
        options: the options of the user.
        group_id: the group of the query.
        topic_ids: the ids of the topics, as far as they are known.
        leader_epochs: the leader epochs of the partitions, as far as they are known.
        records_gaps: whether skipped offsets are recorded as gaps of the group.
    """
    return ReadSettings(
        options.client, group_id, options.on_data_loss, options.poll_timeout_ms, records_gaps, topic_ids, leader_epochs
    )


def read_task(
    ranges: Sequence[OffsetRange],
    schema: StructType,
    options: SourceOptions,
    settings: ReadSettings,
    report: Report,
    watermark_ms: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of ranges.

    Args:
        ranges: the ranges.
        schema: the columns.
        options: the options of the user.
        settings: see :func:`settings_of`.
        report: receives the watermarks of producers.
        watermark_ms: the value of the column ``watermark``, in milliseconds since the epoch.

    Raises the errors of :func:`streamgroups_kafka.read.range_reader.read_ranges`.
    """
    required = to_arrow_schema(schema, timezone="UTC")
    columns = read_schema(required)
    if options.watermark_header is None:
        batches = read_ranges(ranges, columns, settings)
    else:
        from streamgroups_spark.source.watermark_header import with_needed_columns, without_markers

        whole = read_ranges(ranges, with_needed_columns(columns), settings)
        batches = without_markers(whole, columns.names, options.watermark_header, report)
    if columns.names == required.names:
        return batches
    return with_columns(batches, required, options.event_time_header, watermark_ms)
