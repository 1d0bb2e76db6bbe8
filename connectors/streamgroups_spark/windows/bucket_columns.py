"""Packs records into buckets of Arrow columns before the state of windows, and unpacks rows after it.

Called by ``windows.by_store`` and ``windows.processor``. :class:`Pack` and :class:`Unpack` are stages of the query before and
after the state. A call of Python for each key costs tens of microseconds. Keys therefore share buckets, and the records
of a bucket are one value: a small Arrow stream. Source: the measurements of ``transformWithState`` (Spark 4.2); Arrow's
``group_by``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamgroups.event_time.windows import EventTime, Session
from streamgroups_operators.aggregates import form_of, in_windows, newest_starts, steps
from streamgroups_operators.event_times import event_times
from streamgroups_operators.operator import with_schema
from streamgroups_operators.plain_values import in_utc
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_spark.internals.pickle_checks import Shipped
from streamgroups_spark.internals.python_worker import prepare_python_worker

#: The output of ``Pack``: the records of a bucket as an Arrow stream, if it has any, and the starts of all windows with
#: records in the task.
PACKED = "bucket INT, records BINARY, starts ARRAY<BIGINT>"
#: The output of the state: rows as an Arrow stream.
ROWS = "rows BINARY"


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The definition of windows that is sent to the workers.

    Args:
        operator: the windows of one bucket.
        buckets: the number of buckets of keys.
    """

    operator: WindowOperator
    buckets: int

    @property
    def form(self) -> str:
        """The compatibility key of a state: another window definition would give wrong results instead of an error."""
        windowing, aggregates = self.operator.windowing, form_of(self.operator.aggregates)
        kind = "event time" if isinstance(windowing.boundary, EventTime) else "processing time"
        keys = f"{self.operator.keys} keys in columns ({', '.join(self.operator.columns)})"
        return f"{windowing.shape} by {kind}, {keys}, {aggregates}, {self.buckets} buckets"


def to_bytes(table: pa.Table) -> bytes:
    """Serializes a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_bytes(data: bytes) -> pa.Table:
    """Deserializes a table."""
    return pa.ipc.open_stream(data).read_all()


# ---- stages of the query ---------------------------------------------------------------------------------------------


class Pack(Shipped):
    """The stage before the state: emits the records of each bucket as one row, and then one row for every bucket.

    The latter rows inform all buckets of the batch.
    """

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        starts: set[int] = set()
        found = False
        for batch in batches:
            if batch.num_rows:
                found = True
                starts.update(self._starts(batch))
                yield _row_for_each_bucket(batch)
        if found:
            every = range(self._plan.buckets)
            yield _packed(every, [None] * len(every), [sorted(starts)] * len(every))

    def _starts(self, batch: pa.RecordBatch) -> set[int]:
        shape = self._plan.operator.windowing.shape
        if isinstance(shape, Session):
            return set()
        times = np.unique(event_times(batch.column("time")).drop_null().to_numpy())
        # The earliest of the times with the same latest window is in all windows of the others.
        _, firsts = np.unique(newest_starts(shape, times), return_index=True)
        times = times[firsts]
        found: set[int] = set()
        for it in steps(shape, len(times)):
            found.update(np.unique(in_windows(shape, times[it])[1]).tolist())
        return found


class Unpack(Shipped):
    """The stage after the state: emits rows with every column of the output."""

    def __init__(self, plan: WindowPlan) -> None:
        self._schema = plan.operator.output

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        for batch in batches:
            for data in batch.column(0).to_pylist():
                yield from with_schema(from_bytes(data), self._schema).to_batches()


def _row_for_each_bucket(batch: pa.RecordBatch) -> pa.RecordBatch:
    table = in_utc(pa.Table.from_batches([batch]))
    buckets = table["bucket"].to_numpy()
    order = np.argsort(buckets, kind="stable")
    records = table.drop_columns(["bucket"]).take(pa.array(order))
    found, firsts = np.unique(buckets[order], return_index=True)
    ends = [*firsts[1:], len(buckets)]
    streams = [to_bytes(records.slice(a, b - a).combine_chunks()) for a, b in zip(firsts, ends, strict=True)]
    return _packed(found, streams, [[] for _ in found])


def _packed(buckets: Iterable[int], records: Sequence[bytes | None], starts: Sequence[list[int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([int(b) for b in buckets], pa.int32()),
            pa.array(records, pa.binary()),
            pa.array(starts, pa.list_(pa.int64())),
        ],
        names=["bucket", "records", "starts"],
    )
