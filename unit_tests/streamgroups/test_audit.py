"""G11, G12, S1, S3: an audit finds what was planted and nothing in clean histories."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.groups.audit import OwnershipEpoch, overlaps, ownership_epochs, read_again, uncommitted
from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from unit_tests.old_positions import reads_at_old_places

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def event(time_ms: int, member: str, kind: Kind, *partitions: TopicPartition, run: str = "r") -> Event:
    return Event(time_ms, "airline", member, run, kind, dict.fromkeys(partitions, 0))


def planned(time_ms: int, member: str, first: int, end: int, tp: TopicPartition = P0) -> Event:
    return Event(time_ms, "airline", member, "r", Kind.PLANNED, ranges=(OffsetRange(tp, first, end),))


def ownership_epoch(member: str, begin_ms: int, end_ms: int, tp: TopicPartition = P0, run: str = "r") -> OwnershipEpoch:
    return OwnershipEpoch(tp, member, run, begin_ms, end_ms, "released")


def test_ownership_epochs_end_in_four_ways() -> None:
    events = [
        event(1, "a", Kind.ASSIGNED, P0, P1),
        event(5, "a", Kind.RELEASED, P0),
        event(6, "b", Kind.ASSIGNED, P0),
        event(8, "b", Kind.LOST, P0),
        event(8, "a", Kind.CLOSED),
        event(9, "c", Kind.ASSIGNED, P0, P1),
        event(12, "c", Kind.COMMITTED, P0),
    ]
    assert [(str(t.topic_partition), t.member, t.begin_ms, t.end_ms, t.ended) for t in ownership_epochs(events)] == [
        ("flights-0", "a", 1, 5, "released"),
        ("flights-0", "b", 6, 8, "lost"),
        ("flights-0", "c", 9, 12, "silent"),
        ("flights-1", "a", 1, 8, "closed"),
        ("flights-1", "c", 9, 12, "silent"),
    ]
    assert not overlaps(ownership_epochs(events))


def test_two_runs_of_one_name_are_two_members() -> None:
    events = [event(1, "a", Kind.ASSIGNED, P0, run="1"), event(9, "a", Kind.COMMITTED, P0, run="1")]
    events += [event(5, "a", Kind.ASSIGNED, P0, run="2"), event(7, "a", Kind.CLOSED, run="2")]
    assert [(x.run, y.run) for x, y in overlaps(ownership_epochs(events))] == [("1", "2")]


def test_G11_every_overlap_is_found_behind_a_long_ownership_epoch_too() -> None:
    long, first, second = ownership_epoch("a", 0, 100), ownership_epoch("b", 10, 20), ownership_epoch("c", 30, 40)
    elsewhere, after = ownership_epoch("d", 10, 20, P1), ownership_epoch("e", 100, 110)
    assert overlaps([after, second, elsewhere, long, first]) == [(long, first), (long, second)]


OWNERSHIP_EPOCHS = st.builds(
    lambda who, begin, length, tp: ownership_epoch(who, begin, begin + length, tp),
    st.sampled_from("abc"),
    st.integers(0, 30),
    st.integers(0, 10),
    st.sampled_from([P0, P1]),
)


@given(st.lists(OWNERSHIP_EPOCHS, max_size=8))
def test_G11_overlaps_are_what_comparing_every_pair_finds(found: list[OwnershipEpoch]) -> None:
    ordered = sorted(found, key=lambda t: (t.topic_partition, t.begin_ms, t.end_ms))
    expected = [
        (x, y)
        for i, x in enumerate(ordered)
        for y in ordered[i + 1 :]
        if x.topic_partition == y.topic_partition and x.member != y.member and y.begin_ms < x.end_ms
    ]
    assert sorted(overlaps(found), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([planned(1, "a", 0, 10), planned(2, "b", 10, 20)], []),
        ([planned(1, "a", 0, 10), planned(2, "b", 0, 10, P1)], []),
        ([planned(1, "a", 5, 5), planned(2, "b", 0, 10)], []),
        ([planned(1, "b", 0, 10), planned(2, "a", 0, 10)], [("[0,10)", "ba")]),
        ([planned(1, "a", 0, 10), planned(2, "b", 6, 12)], [("[6,10)", "ab")]),
        ([planned(1, "a", 0, 10), planned(2, "b", 0, 5), planned(3, "b", 5, 20)], [("[0,10)", "ab")]),
        (
            [planned(1, "a", 0, 10), planned(2, "b", 0, 8), planned(3, "c", 4, 10)],
            [("[0,4)", "ab"), ("[4,8)", "abc"), ("[8,10)", "ac")],
        ),
        ([planned(1, "a", 0, 9), planned(2, "b", 1, 2), planned(3, "b", 5, 6)], [("[1,2)", "ab"), ("[5,6)", "ab")]),
    ],
)
def test_G12_records_that_were_read_again_and_their_readers(
    events: list[Event], expected: list[tuple[str, str]]
) -> None:
    found = [(str(r.offsets).removeprefix("flights-0"), "".join(r.by)) for r in read_again(events)]
    assert found == expected


READS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 8)), max_size=8)


@given(READS)
def test_G12_read_again_is_what_counting_every_offset_finds(reads: list[tuple[str, int, int]]) -> None:
    by: defaultdict[int, str] = defaultdict(str)
    for who, first, length in reads:
        for offset in range(first, first + length):
            by[offset] += who
    found = read_again(planned(i, who, first, first + length) for i, (who, first, length) in enumerate(reads))

    assert {o: "".join(r.by) for r in found for o in range(r.offsets.next_offset, r.offsets.end_offset)} == {
        o: who for o, who in by.items() if len(who) > 1
    }
    for earlier, later in pairwise(found):
        assert earlier.offsets.end_offset < later.offsets.next_offset or earlier.by != later.by


def at(kind: Kind, next_offset: int = 0, *, run: str = "r") -> Event:
    return Event(0, "airline", "a", run, kind, {P0: next_offset}, batch=1)


BATCH = planned(0, "a", 10, 20)
LIVES_ON = [
    at(Kind.FINISHED),
    planned(0, "a", 5, 9, P1),
    event(0, "a", Kind.ASSIGNED, P1),
    event(0, "a", Kind.MOVED, P1),
]


class TestUncommitted:
    """G11, G12, and what excuses a range that comes twice. A history that lies about a handover is found out."""

    @pytest.mark.parametrize("and_then", LIVES_ON, ids=lambda e: e.kind.value)
    @pytest.mark.parametrize("before", [[], [at(Kind.FINISHED)]], ids=["in flight", "finished"])
    def test_G11_a_handover_by_a_member_that_lives_on_is_no_excuse(self, before: list[Event], and_then: Event) -> None:
        events = [BATCH, *before, at(Kind.RELEASED), and_then, event(0, "a", Kind.CLOSED)]
        assert next((str(u.offsets), u.ended) for u in uncommitted(events)) == ("flights-0[10,20)", "released")

    def test_G11_nor_is_the_death_of_that_member_a_moment_later(self) -> None:
        assert [u.ended for u in uncommitted([BATCH, at(Kind.RELEASED)])] == ["released"]

    @pytest.mark.parametrize(
        ("events", "ended"),
        [
            ([BATCH], ["silent"]),
            ([BATCH, at(Kind.COMMITTED, 19)], ["silent"]),
            ([BATCH, at(Kind.LOST)], ["lost"]),
            ([BATCH, at(Kind.LEASE_EXPIRED), at(Kind.FINISHED), at(Kind.ASSIGNED, 10)], ["expired"]),
            ([BATCH, at(Kind.LOST), at(Kind.ASSIGNED, 10), at(Kind.COMMITTED, 20)], ["lost"]),
            ([BATCH, at(Kind.ASSIGNED, 10), at(Kind.COMMITTED, 20)], ["lost"]),
            ([BATCH, at(Kind.MOVED), at(Kind.RELEASED), at(Kind.FINISHED)], ["moved"]),
            ([BATCH, at(Kind.RELEASED), at(Kind.COMMITTED), event(0, "a", Kind.CLOSED)], ["closed"]),
            ([BATCH, event(0, "a", Kind.CLOSED)], ["closed"]),
            ([BATCH, event(0, "a", Kind.CLOSING), at(Kind.RELEASED)], ["closed"]),
            ([BATCH, at(Kind.COMMITTED, 20, run="another")], ["silent"]),
        ],
    )
    def test_G12_what_others_may_read_again(self, events: list[Event], ended: list[str]) -> None:
        assert [u.ended for u in uncommitted(events)] == ended

    @pytest.mark.parametrize(
        "events",
        [
            [BATCH, at(Kind.FINISHED), at(Kind.COMMITTED, 20), at(Kind.RELEASED), event(0, "a", Kind.CLOSED)],
            [BATCH, at(Kind.FINISHED), at(Kind.COMMITTED, 25)],
            [planned(0, "a", 10, 10), at(Kind.RELEASED), *LIVES_ON[:1]],
            # Planned and never begun: the next batch replaces it.
            [
                BATCH,
                planned(0, "a", 10, 12),
                at(Kind.FINISHED),
                at(Kind.COMMITTED, 12),
                at(Kind.RELEASED),
                *LIVES_ON[:1],
            ],
        ],
    )
    def test_G12_what_is_committed_or_was_never_read_may_not(self, events: list[Event]) -> None:
        assert uncommitted(events) == []

    def test_a_batch_that_is_finished_stays_open_beside_the_next_one_until_it_is_committed(self) -> None:
        events = [BATCH, at(Kind.FINISHED), planned(0, "a", 20, 30), at(Kind.COMMITTED, 20)]
        assert [str(u.offsets) for u in uncommitted(events)] == ["flights-0[20,30)"]


def test_S6_a_batch_at_an_old_position_is_found() -> None:
    p, q = TopicPartition("t", 0), TopicPartition("t", 1)
    moves = [
        Event(5, "g", "a", "r", Kind.MOVED, {p: 0}, detail="1"),
        Event(9, "g", "b", "r", Kind.MOVED, {q: 0}, detail="1"),
    ]
    old = Event(3, "g", "b", "r", Kind.PLANNED, ranges=(OffsetRange(q, 50, 60),), batch=7)
    assert reads_at_old_places([*moves, old]) == []
    assert reads_at_old_places([*moves, old, Event(8, "g", "b", "r", Kind.FINISHED, batch=7)]) == [old]
