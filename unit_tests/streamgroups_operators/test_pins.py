"""X7: pins and their records in a directory or an object store: what was written is read, and damage is an error."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption, PinDamaged, SinkUnreachable
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.stable_input.idempotency import COLUMN, idempotency_key
from streamgroups.stable_input.pin_retention import Retention
from streamgroups.stable_input.pins import Pin, PinFile, RecordSegment
from streamgroups.state.file_names import StateFileName
from streamgroups_operators import large_tables
from streamgroups_operators.large_tables import combined
from streamgroups_operators.pin_store import PinStore, check_location, pin_files
from streamgroups_operators.pinned_records import RecordFiles, read_records, write_records
from unit_tests.fake_state_files import FakeStateFiles
from unit_tests.work import work_of

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TOPIC = TopicIdentity("c1", "t1")
NOW_MS = 1_732_334_879_123


def name(attempt: int, *, minutes_ago: int = 0) -> StateFileName:
    return StateFileName(NOW_MS - minutes_ago * 60_000, "1f3a9c2b7d10", 17, attempt)


def batch(*rows: tuple[int, int, str]) -> pa.RecordBatch:
    """Rows of a batch: partition, offset, value."""
    return pa.record_batch(
        {
            "topic": ["orders"] * len(rows),
            "partition": pa.array([row[0] for row in rows], pa.int32()),
            "offset": pa.array([row[1] for row in rows], pa.int64()),
            "value": [row[2] for row in rows],
        }
    )


def read(files: FakeStateFiles, it: OffsetRange, *segments: RecordSegment) -> list[tuple[int, str, str]]:
    rows = read_records(RecordFiles(files), Pin(it, TOPIC, segments), "billing")
    return [] if rows is None else list(zip(*(rows[c].to_pylist() for c in ("offset", "value", COLUMN)), strict=True))


def key(offset: int, n: int = 0, partition: int = 0) -> str:
    return idempotency_key("billing", "orders", partition, offset, n, topic_id="t1")


def test_X7_the_rows_of_a_task_are_stored_by_partition_and_read_by_offset() -> None:
    files, ranges = FakeStateFiles(), [OffsetRange(P0, 10, 20), OffsetRange(P1, 0, 9)]
    rows = [batch((0, 12, "c"), (1, 3, "x")), batch(), batch((0, 10, "a"), (0, 12, "d"))]
    written = {it.topic_partition: it.segment for it in write_records(files, name(4), rows, ranges, ranges)}
    assert read(files, ranges[0], written[P0]) == [(10, "a", key(10)), (12, "c", key(12)), (12, "d", key(12, 1))]
    assert read(files, ranges[1], written[P1]) == [(3, "x", key(3, partition=1))]


def test_X7_a_smaller_batch_reads_a_part_of_a_segment() -> None:
    files, whole = FakeStateFiles(), OffsetRange(P0, 10, 20)
    rows = [batch(*((0, offset, str(offset)) for offset in range(10, 20)))]
    (written,) = write_records(files, name(4), rows, [whole], [whole])
    parts = [read(files, OffsetRange(P0, *part), written.segment) for part in ((10, 13), (13, 20))]
    assert parts[0] + parts[1] == read(files, whole, written.segment)
    assert [offset for offset, *_ in parts[0]] == [10, 11, 12]


def test_X7_rows_above_the_limit_of_arrow_become_several_segments() -> None:
    files, whole = FakeStateFiles(), OffsetRange(P0, 0, 10)
    nested = pa.StructArray.from_arrays([pa.array(["x" * 100] * 30)], ["text"])
    rows = batch(*((0, offset, f"{i}") for i in range(3) for offset in range(9, -1, -1))).append_column(
        "nested", nested
    )
    with patch.object(large_tables, "MAX_BYTES", 1_000):
        written = write_records(files, name(4), [rows.slice(0, 15), rows.slice(15)], [whole], [whole])
        found = read(files, whole, *(it.segment for it in reversed(written)))
    assert len(written) == 4
    assert found == [(offset, f"{n}", key(offset, n)) for offset in range(10) for n in range(3)]


def test_X7_rows_of_more_than_two_gib_are_written() -> None:
    # The chunks share their bytes, so 2.2 GB need 1 MB only.
    text = pa.StructArray.from_arrays([pa.array(["x" * 1_000_000])], ["text"])
    rows = [batch((0, 0, "a")).append_column("nested", text)] * 2_200
    with patch.object(large_tables, "MAX_BYTES", 30_000_000):
        segments = combined(pa.Table.from_batches(rows))
        first = next(segments)
    assert first.num_rows == 30


def test_pinned_offsets_are_not_written_again() -> None:
    files, whole, new = FakeStateFiles(), OffsetRange(P0, 10, 20), OffsetRange(P0, 15, 20)
    (written,) = write_records(files, name(4), [batch((0, 14, "old"), (0, 15, "new"))], [new], [whole])
    assert written.segment.rows == 1
    assert write_records(files, name(5), [batch((0, 14, "old"))], [new], [whole]) == []
    assert write_records(files, name(6), [], [new], [whole]) == []
    assert files.list().keys() == {name(4)}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=30))
def test_X7_keys_do_not_depend_on_the_tasks_of_the_rows(rows: list[tuple[int, int]]) -> None:
    """An operation before the effect can distribute the rows of a record over several tasks."""
    files, whole = FakeStateFiles(), OffsetRange(P0, 0, 10)
    segments = []
    for task in range(3):
        mine = [batch(*((0, offset, f"{i}") for i, (offset, of) in enumerate(rows) if of == task))]
        segments += [it.segment for it in write_records(files, name(task), mine, [whole], [whole])]
    found = read(files, whole, *segments)
    assert sorted(int(value) for _, value, _ in found) == list(range(len(rows)))
    assert len({key for *_, key in found}) == len(rows)
    assert read(files, whole, *reversed(segments)) == found


@pytest.mark.parametrize("row", [(0, 9), (0, 20), (2, 12)])
def test_rows_of_no_record_of_the_batch_are_rejected(row: tuple[int, int]) -> None:
    ranges = [OffsetRange(P0, 10, 20), OffsetRange(P1, 10, 20)]
    with pytest.raises(
        InvalidOption, match=rf"1 of 2 rows .* partition {row[0]} and offset {row[1]}\. .*do not replace"
    ):
        write_records(FakeStateFiles(), name(4), [batch((0, 12, "a"), (*row, "b"))], ranges, ranges)


def test_rows_without_an_offset_are_rejected() -> None:
    rows = batch((0, 12, "a")).set_column(2, "offset", pa.array([None], pa.int64()))
    whole = OffsetRange(P0, 10, 20)
    with pytest.raises(InvalidOption, match="offset None"):
        write_records(FakeStateFiles(), name(4), [rows], [whole], [whole])


def test_times_are_stored_in_utc() -> None:
    files, whole = FakeStateFiles(), OffsetRange(P0, 0, 10)
    seen = pa.array([0], pa.timestamp("us", "America/New_York"))
    (written,) = write_records(files, name(4), [batch((0, 1, "a")).append_column("seen", seen)], [whole], [whole])
    rows = read_records(RecordFiles(files), Pin(whole, TOPIC, (written.segment,)), "billing")
    assert rows is not None
    assert rows["seen"].type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("damage", ["gone", "cut", "altered", "other rows", "no segment"])
def test_damaged_records_are_an_error_and_never_an_empty_pin(damage: str) -> None:
    files, whole = FakeStateFiles(), OffsetRange(P0, 0, 10)
    (written,) = write_records(files, name(4), [batch((0, 1, "a"))], [whole], [whole])
    segment, content = written.segment, files.contents[name(4)]
    files.contents[name(4)] = {"cut": content[:-1], "altered": content[:-1] + b"?"}.get(damage, content)
    if damage == "gone":
        del files.contents[name(4)]
    number, rows = {"other rows": (0, 2), "no segment": (1, 1)}.get(damage, (0, 1))
    with pytest.raises(PinDamaged, match=r"orders-0: the file .* Check that all queries") as found:
        read(files, whole, RecordSegment(segment.file, number, rows))
    assert (found.value.group, found.value.topic, found.value.partition) == ("billing", "orders", 0)


# ---- pin files -------------------------------------------------------------------------------------------------------


def store(pins: FakeStateFiles, records: FakeStateFiles | None = None, *, effect: str = "effect") -> PinStore:
    return PinStore("memory", "billing", effect, pins, records or FakeStateFiles())


def pin_file(file: StateFileName, *segments: RecordSegment) -> PinFile:
    return PinFile(file, "billing", "effect", 3, "struct<>", (Pin(OffsetRange(P0, 0, 10), TOPIC, segments),))


def test_X7_another_owner_finds_the_pins() -> None:
    pins = FakeStateFiles()
    first, second = pin_file(name(1), RecordSegment(name(4), 0, 1)), pin_file(name(2))
    store(pins).write(first)
    owner = store(pins)
    assert owner.all() == [first]
    store(pins).write(second)
    assert sorted(owner.all(), key=lambda it: it.file) == [first, second]
    del pins.contents[name(1)]
    assert owner.all() == [second]


def test_a_damaged_pin_file_is_an_error() -> None:
    pins = FakeStateFiles()
    store(pins).write(pin_file(name(1)))
    pins.contents[name(1)] = pins.contents[name(1)][:-1]
    with pytest.raises(PinDamaged, match="group 'billing' in 'memory' is damaged"):
        store(pins).all()


def test_a_pin_file_of_another_effect_is_an_error() -> None:
    pins = FakeStateFiles()
    store(pins).write(pin_file(name(1)))
    with pytest.raises(PinDamaged, match="belongs to the effect 'effect' of group 'billing', not to 'mails'"):
        store(pins, effect="mails").all()


def test_old_pins_and_their_records_are_deleted() -> None:
    pins, records = FakeStateFiles(lambda: NOW_MS), FakeStateFiles(lambda: NOW_MS)
    old, new, orphan = name(1, minutes_ago=11), name(2), name(3, minutes_ago=61)
    for file in (old, new, orphan):
        records.write(file, memoryview(b"x"))
    of_effect = store(pins, records)
    for file in (old, new):
        of_effect.write(pin_file(file, RecordSegment(file, 0, 1)))
    for files in (pins, records):
        files.written_ms = {file: file.planned_ms for file in files.contents}
    requested = []

    def committed(partitions: object) -> dict[TopicPartition, int]:
        requested.append(partitions)
        return {P0: 10}

    assert of_effect.collect(committed, {P0: TOPIC}, Retention(600_000), NOW_MS) == 3
    assert (pins.list().keys(), records.list().keys(), requested) == ({new}, {new}, [{P0}])


def test_an_invalid_location_is_rejected() -> None:
    with pytest.raises(InvalidOption, match=r"'nfs2://host/x' of stable batches is not supported\. Use a path"):
        check_location("nfs2://user:secret@host/x")


def test_an_unreachable_location_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    location = str(tmp_path / "file" / "below")
    with pytest.raises(SinkUnreachable, match=r"of stable batches cannot be used: Not a directory\. Check 'location'"):
        PinStore(location, "g", "e", pin_files(location, "g", "e"), FakeStateFiles()).write(pin_file(name(1)))


def test_X7_the_work_of_a_task_is_linear_in_its_partitions() -> None:
    def work(n: int) -> int:
        ranges = [OffsetRange(TopicPartition("orders", p), 0, 9) for p in range(n)]
        rows = [batch(*((p, 3, "a") for p in range(n)))]
        return work_of(lambda: write_records(FakeStateFiles(), name(4), rows, ranges, ranges))

    assert work(200) < 2.5 * work(100)


@pytest.mark.parametrize(("most_bytes", "reads"), [(1 << 20, 1), (1, 3)])
def test_X7_a_task_reads_a_file_of_many_pins_once_if_it_is_small(most_bytes: int, reads: int) -> None:
    class Files(FakeStateFiles):
        reads = 0

        def read(self, file: StateFileName) -> memoryview:
            self.reads += 1
            return super().read(file)

    files, ranges = Files(), [OffsetRange(TopicPartition("orders", p), 0, 9) for p in range(3)]
    written = write_records(files, name(4), [batch(*((p, 3, "a") for p in range(3)))], ranges, ranges)
    opened = RecordFiles(files, most_bytes)
    for r, it in zip(ranges, written, strict=True):
        rows = read_records(opened, Pin(r, TOPIC, (it.segment,)), "billing")
        assert rows is not None
        assert rows["partition"].to_pylist() == [r.topic_partition.partition]
    assert files.reads == reads
