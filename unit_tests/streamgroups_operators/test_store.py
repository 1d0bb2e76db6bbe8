"""S10, S11: a store returns exactly what it has written, and an error for all else."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Sequence
from dataclasses import replace

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.errors import StateDamaged, StateMismatch, StateMissing
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.figures import StateSize
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import PartitionState, Segment
from streamgroups.state.origins import Named, New, Unnamed
from streamgroups.state.state_lookup import Empty, OnMissingState, Position, Stored
from streamgroups.state.state_time import StateTime
from streamgroups_operators import store as store_module
from streamgroups_operators.file_format import pack, unpack
from streamgroups_operators.inspection import inspect
from streamgroups_operators.store import NewState, Operator, StateStore
from unit_tests.fake_state_files import FakeStateFiles

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
TOPIC = TopicIdentity("c1", "t1")
SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
COUNTS = Operator("billing", "windows", "count(*)", SCHEMA)


def file(number: int) -> StateFileName:
    return StateFileName(1732334000000 + number, "1f3a9c2b7d10", number, number)


def rows(**counts: int) -> pa.Table:
    return pa.table({"key": list(counts), "n": list(counts.values())}, schema=SCHEMA)


def new(tp: TopicPartition, end: int, /, **parts: list[pa.Table | Segment]) -> NewState:
    return NewState(PartitionState(OffsetRange(tp, 0, end), 0, TOPIC), parts)


def found(store: StateStore, tp: TopicPartition, offset: int, number: int) -> PartitionState:
    choice = store.find(Position(tp, offset, Named(file(number), offset), TOPIC))
    assert isinstance(choice, Stored)
    return choice.state


def stored_rows(store: StateStore, tp: TopicPartition, segments: Sequence[Segment]) -> pa.Table:
    return pa.concat_tables(store.each(tp, segments))


def test_S11_a_state_of_a_later_offset_is_found_only_for_the_plan_of_a_task() -> None:
    files = FakeStateFiles()
    StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)])])
    store, position = StateStore(COUNTS, files), Position(P0, 4, Named(file(1), 5), TOPIC)
    with pytest.raises(StateMismatch, match="position 4 names the state of the later offset 5 of operator 'windows'"):
        store.find(position)
    assert isinstance(store.find_planned(position), Stored)


def test_S10_a_state_is_found_by_the_name_in_the_commit_and_has_its_rows() -> None:
    files = FakeStateFiles()
    StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)], b=[rows(y=2, z=3)]), new(P1, 7, a=[rows(x=9)])])
    store = StateStore(COUNTS, files)
    state = found(store, P0, 5, 1)
    assert stored_rows(store, P0, state.parts["b"]).to_pydict() == {"key": ["y", "z"], "n": [2, 3]}
    assert stored_rows(store, P1, found(store, P1, 7, 1).parts["a"]).to_pydict() == {"key": ["x"], "n": [9]}
    assert (store.figures.read_files, store.figures.read_bytes) == (1, len(files.contents[file(1)]))
    assert store.figures.load_s > 0


def test_S10_a_batch_writes_its_own_rows_and_names_the_earlier_segments() -> None:
    files = FakeStateFiles()
    first = StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)])]).states[0]
    second = StateStore(COUNTS, files).write(file(2), [new(P0, 8, a=[*first.parts["a"], rows(x=2)])])
    assert second.files == {file(1), file(2)}
    size = StateSize.of(second.states[0])
    assert (size.rows, size.row_bytes, size.files) == (2, rows(x=1).nbytes + rows(x=2).nbytes, 2)
    assert inspect(files).state_sizes == {(P0, 5): StateSize(1, rows(x=1).nbytes, 1), (P0, 8): size}
    store = StateStore(COUNTS, files)
    assert stored_rows(store, P0, found(store, P0, 8, 2).parts["a"]).to_pydict() == {"key": ["x", "x"], "n": [1, 2]}
    assert len(files.contents[file(2)]) < 2 * len(files.contents[file(1)])


def test_S10_rows_that_arrow_cannot_combine_are_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow stores at most 2 GiB of a column in one batch."""
    monkeypatch.setattr(store_module, "_combined", lambda table: table)
    files, large = FakeStateFiles(), pa.concat_tables([rows(x=1), rows(y=2, z=3)])
    written = StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[large], b=[rows(v=4)])]).states[0]
    assert [it.rows for it in written.parts["a"]] == [1, 2]
    store = StateStore(COUNTS, files)
    state = found(store, P0, 5, 1)
    assert stored_rows(store, P0, state.parts["a"]).to_pydict() == {"key": ["x", "y", "z"], "n": [1, 2, 3]}
    assert stored_rows(store, P0, state.parts["b"]).to_pydict() == {"key": ["v"], "n": [4]}


