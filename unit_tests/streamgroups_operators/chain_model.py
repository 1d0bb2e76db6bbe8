"""Windows behind windows: a reference record by record, and a query that runs both operators over state files in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from streamgroups.event_time.aggregates import parse_aggregate
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.windows import EventTime, Hopping, Session, Shape, Windowing, released_ms
from streamgroups.partitions import OffsetRange
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Named, New, Unnamed
from streamgroups.state.state_lookup import Position, Stored
from streamgroups.state.task_plan import RangePlan, TaskPlan, decode, encode
from streamgroups_operators.operator import StatefulOperator
from streamgroups_operators.store import Operator, StateStore, StoredStates
from streamgroups_operators.task_states import TaskStates
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_operators.windows.window_definition import state_schema
from unit_tests.fake_state_files import FakeStateFiles
from unit_tests.streamgroups_operators.window_model import P0, START_MS, TOPIC, Record, Row, batch, watermarks

#: Key, start, end, number and sum.
Result: TypeAlias = tuple[str | None, int, int, int, int]

_RECORDS = pa.schema([("k0", pa.string()), ("a1", pa.int64())])
_COUNT_AND_SUM = (parse_aggregate("n", "count(*)"), parse_aggregate("total", "sum(value)"))
_ROWS = [("start", pa.int64()), ("end", pa.int64()), ("k0", pa.string()), ("r0", pa.int64()), ("r1", pa.int64())]
_OUTPUT = pa.schema([*_ROWS, ("pane", pa.string()), ("revision", pa.int64())])
_PLACE = [("partition", pa.int32()), ("offset", pa.int64())]


def windows(name: str, shape: Shape, delay_ms: int | None = 0, behind: str | None = None,
            idle_timeout_ms: int | None = None, *, is_chained: bool = False) -> WindowOperator:  # fmt: skip
    """Windows with the number and the sum of the values of their records."""
    schema = state_schema(shape, _RECORDS, _COUNT_AND_SUM)
    output = pa.schema([*_OUTPUT, *(pa.field(*it) for it in _PLACE)]) if is_chained else _OUTPUT
    windowing = Windowing(shape, EventTime(idle_timeout_ms=idle_timeout_ms))
    return WindowOperator(
        name, windowing, delay_ms, 1, _COUNT_AND_SUM, schema, output, behind=behind, is_chained=is_chained
    )


@dataclass
class Reference:
    """The windows of one operator, record by record."""

    shape: Shape
    delay_ms: int
    watermark_ms: int | None = None
    #: The values of open windows, by key, start and end.
    open: dict[tuple[str | None, int, int], list[int]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    def add(self, record: Record) -> None:
        assert record.time is not None
        assert record.value is not None
        for start, end in self._windows(record.time):
            if self.watermark_ms is None or end > self.watermark_ms:
                self._count(record.key, start, end, record.value)
        reached = record.time - self.delay_ms
        self.watermark_ms = reached if self.watermark_ms is None else max(reached, self.watermark_ms)
        for place in sorted((it for it in self.open if it[2] <= self.watermark_ms), key=lambda it: it[1:]):
            values = self.open.pop(place)
            self.results.append((*place, len(values), sum(values)))

    def _windows(self, time: int) -> list[tuple[int, int]]:
        if isinstance(self.shape, Session):
            return [(time, time + self.shape.gap_ms)]
        hop, size = self.shape.hop_ms, self.shape.size_ms
        return [(s, s + size) for s in range(time - time % hop, time - size, -hop)]

    def _count(self, key: str | None, start: int, end: int, value: int) -> None:
        values = [value]
        if isinstance(self.shape, Session):
            for place in [it for it in self.open if it[0] == key and it[1] <= end and start <= it[2]]:
                start, end = min(start, place[1]), max(end, place[2])
                values += self.open.pop(place)
        self.open.setdefault((key, start, end), []).extend(values)

    @property
    def released_ms(self) -> int | None:
        """The watermark of the results."""
        if self.watermark_ms is None:
            return None
        starts = [start for _, start, _ in self.open] if isinstance(self.shape, Session) else []
        return released_ms(self.shape, self.watermark_ms, min(starts, default=None))


def chained(first: Reference, shape: Hopping, time_of: Callable[[Result], int]) -> set[Result]:
    """The results of tumbling or hopping windows over the results of a reference."""
    until = first.released_ms
    found: dict[tuple[str | None, int, int], list[int]] = {}
    for it in first.results:
        time = time_of(it)
        for start in range(time - time % shape.hop_ms, time - shape.size_ms, -shape.hop_ms):
            found.setdefault((it[0], start, start + shape.size_ms), []).append(it[3])
    return {(*place, len(v), sum(v)) for place, v in found.items() if until is not None and place[2] <= until}


def _has_idle_timeout(operator: StatefulOperator) -> bool:
    boundary = operator.windowing.boundary if isinstance(operator, WindowOperator) else None
    return isinstance(boundary, EventTime) and boundary.idle_timeout_ms is not None


class Chain:
    """A query with two operators. Each batch is a task of its own that shares nothing but files with the others."""

    def __init__(self, first: WindowOperator, second: StatefulOperator, time: str = "start") -> None:
        self.first, self.second, self._time = first, second, time
        self.files = {first.name: FakeStateFiles(), second.name: FakeStateFiles()}
        self.attempts, self.next_offset, self.read_from = 0, 0, 0
        self.state: New | Named = New()

    def _task(self, operator: StatefulOperator, plan: TaskPlan) -> TaskStates:
        return TaskStates(operator, decode(encode(plan)), self._store(operator))

    def _store(self, operator: StatefulOperator) -> StateStore:
        scope = Operator("billing", operator.name, operator.form, operator.schema)
        return StateStore(scope, self.files[operator.name])

    def run(self, records: Sequence[Record], end: int, now_ms: int = START_MS, idle_until_ms: int | None = None,
            chunk: int = 5, *, is_killed: bool = False, dies_between: bool = False) -> tuple[list[Row], list[Row]]:  # fmt: skip
        """Runs a batch up to an offset. Returns the rows of both operators in the range, of a batch that is not killed."""
        self.attempts += 1
        first, read_from, state = self.next_offset, self.read_from, self.state
        operators = self.first.name, self.second.name
        range_plan = RangePlan(OffsetRange(P0, first, end), state, read_from, TOPIC, idle_until_ms)
        timeouts = tuple(it.name for it in (self.first, self.second) if _has_idle_timeout(it))
        plan = TaskPlan("", "billing", now_ms, "1f3a9c2b7d10", self.attempts, (range_plan,), operators=operators,
                        with_idle_timeout=timeouts)  # fmt: skip
        file = plan.file(self.attempts)
        own = self._task(self.first, plan)
        for at in range(read_from, end, chunk):
            own.add_watermarks(watermarks(records, at if at == read_from else at + chunk, min(at + 2 * chunk, end)))
            own.add(batch(records[at : min(at + chunk, end)], at))
        manifest, output = own.finish(file)
        rows = [row for table in output for row in table.to_pylist()]
        if dies_between:
            return [], []
        found, second_state = self._behind(plan, rows, own.released, file)
        if is_killed:
            return [], []
        it = manifest.state_of(P0)
        assert it is not None
        assert second_state is not None
        self.state, self.next_offset, self.read_from = Named(file, end, it.due_ms, it.time), end, end
        return [row for row in rows if row["offset"] >= first], found

    def _behind(self, plan: TaskPlan, rows: list[Row], released: Sequence[ProducerWatermarks], file: StateFileName) -> tuple[list[Row], object]:  # fmt: skip
        other = self._task(self.second, plan)
        other.add_watermarks(released)
        results = [row for row in rows if row["pane"] != "dead letter"]
        for at in range(0, len(results), 3):
            other.add(self._records(results[at : at + 3]))
        manifest, output = other.finish(file)
        return [row for table in output for row in table.to_pylist()], manifest.state_of(P0)

    def _records(self, results: list[Row]) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "partition": pa.array([it["partition"] for it in results], pa.int32()),
                "offset": pa.array([it["offset"] for it in results], pa.int64()),
                "time": pa.array([it[self._time] - (self._time == "end") for it in results], pa.int64()),
                "k0": pa.array([it["k0"] for it in results], pa.string()),
                "a1": pa.array([it["r0"] for it in results], pa.int64()),
            }
        )

    def reset(self, offset: int) -> None:
        """Resets the offset as a tool does. The driver searches the state that both operators have."""
        beside = [StoredStates("billing", self.first.name, self.files[self.first.name])]
        stored = StoredStates("billing", self.second.name, self.files[self.second.name], beside=beside)
        choice = stored.find(Position(P0, offset, Unnamed(), TOPIC))
        self.next_offset, self.read_from = offset, choice.read_from
        self.state = choice.origin if isinstance(choice, Stored) else New()
