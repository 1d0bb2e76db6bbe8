"""S10: a task finds the state of each record, however its batches mix the records of partitions and topics."""

from __future__ import annotations

import threading
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption, StateMismatch
from streamgroups.event_time.windows import Hopping
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import Named, New
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators.store import NewState, Operator, StateStore
from streamgroups_operators.task_states import TaskStates, by_partition
from unit_tests.fake_state_files import FakeStateFiles
from unit_tests.streamgroups_operators.window_model import START_MS, TOPIC, Record, batch, by_event_time

PLACES = [TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("delays", 0)]
OF = by_event_time(Hopping(10_000, 10_000))


def _task(counts: dict[TopicPartition, int]) -> tuple[TaskPlan, TaskStates]:
    ranges = tuple(RangePlan(OffsetRange(tp, 0, count), New(), 0, TOPIC) for tp, count in counts.items())
    plan = TaskPlan("memory", "billing", START_MS, "1f3a9c2b7d10", 1, ranges)
    return plan, TaskStates(OF, plan, StateStore(Operator("billing", OF.name, OF.form, OF.schema), FakeStateFiles()))


def _rows(tp: TopicPartition, offset: int, *, with_topic: bool = True) -> pa.RecordBatch:
    rows = pa.Table.from_batches([batch([Record(START_MS, f"{tp}")], offset, tp.partition)])
    rows = rows.append_column("topic", pa.array([tp.topic])) if with_topic else rows
    return rows.to_batches()[0]


def _stored(manifest: Manifest) -> dict[TopicPartition, list[int]]:
    return {
        it.range.topic_partition: [segment.rows for part in it.parts.values() for segment in part]
        for it in manifest.states
    }


@given(st.lists(st.sampled_from(PLACES), max_size=20), st.integers(1, 7))
def test_S10_each_record_reaches_the_state_of_its_partition(order: list[TopicPartition], chunk: int) -> None:
    counts = {tp: order.count(tp) for tp in PLACES}
    plan, task = _task(counts)
    records = [_rows(tp, order[:i].count(tp)) for i, tp in enumerate(order)]
    for at in range(0, len(records), chunk):
        merged = pa.Table.from_batches(records[at : at + chunk]).combine_chunks()
        task.add(merged.to_batches()[0])
    manifest, _ = task.finish(plan.file(1))
    # One key in each partition, so one row.
    assert _stored(manifest) == {tp: [1] if count else [] for tp, count in counts.items()}


@given(
    st.lists(st.tuples(st.sampled_from(["flights", "delays", None]), st.sampled_from([*range(12), 70_000, None]))),
    st.booleans(),
)
def test_S10_the_records_of_a_partition_stay_in_order(places: list[tuple[str | None, int | None]], one: bool) -> None:
    """Few partitions are filtered, many are sorted."""
    columns = {
        "topic": pa.array([topic for topic, _ in places], pa.string()),
        "partition": pa.array([partition for _, partition in places], pa.int32()),
        "offset": pa.array(range(len(places)), pa.int64()),
    }
    found = [
        (tp, records["offset"].to_pylist())
        for tp, records in by_partition(pa.record_batch(columns), "flights" if one else None)
    ]
    expected: dict[TopicPartition, list[int]] = {}
    for offset, (topic, partition) in enumerate(places):
        name: Any = "flights" if one else topic
        expected.setdefault(TopicPartition(name, -1 if partition is None else partition), []).append(offset)
    assert len(found) == len(expected)
    assert dict(found) == expected


def test_S10_many_partitions_do_not_filter_the_batch_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter reads the whole batch: 5,000 partitions took 2 seconds for each Arrow batch."""
    calls: list[Any] = []
    equal = pc.equal

    def counted(*args: Any) -> Any:
        calls.append(args)
        return equal(*args)

    monkeypatch.setattr(pc, "equal", counted)
    ranges = {TopicPartition("flights", p): 2 for p in range(1_000)}
    plan, task = _task(ranges)
    offsets = [offset for offset in range(2) for _ in ranges]
    rows = pa.concat_tables([pa.Table.from_batches([batch([Record(START_MS, "a")] * len(offsets), 0)])])
    for name, values in (("partition", [tp.partition for tp in ranges] * 2), ("offset", offsets)):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(name), pa.array(values, rows.schema.field(name).type))
    [records] = rows.combine_chunks().to_batches()
    task.add(records)
    assert len(calls) < len(ranges)
    assert set(map(tuple, _stored(task.finish(plan.file(1))[0]).values())) == {(1,)}


def test_S10_the_states_of_all_ranges_are_read_at_once() -> None:
    """Each file is a round trip to an object store."""

    class MeetingFiles(FakeStateFiles):
        """Each read waits for the other one."""

        meeting = threading.Barrier(2, timeout=30)

        def read(self, file: StateFileName) -> memoryview:
            self.meeting.wait()
            return super().read(file)

    files, scope = MeetingFiles(), Operator("billing", OF.name, OF.form, OF.schema)
    names = [StateFileName(START_MS, "1f3a9c2b7d10", 1, task) for task in (1, 2)]
    for tp, name in zip(PLACES, names, strict=False):
        StateStore(scope, files).write(name, [NewState(PartitionState(OffsetRange(tp, 0, 5), 0, TOPIC), {})])
    ranges = tuple(
        RangePlan(OffsetRange(tp, 5, 6), Named(name, 5), 5, TOPIC) for tp, name in zip(PLACES, names, strict=False)
    )
    plan = TaskPlan("memory", "billing", START_MS, "1f3a9c2b7d10", 2, ranges)
    assert TaskStates(OF, plan, StateStore(scope, files)).figures.read_files == 2


def test_S10_a_record_of_another_partition_is_rejected() -> None:
    _, task = _task({PLACES[0]: 5})
    with pytest.raises(StateMismatch, match="flights-1"):
        task.add(_rows(PLACES[1], 0, with_topic=False))


def test_S10_several_topics_need_the_column_topic() -> None:
    _, task = _task({PLACES[0]: 5, PLACES[2]: 5})
    with pytest.raises(InvalidOption, match="topic"):
        task.add(_rows(PLACES[0], 0, with_topic=False))
