"""S10: the work of a search, a collection and an inspection of states is linear in the number of states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
import pytest

from streamgroups.identity import UNKNOWN
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState, Segment
from streamgroups.state.origins import UNNAMED
from streamgroups.state.state_lookup import OnMissingState, Position, Stored, choose
from streamgroups.state.state_retention import Retention, deletable
from streamgroups_operators.batch_search import BatchSearch
from streamgroups_operators.dedup.seen_ids import forget_filters
from streamgroups_operators.inspection import Inspection, StateRows
from streamgroups_operators.store import NewState, Operator, StateStore, StoredStates
from unit_tests.fake_state_files import FakeStateFiles
from unit_tests.streamgroups_operators import dedup_model, test_function_operator
from unit_tests.work import work_of

#: The partitions of a task, and the batches of each partition.
PARTITIONS, BATCHES = 5, 3


def tp(partition: int) -> TopicPartition:
    return TopicPartition("flights", partition)


def file(batch: int, task: int) -> StateFileName:
    return StateFileName(1_732_334_000_000 + batch, "1f3a9c2b7d10", batch, task)


def state(partition: int, batch: int, of: StateFileName) -> PartitionState:
    r = OffsetRange(tp(partition), 10 * batch, 10 * batch + 10)
    return PartitionState(r, 0, UNKNOWN, {"0": (Segment(of, 0, 1, 8),)})


def manifests(tasks: int) -> list[Manifest]:
    return [
        Manifest(
            of, "billing", "windows", "", tuple(state(task * PARTITIONS + p, batch, of) for p in range(PARTITIONS))
        )
        for batch in range(BATCHES)
        for task in range(tasks)
        for of in [file(batch, task)]
    ]


def collected(tasks: int) -> int:
    """The work of a collection after a reset by Kafka's tool: no position names its state."""
    found = manifests(tasks)
    positions = [Position(tp(p), 15, UNNAMED) for p in range(tasks * PARTITIONS)]
    ages_ms = dict.fromkeys((it.file for it in found), 5)
    return work_of(lambda: deletable(found, positions, Retention(1, 1), ages_ms))


def collected_task(tasks: int) -> int:
    """The work of a collection of one file of a task with many partitions."""
    of = file(0, 0)
    found = Manifest(of, "billing", "windows", "", tuple(state(p, 0, of) for p in range(tasks * PARTITIONS)))
    return work_of(lambda: deletable([found], [], Retention(10, 1), {of: 5}))


def searched(batches: int) -> int:
    """The work of a search between two of many states."""
    files = [file(batch, 0) for batch in range(batches)]
    found = [Manifest(it, "billing", "windows", "", (state(0, i, it),)) for i, it in enumerate(files)]
    return work_of(lambda: choose(Position(tp(0), 10 * batches - 5, UNNAMED), found, OnMissingState.FAIL))


def inspected(tasks: int) -> int:
    found = manifests(tasks)
    inspection = Inspection(dict.fromkeys((it.file for it in found), 1), tuple(found))
    return work_of(lambda: (list(inspection.latest()), inspection.missing))


@pytest.mark.parametrize("work", [collected, collected_task, searched, inspected])
def test_S10_the_work_is_linear_in_the_number_of_states(work: Callable[[int], int]) -> None:
    assert work(80) < 2.5 * work(40)


class CountedFiles(FakeStateFiles):
    """Counts its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()

    def list(self) -> dict[StateFileName, int]:
        self.requests["list"] += 1
        return super().list()

    def read(self, file: StateFileName) -> memoryview:
        self.requests["read"] += 1
        return super().read(file)


def test_S10_the_searches_of_a_batch_list_and_read_each_file_once() -> None:
    files, tasks = CountedFiles(), 4
    operator = Operator("billing", "windows", "", pa.schema([("n", pa.int64())]))

    def write(batch: int) -> None:
        for task in range(tasks):
            of = file(batch, task)
            ranges = [OffsetRange(tp(task * PARTITIONS + p), 10 * batch, 10 * batch + 10) for p in range(PARTITIONS)]
            StateStore(operator, files).write(of, [NewState(PartitionState(r, 0, UNKNOWN), {}) for r in ranges])

    def found(next_offset: int) -> set[StateFileName]:
        with search.searching():
            choices = [search.find(Position(tp(p), next_offset, UNNAMED)) for p in range(tasks * PARTITIONS)]
        return {it.file for it in choices if isinstance(it, Stored)}

    write(0)
    search = BatchSearch(lambda: StoredStates("billing", "windows", files))
    assert found(15) == {file(0, task) for task in range(tasks)}
    assert files.requests == {"list": 1, "read": tasks}
    write(1)
    # The next batch finds newer states.
    assert found(20) == {file(1, task) for task in range(tasks)}


class CountedStore(StateStore):
    """Counts the segments that are read at once."""

    reads: ClassVar[list[int]] = []

    def each(self, topic_partition: TopicPartition, segments: Sequence[Segment]) -> Iterator[pa.Table]:
        self.reads.append(len(segments))
        return super().each(topic_partition, segments)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of segments that the operators read at once."""
    for module in (dedup_model, test_function_operator):
        monkeypatch.setattr(module, "StateStore", CountedStore)
    CountedStore.reads.clear()
    return CountedStore.reads


def test_S10_a_function_reads_its_segments_at_once(reads: list[int]) -> None:
    records = [test_function_operator.Record(str(n), 1, n) for n in range(14)]
    query = test_function_operator.Query()
    for first, end in ((0, 9), (9, 13), (13, 14)):
        query.advance(records, first, end)
    reads.clear()
    query.advance([*records, records[0]], 14, 15)
    # The second read merges the segments.
    assert reads == [3, 3]


def test_X5_S10_filters_and_ids_are_read_at_once(reads: list[int]) -> None:
    records = [dedup_model.Record(n, dedup_model.START_MS) for n in range(14)]
    query = dedup_model.Query()
    for end in (9, 13, 14):
        query.advance(records, end)
    reads.clear()
    forget_filters()
    assert query.advance([*records, *(records[n] for n in (0, 10, 13))], 17)[1] == []
    assert reads == [3, 3]


def test_S10_the_rows_of_many_parts_of_a_file_are_read_at_once() -> None:
    files = CountedFiles()
    operator = Operator("billing", "windows", "", pa.schema([("n", pa.int64())]))
    new = NewState(
        PartitionState(OffsetRange(tp(0), 0, 9), 0, UNKNOWN), {str(n): [pa.table({"n": [n]})] for n in range(9)}
    )
    [written] = StateStore(operator, files).write(file(0, 0), [new]).states
    rows = StateRows(files)
    assert [rows.of(segments)["n"].to_pylist() for segments in written.parts.values()] == [[n] for n in range(9)]
    assert files.requests == {"read": 1}