def test_S10_segments_in_several_files_are_read_at_once() -> None:
    """Each file is a round trip to an object store, so a merge of many segments would take as many of them."""

    class MeetingFiles(FakeStateFiles):
        """Each read of the segments waits for the others."""

        meeting = threading.Barrier(3, timeout=30)

        def read(self, file: StateFileName) -> memoryview:
            if file != last:
                self.meeting.wait()
            return super().read(file)

    files, last = MeetingFiles(), file(4)
    segments = [
        it
        for n in (1, 2, 3)
        for it in StateStore(COUNTS, files).write(file(n), [new(P0, n, a=[rows(x=n)])]).states[0].parts["a"]
    ]
    StateStore(COUNTS, files).write(last, [new(P0, 4, a=[*segments, rows(x=4)])])
    store = StateStore(COUNTS, files)
    assert stored_rows(store, P0, found(store, P0, 4, 4).parts["a"]).to_pydict() == {
        "key": ["x"] * 4,
        "n": [1, 2, 3, 4],
    }
    assert store.figures.read_files == 4


def test_S10_a_part_without_rows_is_left_out() -> None:
    written = StateStore(COUNTS, FakeStateFiles()).write(file(1), [new(P0, 5, a=[rows()], b=[])])
    assert written.states[0].parts == {}


def test_S10_a_position_of_a_tool_searches_all_files() -> None:
    files = FakeStateFiles()
    for number, end in ((1, 5), (2, 8), (3, 12)):
        state = new(P0, end, a=[rows(x=end)])
        after = None if number == 1 else file(number - 1)
        StateStore(COUNTS, files).write(file(number), [replace(state, state=replace(state.state, after=after))])
    choice = StateStore(COUNTS, files).find(Position(P0, 10, Unnamed(), TOPIC))
    assert isinstance(choice, Stored)
    assert choice.state.next_offset == 8
    assert StateStore(COUNTS, files).find(Position(P0, 10, New(), TOPIC)) == Empty(10)


def test_C3_after_a_restore_a_search_does_not_end_at_a_state_of_the_abandoned_program() -> None:
    files = FakeStateFiles()
    for number, end, after in ((1, 5, None), (2, 8, 1), (3, 6, 1), (4, 9, 3)):
        state = new(P0, end, a=[rows(x=end)])
        name = None if after is None else file(after)
        StateStore(COUNTS, files).write(file(number), [replace(state, state=replace(state.state, after=name))])
    choice = StateStore(COUNTS, files).find(Position(P0, 8, Unnamed(), TOPIC))
    assert isinstance(choice, Stored)
    assert choice.file == file(3)


