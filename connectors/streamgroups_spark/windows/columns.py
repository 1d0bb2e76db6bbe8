"""Windows in Arrow columns: packs records into buckets, assigns them to windows and computes partial aggregates.

Called by ``windows.step`` in Spark's workers. :class:`Pack` and :class:`Unpack` are stages of the query before and
after the state. A call of Python for each key costs tens of microseconds. Keys therefore share buckets, and the records
of a bucket are one value: a small Arrow stream. Source: the measurements of ``transformWithState`` (Spark 4.2); Arrow's
``group_by``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgroups.event_time.aggregates import Function, PythonAggregate, SqlAggregate
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.windows import EventTime, Hopping, Session, Shape, Windowing
from streamgroups_spark.internals.python_worker import prepare_python_worker
from streamgroups_spark.internals.shipping import Shipped

#: The output of ``Pack``: the records of a bucket as an Arrow stream, if it has any, and the starts of all windows with
#: records in the task.
PACKED = "bucket INT, records BINARY, starts ARRAY<BIGINT>"
#: The output of the state: rows as an Arrow stream.
ROWS = "rows BINARY"


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The definition of windows that is sent to the workers.

    Args:
        windowing: the rules that assign records to windows.
        keys: the number of key columns, ``k0``, ``k1`` and so on.
        aggregates: one for each argument column, ``a0`` and so on. ``count(*)`` has no argument.
        output: the output columns, in order.
        dead_letters: whether records that no window counts are emitted.
        buckets: the number of buckets of keys.
        on_violation: how records before the watermark are handled.
    """

    windowing: Windowing
    keys: int
    aggregates: tuple[SqlAggregate | PythonAggregate, ...]
    output: pa.Schema
    dead_letters: bool
    buckets: int
    on_violation: OnViolation = OnViolation.KEEP

    @property
    def form(self) -> str:
        """The compatibility key of a state: another window definition would give wrong results instead of an error."""
        aggregates = (
            f"{'python' if isinstance(a, PythonAggregate) else a.function.value}({a.argument or '*'})"
            for a in self.aggregates
        )
        kind = "event time" if isinstance(self.windowing.boundary, EventTime) else "processing time"
        return f"{self.windowing.shape} by {kind}, {self.keys} keys, {', '.join(aggregates)}, {self.buckets} buckets"

    @property
    def key_names(self) -> list[str]:
        return [f"k{i}" for i in range(self.keys)]


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

    def _starts(self, batch: pa.RecordBatch) -> Iterable[int]:
        shape = self._plan.windowing.shape
        if isinstance(shape, Session):
            return ()
        times = batch.column("time").drop_null().to_numpy()
        _, starts = in_windows(shape, np.unique(times))
        return (int(start) for start in np.unique(starts))


class Unpack(Shipped):
    """The stage after the state: emits rows with every column of the output."""

    def __init__(self, plan: WindowPlan) -> None:
        self._schema = plan.output

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_python_worker()
        for batch in batches:
            for data in batch.column(0).to_pylist():
                table = from_bytes(data)
                columns = [
                    table[field.name].cast(field.type)
                    if field.name in table.column_names
                    else pa.nulls(table.num_rows, field.type)
                    for field in self._schema
                ]
                yield from pa.table(columns, names=self._schema.names).to_batches()


def _row_for_each_bucket(batch: pa.RecordBatch) -> pa.RecordBatch:
    table = pa.Table.from_batches([batch])
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


# ---- records in windows ----------------------------------------------------------------------------------------------


