"""W15: the header that a producer sets, and the observation of a watermark in a partition."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption
from streamgroups.event_time.explanation import explain
from streamgroups.event_time.imported_watermark import check_imports
from streamgroups.event_time.observations import Observation, TaskObservation, observations
from streamgroups.event_time.producer_watermarks import watermark_header
from streamgroups.event_time.settings import TimeSettings, time_settings
from streamgroups.event_time.source_time import PartitionTime, SourceTime, add_partitions, observe, poll
from streamgroups.event_time.stored_time import TimeState, time_in_entries
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.time_entries import write_entry
from streamgroups.event_time.watermark import NOT_YET, At
from streamgroups.partitions import OffsetRange
from unit_tests.streamgroups.event_time.tables import P0, P1

BY_PRODUCERS = TimeSettings(watermark_header="w")


@given(st.integers(0, 10**13), st.sampled_from([-11, 0, 5]), st.integers(0, 999))
def test_a_datetime_and_its_milliseconds_are_the_same_watermark(time_ms: int, hours: int, us: int) -> None:
    zone = timezone(timedelta(hours=hours))
    time = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms, microseconds=us)
    assert watermark_header(time.astimezone(zone)) == watermark_header(time_ms)
    assert watermark_header(time_ms) == ("streamgroups-watermark", f"{time_ms}".encode())


@pytest.mark.parametrize(
    ("time", "why"),
    [
        (datetime(2013, 1, 1), "has no time zone"),
        (datetime(1969, 12, 31, tzinfo=timezone.utc), "is before 1970"),
        (-1, "is before 1970"),
        (1_732_334_879_123_000, "has more than 15 digits"),
        (1_732_334_879.5, "is not a time"),
        ("1732334879123", "is not a time"),
        (True, "is not a time"),
        (None, "is not a time"),
    ],
)
def test_other_times_are_rejected(time: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=rf"^Option 'time' is .*, which {why}\. Pass a datetime with a time zone"):
        watermark_header(time)


def test_a_header_needs_a_name() -> None:
    with pytest.raises(InvalidOption, match="Option 'name' is ' ', which is empty"):
        watermark_header(1, name=" ")


def test_the_later_watermark_of_records_and_producer_counts() -> None:
    first = poll(PartitionTime(), Observation(1, 9, 1, 600, producer_ms=500), Generation(), now_ms=0)
    assert first.watermark == At(600)
    assert poll(first, Observation(2, 9, producer_ms=900), Generation(), now_ms=0).watermark == At(900)
    assert poll(first, Observation(2, 9, producer_ms=100), Generation(), now_ms=0).watermark == At(600)
    only = poll(PartitionTime(), Observation(2, 2, 1, 600, producer_ms=100), None, now_ms=0)
    assert (only.watermark, only.event_time_ms) == (At(100), 600)


def test_a_task_reports_records_and_watermarks_of_one_offset() -> None:
    seen = [TaskObservation(P0, 5, 3, 700), TaskObservation(P0, 5, 0, None, 650), TaskObservation(P0, 8, 0, None, 800)]
    for reported in (seen, [*seen, *seen], seen[::-1]):
        assert observations([OffsetRange(P0, 5, 9)], reported)[P0] == Observation(9, 10, 3, 700, 800)
    assert observations([OffsetRange(P0, 5, 8)], seen)[P0].producer_ms == 650


def test_a_silent_partition_with_a_marker_does_not_hold_back_the_watermark() -> None:
    state = add_partitions(SourceTime(), {P0: None, P1: None})
    state = observe(state, {P0: Observation(3, 3, 3, 900, producer_ms=400), P1: Observation(1, 1)}, BY_PRODUCERS, 0)
    assert state.watermark == NOT_YET
    assert [it.state for it in explain(state, BY_PRODUCERS)] == [
        "ahead; no available records for 0 s",
        "holds back the watermark: no event time yet",
    ]
    state = observe(state, {P1: Observation(2, 2, producer_ms=500)}, BY_PRODUCERS, 0)
    assert state.watermark == At(400)
    assert [(it.watermark_ms, it.event_time_ms) for it in explain(state, BY_PRODUCERS)][1] == (500, None)


def test_a_group_shows_the_watermarks_of_producers() -> None:
    entries = {
        P0: write_entry(PartitionTime(900, At(400)), BY_PRODUCERS),
        P1: write_entry(PartitionTime(None, At(500)), BY_PRODUCERS),
    }
    found = time_in_entries(entries, {P0: 0, P1: 0})
    assert found is not None
    assert found.watermark == At(400)
    assert [it.state for it in found.partitions.values()] == [TimeState.HOLDS_BACK, TimeState.AHEAD]


def test_the_header_alone_is_a_watermark_strategy() -> None:
    assert time_settings({}, {"watermarkHeader": "w"}) == BY_PRODUCERS
    check_imports("prices", {"prices": TimeSettings(import_from="trades"), "trades": BY_PRODUCERS})
    with pytest.raises(InvalidOption, match="'watermarkHeader' on the source if producers emit it"):
        time_settings({}, {"watermarkHeader": "none"})