def test_S10_a_file_that_is_kept_for_another_partition_has_no_state_without_its_rows() -> None:
    """The first file is deleted: its last window is closed, and an idle partition keeps the second file."""
    files = FakeStateFiles()
    first = StateStore(COUNTS, files).write(file(1), [new(P0, 10, a=[rows(x=1)])]).states[0]
    second = new(P0, 20, a=[*first.parts["a"], rows(x=2)])
    StateStore(COUNTS, files).write(file(2), [new(P1, 5, a=[rows(y=1)]), second])
    StateStore(COUNTS, files).write(file(3), [new(P0, 40, a=[rows(x=3)])])
    files.delete([file(1)])
    store = StateStore(COUNTS, files)
    assert isinstance(store.find(Position(P1, 6, Unnamed(), TOPIC)), Stored)
    assert store.find(Position(P0, 25, Unnamed(), TOPIC)) == Empty(0)
    assert inspect(files).missing == {}
    assert [it.next_offset for _, it in inspect(files).latest(25)] == [5]
    files.delete([file(3)])
    assert inspect(files).missing == {file(2): frozenset([file(1)])}


def test_S10_a_store_finds_the_state_that_a_batch_has_written() -> None:
    files = FakeStateFiles()
    StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)])])
    StateStore(COUNTS, files).write(file(2), [new(P1, 7, a=[rows(x=1)])])
    store = StateStore(COUNTS, files)
    found = [store.is_written(Position(tp, n, Unnamed(), TOPIC), New()) for tp in (P0, P1) for n in (5, 7)]
    assert found == [True, False, False, True]


def test_S10_a_lost_file_is_an_error_unless_an_empty_state_is_chosen() -> None:
    files = FakeStateFiles()
    position = Position(P0, 5, Named(file(1), 5), TOPIC)
    with pytest.raises(StateMissing, match=str(file(1))) as rejected:
        StateStore(COUNTS, files).find(position)
    assert (rejected.value.group, rejected.value.topic, rejected.value.partition) == ("billing", "flights", 0)
    assert StateStore(COUNTS, files, OnMissingState.EMPTY).find(position) == Empty(5)


def test_S10_a_lost_segment_is_an_error_whatever_is_chosen() -> None:
    files = FakeStateFiles()
    first = StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)])]).states[0]
    StateStore(COUNTS, files).write(file(2), [new(P0, 8, a=[*first.parts["a"], rows(x=2)])])
    del files.contents[file(1)]
    store = StateStore(COUNTS, files, OnMissingState.EMPTY)
    with pytest.raises(StateMissing, match=str(file(1))):
        stored_rows(store, P0, found(store, P0, 8, 2).parts["a"])


@given(st.data())
def test_S10_a_damaged_file_is_never_a_state(data: st.DataObject) -> None:
    files = FakeStateFiles()
    StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1, y=2)])])
    content = bytearray(files.contents[file(1)])
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    files.contents[file(1)] = bytes(content)
    position = Position(P0, 5, Named(file(1), 5), TOPIC)
    for policy in OnMissingState:
        with pytest.raises(StateDamaged, match=f"{file(1)}.*is damaged"):
            StateStore(COUNTS, files, policy).find(position)


def test_S11_the_state_of_another_definition_group_or_operator_is_rejected() -> None:
    files = FakeStateFiles()
    StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)])])
    position = Position(P0, 5, Named(file(1), 5), TOPIC)
    for other, text in (
        (Operator("billing", "windows", "sum(n)", SCHEMA), "another definition: count"),
        (Operator("orders", "windows", "count(*)", SCHEMA), "belongs to operator 'windows' of group 'billing'"),
        (Operator("billing", "delays", "count(*)", SCHEMA), "belongs to operator 'windows' of group 'billing'"),
    ):
        with pytest.raises(StateMismatch, match=text):
            StateStore(other, files).find(position)


def test_S10_a_segment_that_the_file_does_not_have_is_damage() -> None:
    files = FakeStateFiles()
    state = StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)])]).states[0]
    [segment] = state.parts["a"]
    store = StateStore(COUNTS, files)
    with pytest.raises(StateDamaged, match="no segment 7"):
        stored_rows(store, P0, [Segment(segment.file, 7, 1, 9)])
    with pytest.raises(StateDamaged, match="has 1 rows, not 2"):
        stored_rows(store, P0, [Segment(segment.file, 0, 2, 9)])


