"""Histories survive being written, being killed while written, and being read by others."""

from __future__ import annotations

import threading

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.groups.history import Event, EventRecorder, Kind, MemberEvent, no_history, parse, parse_lines, to_line
from streamgroups.partitions import OffsetRange, TopicPartition
from unit_tests.streamgroups.strategies import OFFSETS, TOPIC_PARTITIONS, range_lists

EVENTS = st.builds(
    Event,
    time_ms=st.integers(0, 10**13),
    group_id=st.text(),
    member=st.text(),
    run=st.text(),
    kind=st.sampled_from(Kind),
    offsets=st.dictionaries(TOPIC_PARTITIONS, OFFSETS),
    ranges=range_lists(),
    batch=st.none() | st.integers(0, 2**63 - 1),
    detail=st.text(),
)
RELEASED = to_line(Event(17, "airline", "alice", "r", Kind.RELEASED, {TopicPartition("flights", 0): 5}, detail="{}"))


@given(EVENTS)
def test_what_is_written_is_read_back_from_one_line(event: Event) -> None:
    line = to_line(event)
    assert len(line.splitlines()) == 1
    assert parse(line) == event


@given(st.lists(EVENTS, max_size=5))
def test_histories_are_ordered_by_time(events: list[Event]) -> None:
    found = parse_lines(to_line(e) + "\n" for e in events)
    assert found == sorted(events, key=lambda e: e.time_ms)


@pytest.mark.parametrize("length", range(len(RELEASED)))
def test_a_last_line_cut_anywhere_by_a_kill_is_passed_over(length: int) -> None:
    whole = RELEASED + "\n"
    assert parse_lines([whole, RELEASED[:length]]) == [parse(whole)]


def test_a_last_line_that_lacks_only_its_line_feed_counts() -> None:
    assert len(parse_lines([RELEASED + "\n", RELEASED])) == 2


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        RELEASED.replace("released", "exploded"),
        RELEASED.replace('{"flights":{"0":5}}', "[1]"),
        RELEASED.replace('"0"', '"zero"'),
        RELEASED.replace('"detail"', '"ranges":[["flights",0,9,5]],"detail"'),
    ],
)
def test_a_complete_line_that_is_not_an_event_is_rejected(line: str) -> None:
    with pytest.raises(ValueError, match="invalid history line"):
        parse_lines([line + "\n"])


def test_a_recorder_stamps_and_keeps_an_event_while_it_holds_the_guard() -> None:
    guard, kept, held = threading.Lock(), [], []
    flights = TopicPartition("flights", 0)

    def clock() -> int:
        held.append(guard.locked())
        return 17

    def keep(event: Event) -> None:
        held.append(guard.locked())
        kept.append(event)

    record = EventRecorder(keep, clock, "airline", "alice", "r", guard)
    record(MemberEvent(Kind.PLANNED, offsets={flights: 5}, ranges=(OffsetRange(flights, 5, 9),), batch=3, detail="n"))
    ranges = (OffsetRange(flights, 5, 9),)
    assert kept == [Event(17, "airline", "alice", "r", Kind.PLANNED, {flights: 5}, ranges, 3, "n")]
    assert held == [True, True]
    assert not guard.locked()


def test_no_history_takes_everything_and_keeps_nothing() -> None:
    no_history(MemberEvent(Kind.PLANNED, offsets={}, ranges=(), batch=1, detail="n"))
