"""W4, W5, W7, S10: windows are those of a reference that counts record by record, however batches cut the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

from streamgroups.event_time.aggregates import parse_aggregate, python_aggregate
from streamgroups.event_time.windows import Hopping
from streamgroups.fakes.state_files import FakeStateFiles
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.lookup import Position, Stored
from streamgroups.state.manifest import Manifest
from streamgroups.state.origins import Named, New, Unnamed
from streamgroups.state.task_plan import RangePlan, TaskPlan, decode, encode
from streamgroups_state.store import Operator, StateStore
from streamgroups_state.task_states import TaskStates
from streamgroups_state.window_operator import WindowOperator
from unit_tests.window_rules import windows_of

P0 = TopicPartition("flights", 0)
TOPIC = TopicIdentity("c1", "t1")
STATE = pa.schema(
    [
        ("k0", pa.string()),
        ("late", pa.int64()),
        ("p0", pa.int64()),
        ("n1", pa.int64()),
        ("p1", pa.float64()),
        ("p2", pa.int64()),
        ("p3", pa.list_(pa.int64())),
    ]
)
OUTPUT = pa.schema([("r0", pa.int64()), ("r1", pa.float64()), ("r2", pa.int64()), ("r3", pa.int64())])
AGGREGATES = (
    parse_aggregate("n", "count(*)"),
    parse_aggregate("mean", "avg(value)"),
    parse_aggregate("most", "max(value)"),
    python_aggregate(len, "value", returns="bigint"),
)


@dataclass(frozen=True)
class Record:
    time: int | None
    key: str | None
    value: int | None


RECORDS = st.lists(
    st.builds(
        Record,
        st.one_of(st.none(), st.integers(0, 120), st.integers(0, 120), st.integers(0, 120)),
        st.sampled_from(["a", "b", "c", None]),
        st.one_of(st.none(), st.integers(-5, 5)),
    ),
    max_size=60,
)


@dataclass
class Reference:
    """Windows, record by record."""

    operator: WindowOperator
    newest: int | None = None
    panes: dict[tuple[int, str | None], list[int | None]] = field(default_factory=lambda: defaultdict(list))
    late: dict[tuple[int, str | None], int] = field(default_factory=lambda: defaultdict(int))
    dead: list[tuple[str, int | None]] = field(default_factory=list)

    def add(self, record: Record) -> None:
        if record.time is None:
            self.dead.append(("no event time", None))
            return
        watermark = None if self.newest is None else self.newest - self.operator.delay_ms
        windows = windows_of(self.operator.shape, record.time)
        for window in windows:
            if watermark is None or window.end_ms + self.operator.lateness_ms > watermark:
                self.panes[window.start_ms, record.key].append(record.value)
                self.late[window.start_ms, record.key] += watermark is not None and window.end_ms <= watermark
            elif window is windows[-1]:
                self.dead.append(("late", record.time))
        self.newest = record.time if self.newest is None else max(self.newest, record.time)

    def result(self) -> dict[tuple[int, str | None], tuple[object, ...]]:
        """The current result of each emitted pane."""
        watermark = -1 if self.newest is None else self.newest - self.operator.delay_ms
        return {
            (start, key): (self.late[start, key], *_aggregated(values))
            for (start, key), values in self.panes.items()
            if start + self.operator.shape.size_ms <= watermark
        }


def _aggregated(values: list[int | None]) -> tuple[object, ...]:
    known = [value for value in values if value is not None]
    return len(values), sum(known) / len(known) if known else None, max(known, default=None), len(values)


def operator(shape: Hopping, delay_ms: int, lateness_ms: int) -> WindowOperator:
    return WindowOperator("windows", shape, delay_ms, lateness_ms, 1, AGGREGATES, STATE, OUTPUT, dead_letters=True)


def batch(records: Sequence[Record], first: int, partition: int = 0) -> pa.RecordBatch:
    values = pa.array([r.value for r in records], pa.int64())
    return pa.record_batch(
        {
            "partition": pa.array([partition] * len(records), pa.int32()),
            "offset": pa.array(range(first, first + len(records)), pa.int64()),
            "time": pa.array([r.time for r in records], pa.int64()),
            "k0": pa.array([r.key for r in records], pa.string()),
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

    def run(self, records: Sequence[Record], first: int, end: int, state: New | Named, read_from: int | None = None,
            chunk: int = 7) -> tuple[Manifest, list[dict[str, object]]]:  # fmt: skip
        self.attempts += 1
        read_from = first if read_from is None else read_from
        plan = TaskPlan("memory", "billing", 1732334000000 + self.attempts, "1f3a9c2b7d10", self.attempts,
                        (RangePlan(OffsetRange(P0, first, end), state, read_from, TOPIC),))  # fmt: skip
        task = TaskStates(self.operator, decode(encode(plan)), StateStore(self.scope, self.files))
        for at in range(read_from, end, chunk):
            task.add(batch(records[at : min(at + chunk, end)], at))
        manifest, output = task.finish(plan.file(self.attempts))
        return manifest, [row for table in output for row in table.to_pylist()]

    def found(self, offset: int) -> tuple[New | Named, int]:
        """The state of an offset that a tool has set, and where reading begins."""
        choice = StateStore(self.scope, self.files).find(Position(P0, offset, Unnamed(), TOPIC))
        if isinstance(choice, Stored):
            return Named(choice.file, choice.state.next_offset), choice.state.next_offset
        return New(), choice.read_from


def current(rows: Sequence[dict[str, object]]) -> dict[tuple[int, str | None], tuple[object, ...]]:
    """The result with the highest revision of each pane. Panes never go back."""
    found: dict[tuple[int, str | None], tuple[object, ...]] = {}
    for row in rows:
        if row["pane"] != "dead letter":
            place = (row["start"], row["k0"])
            result = (row["revision"], *(row[f"r{i}"] for i in range(4)))
            assert place not in found or found[place][0] < result[0]  # type: ignore[operator]
            found[place] = result  # type: ignore[index]
    return found


SHAPES = st.sampled_from([Hopping(10, 10), Hopping(20, 10), Hopping(15, 10), Hopping(7, 3)])
OPERATORS = st.builds(operator, SHAPES, st.sampled_from([0, 3, 20]), st.sampled_from([0, 5, 40]))


@given(OPERATORS, RECORDS, st.data())
def test_S10_however_batches_cut_the_records_the_results_are_the_same(
    of: WindowOperator, records: list[Record], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=12)))
    query, reference, state = Query(of), Reference(of), New()
    rows: list[dict[str, object]] = []
    for first, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        if data.draw(st.booleans()):
            # An attempt that is replaced. It may have read further.
            query.run(records, first, data.draw(st.integers(first, len(records))), state)
        manifest, output = query.run(records, first, end, state, chunk=data.draw(st.integers(1, 9)))
        rows += output
        state = Named(manifest.file, end)  # type: ignore[assignment]
    for record in records:
        reference.add(record)
    assert current(rows) == reference.result()
    dead = [(row["why"], row["event_time"]) for row in rows if row["pane"] == "dead letter"]
    assert sorted(map(str, dead)) == sorted(map(str, reference.dead))


@given(OPERATORS, RECORDS, st.data())
def test_S10_a_reset_to_any_offset_continues_with_the_state_of_that_offset(
    of: WindowOperator, records: list[Record], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=5)))
    query, state = Query(of), New()
    for first, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        manifest, _ = query.run(records, first, end, state)
        state = Named(manifest.file, end)  # type: ignore[assignment]
    target = data.draw(st.integers(0, len(records)))
    reset_state, read_from = query.found(target)
    _, rows = query.run(records, target, len(records), reset_state, read_from)
    whole, before = Reference(of), Reference(of)
    for record in records:
        whole.add(record)
    for record in records[:target]:
        before.add(record)
    # Only what has changed after the target is emitted, with the results of all records.
    assert current(rows) == {k: v for k, v in whole.result().items() if before.result().get(k) != v}


def test_S10_a_window_with_many_segments_is_merged() -> None:
    query, state = Query(operator(Hopping(1_000, 1_000), 0, 0)), New()
    records = [Record(i, "a", 1) for i in range(40)]
    counts = []
    for i in range(40):
        manifest, _ = query.run(records, i, i + 1, state)
        [segments] = manifest.states[0].parts.values()
        counts.append(len(segments))
        state = Named(manifest.file, i + 1)  # type: ignore[assignment]
    assert max(counts) == 8
    assert sum(segment.rows for segment in segments) <= 8


def test_S10_ranges_without_records_have_a_state_too() -> None:
    query = Query(operator(Hopping(10, 10), 0, 0))
    first, _ = query.run([Record(5, "a", 1)], 0, 1, New())
    second, rows = query.run([Record(5, "a", 1)], 1, 1, Named(first.file, 1))
    assert rows == []
    state = second.state_of(P0)
    assert state is not None
    assert state.parts == first.states[0].parts
    assert state.values == {"newest_ms": 5}


def test_S10_the_definition_names_everything_that_changes_results() -> None:
    one = operator(Hopping(10, 10), 3, 5)
    forms = {
        one.form,
        replace(one, shape=Hopping(20, 10)).form,
        replace(one, delay_ms=4).form,
        replace(one, lateness_ms=6).form,
        replace(one, aggregates=AGGREGATES[:3]).form,
        replace(one, schema=STATE.set(0, pa.field("k0", pa.int64()))).form,
    }
    assert len(forms) == 6