def in_windows(shape: Shape, times_ms: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Vectorized ``windows_of``: returns the index of the time and the start of each of its windows.

    The latest windows come first.

    Args:
        shape: the shape of the windows.
        times_ms: milliseconds since the epoch.
    """
    everyone = np.arange(len(times_ms))
    if isinstance(shape, Session):
        return everyone, times_ms
    newest = times_ms - times_ms % shape.hop_ms
    indices, starts = [], []
    for back in range(-(-shape.size_ms // shape.hop_ms)):
        start = newest - back * shape.hop_ms
        inside = start > times_ms - shape.size_ms
        indices.append(everyone[inside])
        starts.append(start[inside])
    return np.concatenate(indices), np.concatenate(starts)


def length_ms(shape: Shape) -> int:
    """Returns the length of a window with one record."""
    return shape.size_ms if isinstance(shape, Hopping) else shape.gap_ms


# ---- aggregates ------------------------------------------------------------------------------------------------------


def parts_of(plan: WindowPlan, records: pa.Table) -> dict[str, pa.Array]:
    """Returns the columns of partial aggregates, for single records.

    Args:
        plan: the definition of the query.
        records: the records with their argument columns.
    """
    parts: dict[str, pa.Array] = {}
    for i, aggregate in enumerate(plan.aggregates):
        if isinstance(aggregate, PythonAggregate):
            values = records[f"a{i}"].combine_chunks()
            parts[f"p{i}"] = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
            continue
        if aggregate.argument is None:
            parts[f"p{i}"] = pa.array(np.ones(records.num_rows, np.int64))
            continue
        values = records[f"a{i}"]
        if aggregate.function in (Function.COUNT, Function.AVG):
            parts[f"n{i}"] = pc.is_valid(values).cast(pa.int64())
        if aggregate.function is Function.COUNT:
            parts[f"p{i}"] = parts.pop(f"n{i}")
        else:
            parts[f"p{i}"] = values
    return parts


def _how(plan: WindowPlan, part: str) -> str | None:
    """Returns Arrow's function to combine a partial aggregate. ``None`` for a list, for which Arrow has no function."""
    aggregate = plan.aggregates[int(part[1:])]
    if part[0] == "n":
        return "sum"
    if isinstance(aggregate, PythonAggregate):
        return None
    return aggregate.function.value if aggregate.function in (Function.MIN, Function.MAX) else "sum"


def add_up(plan: WindowPlan, table: pa.Table, by: Sequence[str], also: Sequence[tuple[str, str]]) -> pa.Table:
    """Combines the partial aggregates of all rows of each pane into one row.

    Args:
        plan: the definition of the query.
        table: the rows with partial aggregates.
        by: the columns that identify a pane.
        also: other columns, and Arrow's function to combine them.
    """
    parts = [name for name in table.column_names if name[0] in "pn" and name[1:].isdigit()]
    wanted = [*also, *((part, how) for part in parts if (how := _how(plan, part)) is not None)]
    lists = [part for part in parts if _how(plan, part) is None]
    if lists:
        # Arrow builds no lists of lists, so it only collects the rows of each group.
        table = table.append_column("row", pa.array(np.arange(table.num_rows)))
        wanted.append(("row", "list"))
    grouped = table.group_by(list(by), use_threads=False).aggregate(wanted)
    columns = {name: grouped[name] for name in by}
    columns |= {
        name: grouped[f"{name}_{how}"].cast(table.schema.field(name).type) for name, how in wanted if how != "list"
    }
    columns |= {part: _chained(table[part], grouped["row_list"]) for part in lists}
    return pa.table(columns)


def _chained(lists: pa.ChunkedArray, rows: pa.ChunkedArray) -> pa.Array:
    """Concatenates the lists of all rows of each group."""
    groups = rows.combine_chunks()
    chosen = lists.combine_chunks().take(groups.flatten())
    offsets = _ends(chosen)[_ends(groups)]
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), chosen.flatten())


def _ends(lists: pa.Array) -> np.ndarray[Any, Any]:
    """Returns the start of each list in the flattened array, and the end of the last one."""
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def results(plan: WindowPlan, panes: pa.Table) -> dict[str, pa.Array]:
    """Returns the columns of results, ``r0`` and so on.

    Args:
        plan: the definition of the query.
        panes: the panes with partial aggregates.
    """
    found: dict[str, pa.Array] = {}
    for i, aggregate in enumerate(plan.aggregates):
        parts = panes[f"p{i}"]
        if isinstance(aggregate, PythonAggregate):
            values = [aggregate.function(values) for values in parts.to_pylist()]
            found[f"r{i}"] = pa.array(values, type=plan.output.field(f"r{i}").type)
        elif aggregate.function is Function.AVG:
            found[f"r{i}"] = pc.divide(parts, panes[f"n{i}"].cast(pa.float64()))
        else:
            found[f"r{i}"] = parts
    return found
