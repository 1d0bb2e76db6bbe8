"""S1, S5: what a restarted query leaves to its group is noted for its later runs; without the board it is read again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import pytest

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.skipped_ranges import MOST, Left
from streamgroups.coordination.reset_protocol import left_of
from streamgroups.errors import NotAuthorized
from streamgroups.fakes import FakeBoard
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.query.skipped_range_store import LeftRanges
from unit_tests.spark_model import World, tp

BATCH = BatchOffset(4, (OffsetRange(tp(0), 3, 9), OffsetRange(tp(1), 0, 2)))


class ClosedBoard:
    """A board that this user may not use."""

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        raise NotAuthorized(f"No access to group '{group_id}'.", remedy="Ask for Read.")

    def write(self, group_id: str, notes: Mapping[TopicPartition, Committed]) -> None:
        raise NotAuthorized(f"No access to group '{group_id}'.", remedy="Ask for Read.")

    def close(self) -> None:
        pass


@pytest.fixture
def board() -> FakeBoard:
    return World(2).board


def test_what_is_noted_is_known_of_that_batch_only(board: FakeBoard) -> None:
    left = LeftRanges(board, "airline")
    left.note(BATCH, [tp(1)])
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(1)]
    assert list(left.among(BatchOffset(5, BATCH.ranges), [tp(0), tp(1)])) == []
    assert list(LeftRanges(board, "hotel").among(BATCH, [tp(0), tp(1)])) == []


def test_several_queries_leave_the_same_partition(board: FakeBoard) -> None:
    left, other = LeftRanges(board, "airline"), BatchOffset(1, (OffsetRange(tp(0), 3, 5),))
    left.note(BATCH, [tp(0), tp(1)])
    left.note(other, [tp(0)])
    left.note(BATCH, [tp(1)])
    assert list(left.among(other, [tp(0)])) == [tp(0)]
    assert list(left.among(BATCH, [tp(0), tp(1)])) == [tp(1)]


def test_the_newest_are_kept_within_what_a_broker_allows() -> None:
    left = Left()
    for i in range(MOST + 5):
        left = left.plus(f"{i:016x}")
    assert left.batches[-1] == f"{MOST + 4:016x}"
    assert len(left.encode()) <= 4_096


def test_a_note_of_somebody_else_says_nothing(board: FakeBoard) -> None:
    board.write(left_of("airline"), {tp(0): Committed(3, "by hand")})
    assert list(LeftRanges(board, "airline").among(BATCH, [tp(0)])) == []


def test_without_the_board_the_unsure_is_read_again_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    left = LeftRanges(ClosedBoard(), "airline")
    with caplog.at_level(logging.WARNING):
        assert list(left.among(BATCH, [tp(1)])) == [tp(1)]
        left.note(BATCH, [tp(1)])
    first, second = caplog.messages
    assert "the skipped ranges of batch 4 in flights-1 could not be read" in first
    assert "the skipped ranges flights-1[0,2) could not be stored" in second
    assert "No access to group 'airline.streamgroups.left'" in second


def test_nothing_is_told_when_nothing_was_left(caplog: pytest.LogCaptureFixture) -> None:
    LeftRanges(ClosedBoard(), "airline").note(BATCH, [])
    assert caplog.messages == []