@given(st.data())
def test_S10_damage_behind_a_right_checksum_is_an_error_that_names_the_file(data: st.DataObject) -> None:
    """Another program can have written the file. Arrow reports damage at each of its own steps."""
    files = FakeStateFiles()
    state = (
        StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(**{f"k{i}": i for i in range(50)})])]).states[0]
    )
    body = bytearray(files.contents[file(1)][64:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    header = f"streamgroups state 1 crc32={zlib.crc32(body):08x} bytes={len(body):016d}".ljust(63) + "\n"
    files.contents[file(1)] = header.encode() + bytes(body)
    try:
        assert stored_rows(StateStore(COUNTS, files), P0, state.parts["a"]).schema == SCHEMA
    except (StateDamaged, StateMismatch) as e:
        reason = str(e)
    else:
        return
    assert str(file(1)) in reason


@pytest.mark.parametrize("column", [pa.array(["1"]), pa.array([1], pa.int32())])
def test_S10_a_segment_with_other_columns_is_damage(column: pa.Array) -> None:
    files = FakeStateFiles()
    state = StateStore(COUNTS, files).write(file(1), [new(P0, 5, a=[rows(x=1)])]).states[0]
    other = pa.record_batch({"key": ["x"], "n": column})
    text, _ = unpack(memoryview(files.contents[file(1)]))
    files.contents[file(1)] = pack(text, other.schema, [other]).tobytes()
    with pytest.raises(StateDamaged, match=rf"'{file(1)}'.*segment 0 has other columns: key string, n {column.type}"):
        stored_rows(StateStore(COUNTS, files), P0, state.parts["a"])


@given(st.binary(max_size=300))
def test_S10_other_content_is_not_a_state_file(content: bytes) -> None:
    with pytest.raises(ValueError, match="it is not a state file"):
        unpack(memoryview(content))


def test_S10_types_of_any_column_survive() -> None:
    schema = pa.schema(
        [("k", pa.struct([("a", pa.list_(pa.string()))])), ("d", pa.decimal128(20, 3)), ("b", pa.binary())]
    )
    made = random.Random(3)
    table = pa.table(
        {
            "k": [{"a": [str(made.random())] * (i % 3)} if i % 5 else None for i in range(100)],
            "d": [None if i % 7 == 0 else i for i in range(100)],
            "b": [made.randbytes(i) for i in range(100)],
        },
        schema=schema,
    )
    text, segments = unpack(pack("{}", schema, table.to_batches()))
    assert text == "{}"
    assert segments.get_batch(0).replace_schema_metadata(None) == table.to_batches()[0]


def test_C3_the_error_of_changed_windows_names_the_records_that_are_read_again() -> None:
    files = FakeStateFiles()
    time = StateTime(1_732_334_815_000, 1_732_334_820_000)
    parts = {"1732334820000": [rows(x=1)], "1732334880000": [rows(x=2)]}
    state = NewState(PartitionState(OffsetRange(P0, 0, 5), 0, TOPIC, time=time), parts)
    StateStore(COUNTS, files).write(file(1), [state])
    changed = StateStore(Operator("billing", "windows", "max(n)", SCHEMA), files)
    with pytest.raises(StateMismatch) as rejected:
        changed.find(Position(P0, 5, Named(file(1), 5), TOPIC))
    # The next record can open a window at the watermark.
    assert "flights-0 are open from 2024-11-23T04:06:55.000Z on" in rejected.value.remedy
    assert (
        "groups reset billing --all-topics --to-datetime 2024-11-23T04:06:55.000Z --ignore-state"
        in rejected.value.remedy
    )


def test_C3_the_error_of_a_missing_file_names_the_changes_of_a_program() -> None:
    with pytest.raises(StateMissing) as missing:
        StateStore(COUNTS, FakeStateFiles()).find(Position(P0, 5, Named(file(1), 5), TOPIC))
    assert "--without and --rename" in missing.value.remedy
