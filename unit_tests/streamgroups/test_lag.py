"""O3, G13: lag in records and in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamgroups.groups.lag import (
    CountedLag,
    FirstOfLag,
    NoLag,
    PartitionError,
    PartitionLag,
    total,
)
from streamgroups.partitions import Bounds, StampedOffset, TopicPartition

TP = TopicPartition("flights", 0)
OFFSETS = st.integers(0, 1_000)


@st.composite
def lags(draw: st.DrawFn) -> PartitionLag:
    beginning = draw(OFFSETS)
    end = beginning + draw(OFFSETS)
    committed = draw(st.none() | OFFSETS)
    first: FirstOfLag | None = draw(
        st.one_of(st.none(), st.just(NoLag()), st.builds(StampedOffset, st.integers(beginning, end), st.just(5_000)))
    )
    return PartitionLag(TP, committed, Bounds(beginning, end), first)


@given(lags(), st.integers(0, 10_000))
def test_lag_is_never_negative_and_never_more_than_what_is_there(lag: PartitionLag, now_ms: int) -> None:
    assert isinstance(lag.bounds, Bounds)
    if lag.committed_offset is None:
        assert (lag.records, lag.time_ms(now_ms), lag.reading_offset) == (None, None, None)
        return
    assert lag.records is not None
    assert lag.reading_offset is not None
    assert 0 <= lag.records <= lag.bounds.end_offset - lag.reading_offset
    assert lag.bounds.beginning_offset <= lag.reading_offset <= lag.bounds.end_offset
    behind_ms = lag.time_ms(now_ms)
    assert behind_ms is None or behind_ms >= 0
    assert (behind_ms == 0) >= (lag.records == 0)


def test_O3_counted_records_count_and_a_bound_is_marked() -> None:
    counted = PartitionLag(TP, 2, Bounds(0, 10), counted=CountedLag(3, open=4))
    assert (counted.records, counted.open_records, counted.is_exact) == (3, 4, True)
    bound = PartitionLag(TP, 2, Bounds(0, 10), counted=CountedLag(7, is_exact=False))
    assert (bound.records, bound.is_exact) == (7, False)
    with_first = PartitionLag(TP, 2, Bounds(0, 10), StampedOffset(8, 0), counted=CountedLag(7, is_exact=False))
    assert (with_first.records, with_first.is_exact) == (2, False), "offsets before the first record do not count"
    assert not PartitionLag(TP, 2, Bounds(0, 10)).is_exact
    at_end = PartitionLag(TP, 10, Bounds(0, 10))
    assert (at_end.is_exact, at_end.open_records) == (True, 0)
    unknown = PartitionLag(TP, None, Bounds(0, 10))
    assert (unknown.records, unknown.open_records) == (None, None)


@given(lags())
def test_the_first_available_record_never_makes_the_lag_larger(lag: PartitionLag) -> None:
    unseen = PartitionLag(TP, lag.committed_offset, lag.bounds)
    assert unseen.records is None or lag.records is None or lag.records <= unseen.records


def test_O3_G13_markers_at_the_end_are_no_lag() -> None:
    assert PartitionLag(TP, 9, Bounds(0, 10)).records == 1
    assert PartitionLag(TP, 9, Bounds(0, 10), NoLag()).records == 0
    assert PartitionLag(TP, 9, Bounds(0, 10), NoLag()).time_ms(10_000) == 0


def test_a_clock_that_is_ahead_makes_no_negative_lag() -> None:
    assert PartitionLag(TP, 9, Bounds(0, 10), StampedOffset(9, 20_000)).time_ms(10_000) == 0
    assert PartitionLag(TP, 9, Bounds(0, 10), StampedOffset(9, None)).time_ms(10_000) is None


def test_records_that_were_deleted_before_they_were_read_are_distinguished() -> None:
    lag = PartitionLag(TP, 3, Bounds(10, 15))
    assert (lag.records, lag.lost_records, lag.error) == (5, 7, PartitionError.EXPIRED)


def test_an_offset_past_the_end_is_no_negative_lag() -> None:
    lag = PartitionLag(TP, 30, Bounds(0, 15))
    assert (lag.records, lag.error) == (0, PartitionError.PAST_END)


def test_a_partition_that_is_gone_has_no_lag() -> None:
    lag = PartitionLag(TP, 30, PartitionError.NO_PARTITION)
    assert (lag.records, lag.time_ms(0), lag.error) == (None, None, PartitionError.NO_PARTITION)


@given(st.lists(st.none() | st.integers(0, 9)))
def test_a_sum_is_of_what_is_known(values: list[int | None]) -> None:
    known = [v for v in values if v is not None]
    assert total(values) == (sum(known) if known or not values else None)
