"""Tasks tell what event times they have seen: through an accumulator of Spark, which brings it to the user's own process.

Spark adds what a task has told before it takes the task for done, from any machine of a cluster; so when a batch has ended,
all of it is known. What the source's own tasks read is measured as it is read (:func:`measured`); an event time that is computed from the
payload, by a function of it (:func:`telling`). Both work on whole Arrow columns. Source: SEMANTICS W2; Spark's ``AccumulatorParam``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Column, SparkSession
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import TimestampType

from streamgroups.event_time.observations import TaskObservation
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.shipping import shipped_function

Told: TypeAlias = list[tuple[str, TaskObservation]]

#: Of a batch whose source has gone nobody asks any more: so much of a partition is kept at most.
_MAX_SEEN = 10_000


class ObservationStore:
    """What tasks have seen and no source has asked for yet. Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, TopicPartition], dict[int, TaskObservation]] = defaultdict(dict)

    def keep(self, told: Told) -> None:
        """A task has told something."""
        with self._lock:
            for reported_as, seen in told:
                kept = self._seen[reported_as, seen.topic_partition]
                # In the order of the last telling, so that the oldest goes first.
                kept.pop(seen.next_offset, None)
                kept[seen.next_offset] = seen
                if len(kept) > _MAX_SEEN:
                    del kept[next(iter(kept))]

    def take(self, reported_as: str, ranges: tuple[OffsetRange, ...]) -> list[TaskObservation]:
        """What was seen of these ranges; of them and what lies before them nobody asks again.

        >>> store, p0 = ObservationStore(), TopicPartition("flights", 0)
        >>> store.keep([("trades", TaskObservation(p0, 5, 1, 700))])
        >>> len(store.take("trades", (OffsetRange(p0, 5, 9),))), len(store.take("trades", (OffsetRange(p0, 5, 9),)))
        (1, 0)
        """
        taken = []
        with self._lock:
            for r in ranges:
                kept = self._seen.get((reported_as, r.topic_partition), {})
                own = [offset for offset in kept if r.next_offset <= offset < r.end_offset]
                taken += [kept.pop(offset) for offset in own]
        return taken


class ObservationParam(AccumulatorParam[Told]):
    """Collects in tasks; in the user's own process it hands on what arrives, and keeps nothing.

    Args:
        keep: what is done with it there.
    """

    def __init__(self, keep: Callable[[Told], None]) -> None:
        self._keep: Callable[[Told], None] | None = keep

    def __getstate__(self) -> dict[str, Any]:
        """Goes to tasks, which have nobody to hand it to."""
        return {"_keep": None}

    def zero(self, value: Told) -> Told:
        """Nothing."""
        return []

    def addInPlace(self, value1: Told, value2: Told) -> Told:
        """See the class."""
        if self._keep is None:
            return value1 + value2
        self._keep(value2)
        return []


class Tell:
    """How a task tells. Pickled into tasks; only there the accumulator is unpacked.

    Unpacked anywhere else (Spark plans in processes of its own) it would be taken for one that has something to say.
    """

    def __init__(self, accumulator: Accumulator[Told]) -> None:
        self._pickled = cloudpickle.dumps(accumulator)

    def __call__(self, reported_as: str, seen: Iterable[TaskObservation]) -> None:
        """Tells. What a failed task has told does not count."""
        accumulator: Accumulator[Told] = cloudpickle.loads(self._pickled)
        accumulator.add([(reported_as, it) for it in seen])


def new_tell(spark: SparkSession, keep: Callable[[Told], None]) -> Tell:
    """A way for the tasks of a session to tell.

    Args:
        spark: the session.
        keep: called with what each task tells, on a thread of Spark's.
    """
    return Tell(spark.sparkContext.accumulator([], ObservationParam(keep)))


def seen_in(batch: pa.RecordBatch, column: str, topic: str | None = None) -> list[TaskObservation]:
    """What one Arrow batch says: of each of its partitions, how many records have an event time, and the latest.

    Args:
        batch: with ``topic``, ``partition`` and ``offset``.
        column: the event time, a timestamp.
        topic: of all records; then there need be no column for it.

    >>> from datetime import datetime
    >>> day = pa.array([datetime(1970, 1, 2), None], pa.timestamp("us", "UTC"))
    >>> seen_in(pa.record_batch({"topic": ["t", "t"], "partition": [0, 0], "offset": [5, 6], "ts": day}), "ts")
    [TaskObservation(topic_partition=TopicPartition(topic='t', partition=0), next_offset=5, records=1, event_time_ms=86400000)]
    """
    if not batch.num_rows:
        return []
    times_ms = batch.column(column).cast(pa.timestamp("ms", batch.column(column).type.tz), safe=False).cast(pa.int64())
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


def measured(batches: Iterator[pa.RecordBatch], column: str, reported_as: str, tell: Tell) -> Iterator[pa.RecordBatch]:
    """The same batches; the event times in them are told.

    Args:
        batches: with ``topic``, ``partition``, ``offset`` and the event time.
        column: the event time.
        reported_as: under which name to tell.
        tell: how.
    """
    for batch in batches:
        # Before anybody has the batch: who wants no more of them, as a limit does, does not come back.
        tell(reported_as, seen_in(batch, column))
        yield batch


def telling(column: Column, reported_as: str, tell: Tell, topic: str | None) -> Column:
    """An event time that is told as it is computed. Its rows pass through Python with nothing but their time and place.

    Args:
        column: the event time. The DataFrame has ``partition`` and ``offset``.
        reported_as: under which name to tell.
        tell: how.
        topic: of all records; ``None``: the DataFrame has ``topic``, too.
    """
    names = ["partition", "offset"] if topic is not None else ["partition", "offset", "topic"]

    def passing(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        prepare_python_worker()
        for times, *place in columns:
            tell(reported_as, seen_in(pa.record_batch([times, *place], names=["time", *names]), "time", topic))
            yield times

    # Its stubs do not know that type hints say which kind of function it is; at run time Spark wants them.
    udf = arrow_udf(shipped_function(passing), TimestampType())  # type: ignore[call-overload]
    # Spark may neither leave it out nor compute it twice, nor filter before it.
    told: Column = udf.asNondeterministic()(column, *names)
    return told
