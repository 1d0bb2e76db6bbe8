"""Reads the watermarks of producers from a header, and removes marker records.

Called by ``source.readers`` in tasks if the option ``watermarkHeader`` names the header. A marker record has this
header, and neither key nor value. All functions process whole Arrow columns. Source: SEMANTICS W15; the values are those
of ``source.columns``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.observations import TaskObservation
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.messages import Flaw, warn_of_flaw
from streamgroups_kafka.read.arrow_columns import COLUMNS
from streamgroups_spark.source.columns import Numbers, header_times, records_with

#: Receives the watermarks of an Arrow batch before its consumer receives the batch, and the number of unreadable ones of
#: each partition.
Report: TypeAlias = Callable[[Sequence[ProducerWatermarks], Mapping[TopicPartition, int]], None]

_NEEDED = ("topic", "partition", "offset", "key", "value", "headers")
_BEFORE_ALL = np.iinfo(np.int64).min


def with_needed_columns(schema: pa.Schema) -> pa.Schema:
    """Returns the columns to read: also those that contain the watermarks and identify markers.

    >>> with_needed_columns(pa.schema([("offset", pa.int64()), ("value", pa.binary())])).names
    ['offset', 'value', 'topic', 'partition', 'key', 'headers']
    """
    missing = [pa.field(name, COLUMNS[name]) for name in _NEEDED if name not in schema.names]
    return pa.schema([*schema, *missing])


def without_markers(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], header: str, report: Report
) -> Iterator[pa.RecordBatch]:
    """Reports the watermarks of record batches, and returns the batches without markers.

    Args:
        batches: record batches with the columns of :func:`with_needed_columns`.
        columns: the required columns.
        header: the name of the header.
        report: receives the watermarks of a batch before its records are returned.
    """
    for batch in batches:
        has_header = np.zeros(batch.num_rows, bool)
        has_header[records_with(batch.column("headers"), header)] = True
        if has_header.any():
            found, unreadable = _watermarks(batch, header, has_header)
            if found or unreadable:
                report(found, unreadable)
            is_empty = pc.and_(pc.is_null(batch.column("key")), pc.is_null(batch.column("value")))
            is_marker = pc.and_(is_empty, pa.array(has_header))
            # A filter copies the batch, and most batches have no marker.
            if pc.any(is_marker).as_py():
                batch = batch.filter(pc.invert(is_marker))
        if batch.num_rows:
            yield batch.select(columns)


def _watermarks(
    batch: pa.RecordBatch, header: str, has_header: Numbers
) -> tuple[list[ProducerWatermarks], dict[TopicPartition, int]]:
    """The watermarks of each partition, without those that are not later than an earlier one of the batch.

    And the number of unreadable ones.
    """
    times = header_times(batch.column("headers"), header)
    is_readable = times.is_valid().to_numpy(zero_copy_only=False)
    unreadable = _unreadable(batch, has_header & ~is_readable)
    rows = np.flatnonzero(is_readable)
    times_ms = times.cast(pa.int64()).fill_null(0).to_numpy()[rows] // 1_000
    offsets = batch.column("offset").to_numpy()[rows]
    found = []
    for place, chosen in _by_partition(batch, rows):
        later = chosen[_is_later(times_ms[chosen])]
        found.append(ProducerWatermarks(place, tuple(offsets[later].tolist()), tuple(times_ms[later].tolist())))
    return found, unreadable


def _is_later(times: Numbers) -> Numbers:
    """Whether each time is later than all before it."""
    return np.asarray(times > np.maximum.accumulate(np.concatenate([[_BEFORE_ALL], times]))[:-1])


def _by_partition(batch: pa.RecordBatch, rows: Numbers) -> Iterator[tuple[TopicPartition, Numbers]]:
    """Yields each partition of some rows, and the indices of its rows among them, in their order."""
    topics = batch.column("topic").take(pa.array(rows)).dictionary_encode()
    numbers, partitions = topics.indices.to_numpy(), batch.column("partition").to_numpy()[rows]
    for number, topic in enumerate(topics.dictionary.to_pylist()):
        of_topic = numbers == number
        for partition in np.unique(partitions[of_topic]).tolist():
            yield TopicPartition(topic, partition), np.flatnonzero(of_topic & (partitions == partition))


def _unreadable(batch: pa.RecordBatch, is_unreadable: Numbers) -> dict[TopicPartition, int]:
    """Logs the unreadable watermarks of each partition, and returns their number."""
    rows, counts = np.flatnonzero(is_unreadable), {}
    for place, chosen in _by_partition(batch, rows):
        warn_of_flaw(place, batch.column("offset")[int(rows[chosen[0]])].as_py(), Flaw.WATERMARK)
        counts[place] = len(chosen)
    return counts


def observed(watermarks: Sequence[ProducerWatermarks]) -> list[TaskObservation]:
    """Returns the observations of a task: the latest watermark of each partition.

    >>> observed([ProducerWatermarks(TopicPartition("flights", 0), (3, 5), (100, 200))])
    [TaskObservation(topic_partition=TopicPartition(topic='flights', partition=0), next_offset=3, records=0, event_time_ms=None, producer_ms=200)]
    """
    return [TaskObservation(it.topic_partition, it.offsets[0], 0, None, it.times_ms[-1]) for it in watermarks]
