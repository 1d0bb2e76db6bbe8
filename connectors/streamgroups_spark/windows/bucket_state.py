"""The state of windows in one bucket of keys: one batch of :class:`~streamgroups_operators.window_operator.WindowOperator`.

Called by ``windows.processor`` in Spark's workers. The operator that has the windows of a partition in state files has the
windows of a bucket in Spark's state store: a segment is an entry of the store. Time differs in two ways. Within a batch
the watermark before it applies to all records, and then the watermark advances. Spark's window aggregation has the same
order, so both return the same results where both apply. A window that the idle timeout closes is closed in all buckets.
Source: SEMANTICS W4-W9.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from streamgroups.event_time.windows import EventTime
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Segment
from streamgroups_operators.aggregates import length_ms
from streamgroups_operators.operator import BatchTime, PartReader, State
from streamgroups_operators.window_operator import WindowOperator

_VERSION = 1
#: The file of all segments. They are not in a file: their numbers identify them in the bucket.
_NO_FILE = StateFileName(0, "", 0, 0)


class Segments(Protocol):
    """The segments of a bucket, by their numbers."""

    def get(self, number: int) -> pa.Table:
        """Returns the rows of a segment."""
        ...

    def put(self, number: int, rows: pa.Table) -> None:
        """Adds a segment."""
        ...

    def remove(self, number: int) -> None:
        """Removes a segment."""
        ...


@dataclass(frozen=True, slots=True)
class BucketState:
    """The state of a bucket without the rows of its segments.

    Args:
        values: see :class:`streamgroups_operators.operator.State`.
        parts: the segments of each part, oldest first.
        segments: the number of segments that were ever added.
        planned_ms: when the latest batch was planned; ``None`` before the first one.
        starts_ms: with an idle timeout: the starts of the open windows with records, in any bucket.
    """

    values: Mapping[str, int | str | None] = field(default_factory=dict)
    parts: Mapping[str, Sequence[Segment]] = field(default_factory=dict)
    segments: int = 0
    planned_ms: int | None = None
    starts_ms: tuple[int, ...] = ()

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the segments."""
        return frozenset(it.number for part in self.parts.values() for it in part)


@dataclass(frozen=True, slots=True)
class BucketBatch:
    """A batch, for one bucket.

    Args:
        watermark_ms: the watermark with which the batch was planned; ``None`` before the first one.
        now_ms: when the batch was planned, by the clock.
        has_records: whether the source returned any records, in any bucket.
        starts_ms: the starts of the windows with records, in any bucket; empty for sessions.
    """

    watermark_ms: int | None
    now_ms: int
    has_records: bool
    starts_ms: frozenset[int] = frozenset()


def process(
    operator: WindowOperator, segments: Segments, before: BucketState, batch: BucketBatch, records: Iterable[pa.Table]
) -> tuple[BucketState, list[pa.Table]]:
    """Applies a batch to a bucket.

    The source has been idle since the last batch with records. Spark queries the source for new records before it reads
    the clock. A batch without records therefore proves only that no record arrived *before the previous batch was
    planned*.

    Args:
        operator: the windows.
        segments: the segments of the bucket, which are changed.
        before: the state of the bucket.
        batch: the batch.
        records: the records of the bucket.

    Returns:
        The new state, and the output rows.
    """
    schema, size_ms = operator.schema, length_ms(operator.windowing.shape)

    read = PartReader(schema, lambda stored: (segments.get(it.number) for it in stored))
    time = BatchTime(
        batch.now_ms,
        None if batch.has_records else before.planned_ms,
        batch.watermark_ms,
        advances_after=True,
        open_ends_ms=tuple(start_ms + size_ms for start_ms in before.starts_ms),
    )
    run = operator.begin(State(before.parts, before.values), read, time)
    for table in records:
        run.add(table)
    state, output = run.finish()
    count, parts = before.segments, dict[str, list[Segment]]()
    for name, part in state.parts.items():
        for it in part:
            if not isinstance(it, Segment):
                rows = _stored(it, schema)
                segments.put(count, rows)
                it, count = Segment(_NO_FILE, count, rows.num_rows, rows.nbytes), count + 1
            parts.setdefault(name, []).append(it)
    boundary = operator.windowing.boundary
    has_timeout = isinstance(boundary, EventTime) and boundary.idle_timeout_ms is not None
    # A window before this time is closed.
    starts_ms = {*before.starts_ms, *batch.starts_ms} if has_timeout else set()
    open_ms = sorted(it for it in starts_ms if state.released_ms is None or it >= state.released_ms)
    after = BucketState(state.values, parts, count, batch.now_ms, tuple(open_ms))
    for number in before.numbers - after.numbers:
        segments.remove(number)
    return after, [rows for rows in output if rows.num_rows]


def _stored(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


def encode(state: BucketState) -> str:
    """Returns the state as JSON, for the state store.

    >>> state = BucketState({"newest_ms": 7}, {"5": [Segment(_NO_FILE, 3, 2, 64)]}, 4, 9, (5,))
    >>> decode(encode(state)) == state
    True
    """
    parts = {name: [[it.number, it.rows, it.row_bytes] for it in part] for name, part in state.parts.items()}
    fields = [dict(state.values), parts, state.segments, state.planned_ms, list(state.starts_ms)]
    return json.dumps([_VERSION, *fields])


def decode(text: str) -> BucketState:
    """Decodes a state.

    Raises:
        ValueError: a newer version wrote it. To guess its meaning could emit results twice.
    """
    version, *fields = json.loads(text)
    if version != _VERSION:
        raise ValueError(
            f"the state of these windows has version {version}, but this library supports version {_VERSION}"
        )
    values, listed, count, planned_ms, starts_ms = fields
    parts: dict[str, Any] = {name: [Segment(_NO_FILE, *it) for it in part] for name, part in listed.items()}
    return BucketState(values, parts, count, planned_ms, tuple(starts_ms))
