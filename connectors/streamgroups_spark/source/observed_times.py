"""Reports the event times that tasks observe to the user's process (``bridge.channel``).

Used by ``register``, ``source.readers`` and ``event_time.with_event_time``. :func:`measured` observes columns that the tasks of the source read. :func:`reporting` observes an event time that is
computed from the payload. Both process whole Arrow columns. Source: SEMANTICS W2.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import TimestampType

from streamgroups.event_time.observations import TaskObservation
from streamgroups.partitions import TopicPartition
from streamgroups_operators.event_times import event_times
from streamgroups_spark.bridge.channel import Channel
from streamgroups_spark.internals.arrow_functions import arrow_function, plain_function
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.spark_api import FEATURES

_COUNTS = "counts"


def seen_in(batch: pa.RecordBatch, column: str, topic: str | None = None) -> list[TaskObservation]:
    """Returns the number of records with an event time, and the latest one, for each partition of an Arrow batch.

    Args:
        batch: a batch with ``topic``, ``partition`` and ``offset``.
        column: the event time, a timestamp.
        topic: the topic of all records. Then the column ``topic`` is optional.

    >>> from datetime import datetime
    >>> day = pa.array([datetime(1970, 1, 2), None], pa.timestamp("us", "UTC"))
    >>> seen_in(pa.record_batch({"topic": ["t", "t"], "partition": [0, 0], "offset": [5, 6], "ts": day}), "ts")
    [TaskObservation(topic_partition=TopicPartition(topic='t', partition=0), next_offset=5, records=1, event_time_ms=86400000, producer_ms=None)]
    """
    if not batch.num_rows:
        return []
    times = batch.column(column)
    times_ms = event_times(times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64()))
    place = ["partition"] if topic is not None else ["topic", "partition"]
    table = pa.table({name: batch.column(name) for name in (*place, "offset")} | {"time": times_ms})
    grouped = table.group_by(place).aggregate([("offset", "min"), ("time", "count"), ("time", "max")])
    return [
        TaskObservation(
            TopicPartition(topic or row["topic"], row["partition"]),
            row["offset_min"],
            row["time_count"],
            row["time_max"],
        )
        for row in grouped.to_pylist()
        if row["time_count"]
    ]


def measured(
    batches: Iterator[pa.RecordBatch],
    column: str,
    reported_as: str,
    event_time_channel: Channel[tuple[str, TaskObservation]],
) -> Iterator[pa.RecordBatch]:
    """Passes record batches on and reports their event times.

    Args:
        batches: record batches with ``topic``, ``partition``, ``offset`` and the event time.
        column: the event time.
        reported_as: the name of the report.
        event_time_channel: the channel of the report.
    """
    for batch in batches:
        # The report precedes the batch, because a consumer such as a limit can stop after it.
        event_time_channel.send((reported_as, it) for it in seen_in(batch, column))
        yield batch


def reporting(
    column: Column,
    reported_as: str,
    event_time_channel: Channel[tuple[str, TaskObservation]],
    topic: str | None,
    counts: Column | None = None,
) -> Column:
    """Returns an event time that is reported when it is computed. Only its time and position pass through Python.

    Args:
        column: the event time. The DataFrame has ``partition`` and ``offset``.
        reported_as: the name of the report.
        event_time_channel: the channel.
        topic: the topic of all records. ``None``: the DataFrame also has ``topic``.
        counts: whether the event time of a row is reported. ``None``: that of each row is.
    """
    names = ["partition", "offset"] if topic is not None else ["partition", "offset", "topic"]
    arguments: list[Column | str] = [*names]
    types = [pa.int64(), pa.int32(), pa.int64(), pa.string()][: 1 + len(names)]
    if counts is not None:
        names, arguments, types = [*names, _COUNTS], [*arguments, counts], [*types, pa.bool_()]

    def report(times: pa.Array, place: tuple[pa.Array, ...]) -> None:
        rows = pa.record_batch([times, *place], names=["time", *names])
        seen = seen_in(rows.filter(rows[_COUNTS]) if _COUNTS in names else rows, "time", topic)
        event_time_channel.send((reported_as, it) for it in seen)

    def passing(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        prepare_python_worker()
        for times, *place in columns:
            report(times, tuple(place))
            yield times

    def passing_plain(micros: pa.Array, *place: pa.Array) -> pa.Array:
        prepare_python_worker()
        report(micros.cast(pa.timestamp("us", "UTC")), place)
        return micros

    # Spark must neither remove it, compute it twice, nor filter before it.
    if FEATURES.has_arrow_api:
        reported: Column = arrow_function(passing, TimestampType()).asNondeterministic()(column, *arguments)
        return reported
    plain = plain_function(passing_plain, "bigint", types).asNondeterministic()
    return sf.timestamp_micros(plain(sf.unix_micros(column), *arguments))
