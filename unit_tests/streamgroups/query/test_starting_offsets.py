"""G1, G16, S4: from positions to offsets, and the look-up in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.partitions import Bounds, OffsetRange, TopicPartition
from streamgroups.positions import (
    AfterOffset,
    AtOffset,
    AtTime,
    Latest,
    Position,
    Positions,
    TrimHorizon,
    WhenNoRecordMatches,
)
from streamgroups.query.data_loss import LossPolicies, OnDataLoss
from streamgroups.query.offset_lookup import nearest_offsets, offsets_of, ranges_of, requested_times, resolve

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
BOUNDS = {P0: Bounds(3, 9)}


@pytest.mark.parametrize(
    ("position", "next_offset"),
    [
        (TrimHorizon(), 3),
        (Latest(), 9),
        (AtTime(1_000), 7),
        (AtOffset(3), 3),
        (AtOffset(9), 9),
        (AfterOffset(2), 3),
        (AfterOffset(8), 9),
    ],
)
def test_G1_G16_every_position_has_an_offset(position: Position, next_offset: int) -> None:
    assert resolve(Positions(position), BOUNDS, {P0: 7}) == {P0: next_offset}


@pytest.mark.parametrize("position", [AtOffset(2), AtOffset(10), AfterOffset(1), AfterOffset(9)])
def test_G16_an_offset_that_does_not_exist_is_rejected(position: Position) -> None:
    available = r"flights-0 has no offset \d+: the available offsets are \[3, 9\)\. .* earliest \(-2\) or latest \(-1\)"
    with pytest.raises(InvalidOption, match=available):
        resolve(Positions(position), BOUNDS, {})


def test_S4_no_record_so_late_is_an_error_or_the_end() -> None:
    with pytest.raises(InvalidOption, match=r"no record at or after 1000.*startingOffsetsByTimestampStrategy=latest"):
        resolve(Positions(AtTime(1_000)), BOUNDS, {P0: None})
    lenient = Positions(AtTime(1_000), when_no_record_matches=WhenNoRecordMatches.LATEST)
    assert resolve(lenient, BOUNDS, {P0: None}) == {P0: 9}


def test_S4_positions_by_partition_name_exactly_the_partitions() -> None:
    with pytest.raises(InvalidOption, match="The position of flights-0 is missing"):
        resolve(Positions(None, {}), BOUNDS, {})
    with pytest.raises(InvalidOption, match="contain flights-1, which this query does not read"):
        resolve(Positions(TrimHorizon(), {P1: Latest()}), BOUNDS, {})


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 30))
def test_S4_the_nearest_offset_is_one_that_the_partition_has(first: int, length: int, named: int) -> None:
    bounds = {P0: Bounds(first, first + length)}
    for position in (AtOffset(named), AfterOffset(named - 1)):
        moved = nearest_offsets(Positions(position), bounds)
        if first <= named <= first + length:
            assert moved == {}
            continue
        assert moved == {P0: (named, AtOffset(first if named < first else first + length))}
        assert resolve(Positions(moved[P0][1]), bounds, {})


def test_only_times_are_looked_up() -> None:
    positions = Positions(Latest(), {P1: AtTime(5)})
    assert requested_times(positions, [P0, P1]) == {P1: 5}


class TestLookup:
    """``offsets_of`` on a log."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock(100)

    @pytest.fixture
    def cluster(self, clock: FakeClock) -> FakeCluster:
        cluster = FakeCluster(clock)
        cluster.create_topic("flights", 2)
        for _ in range(3):
            cluster.produce(P0, 2)
            clock.advance(100)
        cluster.delete_records(P0, 1)
        return cluster

    def test_every_kind_of_position_is_looked_up(self, cluster: FakeCluster) -> None:
        found: list[Mapping[TopicPartition, int]] = [
            offsets_of(cluster, Positions(position, {P1: Latest()}), [P0, P1])
            for position in (TrimHorizon(), Latest(), AtTime(150), AtOffset(4))
        ]
        assert found == [{P0: 1, P1: 0}, {P0: 6, P1: 0}, {P0: 2, P1: 0}, {P0: 4, P1: 0}]

    def test_a_missing_topic_is_reported(self, cluster: FakeCluster) -> None:
        with pytest.raises(UnknownTopic, match="flights-2"):
            offsets_of(cluster, Positions(Latest()), [TopicPartition("flights", 2)])

    def test_S4_an_offset_that_is_not_there_is_moved_with_a_warning_if_loss_is_allowed(
        self, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        named = Positions(Latest(), {P0: AtOffset(0), P1: AtOffset(7)})
        with pytest.raises(InvalidOption, match="flights-0 has no offset 0"):
            offsets_of(cluster, named, [P0, P1])
        assert not caplog.messages
        with caplog.at_level(logging.WARNING):
            assert offsets_of(cluster, named, [P0, P1], on_data_loss=LossPolicies(OnDataLoss.EARLIEST)) == {
                P0: 1,
                P1: 0,
            }
        assert caplog.messages == [
            "flights-0 has no offset 0; offset 1 is used (onDataLoss=earliest)",
            "flights-1 has no offset 7; offset 0 is used (onDataLoss=earliest)",
        ]

    def test_S4_what_is_not_read_is_rejected_even_if_loss_is_allowed(self, cluster: FakeCluster) -> None:
        with pytest.raises(InvalidOption, match="flights-1, which this query does not read"):
            offsets_of(
                cluster,
                Positions(None, {P0: AtOffset(0), P1: AtOffset(0)}),
                [P0],
                on_data_loss=LossPolicies(OnDataLoss.EARLIEST),
            )
        with pytest.raises(InvalidOption, match="The position of flights-1 is missing"):
            offsets_of(
                cluster, Positions(None, {P0: AtOffset(0)}), [P0, P1], on_data_loss=LossPolicies(OnDataLoss.EARLIEST)
            )

    def test_S4_a_batch_read_goes_from_here_to_there(self, cluster: FakeCluster) -> None:
        ranges = ranges_of(cluster, Positions(TrimHorizon(), {P0: AtOffset(2)}), Positions(Latest()), [P1, P0])
        assert ranges == [OffsetRange(P0, 2, 6), OffsetRange(P1, 0, 0)]
        with pytest.raises(InvalidOption, match="flights-0: the starting offset 6 is greater than the ending offset 2"):
            ranges_of(cluster, Positions(Latest()), Positions(AtOffset(2)), [P0])

    @pytest.mark.parametrize("strategy", WhenNoRecordMatches)
    @pytest.mark.parametrize(
        ("starting", "ending"),
        [
            (AtTime(2_000), Latest()),
            (AtTime(2_000), AtTime(3_000)),
            (AtTime(2_000), AtOffset(6)),
            (AtTime(3_000), AtTime(3_000)),
        ],
    )
    def test_S4_records_that_are_published_during_the_look_up_are_not_in_a_batch_read(
        self,
        cluster: FakeCluster,
        clock: FakeClock,
        monkeypatch: pytest.MonkeyPatch,
        starting: Position,
        ending: Position,
        strategy: WhenNoRecordMatches,
    ) -> None:
        look_up = cluster.offsets_at_times

        def published_before(times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
            for time_ms in (1_990, 2_000, 3_000):
                clock.now_ms = time_ms
                cluster.produce(P0, 3)
            return look_up(times_ms)

        monkeypatch.setattr(cluster, "offsets_at_times", published_before)
        until = Positions(ending, when_no_record_matches=WhenNoRecordMatches.LATEST)
        ranges = ranges_of(cluster, Positions(starting, when_no_record_matches=strategy), until, [P0])
        assert ranges == [OffsetRange(P0, 6, 6)]

    def test_S4_a_stream_starts_at_its_time_also_if_the_record_is_published_during_the_look_up(
        self, cluster: FakeCluster, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ends = cluster.end_offsets

        def published_after(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            found = ends(partitions)
            for time_ms in (1_990, 2_000):
                clock.now_ms = time_ms
                cluster.produce(P0, 3)
            return found

        monkeypatch.setattr(cluster, "end_offsets", published_after)
        assert offsets_of(cluster, Positions(AtTime(2_000)), [P0]) == {P0: 9}

    def test_S4_a_batch_read_of_what_is_gone_and_of_what_is_yet_to_come(self, cluster: FakeCluster) -> None:
        gone, to_come = Positions(AtOffset(0)), Positions(AtOffset(9))
        assert ranges_of(cluster, gone, to_come, [P0], on_data_loss=LossPolicies(OnDataLoss.EARLIEST)) == [
            OffsetRange(P0, 1, 6)
        ]
        with pytest.raises(InvalidOption, match="flights-0 has no offset 0"):
            ranges_of(cluster, gone, to_come, [P0])

    def test_the_log_is_queried_once(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        requested: list[str] = []

        def counted(name: str) -> Callable[[Collection[TopicPartition]], dict[TopicPartition, int]]:
            answer: Callable[[Collection[TopicPartition]], dict[TopicPartition, int]] = getattr(cluster, name)
            return lambda partitions: (requested.append(name), answer(partitions))[1]

        for name in ("beginning_offsets", "end_offsets"):
            monkeypatch.setattr(cluster, name, counted(name))
        ranges_of(
            cluster,
            Positions(AtOffset(0)),
            Positions(AtOffset(9)),
            [P0],
            on_data_loss=LossPolicies(OnDataLoss.EARLIEST),
        )
        assert sorted(requested) == ["beginning_offsets", "end_offsets"]
