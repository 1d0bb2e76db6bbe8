"""O3: what a lag is doing, by Burrow's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.lag import PartitionLag
from streamgroups.groups.membership import Origin, Owned
from streamgroups.monitoring.lag_states import LagHistory, LagState, Sample, judge, read_per_s, worst, written_at_ms
from streamgroups.monitoring.monitor import Monitor
from streamgroups.partitions import Bounds, TopicPartition

TP = TopicPartition("flights", 0)
STEP_MS = 30_000
WINDOW_MS = 4 * STEP_MS


def seen(*places: tuple[int, int]) -> list[Sample]:
    """One sample every half a minute: the position and the end."""
    return [Sample(STEP_MS * i, at, end - at, end) for i, (at, end) in enumerate(places)]


@pytest.mark.parametrize(
    ("samples", "owned", "expected"),
    [
        ([], True, LagState.UNKNOWN),
        (seen((5, 5), (5, 9), (5, 9), (5, 9), (5, 9)), False, LagState.OK),
        (seen((5, 9), (5, 9), (5, 5), (5, 9), (5, 9)), False, LagState.OK),
        (seen((5, 9), (6, 10)), True, LagState.UNKNOWN),
        (seen((5, 9), (5, 9), (5, 9)), True, LagState.STALLED),
        (seen((5, 9), (5, 9), (5, 9)), False, LagState.STOPPED),
        (seen((2, 9), (5, 9), (5, 9), (5, 9), (5, 9)), True, LagState.STALLED),
        (seen((2, 9), (3, 9), (4, 9), (5, 9), (5, 9)), True, LagState.OK),
        (seen((2, 9), (3, 10), (4, 11), (5, 13)), True, LagState.WARN),
        (seen((2, 9), (3, 12), (7, 13), (8, 20)), True, LagState.OK),
        (seen((8, 9), (2, 9), (5, 12)), True, LagState.REWOUND),
        (seen((8, 9), (2, 20), (9, 20)), True, LagState.OK),
    ],
)
def test_O3_every_rule(samples: list[Sample], owned: bool, expected: LagState) -> None:
    assert judge(samples, owned=owned, window_ms=WINDOW_MS) is expected


PLACES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


@given(PLACES, st.booleans())
def test_a_lag_that_was_gone_in_the_window_is_never_an_error(places: list[tuple[int, int]], owned: bool) -> None:
    samples = seen(*places)
    state = judge(samples, owned=owned, window_ms=WINDOW_MS)
    if any(s.records == 0 for s in samples):
        assert state is LagState.OK
    elif len(samples) < 3:
        assert state is LagState.UNKNOWN


@given(PLACES, st.booleans())
def test_a_reader_of_all_records_is_never_behind_for_long(places: list[tuple[int, int]], owned: bool) -> None:
    samples = seen(*places)
    caught_up = [*samples, Sample(STEP_MS * len(samples), 200, 0, 200)]
    assert judge(caught_up, owned=owned, window_ms=WINDOW_MS) is LagState.OK


@given(st.lists(st.sampled_from(list(LagState))))
def test_a_group_is_as_bad_as_its_worst_partition(states: list[LagState]) -> None:
    assert (worst(states) is LagState.OK) == (set(states) <= {LagState.OK})


@given(st.lists(st.integers(0, 100), min_size=2).map(sorted), st.integers(0, 100))
def test_an_offset_was_written_while_the_end_passed_it(ends: list[int], offset: int) -> None:
    samples = [Sample(1_000 * i, 0, end, end) for i, end in enumerate(ends)]
    written_ms = written_at_ms(samples, offset)
    if ends[0] <= offset < ends[-1]:
        assert written_ms is not None
        second = written_ms / 1_000
        assert ends[int(second)] <= offset or ends[max(int(second) - 1, 0)] <= offset
    else:
        assert written_ms is None


def test_rates() -> None:
    assert read_per_s(seen((0, 9))) is None
    assert read_per_s(seen((9, 9), (0, 9))) is None
    assert read_per_s(seen((0, 9), (60, 99))) == 2.0


def test_a_history_forgets_what_is_gone() -> None:
    history = LagHistory(WINDOW_MS)
    other = TopicPartition("flights", 1)
    for time_ms in (0, STEP_MS):
        history.add("g", time_ms, [PartitionLag(TP, 1, Bounds(0, 2)), PartitionLag(other, None, Bounds(0, 2))])
    assert (len(history.samples("g", TP)), history.samples("g", other)) == (2, [])
    history.add("g", 2 * STEP_MS, [])
    assert history.samples("g", TP) == []
    history.keep_only([])
    assert history.states("g", {}) == {}


class Watched:
    """A group of one member on a topic of one partition, polled every half a minute."""

    def __init__(self, reads: int = 1_000) -> None:
        self.clock = FakeClock(1_000_000)
        self.cluster = FakeCluster(self.clock)
        self.cluster.create_topic("flights", 1)
        self.cluster.produce(TP, 10)
        self.cluster.commit("board", {TP: 1})
        admin = FakeAdmin(self.cluster)
        self.monitor = Monitor(admin, admin, self.clock, window_ms=WINDOW_MS, reads=reads)

    def join(self) -> None:
        group = FakeGroup(self.cluster, "board")
        member = FakeMember(
            group,
            "alice",
            topics=lambda: ["flights"],
            first_positions=lambda missing: {tp: Owned(0, Origin.STARTING) for tp in missing},
        )
        member.join(1_000)
        group.settle()

    def poll(self, *, read: int = 0, written: int = 0) -> tuple[LagState, int | None, int | None]:
        self.clock.advance(STEP_MS)
        if written:
            self.cluster.produce(TP, written)
        if read:
            self.cluster.commit("board", {TP: self.cluster.all_committed("board")[TP].next_offset + read})
        (group,) = self.monitor.poll()
        return group.state, group.snapshot.records, group.time_lag_ms


def test_a_monitor_sees_a_group_stall_stop_and_recover() -> None:
    watched = Watched()
    watched.join()
    assert watched.poll() == (LagState.UNKNOWN, 9, STEP_MS)
    watched.poll()
    assert watched.poll(written=1) == (LagState.STALLED, 10, 3 * STEP_MS)
    assert watched.poll(read=10) == (LagState.OK, 0, 0)
    abandoned = Watched()
    for _ in range(3):
        state, _, _ = abandoned.poll()
    assert state is LagState.STOPPED


def test_where_nothing_may_be_read_the_time_comes_from_the_ends() -> None:
    watched = Watched(reads=0)
    assert watched.poll(read=5) == (LagState.STOPPED, 4, None)
    watched.poll(written=100)
    _, records, time_lag_ms = watched.poll(read=54)
    assert records == 50
    assert time_lag_ms is not None
    # Half of the records that were written between the first two polls is read.
    assert STEP_MS <= time_lag_ms <= 2 * STEP_MS


def test_a_record_that_is_known_is_not_read_again() -> None:
    watched = Watched()
    requested = []
    first_records = FakeAdmin.first_records
    admin = FakeAdmin(watched.cluster)
    admin.first_records = lambda offsets: requested.append(dict(offsets)) or first_records(admin, offsets)  # type: ignore[func-returns-value,method-assign]
    monitor = Monitor(admin, admin, watched.clock)
    for _ in range(3):
        monitor.poll(["board"])
    assert requested == [{TP: 1}]
    watched.cluster.commit("board", {TP: 4})
    monitor.poll(["board"])
    assert requested == [{TP: 1}, {TP: 4}]


def test_O3_a_group_without_members_is_stopped_with_the_first_poll() -> None:
    def state(*positions: int, records: int = 5, has_members: bool = False) -> LagState:
        samples = [Sample(1_000 * n, at, records, at + records) for n, at in enumerate(positions)]
        return judge(samples, owned=False, has_members=has_members)

    assert state(4) is state(4, 4) is LagState.STOPPED
    assert state(4, has_members=True) is LagState.UNKNOWN, "a rebalance takes the owners for a moment"
    assert state(4, 6) is LagState.UNKNOWN, "a program commits without members"
    assert state(4, records=0) is LagState.OK
    assert state() is LagState.UNKNOWN
