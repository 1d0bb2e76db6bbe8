"""O1, W2: at a cut of event time, no record at or after the cut lies before the position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.event_time.cuts import Cut, Scan, cut_by_header, cut_by_timestamp, scan_of, scanned
from streamgroups.partitions import Bounds, OffsetRange, StampedOffset, TopicPartition

TP = TopicPartition("flights", 0)
#: Records: the gap before each, its timestamp, and its event time.
RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 100), st.none() | st.integers(0, 100)), max_size=12)


class Partition:
    """A partition of these records, whose earliest records are deleted."""

    def __init__(self, records: list[tuple[int, int, int | None]], deleted: int) -> None:
        offset, self.records = 0, list[tuple[int, int, int | None]]()
        for gap, timestamp_ms, event_ms in records:
            offset += gap
            self.records.append((offset, timestamp_ms, event_ms))
            offset += 1
        self.records = self.records[deleted:]
        self.bounds = Bounds(self.records[0][0] if self.records else offset, offset)

    def at(self, time_ms: int) -> StampedOffset | None:
        """The index of the broker."""
        return next((StampedOffset(n, ms) for n, ms, _ in self.records if ms >= time_ms), None)

    def scan(self, scan: Scan, cut_ms: int) -> Scan:
        for offset, _, event_ms in self.records:
            if scan.range.next_offset <= offset < scan.range.end_offset and scan.found_offset is None:
                scan = scanned(scan, offset, event_ms, cut_ms)
        return scan


@given(RECORDS, st.integers(0, 3), st.integers(0, 110))
def test_no_record_from_the_cut_on_lies_before_the_position(
    records: list[tuple[int, int, int | None]], deleted: int, cut_ms: int
) -> None:
    partition = Partition(records, deleted)
    cut = cut_by_timestamp(partition.bounds, partition.at(0), partition.at(cut_ms))
    assert partition.bounds.beginning_offset <= cut.next_offset <= partition.bounds.end_offset
    assert all(ms < cut_ms for offset, ms, _ in partition.records if offset < cut.next_offset)
    here = [ms for offset, ms, _ in partition.records if offset == cut.next_offset]
    assert all(ms >= cut_ms for ms in here), "it is the last such position"


@given(RECORDS, st.integers(0, 3), st.integers(0, 110), st.integers(1, 60))
def test_no_scanned_record_from_the_cut_on_lies_before_the_position(
    records: list[tuple[int, int, int | None]], deleted: int, cut_ms: int, scan_ms: int
) -> None:
    partition = Partition(records, deleted)
    bounds = partition.bounds
    scan = scan_of(TP, bounds, partition.at(max(cut_ms - scan_ms, 0)), partition.at(cut_ms + scan_ms))
    scan = partition.scan(scan, cut_ms)
    cut = cut_by_header(bounds, partition.at(0), scan)
    assert bounds.beginning_offset <= cut.next_offset <= bounds.end_offset
    assert scan.range.next_offset <= cut.next_offset
    before = [ms for offset, _, ms in partition.records if scan.range.next_offset <= offset < cut.next_offset]
    assert all(ms is None or ms < cut_ms for ms in before)
    if scan.found_offset is not None:
        [found_ms] = [ms for offset, _, ms in partition.records if offset == cut.next_offset]
        assert found_ms is not None
        assert found_ms >= cut_ms
    assert (scan.records, scan.without_time) == (
        len(before) + (scan.found_offset is not None),
        sum(ms is None for ms in before),
    )


@given(RECORDS, st.integers(0, 110))
def test_a_scan_of_all_records_needs_no_assumption_about_timestamps(
    records: list[tuple[int, int, int | None]], cut_ms: int
) -> None:
    partition = Partition(records, 0)
    scan = partition.scan(scan_of(TP, partition.bounds, partition.at(0), None), cut_ms)
    assert all(ms is None or ms < cut_ms for offset, _, ms in partition.records if offset < scan.position)


@pytest.mark.parametrize(
    ("bounds", "first", "found", "expected"),
    [
        (Bounds(4, 4), None, None, Cut(4, "no records")),
        (Bounds(2, 4), None, None, Cut(4, "no records")),
        (Bounds(0, 4), 0, None, Cut(4, "after all records")),
        (Bounds(0, 4), 0, 0, Cut(0, "")),
        (Bounds(2, 4), 2, 2, Cut(2, "the earliest record; earlier ones are deleted")),
        (Bounds(2, 6), 4, 4, Cut(4, "the earliest record; earlier ones are deleted")),
        (Bounds(2, 4), 2, 3, Cut(3, "")),
    ],
)
def test_the_plan_shows_the_ends_of_a_partition(
    bounds: Bounds, first: int | None, found: int | None, expected: Cut
) -> None:
    def stamped(offset: int | None) -> StampedOffset | None:
        return None if offset is None else StampedOffset(offset, 7)

    assert cut_by_timestamp(bounds, stamped(first), stamped(found)) == expected


@pytest.mark.parametrize(
    ("scan", "detail"),
    [
        (Scan(OffsetRange(TP, 2, 2)), "no record has a timestamp within the scan"),
        (Scan(OffsetRange(TP, 9, 9)), "after all records"),
        (Scan(OffsetRange(TP, 2, 9), 5), "scanned 5 records from offset 2 to 8, no record at or after the time"),
        (Scan(OffsetRange(TP, 4, 9), 3, 2, 7), "scanned 3 records from offset 4 to 7, 2 without the header"),
        (
            Scan(OffsetRange(TP, 2, 9), 1, 0, 2),
            "scanned 1 record from offset 2 to 2; the earliest record; earlier ones are deleted",
        ),
    ],
)
def test_the_plan_shows_the_scan(scan: Scan, detail: str) -> None:
    assert cut_by_header(Bounds(2, 9), StampedOffset(2, 7), scan).detail == detail


def test_an_empty_partition_has_no_scan() -> None:
    assert cut_by_header(Bounds(5, 5), None, scan_of(TP, Bounds(5, 5), None, None)) == Cut(5, "no records")
