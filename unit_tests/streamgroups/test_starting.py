"""G1, G16, S4: from positions to offsets, and the look-up that asks the log."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamgroups.batches.starting import Bounds, resolve, times_asked
from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups.fakes import FakeClock, FakeCluster
from streamgroups.lookup import offsets_of
from streamgroups.partitions import TopicPartition
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
def test_G16_an_offset_that_is_not_there_is_refused(position: Position) -> None:
    with pytest.raises(InvalidOption, match=r"flights-0 has no offset \d+: it holds \[3, 9\)"):
        resolve(Positions(position), BOUNDS, {})


def test_S4_no_record_so_late_is_an_error_or_the_end() -> None:
    with pytest.raises(InvalidOption, match=r"no record at or after 1000.*startingOffsetsByTimestampStrategy=latest"):
        resolve(Positions(AtTime(1_000)), BOUNDS, {P0: None})
    lenient = Positions(AtTime(1_000), when_no_record_matches=WhenNoRecordMatches.LATEST)
    assert resolve(lenient, BOUNDS, {P0: None}) == {P0: 9}


def test_S4_positions_by_partition_name_exactly_the_partitions() -> None:
    with pytest.raises(InvalidOption, match="No position is given for flights-0"):
        resolve(Positions(None, {}), BOUNDS, {})
    with pytest.raises(InvalidOption, match="given for flights-1, which this query does not read"):
        resolve(Positions(TrimHorizon(), {P1: Latest()}), BOUNDS, {})


def test_only_times_are_asked_for() -> None:
    positions = Positions(Latest(), {P1: AtTime(5)})
    assert times_asked(positions, [P0, P1]) == {P1: 5}


class TestLookup:
    """``offsets_of`` on a log."""

    @pytest.fixture
    def cluster(self) -> FakeCluster:
        clock = FakeClock(100)
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

    def test_what_does_not_exist_is_told(self, cluster: FakeCluster) -> None:
        with pytest.raises(UnknownTopic, match="flights-2"):
            offsets_of(cluster, Positions(Latest()), [TopicPartition("flights", 2)])
