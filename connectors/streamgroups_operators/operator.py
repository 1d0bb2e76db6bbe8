"""The port of an operator with state: a function of (state, records, time) to (state, output), for one partition.

Implemented by ``window_operator`` and ``function_operator``, and run by ``task_states`` in a Python worker. A state is a
function of the records before its offset, in their order, however batches cut them: any file for the same offset is
right, and a state can be computed again from an earlier one. An operator that uses a clock, the watermark of the group,
or the end of a bounded run is still exact, because the commit names the file. Source: SEMANTICS S10, W17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.state.manifest import Segment
from streamgroups.state.state_time import StateTime

#: A column as an array of NumPy.
Numbers: TypeAlias = np.ndarray[Any, Any]
#: The rows of a part of a state: segments of files, oldest first, and new rows in memory.
Part: TypeAlias = Sequence[Segment | pa.Table]
#: A time before all others, in any unit. Durations can be subtracted from it.
BEFORE_ALL = int(np.iinfo(np.int64).min // 2)


def key_columns(count: int) -> list[str]:
    """Returns the names of the key columns of an operator."""
    return [f"k{i}" for i in range(count)]


def watermark_form(delay: str | None, behind: str | None) -> str:
    """Returns how the watermark of an operator is generated, as a part of its form.

    Args:
        delay: the watermark delay with its unit; ``None`` if only the producer advances the watermark.
        behind: the operator whose results are the records; ``None`` for records of the source.
    """
    if behind is not None:
        # Without its name, which a restored savepoint can change.
        return "watermark of another operator"
    return "watermark of the producer" if delay is None else f"watermark delay {delay}"


def number_in(values: Mapping[str, int | str | None], name: str) -> int | None:
    """Returns a number in the values of a state; ``None`` if they do not have it."""
    value = values.get(name)
    return value if isinstance(value, int) else None


def time_in(values: Mapping[str, int | str | None], name: str) -> int:
    """Returns a time in the values of a state, and :data:`BEFORE_ALL` if they do not have it."""
    found = number_in(values, name)
    return BEFORE_ALL if found is None else found


def first_to_merge(part: Part) -> int:
    """Returns the number of the first segment of the newest ones that one segment should replace.

    The newest segments are merged until each one has more than twice the rows of the next one. Then a part has few
    segments, and a row is written again only when its segment doubles. Source: log-structured merge trees.

    Args:
        part: at least one segment.

    >>> tables = [pa.table({"n": range(rows)}) for rows in (11, 3, 2)]
    >>> first_to_merge(tables), first_to_merge(tables[:2]), first_to_merge([tables[0], tables[2]])
    (1, 1, 1)
    """
    first, count = len(part) - 1, _count(part[-1])
    while first > 0 and _count(part[first - 1]) <= 2 * count:
        first -= 1
        count += _count(part[first])
    return first


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns rows with the columns of a schema, and no others. Missing columns contain nulls.

    >>> with_schema(pa.table({"late": [0], "start": [5]}), pa.schema([("first", pa.int64()), ("late", pa.int64())])).to_pydict()
    {'first': [None], 'late': [0]}
    """
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def row_count(part: Part) -> int:
    """Returns the number of rows of a part."""
    return sum(map(_count, part))


def _count(segment: Segment | pa.Table) -> int:
    return segment.rows if isinstance(segment, Segment) else int(segment.num_rows)


def _without_files(segments: Sequence[Segment]) -> Iterator[pa.Table]:
    assert not segments, "an operator without files has no segments"
    return iter(())


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads the rows of parts. The files of a part are read at once: each is a round trip to an object store.

    Args:
        schema: the columns of the state.
        stored: returns the rows of each segment, one after the other. Without it all rows are in memory.

    >>> rows = PartReader(pa.schema([("n", pa.int64())]))
    >>> rows.whole([pa.table({"n": [1]}), pa.table({"n": [2]})]).to_pydict()
    {'n': [1, 2]}
    """

    schema: pa.Schema
    stored: Callable[[Sequence[Segment]], Iterator[pa.Table]] = _without_files

    def whole(self, part: Part) -> pa.Table:
        """Returns all rows, in the order of the part."""
        return pa.concat_tables([self.schema.empty_table(), *self.each(part)])

    def each(self, part: Part) -> Iterator[pa.Table]:
        """Returns the rows of one segment after the other, for a part most of whose rows are not needed."""
        stored = self.stored([it for it in part if isinstance(it, Segment)])
        for it in part:
            yield next(stored) if isinstance(it, Segment) else it.select(self.schema.names).cast(self.schema)


@dataclass(frozen=True, slots=True)
class State:
    """The state of one partition, in a task.

    Args:
        parts: the rows of each part.
        values: small values, such as the newest event time.
        due_ms: when the operator must run without new records, in milliseconds since the epoch; ``None``: never.
        time: its event time; ``None`` if the operator has none.
        apart: the parts whose new rows are written into a file apart, which is read only if these rows are needed.
        released_ms: no later result starts before this time, in milliseconds since the epoch; ``None`` if that is
            unknown. It is not stored.
    """

    parts: Mapping[str, Part] = field(default_factory=dict)
    values: Mapping[str, int | str | None] = field(default_factory=dict)
    due_ms: int | None = None
    time: StateTime | None = None
    apart: frozenset[str] = frozenset()
    released_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchTime:
    """The time of a batch, for one partition. A retried task has the same time.

    Args:
        now_ms: when the batch was planned, in milliseconds since the epoch.
        idle_until_ms: when the partition was last observed without available records. ``None`` if the batch reads
            offsets of it, also if a filter removes their records or they only bring the state to a position; or if it
            has available records.
        group_watermark_ms: the watermark of the group, in milliseconds since the epoch; ``None`` if it has none yet.
        flush: whether a bounded run ends with this batch: windows that are still open are emitted.
        planned_ms: when the batch was planned, also for records that only bring the state to a position. Their
            ``now_ms`` is that of their state. ``None``: ``now_ms``.
        advances_after: whether the watermark of the group advances after the records of the batch, so that they are late
            by the one before the batch.
        open_ends_ms: the ends of open windows of other states, which the idle timeout closes too.
        closes_empty: whether the idle timeout also closes windows without records.
    """

    now_ms: int
    idle_until_ms: int | None = None
    group_watermark_ms: int | None = None
    flush: bool = False
    planned_ms: int | None = None
    advances_after: bool = False
    open_ends_ms: tuple[int, ...] = ()
    closes_empty: bool = False

    @property
    def clock_ms(self) -> int:
        """When the batch was planned, in milliseconds since the epoch."""
        return self.now_ms if self.planned_ms is None else self.planned_ms


class Run(Protocol):
    """One batch of one partition. Used by one thread."""

    def add_watermarks(self, watermarks: ProducerWatermarks) -> None:
        """Adds watermarks of the producer of the partition, before the records after them."""
        ...

    def add(self, records: pa.Table) -> None:
        """Processes records, in the order of their offsets."""
        ...

    def finish(self) -> tuple[State, list[pa.Table]]:
        """Ends the batch. Returns the new state, and the output rows."""
        ...


class StatefulOperator(Protocol):
    """An operator with state. Pickled into Python workers."""

    @property
    def name(self) -> str:
        """The name of the operator in its query."""
        ...

    @property
    def form(self) -> str:
        """The definition, as text. Only the same definition continues with a state."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the state."""
        ...

    @property
    def output(self) -> pa.Schema:
        """The columns of the output."""
        ...

    def begin(self, state: State, read: PartReader, time: BatchTime) -> Run:
        """Begins a batch of one partition."""
        ...
