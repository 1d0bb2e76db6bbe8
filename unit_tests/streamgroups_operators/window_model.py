"""Windows record by record, as a reference for ``streamgroups_operators.window_operator``, and a query that runs it.

The rules are those of ``unit_tests.window_rules``. Time advances with each record, not with each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import hypothesis.strategies as st
import pyarrow as pa

from streamgroups.event_time.aggregates import parse_aggregate, python_aggregate
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import At, latest, reached
from streamgroups.event_time.windows import EventTime, ProcessingTime, Session, Shape, Window, Windowing
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import Named, New, Unnamed
from streamgroups.state.state_lookup import Position, Stored
from streamgroups.state.task_plan import RangePlan, TaskPlan, decode, encode
from streamgroups_operators.store import Operator, StateStore
from streamgroups_operators.task_states import TaskStates
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows.window_definition import state_schema
from unit_tests.fake_state_files import FakeStateFiles
from unit_tests.window_rules import Adjusted, Counted, DeadLetter, Idle, Interval, WindowStates, advance, expire, place

P0 = TopicPartition("flights", 0)
TOPIC = TopicIdentity("c1", "t1")
#: The start of the clock of tests, and of their event times.
START_MS = 1_732_334_400_000
RECORDS = pa.schema(
    [("k0", pa.string()), ("k1", pa.int64()), ("a1", pa.float64()), ("a2", pa.int64()), ("a3", pa.int64())]
)
OUTPUT = pa.schema([("r0", pa.int64()), ("r1", pa.float64()), ("r2", pa.int64()), ("r3", pa.int64())])
#: The values of both key columns.
Keys: TypeAlias = tuple[str | None, int | None]
#: Keys, start and end of a window.
Place: TypeAlias = tuple[Keys, int, int]
Row: TypeAlias = dict[str, Any]


def _digest(values: Sequence[int | None]) -> int:
    """A number for a list without its order."""
    return sum(i * value for i, value in enumerate(sorted(v for v in values if v is not None), 1))


AGGREGATES = (
    parse_aggregate("n", "count(*)"),
    parse_aggregate("mean", "avg(value)"),
    parse_aggregate("most", "max(value)"),
    python_aggregate(_digest, "value", returns="bigint"),
)


@dataclass(frozen=True)
class Record:
    time: int | None
    key: str | None = "a"
    value: int | None = 1
    until: int | None = None
    #: The watermark of the producer that the record carries.
    producer_ms: int | None = None
    is_marker: bool = False
    #: The second key.
    site: int | None = 1

    @property
    def keys(self) -> Keys:
        return self.key, self.site


def operator(windowing: Windowing, delay_ms: int | None = 0, policy: OnViolation = OnViolation.KEEP) -> WindowOperator:
    schema = state_schema(windowing.shape, RECORDS, AGGREGATES)
    return WindowOperator("windows", windowing, delay_ms, 2, AGGREGATES, schema, OUTPUT, policy)


def by_event_time(shape: Shape, lateness_ms: int = 0, idle_timeout_ms: int | None = None, delay_ms: int | None = 0,
                  policy: OnViolation = OnViolation.KEEP) -> WindowOperator:  # fmt: skip
    return operator(Windowing(shape, EventTime(lateness_ms, idle_timeout_ms)), delay_ms, policy)


@dataclass
class Reference:
    """Windows, record by record."""

    operator: WindowOperator
    newest: int | None = None
    data_ms: int = 0
    #: The time of all keys, and the windows of each key.
    time: WindowStates = field(default_factory=WindowStates)
    keys: dict[Keys, WindowStates] = field(default_factory=dict)
    #: The values and the number of late records of each window.
    panes: dict[Place, tuple[list[int | None], int]] = field(default_factory=dict)
    dead: list[tuple[str, int | None]] = field(default_factory=list)

    def add(self, record: Record, now_ms: int = 0) -> None:
        if not record.is_marker:
            self._place(record, now_ms)
        boundary = self.operator.windowing.boundary
        if record.producer_ms is not None and isinstance(boundary, EventTime):
            self._advance(At(record.producer_ms))

    def _place(self, record: Record, now_ms: int) -> None:
        interval = None
        if record.time is not None:
            interval = Interval(record.time, record.time + 1 if record.until is None else record.until)
        windowing, before = self.operator.windowing, self.keys.get(record.keys, self.time)
        self.keys[record.keys], placed = place(windowing, before, interval, self.operator.on_violation, now_ms)
        if isinstance(placed, DeadLetter):
            self.dead.append((placed.why.value, placed.event_time_ms))
        else:
            self._count(record, before, placed.counted if isinstance(placed, Adjusted) else placed)
        if record.time is not None and isinstance(windowing.boundary, EventTime):
            self.newest = record.time if self.newest is None else max(self.newest, record.time)
            if self.operator.delay_ms is not None:
                self._advance(At(self.newest - self.operator.delay_ms))

    def _count(self, record: Record, before: WindowStates, placed: Counted) -> None:
        shape = self.operator.windowing.shape
        is_late = isinstance(shape, Session) and reached(before.watermark, placed.time_ms + shape.gap_ms)
        for window in placed.windows:
            joined = [self.panes.pop((record.keys, w.start_ms, w.end_ms), ([], 0)) for w in {window, *placed.merged}]
            values = [value for of_joined, _ in joined for value in of_joined]
            late = sum(it for _, it in joined) + (is_late or window in placed.updated)
            self.panes[record.keys, window.start_ms, window.end_ms] = [*values, record.value], late

    def _advance(self, watermark: At) -> None:
        windowing = self.operator.windowing
        self.time, _ = advance(windowing, self.time, watermark)
        self.keys = {key: advance(windowing, it, watermark)[0] for key, it in self.keys.items()}

    def end_batch(self, now_ms: int, idle_until_ms: int | None) -> None:
        windowing = self.operator.windowing
        if isinstance(windowing.boundary, ProcessingTime):
            self._advance(At(now_ms))
        elif idle_until_ms is None:
            self.data_ms = now_ms
        else:
            idle = Idle(self.data_ms, idle_until_ms)
            expired = [expire(windowing, it, idle)[0] for it in (self.time, *self.keys.values())]
            watermark, closed = latest(*(it.watermark for it in expired)), latest(*(it.closed_until for it in expired))
            self.time = replace(self.time, watermark=watermark, closed_until=closed)
            self.keys = {
                key: WindowStates(
                    watermark, closed, tuple(f for f in it.filled if not reached(closed, f.window.end_ms))
                )
                for key, it in self.keys.items()
            }

    def result(self) -> dict[Place, tuple[object, ...]]:
        """The current result of each emitted window."""
        return {
            place: (late, *aggregated(values))
            for place, (values, late) in self.panes.items()
            if reached(self.time.watermark, place[2])
        }

    @property
    def open(self) -> set[Window]:
        """The open windows."""
        return {f.window for it in self.keys.values() for f in it.filled}


def aggregated(values: Sequence[int | None]) -> tuple[object, ...]:
    """The results of the aggregates."""
    known = [value for value in values if value is not None]
    return len(values), sum(known) / len(known) if known else None, max(known, default=None), _digest(values)


def watermarks(records: Sequence[Record], first: int, end: int) -> list[ProducerWatermarks]:
    """The watermarks of the records in a range of offsets, as a reader reports them."""
    found: list[tuple[int, int]] = []
    for offset, record in enumerate(records[first:end], first):
        if record.producer_ms is not None and (not found or record.producer_ms > found[-1][1]):
            found.append((offset, record.producer_ms))
    offsets, times_ms = zip(*found, strict=True) if found else ((), ())
    return [ProducerWatermarks(P0, offsets, times_ms)] if found else []


def batch(among: Sequence[Record], first: int, partition: int = 0) -> pa.RecordBatch:
    offsets = [offset for offset, record in enumerate(among, first) if not record.is_marker]
    records = [record for record in among if not record.is_marker]
    values = pa.array([r.value for r in records], pa.int64())
    return pa.record_batch(
        {
            "partition": pa.array([partition] * len(records), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "time": pa.array([r.time for r in records], pa.int64()),
            "until": pa.array([r.until for r in records], pa.int64()),
            "k0": pa.array([r.key for r in records], pa.string()),
            "k1": pa.array([r.site for r in records], pa.int64()),
            "a1": values.cast(pa.float64()),
            "a2": values,
            "a3": values,
        }
    )


class Query:
    """Runs the operator over ranges, each in a task of its own that shares nothing but files with the others."""

    def __init__(self, of: WindowOperator) -> None:
        self.operator, self.files, self.attempts = of, FakeStateFiles(), 0
        self.scope = Operator("billing", of.name, of.form, of.schema)
        self.state: New | Named = New()
        self.next_offset = 0

    def run(self, records: Sequence[Record], first: int, end: int, state: New | Named, read_from: int | None = None,
            chunk: int = 7, now_ms: int = START_MS, idle_until_ms: int | None = None, *,
            flush: bool = False) -> tuple[Manifest, list[Row]]:  # fmt: skip
        self.attempts += 1
        read_from = first if read_from is None else read_from
        plan = TaskPlan("memory", "billing", now_ms, "1f3a9c2b7d10", self.attempts,
                        (RangePlan(OffsetRange(P0, first, end), state, read_from, TOPIC, idle_until_ms, flush=flush),))  # fmt: skip
        task = TaskStates(self.operator, decode(encode(plan)), StateStore(self.scope, self.files))
        for at in range(read_from, end, chunk):
            # The reader is ahead of the operator.
            task.add_watermarks(watermarks(records, at if at == read_from else at + chunk, min(at + 2 * chunk, end)))
            task.add(batch(records[at : min(at + chunk, end)], at))
        manifest, output = task.finish(plan.file(self.attempts))
        return manifest, [row for table in output for row in table.to_pylist()]

    def step(self, records: Sequence[Record] = (), now_ms: int = START_MS, idle_until_ms: int | None = None,
             chunk: int = 7, *, flush: bool = False) -> tuple[PartitionState, list[Row]]:  # fmt: skip
        """Runs the next batch. Returns its state and output."""
        first, self.next_offset = self.next_offset, self.next_offset + len(records)
        padded = [*[Record(None)] * first, *records]
        manifest, rows = self.run(
            padded, first, self.next_offset, self.state, None, chunk, now_ms, idle_until_ms, flush=flush
        )
        self.state = Named(manifest.file, self.next_offset)
        state = manifest.state_of(P0)
        assert state is not None
        return state, rows

    def found(self, offset: int) -> tuple[New | Named, int]:
        """The state of an offset that a tool has set, and where reading begins."""
        choice = StateStore(self.scope, self.files).find(Position(P0, offset, Unnamed(), TOPIC))
        if isinstance(choice, Stored):
            return Named(choice.file, choice.state.next_offset), choice.state.next_offset
        return New(), choice.read_from


def run_batches(
    query: Query, records: Sequence[Record], data: st.DataObject, max_cuts: int
) -> tuple[Manifest, list[Row]]:
    """Runs records in any batches. Some of them have an earlier attempt that is replaced.

    Returns:
        The manifest of the last batch, and the output of all.
    """
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=max_cuts)))
    state: New | Named = New()
    rows: list[Row] = []
    for first, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        if data.draw(st.booleans()):
            # An attempt that is replaced. It may have read further.
            query.run(records, first, data.draw(st.integers(first, len(records))), state)
        manifest, output = query.run(records, first, end, state, chunk=data.draw(st.integers(1, 9)))
        rows += output
        state = Named(manifest.file, end)
    return manifest, rows


class AnyReference(Protocol):
    """The results of windows, record by record."""

    def add(self, record: Record) -> None: ...
    def result(self) -> dict[Place, tuple[object, ...]]: ...


def check_reset(
    of: WindowOperator, records: Sequence[Record], data: st.DataObject, reference: Callable[[], AnyReference]
) -> None:
    """Checks that a reset to any offset emits what has changed after this offset, with the results of all records."""
    query = Query(of)
    run_batches(query, records, data, max_cuts=5)
    target = data.draw(st.integers(0, len(records)))
    state, read_from = query.found(target)
    _, rows = query.run(records, target, len(records), state, read_from)
    whole, before = reference(), reference()
    for record in records:
        whole.add(record)
    for record in records[:target]:
        before.add(record)
    assert current(rows) == {k: v for k, v in whole.result().items() if before.result().get(k) != v}


def current(rows: Sequence[Row]) -> dict[Place, tuple[object, ...]]:
    """The result with the highest revision of each window, without retracted ones. Revisions never decrease."""
    found: dict[Place, Row] = {}
    for row in rows:
        if row["pane"] != "dead letter":
            place = (row["k0"], row["k1"]), row["start"], row["end"]
            assert place not in found or found[place]["revision"] < row["revision"]
            found[place] = row
    return {
        place: (row["revision"], *(row[f"r{i}"] for i in range(4)))
        for place, row in found.items()
        if row["pane"] != "retraction"
    }


def dead(rows: Sequence[Row]) -> list[tuple[str, int | None]]:
    """Reason and event time of each dead letter."""
    return sorted(((row["why"], row["event_time"]) for row in rows if row["pane"] == "dead letter"), key=str)


def brief(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Start, end, first key, count, kind and revision of each row, in a fixed order."""
    return sorted(((r["start"], r["end"], r["k0"], r.get("r0"), r["pane"], r.get("revision")) for r in rows), key=str)
